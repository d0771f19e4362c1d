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
_LAST = "294246-12-31"
"""Times after this day, which PostgreSQL has, are not a number of microseconds since 1970 that fits 64 bits."""
_LONGEST = (2**63 - 1) // 1_000_000
"""Seconds that do, as a length of time."""


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
        if self.dtype == pl.String():
            return name if self.kind in ("text", "varchar") else f"{name}::text"
        read = {"numeric": f"{name}::text", "interval": f"(extract(epoch FROM {name}) * 1000000)::int8"}
        value = f"{name}::float8" if self.dtype.is_float() and self.kind == "numeric" else read.get(self.kind, name)
        reasons = [where for where, _ in self._misfits]
        return f"CASE WHEN NOT ({' OR '.join(reasons)}) THEN {value} END" if reasons else value

    @property
    def misfit(self) -> str | None:
        """An SQL expression for why a value has no counterpart here, null if it has one; None if all values have one."""
        whens = [f"WHEN {where} THEN {literal(f'column {self.name!r} {what}')}" for where, what in self._misfits]
        return f"CASE {' '.join(whens)} END" if whens else None

    @property
    def _misfits(self) -> list[tuple[str, str]]:
        """Conditions for values that have no counterpart, each with what to say."""
        name = quoted(self.name)
        if self.dtype == pl.String():
            return []
        match self.kind:
            case "numeric" if self.dtype.is_float():
                fits = f"{name} = 0 OR abs({name}) BETWEEN 5e-324 AND 1.7976931348623157e308"
                others = f"{name}::text IN ('NaN', 'Infinity', '-Infinity')"
                return [(f"NOT ({fits} OR {others})", "is too large or too small for a float")]
            case "numeric":
                return [(f"{name} = 'NaN'", "is NaN")]
            case "date":
                return [(f"NOT isfinite({name})", "is infinite")]
            case "timestamp" | "timestamptz":
                return [(f"NOT isfinite({name})", "is infinite"), (f"{name} > '{_LAST}'", f"is after {_LAST}")]
            case "time":
                return [(f"{name} = '24:00'", "is 24:00, which is not a time of day here")]
            case "interval":
                parts = [f"extract({part} FROM {name}) <> 0" for part in ("year", "month")]
                long = f"abs(extract(epoch FROM {name})) > {_LONGEST}"
                return [(" OR ".join(parts), "has months, which have no fixed length"), (long, "is too long")]
        return []


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
