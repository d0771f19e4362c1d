"""Spark's own records of what it reads: its offsets, its commits, and the logs of its sources.

Spark writes them into a folder of the run's own, where the Spark of no other run comes across them. Before an epoch is committed, those of its micro-batch are
copied to where they are kept, each under a name that only this run writes:

    spark-runs/4f1c…/offsets/7    what Spark of a run at work says of micro-batch 7; if the checkpoint is in an object store, this is among the temporary files
    spark/offsets/7               what it said in the first run
    spark/offsets/7~3             what it said in the run of generation 3: of several, that of the newest run counts

So a run that lost the checkpoint overwrites nothing of a newer one, however late it wakes up.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterable
from contextlib import suppress
from itertools import groupby
from pathlib import Path

from springtide.state import names
from springtide.state.claims import Lease
from springtide.state.errors import CheckpointError
from springtide.state.log import FIRST
from springtide.state.manifest import Manifest
from springtide.state.stores import Store

REMEMBERED = 100
"""Micro-batches of which Spark keeps records."""
_LAST = ("offsets", "commits")
"""Folders whose records refer to those in other folders, and then to each other."""


class SparkRecords:
    """The records of one run: where its Spark writes, and what the checkpoint keeps of that."""

    def __init__(self, root: Path, lease: Lease, *, apart: bool = False) -> None:
        """Give Spark of a run on the checkpoint's folder `root` a folder, with the records of the last run, and remove what runs that were killed left.

        It is `apart` from a cache, which may be deleted while the query runs: among the temporary files.
        """
        digest = hashlib.blake2b(str(root).encode(errors="surrogateescape"), digest_size=6).hexdigest()
        runs, whose = (Path(tempfile.gettempdir()), f"springtide-{os.getuid()}-spark-{digest}-")
        if not apart:
            runs, whose = root / names.SPARK_RUNS, ""
        left = [*runs.glob(f"{whose}*")]
        lease.check()  # after the listing: the folder of a newer run is not in it
        for folder in left:
            shutil.rmtree(folder, ignore_errors=True)
        self._store, self.own = Store.at(root), runs / f"{whose}{uuid.uuid4().hex}"
        self._seen: set[str] = set()
        """What Spark had in its folder when it was last looked at."""
        self.own.mkdir(mode=0o700, parents=True)
        self._files = valid_files(self._store.list(names.SPARK))
        """The records that are kept, each with its file."""
        for record, file in self._files.items():
            (self.own / record).parent.mkdir(parents=True, exist_ok=True)
            (self.own / record).write_bytes(self._store.read(file))

    @property
    def files(self) -> list[str]:
        """The files that are kept and count."""
        return [*self._files.values()]

    def fit(self, manifest: Manifest) -> bool:
        """Return whether they are those with which the last micro-batch of a manifest was taken."""
        if manifest.batch is None:
            return True
        found = digest(self.own, manifest.batch)
        return found is not None and found == (manifest.offsets or found)

    def keep(self, lease: Lease, batch: int) -> dict[str, bytes]:
        """Keep what Spark has written up to a micro-batch, durably: none of it counts before what it refers to is there. Return what is new, by file.

        What it says of the micro-batch must be there, and nothing else may be lost: an epoch without it could be committed, but never be continued.
        """
        self._seen = self._written()
        if not self._is_intact(batch):
            raise self._lost(lease, batch)
        new = {}
        for _, records in groupby(in_order(self._seen - self._files.keys()), _rank):
            made = {}
            for record in records:
                try:
                    data = (self.own / record).read_bytes()
                except FileNotFoundError:
                    if number_of(record) is None:
                        continue  # Spark has forgotten it meanwhile
                    raise self._lost(lease, batch) from None
                made[record] = names.spark_record(record, lease.generation)
                self._store.write(made[record], data)
                new[made[record]] = data
            self._store.flush_names(made.values())
            self._files |= made
        return new

    def forget(self, batch: int, lease: Lease) -> None:
        """Remove what Spark has forgotten, every hundred micro-batches."""
        if batch % REMEMBERED == 0 and (old := self.forgotten(self._store.list(names.SPARK), batch)):
            lease.check()
            self._store.delete(*old)
            self._files = {record: file for record, file in self._files.items() if file not in old}

    def forgotten(self, files: Iterable[str], batch: int) -> set[str]:
        """Return those of some kept files whose records are from long before a micro-batch and that Spark had forgotten when they were last kept.

        Every hundred micro-batches; at other times none.
        """
        if batch % REMEMBERED or not self._is_intact(batch):
            return set()
        return {f for f in files if is_old(f, batch) and self._has_forgotten(record_of(f)[0])}

    def close(self) -> None:
        """Remove the run's own folder: what counts of it is kept."""
        shutil.rmtree(self.own, ignore_errors=True)
        if self.own.parent.name == names.SPARK_RUNS:
            with suppress(OSError):  # another run has a folder there
                self.own.parent.rmdir()

    def _written(self) -> set[str]:
        files = {f.relative_to(self.own).as_posix() for f in self.own.rglob("*") if f.is_file()}
        return {f for f in files if not _is_unfinished(f)}

    def _is_intact(self, batch: int) -> bool:
        """Return whether the run's folder has what Spark says of a micro-batch, and has lost nothing that Spark itself would not remove."""
        return f"offsets/{batch}" in self._seen and _folders(self._files) <= _folders(self._seen)

    def _lost(self, lease: Lease, batch: int) -> CheckpointError:
        lease.check()  # a newer run removes the folder
        return CheckpointError(
            str(self.own),
            f"has lost what Spark said of micro-batch {batch} or of earlier ones: somebody removed it while the query ran",
            "start again: the query continues from its last committed epoch",
        )

    def _has_forgotten(self, record: str) -> bool:
        """Return whether Spark itself has removed a record: it always leaves others in the same folder."""
        return record not in self._seen and _folders([record]) <= _folders(self._seen)


def digest(own: Path, number: int) -> str | None:
    """Return a digest of Spark's record of a micro-batch, written before it ran to the run's own folder; None if there is none.

    The offsets and the time of day are in it: a micro-batch that is repeated has the same, another one with its number has not.
    """
    try:
        return hashlib.sha256((own / "offsets" / str(number)).read_bytes()).hexdigest()[:32]
    except OSError:
        return None


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
    return sorted(files, key=lambda file: (_rank(file), file))


def is_old(file: str, batch: int) -> bool:
    """Return whether a file may go once Spark has forgotten the record in it: one of something long before a micro-batch, or of nothing that has a number.

    >>> is_old("spark/offsets/7~3", 207), is_old("spark/offsets/7~3", 208), is_old("spark/metadata", 0)
    (False, True, True)
    """
    number = re.match(r"\d+(?=\.|$)", record_of(file)[0].rpartition("/")[2])
    return number is None or int(number[0]) < batch - 2 * REMEMBERED


def _rank(file: str) -> int:
    folder = record_of(file)[0].partition("/")[0]
    return _LAST.index(folder) + 1 if folder in _LAST else 0


def _folders(records: Iterable[str]) -> set[str]:
    return {record.rpartition("/")[0] for record in records}


def _is_unfinished(record: str) -> bool:
    name = record.rpartition("/")[2]
    return name.startswith(".") or ".tmp" in name
