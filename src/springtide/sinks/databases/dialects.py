"""How databases differ: types, placeholders, and what they cannot hold."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, get_type_hints

import polars as pl

from springtide.connectors.columns import beyond_calendars, leaves
from springtide.sinks.columns import nested
from springtide.sinks.databases import sql
from springtide.tables.names import Table


def standard_type(dtype: pl.DataType) -> str | None:
    """Return the type of a column in the words of the SQL standard; None if there is none."""
    match dtype:
        case pl.Boolean():
            return "BOOLEAN"
        case pl.Int8() | pl.Int16() | pl.UInt8():
            return "SMALLINT"
        case pl.Int32() | pl.UInt16():
            return "INTEGER"
        case pl.Int64() | pl.UInt32():
            return "BIGINT"
        case pl.UInt64():
            return "NUMERIC(20)"
        case pl.Decimal():
            return f"NUMERIC({dtype.precision}, {dtype.scale})"
        case pl.Float32():
            return "REAL"
        case pl.Float64():
            return "DOUBLE PRECISION"
        case pl.String() | pl.Categorical() | pl.Enum():
            return "TEXT"
        case pl.Binary():
            return "BLOB"
        case pl.Date():
            return "DATE"
        case pl.Time():
            return "TIME"
        case pl.Datetime():
            return "TIMESTAMP" if dtype.time_zone is None else "TIMESTAMP WITH TIME ZONE"
        case pl.List() | pl.Array() | pl.Struct():
            return "TEXT"  # as JSON
    return None


def _sqlite_type(dtype: pl.DataType) -> str | None:
    if isinstance(dtype, pl.UInt64 | pl.Duration):
        return None  # its integers have 64 bits with a sign
    return "TEXT" if dtype.is_temporal() or dtype.is_decimal() else standard_type(dtype)


def _standard_tables(table: Table) -> tuple[str, list[str]]:
    if table.schema is None:
        return "SELECT COUNT(*) FROM information_schema.tables WHERE table_name = {}", [table.name]
    where = "table_name = {} AND table_schema = {}"
    return f"SELECT COUNT(*) FROM information_schema.tables WHERE {where}", [table.name, table.schema]


def _sqlite_tables(table: Table) -> tuple[str, list[str]]:
    master = Table("sqlite_master", table.schema)
    return f"SELECT COUNT(*) FROM {master} WHERE type IN ('table', 'view') AND name = {{}}", [table.name]


def _anything(column: pl.Series) -> None:
    """Say that a database holds all values of a column that it has a type for."""


@dataclass(frozen=True)
class Dialect:
    """How a database differs. The defaults are those of the SQL standard, with `ON CONFLICT` for upserts."""

    paramstyle: str = "qmark"
    """How statements name their parameters, as PEP 249 calls it: qmark, format, pyformat or numeric."""
    begin: str | None = None
    """The statement that begins a transaction; None if the driver does that itself."""
    type_of: Callable[[pl.DataType], str | None] = standard_type
    """The type for a column of a new table; None if the database has none."""
    tables: Callable[[Table], tuple[str, Sequence[str]]] = _standard_tables
    """A statement that counts the tables of a name, {} for each parameter, and the parameters."""
    on_conflict: Callable[[Sequence[str], Sequence[str]], str] = sql.on_conflict
    """How an `INSERT` of these columns ends, so that rows with these keys replace what is there."""
    times_as_text: bool = False
    """Whether times, dates and decimals are written as text, times in the form of ISO 8601."""
    has_capitals: bool = True
    """Whether names that differ in capitals only are different ones, when they are quoted."""
    has_nan: bool = True
    """Whether NaN stays NaN. If not, rows with a NaN are refused."""
    lacks: Callable[[pl.Series], str | None] = _anything
    """What is in a column that the database cannot hold, in words; None if it can hold everything. Tasks ask this before an epoch is committed."""

    longest_key: int | None = None
    """Bytes that the keys of a row may have together, if an index takes no more."""

    def unfit_value(self, rows: pl.DataFrame) -> tuple[str, str] | None:
        """Say which values the database cannot hold, and what to do; None if it can hold all."""
        for column in rows:
            what: str | None
            if not self.has_nan and column.dtype.is_float() and column.is_nan().any():
                what, hint = "NaN", "map it to null or a number before this sink, as with pl.col(…).fill_nan(None)"
            else:
                what, hint = self._lacks(column), "change it before this sink"
            if what is not None:
                return f"column {column.name!r} has {what}, which this database cannot hold", hint
        return None

    def _lacks(self, column: pl.Series) -> str | None:
        """Say what the database has no value for, nor the JSON that lists and structs become, nor Python, through which values go."""
        is_nested, parts = column.dtype.is_nested(), [*leaves(column)]
        if is_nested and not all(part.is_finite().all() for part in parts if part.dtype.is_float()):
            return "NaN or infinity inside JSON"
        as_text = self.times_as_text and not is_nested
        if not as_text and any((part.cast(pl.Int64) % 1000 != 0).any() for part in parts if part.dtype == pl.Time):
            return "times with nanoseconds"
        return self.lacks(column) or beyond_calendars(column, as_text=as_text)

    def parameters(self, count: int) -> list[str]:
        """Write the parameters of a statement."""
        if self.paramstyle == "numeric":
            return [f":{i + 1}" for i in range(count)]
        return ["?" if self.paramstyle == "qmark" else "%s"] * count

    def escaped(self, names: str) -> str:
        """Write names so that a statement with parameters does not take a part of them for one.

        >>> Dialect("format").escaped('"100%"'), Dialect("qmark").escaped('"100%"')
        ('"100%%"', '"100%"')
        """
        return names.replace("%", "%%") if self.paramstyle in ("format", "pyformat") else names

    def values(self, frame: pl.DataFrame) -> list[tuple[Any, ...]]:
        """Return rows as a DB-API takes them."""
        changes = []
        for name, dtype in frame.schema.items():
            if self.times_as_text and isinstance(dtype, pl.Datetime):
                zone = "Z" if dtype.time_zone is not None else ""
                instant = pl.col(name).dt.convert_time_zone("UTC") if zone else pl.col(name)
                changes.append(instant.dt.strftime(f"%Y-%m-%dT%H:%M:%S%.6f{zone}"))
            elif self.times_as_text and dtype == pl.Time:  # a cast would cut off what is below a second
                changes.append(pl.col(name).dt.strftime("%H:%M:%S%.f"))
            elif self.times_as_text and (dtype.is_temporal() or dtype.is_decimal()):
                changes.append(pl.col(name).cast(pl.String))
        rows = frame.with_columns(changes).rows()
        parts = [i for i, dtype in enumerate(frame.dtypes) if dtype.is_nested()]
        return [tuple(as_json(v) if i in parts else v for i, v in enumerate(row)) for row in rows] if parts else rows


def as_json(value: Any) -> str | None:
    """Write a list or a struct as text."""
    return None if value is None else json.dumps(value, default=str, ensure_ascii=False)


SQLITE = Dialect(
    begin="BEGIN IMMEDIATE",
    type_of=_sqlite_type,
    tables=_sqlite_tables,
    times_as_text=True,
    has_capitals=False,
    has_nan=False,
)
"""SQLite: times as text of ISO 8601, in UTC."""


def dialect_of(connection: Any) -> Dialect:
    """Return the dialect of a connection: SQLite's, or the standard with the placeholders that its module names."""
    return _dialect_of(type(connection))


