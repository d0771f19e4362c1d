"""Parquet files, read past the JVM."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from springtide.kernels.slices import ONE_STREAM, Read, Slice, Take
from springtide.query.connectors import Rows
from springtide.query.errors import QueryError, shown
from springtide.query.types import END_OF_TIME, schema_from, type_text

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, eq=False)
class Parquet:
    """The Parquet files of a folder or pattern: one physical stream, files in the order of their names."""

    path: str
    declared: pl.Schema | None
    follow: bool = False
    positions: bool = True

    def files(self) -> list[str]:
        """List the files that are there now, in order."""
        path = Path(self.path)
        if path.is_dir():
            return sorted(str(f) for f in path.glob("*.parquet") if not f.name.startswith((".", "_")))
        return sorted(glob.glob(self.path))

    def schema(self) -> pl.Schema:
        """Names and types of the columns: as declared, or those of the first file."""
        if self.declared is not None:
            return self.declared
        files = self.files()
        if not files:
            raise QueryError(
                "(parquet)",
                f"there is no Parquet file in {self.path}",
                "check the path, or give schema={'ts': st.TIME, ...} to start before files come",
            )
        try:
            return pl.Schema(pl.read_parquet_schema(files[0]))
        except (OSError, pl.exceptions.PolarsError) as error:
            problem = f"{files[0]} cannot be read ({str(error).splitlines()[0]})"
            raise QueryError("(parquet)", problem, "check that it is a Parquet file") from None

    def describe(self) -> str:
        """Say which files."""
        return f"parquet {self.path}{', followed' if self.follow else ''}"

    def read_all(self) -> Mapping[str, Rows]:
        """Read all files that are there now."""
        frames = [pl.read_parquet(f) for f in self.files()]
        return {ONE_STREAM: pl.concat(frames) if frames else pl.DataFrame(schema=self.schema())}

    def take(self, position: Any, limit: int, ts: str | None) -> Take:
        """Take the next row groups."""
        at = position or {"file": "", "row": 0, "rows": 0}
        slices: list[Slice] = []
        backlog, taken, total = 0, 0, at["rows"]
        for file in self.files():
            if file < at["file"]:
                continue
            skip = at["row"] if file == at["file"] else 0
            for first, rows, greatest in _row_groups(file, os.stat(file).st_mtime_ns, ts):
                if first + rows <= skip:
                    continue
                start, end = max(first, skip), first + rows
                if taken >= limit:
                    backlog += end - start
                    continue
                cut = min(end, start + limit - taken)
                whole = (start, cut) == (first, end)
                slices.append(Slice(ONE_STREAM, total, cut - start, [file, start], greatest if whole else None))
                taken, total = taken + cut - start, total + cut - start
                backlog += end - cut
                at = {"file": file, "row": cut, "rows": total}
        ended = not self.follow and backlog == 0
        times = {ONE_STREAM: END_OF_TIME} if ended else {}
        return Take(tuple(slices), at, times, (ONE_STREAM,), ended, backlog)

    def read(self, part: Slice) -> Read:
        """Scan the rows lazily: only the columns that the query needs are read."""
        file, start = part.data
        frame = pl.scan_parquet(file)
        found = frame.collect_schema()
        columns = self.schema()
        wrong = [
            f"column {n!r} is {type_text(found[n])}, not {type_text(t)}"
            for n, t in columns.items()
            if n in found and found[n] != t
        ]
        wrong += [f"there is no column {n!r} in the source's schema" for n in found if n not in columns]
        frame = frame.slice(start, part.rows)
        if wrong:
            return Read(
                pl.LazyFrame(schema=columns),
                _all_rejected(frame, part, f"{os.path.basename(file)}: {'; '.join(wrong)}"),
            )
        if len(found) < len(columns):
            frame = frame.with_columns([pl.lit(None, dtype=t).alias(n) for n, t in columns.items() if n not in found])
        return Read(frame.select(list(columns)) if list(found) != list(columns) else frame)


def parquet(path: str | Path, *, schema: Mapping[str, Any] | None = None, follow: bool = False) -> Parquet:
    """Read the Parquet files of a folder (or a file, or a pattern), in the order of their names.

    The input ends with the last file; with `follow` the query waits for new ones, whose names must sort after those before.

    >>> st.parquet("cdr/", schema={"src": pl.String, "ts": st.TIME}).describe()
    'parquet cdr/'
    """
    if not isinstance(path, str | Path) or not str(path):
        raise QueryError("(parquet)", f"{shown(path)} is not a path", "give the folder, a file or a pattern")
    return Parquet(str(path), None if schema is None else schema_from("(parquet)", "schema", schema), follow)


@lru_cache(maxsize=4096)
def _row_groups(file: str, changed: int, ts: str | None) -> tuple[tuple[int, int, int | None], ...]:
    """List the row groups of a file: first row, rows, greatest ts if the file says."""
    meta = pq.ParquetFile(file).metadata
    names = [meta.schema.column(i).path for i in range(meta.num_columns)]
    column = names.index(ts) if ts in names else None
    groups, first = [], 0
    for i in range(meta.num_row_groups):
        group = meta.row_group(i)
        statistics = group.column(column).statistics if column is not None else None
        greatest = _micros(statistics.max) if statistics is not None and statistics.has_min_max else None
        groups.append((first, group.num_rows, greatest))
        first += group.num_rows
    return tuple(groups)


def _micros(value: Any) -> int | None:
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(microseconds=1)
    return value if isinstance(value, int) else None


def _all_rejected(frame: pl.LazyFrame, part: Slice, reason: str) -> tuple[dict[str, Any], ...]:
    texts = frame.select(pl.struct(pl.all()).struct.json_encode()).collect().to_series()
    return tuple({"position": part.position + i, "reason": reason, "row": text} for i, text in enumerate(texts))
