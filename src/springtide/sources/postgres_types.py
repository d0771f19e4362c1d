"""Columns of PostgreSQL in Polars: their types, and the values that have no counterpart."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from springtide.connectors import MISFIT
from springtide.query.types import TIME
from springtide.tables.names import literal, quoted

_PLAIN: dict[str, pl.DataType] = {
    "bool": pl.Boolean(),
    "int2": pl.Int16(),
    "int4": pl.Int32(),
    "int8": pl.Int64(),
    "float4": pl.Float32(),
    "float8": pl.Float64(),
    "text": pl.String(),
    "varchar": pl.String(),
    "bpchar": pl.String(),
    "name": pl.String(),
    "uuid": pl.String(),
    "json": pl.String(),
    "jsonb": pl.String(),
    "bytea": pl.Binary(),
    "date": pl.Date(),
    "time": pl.Time(),
    "timestamp": pl.Datetime("us"),
    "timestamptz": TIME,
    "interval": pl.Duration("us"),
}
_WITH_INFINITY = ("date", "timestamp", "timestamptz")


@dataclass(frozen=True)
class Column:
    """A column of a table: its name, its type there, and what it is here."""

    name: str
    kind: str
    dtype: pl.DataType

    @property
    def value(self) -> str:
        """The SQL expression that returns the value in a form that can be read here; null if it has none."""
        name = quoted(self.name)
        if self.dtype == pl.String() and self.kind not in ("text", "varchar"):
            return f"{name}::text"
        if self.dtype.is_float() and self.kind == "numeric":
            return f"{name}::float8"
        if self.kind == "numeric":
            return f"NULLIF({name}, 'NaN')::text"
        if self.kind in _WITH_INFINITY:
            return f"CASE WHEN isfinite({name}) THEN {name} END"
        if self.kind == "interval":
            return f"CASE WHEN NOT ({self._misfits}) THEN (extract(epoch FROM {name}) * 1000000)::int8 END"
        return name

    @property
    def misfit(self) -> str | None:
        """An SQL expression for why a value has no counterpart here, null if it has one; None if all values have one."""
        if (where := self._misfits) is None:
            return None
        what = {"numeric": "is NaN", "interval": "has months, which have no fixed length"}.get(self.kind, "is infinite")
        return f"CASE WHEN {where} THEN {literal(f'column {self.name!r} {what}')} END"

    @property
    def _misfits(self) -> str | None:
        name = quoted(self.name)
        if self.dtype == pl.String() or self.dtype.is_float():
            return None
        if self.kind == "numeric":
            return f"{name} = 'NaN'"
        if self.kind in _WITH_INFINITY:
            return f"NOT isfinite({name})"
        if self.kind == "interval":
            return f"extract(year FROM {name}) <> 0 OR extract(month FROM {name}) <> 0"
        return None


def native(kind: str, modifier: int) -> pl.DataType | None:
    """Return the type that holds every value of a PostgreSQL type; None if there is none.

    >>> native("int4", -1), native("numeric", ((12 << 16) | 2) + 4), native("numeric", -1)
    (Int32, Decimal(precision=12, scale=2), None)
    """
    if kind == "numeric" and modifier >= 0:
        precision, scale = (modifier - 4) >> 16, (modifier - 4) & 0x7FF
        return pl.Decimal(precision, scale) if scale <= precision <= 38 else None
    return _PLAIN.get(kind)


def may_be_read_as(kind: str, modifier: int, dtype: pl.DataType) -> bool:
    """Tell whether a column may be declared with a type: its own, text, or a float for a number of any length."""
    return dtype in (native(kind, modifier), pl.String()) or (kind == "numeric" and dtype == pl.Float64())


def selected(columns: tuple[Column, ...]) -> str:
    """Write the list of columns to select."""
    parts = [f"{column.value} AS {quoted(column.name)}" for column in columns]
    if reasons := [column.misfit for column in columns if column.misfit is not None]:
        parts.append(f"COALESCE({', '.join(reasons)}) AS {quoted(MISFIT)}")
    return ", ".join(parts)