def declared_dialect(connect: Callable[[], Any]) -> Dialect | None:
    """Return the dialect of the connections that a function will return, if its annotation, or that it is a driver's own, says it.

    >>> import sqlite3
    >>> declared_dialect(partial(sqlite3.connect, "calls.db")) is SQLITE
    True
    """
    while isinstance(connect, partial):
        connect = connect.func
    if getattr(connect, "__module__", None) in ("sqlite3", "_sqlite3"):
        return SQLITE
    try:
        returned = get_type_hints(connect).get("return")
    except Exception:  # an annotation that cannot be evaluated says nothing
        return None
    return _dialect_of(returned) if isinstance(returned, type) else None


def _dialect_of(kind: type) -> Dialect:
    module = kind.__module__.partition(".")[0]
    if module == "sqlite3":
        return SQLITE
    return Dialect(paramstyle=getattr(sys.modules.get(module), "paramstyle", "qmark"))


def unfit(schema: pl.Schema, type_of: Callable[[pl.DataType], str | None]) -> str | None:
    """Say which column a database cannot hold without a loss; None if it can hold all."""
    for name, dtype in schema.items():
        if type_of(dtype) is None:
            return f"{name!r} is {dtype}, for which this database has no type"
        for part in nested(dtype):
            if isinstance(part, pl.Datetime | pl.Duration) and part.time_unit == "ns":
                return f"{name!r} has nanoseconds, which databases cut off; cast it to microseconds"
            if dtype.is_nested() and isinstance(part, pl.Binary | pl.Object):
                return f"{name!r} has bytes inside a {dtype.base_type().__name__}, which JSON cannot hold"
    return None
