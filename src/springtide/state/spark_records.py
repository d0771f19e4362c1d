"""Spark's own records of what it reads: its offsets, its commits, and the logs of its sources.

Spark writes them into a folder of the run's own, where the Spark of no other run comes across them. Before an epoch is committed, those of its micro-batch are
copied to where they are kept, each under a name that only this run writes:

    spark-runs/4f1c…/offsets/7    what Spark of a run at work says of micro-batch 7
    spark/offsets/7               what it said in the first run
    spark/offsets/7~3             what it said in the run of generation 3: of several, that of the newest run counts

So a run that lost the checkpoint overwrites nothing of a newer one, however late it wakes up.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from springtide.state import names
from springtide.state.claims import Lease
from springtide.state.log import FIRST
from springtide.state.stores import Store

REMEMBERED = 100
"""Micro-batches of which Spark keeps records."""
_LAST = ("offsets", "commits")
"""Folders whose records refer to those in other folders, and then to each other."""


class SparkRecords:
    """The records of one run: where its Spark writes, and what the checkpoint keeps of that."""

    def __init__(self, root: Path, lease: Lease) -> None:
        """Give Spark of a run on the checkpoint's folder `root` a folder, with the records of the last run, and remove what runs that were killed left."""
        runs = root / names.SPARK_RUNS
        left = [*runs.iterdir()] if runs.is_dir() else []
        lease.check()  # after the listing: the folder of a newer run is not in it
        for folder in left:
            shutil.rmtree(folder, ignore_errors=True)
        self._store, self.own = Store.at(root), runs / uuid.uuid4().hex
        self._kept: set[str] = set()
        self.own.mkdir(parents=True)
        for record, file in valid_files(self._store.list(names.SPARK)).items():
            (self.own / record).parent.mkdir(parents=True, exist_ok=True)
            (self.own / record).write_bytes(self._store.read(file))
            self._kept.add(record)

    def keep(self, lease: Lease) -> None:
        """Keep what Spark has written since the last time, durably."""
        made = []
        for record in in_order(self._written() - self._kept):
            with suppress(FileNotFoundError):  # Spark has forgotten it meanwhile
                data = (self.own / record).read_bytes()
                made.append(names.spark_record(record, lease.generation))
                self._store.write(made[-1], data)
            self._kept.add(record)
        self._store.flush_names(made)

    def forget(self, batch: int, lease: Lease) -> None:
        """Remove records from long before a micro-batch that Spark has forgotten; every hundred micro-batches."""
        if batch % REMEMBERED:
            return
        written = self._written()
        old = [f for f in self._store.list(names.SPARK) if is_old(f, batch) and record_of(f)[0] not in written]
        lease.check()
        self._store.delete(*old)

    def close(self) -> None:
        """Remove the run's own folder: what counts of it is kept."""
        shutil.rmtree(self.own, ignore_errors=True)
        with suppress(OSError):  # another run has a folder there
            self.own.parent.rmdir()

    def _written(self) -> set[str]:
        files = {f.relative_to(self.own).as_posix() for f in self.own.rglob("*") if f.is_file()}
        return {f for f in files if not _is_unfinished(f)}


def valid_files(files: Iterable[str]) -> dict[str, str]:
    """Return the records that were kept, each with the file that counts; files that Spark has not finished are none.

    >>> valid_files(["spark/offsets/7", "spark/offsets/7~10", "spark/offsets/7~9", "spark/offsets/.8.tmp"])
    {'offsets/7': 'spark/offsets/7~10'}
    """
    found: dict[str, tuple[int, str]] = {}
    for file in files:
        record, generation = record_of(file)
        if not _is_unfinished(record):
            found[record] = max(found.get(record, (0, "")), (generation, file))
    return {record: file for record, (_, file) in found.items()}


def record_of(file: str) -> tuple[str, int]:
    """Return which record a file has, and the generation of the run that kept it.

    >>> record_of("spark/offsets/7"), record_of("spark/sources/0/9.compact~3")
    (('offsets/7', 1), ('sources/0/9.compact', 3))
    """
    name, _, generation = file.removeprefix(f"{names.SPARK}/").partition("~")
    return name, int(generation) if generation.isdecimal() else FIRST


def number_of(record: str) -> int | None:
    """Return the number of a record in its folder; None if it has none.

    >>> number_of("sources/0/9.compact"), number_of("metadata")
    (9, None)
    """
    found = re.fullmatch(r"(\d+)(\.compact)?", record.rpartition("/")[2])
    return int(found[1]) if found else None


def in_order(files: Iterable[str]) -> list[str]:
    """Return records, or files with them, so that each comes after those that it refers to.

    >>> in_order(["commits/6", "offsets/7", "sources/0/7"])
    ['sources/0/7', 'offsets/7', 'commits/6']
    """

    def order(file: str) -> tuple[int, str]:
        folder = record_of(file)[0].partition("/")[0]
        return _LAST.index(folder) + 1 if folder in _LAST else 0, file

    return sorted(files, key=order)


def is_old(file: str, batch: int) -> bool:
    """Return whether a file may go once Spark has forgotten the record in it: one of something long before a micro-batch, or of nothing that has a number.

    >>> is_old("spark/offsets/7~3", 207), is_old("spark/offsets/7~3", 208), is_old("spark/metadata", 0)
    (False, True, True)
    """
    number = re.match(r"\d+(?=\.|$)", record_of(file)[0].rpartition("/")[2])
    return number is None or int(number[0]) < batch - 2 * REMEMBERED


def _is_unfinished(record: str) -> bool:
    name = record.rpartition("/")[2]
    return name.startswith(".") or ".tmp" in name
