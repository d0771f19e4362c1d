"""What tables of data lakes can hold, and what they can be partitioned by."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from springtide.query.errors import QueryError, shown
from springtide.sinks.columns import nested

_HELD = (
    pl.Boolean,
    pl.Int8,
    pl.Int16,
    pl.Int32,
    pl.Int64,
    pl.Float32,
    pl.Float64,
    pl.String,
    pl.Binary,
    pl.Date,
    pl.Decimal,
    pl.List,
    pl.Struct,
)
_APART = (pl.String, pl.Date, pl.Boolean, pl.Int8, pl.Int16, pl.Int32, pl.Int64)


def unfit_for_lakes(schema: pl.Schema) -> str | None:
    """Say which column tables of lakes cannot hold; None if they can hold all."""
    for name, dtype in schema.items():
        for part in nested(dtype):
            if isinstance(part, pl.Datetime):
                if part.time_unit != "us" or part.time_zone not in (None, "UTC"):
                    return (
                        f"{name!r} is {dtype}, but the table holds times in microseconds only, in UTC or without a zone"
                    )
            elif not isinstance(part, _HELD):
                return f"{name!r} is {dtype}, for which the table has no type"
            elif isinstance(part, pl.Struct) and not part.fields:
                return f"{name!r} is a struct without fields"
    return None


def unfit_to_partition(schema: pl.Schema, partition_by: Sequence[str]) -> str | None:
    """Say why rows with these columns cannot be partitioned so; None if they can."""
    for name in partition_by:
        if name not in schema:
            return f"there is no column {name!r} to partition by"
        if not isinstance(schema[name], _APART):
            return f"{name!r} is {schema[name]}, but tables can only be partitioned by strings, dates, integers or booleans"
    if len(partition_by) == len(schema):
        return "every column is in partition_by; at least one must be left for the files"
    return None


def names_to_partition(step: str, partition_by: str | Sequence[str]) -> tuple[str, ...]:
    """Take the option as users write it."""
    names = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise QueryError(
            f"({step})", f"partition_by={shown(partition_by)} does not name different columns", "give their names"
        )
    return names
