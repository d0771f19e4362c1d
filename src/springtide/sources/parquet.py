"""Parquet files, read without the JVM."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from springtide.connectors import CheckpointError, Read, Slice, rows_as_json
from springtide.connectors.file_ledger import FoundFile
from springtide.query.errors import QueryError, SpringtideError
from springtide.query.types import FIRST_TIME, LAST_TIME, schema_from, type_text
from springtide.query.usage import usage
from springtide.sources.files import FileSource, RowRange
from springtide.sources.places import Place, StorePlace, place_of
from springtide.sources.row_groups import TOGETHER, footer, scanned


@dataclass(frozen=True, eq=False, kw_only=True)
class Parquet(FileSource):
    """The Parquet files of a folder or pattern."""

    kind: ClassVar[str] = "parquet"
    suffixes: ClassVar[tuple[str, ...]] = (".parquet",)

    declared: pl.Schema | None

    def schema(self) -> pl.Schema:
        """Names and types of the columns: as declared, or those that the first file had when it was first asked for them."""
        return self._columns

    @cached_property
    def _columns(self) -> pl.Schema:
        if self.declared is not None:
            return self.declared
        try:
            listed = self.where.listed(self.suffixes)
        except CheckpointError as error:
            raise QueryError("(parquet)", f"{error.path} {error.problem}", error.hint) from None
        if not listed:
            raise QueryError(
                "(parquet)",
                f"there is no Parquet file in {self.path}",
                "check the path, or give schema={'ts': st.TIME, ...} to start before there are files",
            )
        name, path = next(iter(listed.items()))
        first = self.where.look(name, path)
        try:
            return _schema(self.where, path, first)
        except (OSError, pl.exceptions.PolarsError) as error:
            problem = f"{path} cannot be read ({str(error).splitlines()[0]})"
            raise QueryError("(parquet)", problem, "check that it is a Parquet file") from None

    def pieces(self, file: FoundFile, ts: str | None, *, whole: bool) -> tuple[RowRange, ...] | None:
        """List the row groups of a file; None if it cannot be read yet and the folder is followed."""
        groups = self._row_groups(file, ts)
        if groups is None or ts is None or not self._misfits(_schema(self.where, file.path, file)):
            return groups
        return tuple(RowRange(g.first, g.rows) for g in groups)  # rows that are rejected do not move time

    def _row_groups(self, file: FoundFile, ts: str | None) -> tuple[RowRange, ...] | None:
        try:
            return _row_groups(self.where, file.path, file, ts)
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, FileNotFoundError) or (isinstance(error, OSError) and error.errno is not None):
                raise  # a fault of the disk, not of the file
            if self.follow:  # it is waited for, while the others are read
                return None
            problem = str(error).splitlines()[0]
            raise SpringtideError(f"{file.path} is not a Parquet file ({problem}); repair or remove it") from None

    def rows_in(self, file: FoundFile, ts: str | None) -> int:
        """Count the rows of a file, and keep what `pieces` will ask for."""
        return sum(group.rows for group in self._row_groups(file, ts) or ())

    def place(self, file: FoundFile, start: int, stop: int) -> list[Any]:
        """Return where a task finds rows."""
        return [file.path, start, file.size, file.tag] if file.tag else [file.path, start, file.size]

    def joined(self, one: Slice, other: Slice) -> list[Any] | None:
        """Read row groups of a file together, while they are not many rows."""
        file, start, *known = one.data
        fits = one.rows + other.rows <= TOGETHER and other.data == [file, start + one.rows, *known]
        return list(one.data) if fits else None

    def read(self, part: Slice) -> Read:
        """Scan the rows lazily: only the columns that the query needs are read."""
        file, start, *known = part.data  # older manifests have no size
        now = self.where.now(file)
        if now is None:
            raise FileNotFoundError(f"{file} is gone")
        if known and [now.size, now.tag] != [*known, ""][:2]:
            raise SpringtideError(
                f"{file} was changed while it was read; write new files under new names, and start again to continue"
            )
        if isinstance(self.where, StorePlace):
            frame, found = scanned(self.where, now, start, part.rows)
        else:
            frame = pl.scan_parquet(file, glob=False)
            found = frame.collect_schema()
            frame = frame.slice(start, part.rows)
        columns = self.schema()
        if wrong := self._misfits(found):
            return Read(
                pl.LazyFrame(schema=columns),
                _all_rejected(frame, part, f"{os.path.basename(file)}: {'; '.join(wrong)}"),
            )
        if len(found) < len(columns):
            frame = frame.with_columns([pl.lit(None, dtype=t).alias(n) for n, t in columns.items() if n not in found])
        return Read(frame.select(list(columns)) if list(found) != list(columns) else frame)

    def _misfits(self, found: pl.Schema) -> list[str]:
        """Return why no row of a file with this schema fits."""
        columns = self.schema()
        other = [(n, t) for n, t in columns.items() if n in found and found[n] != t]
        wrong = [f"column {n!r} is {type_text(found[n])}, not {type_text(t)}" for n, t in other]
        return wrong + [f"there is no column {n!r} in the source's schema" for n in found if n not in columns]


@usage("st.parquet('calls/')")
def parquet(
    path: str | Path,
    *,
    schema: Mapping[str, Any] | None = None,
    follow: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Parquet:
    """Read the Parquet files of a folder (or a file, or a pattern), in the order of their names.

    The input ends with the last file; with `follow` the query waits for new ones, under whatever names: each is read once, in the order in
    which they come. If a file cannot be read yet, others are read in the meantime; without `follow`, such a file is an error.

    The path may be the address of an object store, `s3://bucket/folder`, with `storage_options` if the environment and profiles do not
    say enough. A file appears whole there; the folder is listed about once a second.

    >>> st.parquet("cdr/", schema={"src": pl.String, "ts": st.TIME}).describe()
    'parquet cdr/'
    """
    declared = None if schema is None else schema_from("(parquet)", "schema", schema)
    return Parquet(where=place_of("parquet", path, storage_options), follow=follow, declared=declared)


@lru_cache(maxsize=65536)
def _schema(where: Place, path: str, version: FoundFile | None) -> pl.Schema:
    return pl.scan_parquet(footer(where, path, version), glob=False).collect_schema()  # a file's name is no pattern


@lru_cache(maxsize=65536)
def _row_groups(where: Place, path: str, version: FoundFile, ts: str | None) -> tuple[RowRange, ...]:
    return row_groups(pq.ParquetFile(footer(where, path, version)).metadata, ts)


def row_groups(meta: Any, ts: str | None) -> tuple[RowRange, ...]:
    """List the row groups that a file says it has, with the greatest time in each."""
    names = [meta.schema.column(i).path for i in range(meta.num_columns)]
    column = names.index(ts) if ts in names else None
    groups, first = [], 0
    for i in range(meta.num_row_groups):
        group = meta.row_group(i)
        statistics = group.column(column).statistics if column is not None else None
        greatest = None
        if statistics is not None and statistics.has_min_max:
            greatest = _micros(statistics.max_raw, meta.schema.column(column))
        groups.append(RowRange(first, group.num_rows, greatest))
        first += group.num_rows
    return tuple(groups)


def _micros(value: Any, column: Any) -> int | None:
    """Return the greatest time of a row group; None if the file does not say, or if a row with that time is rejected."""
    if not isinstance(value, int):
        return None
    logical = json.loads(column.logical_type.to_json())
    if logical["Type"] == "Timestamp":
        unit = logical["timeUnit"]
        value = value // 1_000 if unit == "nanoseconds" else value * 1_000 if unit == "milliseconds" else value
    elif logical["Type"] not in ("None", "Int"):
        return None
    return value if FIRST_TIME <= value <= LAST_TIME else None


def _all_rejected(frame: pl.LazyFrame, part: Slice, reason: str) -> tuple[dict[str, Any], ...]:
    texts = rows_as_json(frame.collect())
    return tuple({"position": part.position + i, "reason": reason, "row": text} for i, text in enumerate(texts))
