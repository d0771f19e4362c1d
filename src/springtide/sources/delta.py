"""A Delta table as input: as it is when the query begins, and then, if it is followed, the rows that each new version adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import polars as pl

from springtide.connectors import Feed, Owner, Read, Secret, Slice, Source
from springtide.query.errors import QueryError, shown
from springtide.query.usage import usage
from springtide.sources.delta_feed import DeltaFeed, lost
from springtide.sources.delta_log import columns_of, unreadable
from springtide.sources.row_groups import TOGETHER
from springtide.tables.delta import DeltaPlace, delta_place

_STEP = "(delta)"


@dataclass(frozen=True, eq=False, kw_only=True)
class Delta(Source):
    """A Delta table."""

    table: DeltaPlace
    follow: bool = False
    start: int | Literal["latest"] | None = None
    changes: Literal["fail", "skip"] = "fail"
    origin: Any = None
    """Where it begins, if it is read again; None: wherever `start` says."""
    stop: int | None = None
    """How many rows it has, if it is read again."""

    @property
    def beginning(self) -> Any:
        """Where it begins."""
        return self.origin

    def upto(self, position: Any) -> Delta | None:
        """Begin with the same version again; which one that was is not known of a table that was read from what was then its end."""
        first = position["begin"] if position["begin"] is not None else self.start
        if not isinstance(first, int):
            return None
        return replace(self, origin=position | {"next": [first, 0, 0], "rows": 0, "end": None}, stop=position["rows"])

    def schema(self) -> pl.Schema:
        """Return the columns that the table had when it was first asked for them."""
        return self._columns

    @cached_property
    def _columns(self) -> pl.Schema:
        table = self.table.table()
        if table is None:
            raise QueryError(_STEP, f"{self.describe()} does not exist", "create it first, or check the path")
        if features := unreadable(table.protocol().reader_features or (), table.metadata().configuration):
            problem = (
                f"{self.describe()} requires {', '.join(features)} of its readers, which Springtide does not support"
            )
            raise QueryError(_STEP, problem, "turn that off in the table, or read it with Spark: st.spark")
        return columns_of(table.schema().to_json())

    def describe(self) -> str:
        """Say where it is."""
        return f"Delta table {self.table}"

    def open(self, owner: Owner) -> Feed:
        """Return the feed that follows the log."""
        return DeltaFeed(self, owner)

    def joined(self, one: Slice, other: Slice) -> list[Any] | None:
        """Read row groups of a file together, while they are not many rows."""
        *file, start = one.data
        fits = one.rows + other.rows <= TOGETHER and other.data == [*file, start + one.rows]
        return list(one.data) if fits else None

    def read(self, part: Slice) -> Read:
        """Scan the rows lazily; a column that the file lacks is null, or its value is in the log."""
        version, path, partition, start = part.data
        columns = self.schema()
        try:
            frame, found = self._scan(path)
        except Exception:
            if self._is_gone(path):
                raise lost(self, version, path, 0) from None
            raise
        made = [_value(partition.get(name), dtype).alias(name) for name, dtype in columns.items() if name in partition]
        made += [
            pl.lit(None, dtype=dtype).alias(name)
            for name, dtype in columns.items()
            if name not in partition and name not in found
        ]
        made += [
            pl.col(name).cast(dtype)
            for name, dtype in columns.items()
            if name not in partition and found.get(name, dtype) != dtype
        ]
        return Read(frame.slice(start, part.rows).with_columns(made).select(list(columns)))

    def _scan(self, path: str) -> tuple[pl.LazyFrame, pl.Schema]:
        folder = self.table.folder
        where = f"{self.table.uri.rstrip('/')}/{path}" if folder is None else str(folder / path)
        frame = pl.scan_parquet(
            where, glob=False, hive_partitioning=False, storage_options=self.table.revealed if folder is None else None
        )
        return frame, frame.collect_schema()

    def _is_gone(self, path: str) -> bool:
        from pyarrow.fs import FileType

        table = self.table.table()
        return table is not None and self.table.files(table).get_file_info(path).type == FileType.NotFound


def _value(text: str | None, dtype: pl.DataType) -> pl.Expr:
    """Return a column that the table is partitioned by, from the text in its log; an empty text is null."""
    if not text:
        return pl.lit(None, dtype=dtype)
    if isinstance(dtype, pl.Datetime):
        when = datetime.fromisoformat(text)
        return pl.lit(when.replace(tzinfo=when.tzinfo or UTC) if dtype.time_zone else when, dtype=dtype)
    if isinstance(dtype, pl.Boolean):
        return pl.lit(text == "true")
    if isinstance(dtype, pl.Date):
        return pl.lit(text).str.to_date()
    return pl.lit(text).cast(dtype)


@usage("st.delta('calls/')")
def delta(
    path: str | Path,
    *,
    follow: bool = False,
    start: int | Literal["latest"] | None = None,
    changes: Literal["fail", "skip"] = "fail",
    options: Mapping[str, str | Secret] | None = None,
) -> Delta:
    """Read a Delta table, in a folder or an object store: the rows that it has when the query begins, then those that new versions add.

    The input ends with the version that is newest when the query begins; with `follow`, the query waits for more. It begins with all rows that the
    table has then; with `start=7`, with those that version 7 and later ones add; with "latest", with those of the next version. Commits
    that only rearrange files add nothing. A commit that deletes or changes rows ends the run with an error that names it; with
    `changes="skip"` it is skipped instead, and an event says so. `options` are those of the object store.

    >>> st.delta("s3://lake/calls", follow=True, options={"AWS_REGION": "eu-north-1"}).describe()
    'Delta table s3://lake/calls'
    """
    whole = isinstance(start, int) and not isinstance(start, bool) and start >= 0
    if not (start in (None, "latest") or whole):
        raise QueryError(_STEP, f"start={shown(start)} is not a version", 'give the number of a version, or "latest"')
    if changes not in ("fail", "skip"):
        raise QueryError(_STEP, f"changes={shown(changes)} is unknown", 'use "fail" or "skip"')
    return Delta(table=delta_place("delta", path, options), follow=follow, start=start, changes=changes)
