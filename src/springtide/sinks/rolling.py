"""Files of a decent size: the rows of epochs are held back under hidden names and put together, by time or by size.

    hold      an epoch's files are published as usual (stage, record, reveal), but under hidden names
    roll      when it is time, they are put together in a hidden folder, durable; the ledger records that, in one step;
              the new files get the names that readers see, and what they were made from is removed

A start finishes a roll that was recorded, and forgets one that was not. A stale run cannot record one: by then the ledger belongs to another.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import polars as pl

from springtide.connectors import flush
from springtide.query.errors import QueryError, shown
from springtide.query.types import Length, micros, type_text
from springtide.sinks.partitions import folders

_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(KB|MB|GB)")
_LARGE = 256 * 10**6
"""The most bytes that are held back if only a time is given."""


@dataclass(frozen=True)
class Layout:
    """How files are arranged in a folder."""

    partition_by: tuple[str, ...] = ()
    seconds: float | None = None
    bytes: int | None = None
    clock: Callable[[], float] = time.time

    @property
    def holds(self) -> bool:
        """Whether files are held back: to put them together, or to distribute their rows to folders."""
        return bool(self.partition_by) or self.seconds is not None or self.bytes is not None

    @property
    def waits(self) -> bool:
        """Whether files are held back for longer than their epoch."""
        return self.seconds is not None or self.bytes is not None

    def due(self, held: int, since: float) -> bool:
        """Tell whether it is time to put together what is held back, given its bytes and since when it waits."""
        if self.seconds is None and self.bytes is None:
            return True
        is_old = self.seconds is not None and self.clock() - since >= self.seconds
        return is_old or held >= (_LARGE if self.bytes is None else self.bytes)

    def refusal(self, schema: pl.Schema) -> str | None:
        """Say why rows with these columns cannot be distributed to folders; None: they can."""
        for name in self.partition_by:
            if name not in schema:
                return f"there is no column {name!r} to partition by"
            dtype = schema[name]
            if not (dtype.is_integer() or dtype in (pl.String, pl.Boolean, pl.Date, pl.Categorical, pl.Enum)):
                return f"{name!r} is {type_text(dtype)}, but files can only be partitioned by strings, integers, dates or booleans"
        if self.partition_by and not set(schema) - set(self.partition_by):
            return "every column is in partition_by; at least one must be left for the files"
        return None


def layout_of(partition_by: Any, roll: Length | None) -> Layout:
    """Take the options of a sink as users write them."""
    names = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise QueryError(
            "(parquet_sink)",
            f"partition_by={shown(partition_by)} does not name different columns",
            "write partition_by='day' or ['day', 'kind']",
        )
    if roll is None:
        return Layout(names)
    if isinstance(roll, str) and (size := _SIZE.fullmatch(roll)) is not None:
        seconds, held = None, round(float(size[1]) * _UNITS[size[2]])
    else:
        seconds, held = _seconds(roll), None
    if not (held or seconds):
        raise QueryError("(parquet_sink)", f"roll={shown(roll)} is not above zero", "write a time or a size above zero")
    return Layout(names, seconds, held)


def _seconds(roll: Any) -> float:
    try:
        if not isinstance(roll, str | timedelta):
            raise TypeError
        return max(0.0, micros(roll) / 1e6)
    except (TypeError, ValueError):
        hint = "write a time such as '5m' or a size such as '128MB'"
        raise QueryError("(parquet_sink)", f"roll={shown(roll)} is neither a time nor a size", hint) from None


def write_rolled(held: Sequence[Path], staging: Path, partition_by: Sequence[str], last: int) -> None:
    """Put files together in a new folder, durable; one file for each combination of values, in folders named in Hive's style.

    Those of another form of the query, which had other columns, and died, are put into files of their own.
    """
    staging.mkdir()
    schemas = [pl.scan_parquet(file, glob=False).collect_schema() for file in held]
    for number, (schema, group) in enumerate(groupby(range(len(held)), schemas.__getitem__)):
        files, name = [held[n] for n in group], f"part-{last:09d}-{number:04d}.rolled"
        if partition_by and set(partition_by) <= schema.keys():
            rows = pl.concat([pl.read_parquet(file, glob=False) for file in files])
            for values, part in rows.partition_by(list(partition_by), as_dict=True, maintain_order=True).items():
                folder = staging.joinpath(*folders(partition_by, values))
                folder.mkdir(parents=True, exist_ok=True)
                _write(part.drop(partition_by), folder / name)
        elif len(files) == 1:
            shutil.copyfile(files[0], staging / name)
            flush(staging / name)
        else:
            pl.scan_parquet([str(file) for file in files], glob=False).sink_parquet(
                staging / name, compression="zstd", compression_level=1, statistics=True
            )
            flush(staging / name)
    for place, _, _ in os.walk(staging):
        flush(Path(place))


def _write(rows: pl.DataFrame, path: Path) -> None:
    rows.write_parquet(path, compression="zstd", compression_level=1, statistics=True)
    flush(path)
