"""Rows from memory, for tests and first steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from springtide.query.connectors import Marker, Rows
from springtide.query.errors import QueryError

ONE_STREAM = "0"
"""The name of the physical stream of a source that has only one."""


@dataclass(frozen=True, eq=False)
class Memory:
    """Rows from memory, as one or several physical streams."""

    streams: Mapping[str, Rows] = field(repr=False)
    columns: pl.Schema
    positions: bool = True

    def schema(self) -> pl.Schema:
        """Names and types of the columns."""
        return self.columns

    def describe(self) -> str:
        """Say how much there is."""
        rows = sum(len(rows) for rows in self.streams.values())
        return f"memory, {rows} rows" + (f" in {len(self.streams)} physical streams" if len(self.streams) > 1 else "")

    def read_all(self) -> Mapping[str, Rows]:
        """Give all rows."""
        return self.streams


def memory(
    rows: Rows | Mapping[str, Rows] = (),
    *,
    schema: Mapping[str, Any] | None = None,
    positions: bool = True,
) -> Memory:
    """Take rows from memory: a frame or a list of dicts, or several of them as physical streams by name.

    Without `schema` it is that of the first frame, or what Polars makes of the first rows. `positions=False` says that
    the rows have no order of their own, as those of a Spark DataFrame.

    >>> st.memory([{"x": 1}, {"x": 2}]).schema()
    Schema({'x': Int64})
    """
    streams = dict(rows) if isinstance(rows, Mapping) else {ONE_STREAM: rows}
    return Memory(streams, _schema(streams, schema), positions)


def _schema(streams: Mapping[str, Rows], schema: Mapping[str, Any] | None) -> pl.Schema:
    if schema is not None:
        return pl.Schema(schema)
    for rows in streams.values():
        if isinstance(rows, pl.DataFrame):
            return rows.schema
        if plain := [row for row in rows if not isinstance(row, Marker)]:
            return _infer(plain)
    raise QueryError("(memory)", "there are no rows to find the schema in", "give schema={'x': pl.Int64, ...}")


def _infer(rows: Sequence[Mapping[str, Any]]) -> pl.Schema:
    try:
        return pl.DataFrame(rows, infer_schema_length=None).schema
    except (TypeError, pl.exceptions.PolarsError) as error:
        raise QueryError(
            "(memory)",
            f"the rows have no common schema ({str(error).splitlines()[0]})",
            "give schema={'x': pl.Int64, ...}",
        ) from None
