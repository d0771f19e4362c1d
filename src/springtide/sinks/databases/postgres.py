"""A table of PostgreSQL, as fast as COPY.

Rows that are appended are copied into the table. Rows that replace others are copied into a temporary table of the connection first, and from
there they are inserted with ON CONFLICT. Either is in one transaction with the entry of the ledger.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import polars as pl

from springtide.connectors import Owner, Publication, Secret
from springtide.connectors.columns import leaves
from springtide.query.usage import usage
from springtide.sinks.databases.dialects import Dialect, as_json, standard_type, unfit
from springtide.sinks.databases.sink import DatabaseSink, DatabaseTarget, table_and_keys
from springtide.sinks.databases.sql import on_conflict
from springtide.tables.names import Table, listed
from springtide.tables.postgres import Server, server

_ROWS = "pg_temp.springtide_rows"
"""The temporary table for rows that will replace others."""
_BLOCK = 200_000
"""Rows that are turned into text at a time."""
_LONGEST_NAME = 63
"""Bytes of a name that the server keeps."""


def _type_of(dtype: pl.DataType) -> str | None:
    match dtype:
        case pl.Binary():
            return "BYTEA"
        case pl.Duration():
            return "INTERVAL"
        case pl.List() | pl.Array() | pl.Struct():
            return "JSONB"
    return standard_type(dtype)


def _tables(table: Table) -> tuple[str, list[str]]:
    return "SELECT COUNT(to_regclass({}))", [str(table)]


def _lacks(column: pl.Series) -> str | None:
    """Say what is in a column, or inside its lists and structs, that PostgreSQL has no value for."""
    texts = (part for part in leaves(column) if isinstance(part.dtype, pl.String | pl.Categorical | pl.Enum))
    found = any(part.cast(pl.String).str.contains("\0", literal=True).any() for part in texts)
    return "the character NUL" if found else None


POSTGRES = Dialect(
    paramstyle="format",
    type_of=_type_of,
    tables=_tables,
    on_conflict=on_conflict,
    lacks=_lacks,
    longest_key=2600,  # of 2,704, which may be compressed or not
)

_WHOLE = ["int2", "int4", "int8", "numeric"]
_COLUMNS = """
SELECT a.attname, t.typname, a.atttypmod, a.attgenerated <> '' OR a.attidentity = 'a',
       a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


def fitting_types(dtype: pl.DataType) -> list[str]:
    """Return the types of PostgreSQL that hold all values of a column; none for strings, from which any type may be read.

    >>> fitting_types(pl.Int32()), fitting_types(pl.Float64())
    (['int4', 'int8', 'numeric'], ['float8', 'numeric'])
    """
    match dtype:
        case pl.Boolean():
            return ["bool"]
        case pl.Int8() | pl.Int16() | pl.UInt8():
            return _WHOLE
        case pl.Int32() | pl.UInt16():
            return _WHOLE[1:]
        case pl.Int64() | pl.UInt32():
            return _WHOLE[2:]
        case pl.UInt64() | pl.Decimal():
            return ["numeric"]
        case pl.Float32():
            return ["float4", "float8", "numeric"]
        case pl.Float64():
            return ["float8", "numeric"]
        case pl.Binary():
            return ["bytea"]
        case pl.Date():
            return ["date", "timestamp"]
        case pl.Time():
            return ["time"]
        case pl.Datetime():
            return ["timestamp" if dtype.time_zone is None else "timestamptz"]
        case pl.Duration():
            return ["interval"]
        case pl.List() | pl.Array() | pl.Struct():
            return ["jsonb", "json", "text"]
    return []


_DIGITS: Mapping[pl.DataType, int] = {
    pl.Int8(): 3,
    pl.UInt8(): 3,
    pl.Int16(): 5,
    pl.UInt16(): 5,
    pl.Int32(): 10,
    pl.UInt32(): 10,
    pl.Int64(): 19,
    pl.UInt64(): 20,
}
"""Decimal digits of the largest integer of each type."""
_ALL_FIELDS = 0x7FFF
"""The range of an interval that is not limited to some fields, such as days."""


def _rounds(kind: str, modifier: int, dtype: pl.DataType) -> bool:
    """Tell whether a column's own precision would cut values."""
    if modifier < 0:
        return False
    if kind == "numeric":
        return dtype.is_float() or _numeric(modifier)[1] < _needed(dtype)[1]
    if kind == "interval" and modifier >> 16 != _ALL_FIELDS:
        return True
    digits = 3 if getattr(dtype, "time_unit", "us") == "ms" else 6
    return kind in ("timestamp", "timestamptz", "time", "interval") and modifier & 0xFFFF < digits


def _overflows(kind: str, modifier: int, dtype: pl.DataType) -> bool:
    """Tell whether values may have more digits before the point than a column."""
    if kind != "numeric" or modifier < 0:
        return False
    (precision, scale), (digits, after) = _numeric(modifier), _needed(dtype)
    return precision - scale < digits - after


def _numeric(modifier: int) -> tuple[int, int]:
    """Return the precision and the scale of a numeric column."""
    scale = (modifier - 4) & 0x7FF
    return (modifier - 4) >> 16, scale - 0x800 if scale & 0x400 else scale


def _needed(dtype: pl.DataType) -> tuple[int, int]:
    """Return the precision and the scale that hold all values of a type."""
    if isinstance(dtype, pl.Decimal):
        return dtype.precision or 38, dtype.scale
    return _DIGITS.get(dtype, 0), 0


def _long_name(names: Sequence[str]) -> str | None:
    """Say which name the server would cut off, so that it could mean another table or column."""
    name = next((name for name in names if len(name.encode()) > _LONGEST_NAME), None)
    return (
        None
        if name is None
        else f"the name {name!r} has more than {_LONGEST_NAME} bytes, and PostgreSQL cuts off the rest"
    )


@dataclass(frozen=True)
class PostgresSink(DatabaseSink):
    """A table of PostgreSQL."""

    server: Server = field(kw_only=True)

    called = "postgres_sink"

    def describe(self) -> str:
        """Say which table, and where."""
        return f"table {self.table} in PostgreSQL ({self.server})"

    @property
    def place(self) -> Hashable:
        """Which table it is: no two sinks can share it."""
        return "postgres", self.server.parameters, self.table

    def check(self, schema: pl.Schema) -> str | None:
        """Refuse what the database cannot hold, and names that it would cut off."""
        return (
            super().check(schema)
            or unfit(schema, _type_of)
            or _long_name([*schema, self.table.name, self.table.schema or ""])
        )

    def target(self, connection: Any, owner: Owner) -> DatabaseTarget:
        """Return the table as a run sees it through a connection."""
        return _PostgresTarget(self, connection, owner, POSTGRES)


class _PostgresTarget(DatabaseTarget):
    """A table of PostgreSQL, as one run is connected to it."""

    _checked: Sequence[Any] = ()
    """The columns of the table when it was checked."""

    def check_columns(self, cursor: Any) -> None:
        """Refuse a table whose columns do not take the rows as they are."""
        self._checked = self._look(cursor)
        there = {name: rest for name, *rest in self._checked}
        for name, dtype in self.owner.schema.items():
            if name not in there:
                continue  # reported by the check that all databases share
            kind, modifier, is_made, _ = there[name]
            wanted = fitting_types(dtype)
            if is_made:
                raise self.refused(f"computes {name!r} itself", "leave that column out of the rows before this sink")
            if wanted and kind not in wanted:
                raise self.refused(
                    f"has {name!r} as {kind}, but rows have {dtype}",
                    f"make it {wanted[0]}, or cast it before this sink",
                )
            if _rounds(kind, modifier, dtype):
                raise self.refused(f"would round {name!r}", f"give the column the full precision of {kind}")
            if _overflows(kind, modifier, dtype):
                there_is, wants = (
                    "numeric({}, {})".format(*_numeric(modifier)),
                    "numeric({}, {})".format(*_needed(dtype)),
                )
                raise self.refused(
                    f"has {name!r} as {there_is}, which is too small for some values of {dtype}",
                    f"make it {wants}, or cast it before this sink",
                )
        needed = [name for name, rest in there.items() if rest[3] and name not in self.owner.schema]
        if needed:
            raise self.refused(
                f"needs a value for {needed[0]!r}, which rows do not have",
                "give that column a default in the table, or add it to the rows before this sink",
            )
        super().check_columns(cursor)

    def insert(self, cursor: Any, publication: Publication) -> None:
        """Copy the rows of an epoch into the table, if its columns are still those that were checked."""
        self._insert(cursor, publication)
        if self._look(cursor) != self._checked:  # from here to the end of the transaction nobody can change them
            self.check_columns(cursor)

    def _look(self, cursor: Any) -> Sequence[Any]:
        cursor.execute(_COLUMNS, (str(self.table),))
        found: Sequence[Any] = cursor.fetchall()
        return found

    def _insert(self, cursor: Any, publication: Publication) -> None:
        columns = listed(self.columns)
        if not self.sink.keys:
            self._copy(cursor, f"{self.table} ({columns})", publication.frames())
            return
        cursor.execute(
            f"CREATE TEMP TABLE IF NOT EXISTS springtide_rows ON COMMIT DELETE ROWS"
            f" AS SELECT {columns} FROM {self.table} WITH NO DATA"
        )
        self._copy(cursor, _ROWS, iter([self.latest(publication.frame()).sort(self.sink.keys)]))
        replace = on_conflict(self.columns, self.sink.keys)
        cursor.execute(f"INSERT INTO {self.table} ({columns}) SELECT {columns} FROM {_ROWS} {replace}")

    def _copy(self, cursor: Any, where: str, frames: Iterator[pl.DataFrame]) -> None:
        with cursor.copy(f"COPY {where} FROM STDIN (FORMAT csv)") as copy:
            for frame in frames:
                # a line of nothing but \. would end the input; with quotes around it, it is a text
                quotes: Literal["necessary", "non_numeric"] = "necessary" if frame.width > 1 else "non_numeric"
                for rows in frame.iter_slices(_BLOCK):
                    copy.write(as_text(rows).write_csv(include_header=False, quote_style=quotes).encode())


def as_text(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows in columns that Polars writes as PostgreSQL reads them."""
    changes: list[pl.Expr | pl.Series] = []
    for name, dtype in rows.schema.items():
        column = pl.col(name)
        if isinstance(dtype, pl.Binary):
            changes.append((pl.lit("\\x") + column.bin.encode("hex")).alias(name))
        elif isinstance(dtype, pl.Datetime) and dtype.time_zone is not None:
            changes.append(column.dt.convert_time_zone("UTC"))
        elif isinstance(dtype, pl.Duration):
            changes.append(column.dt.total_microseconds().cast(pl.String) + pl.lit(" microseconds"))
        elif dtype.is_nested():
            changes.append(pl.Series(name, [as_json(v) for v in rows[name].to_list()], dtype=pl.String))
    return rows.with_columns(changes)


@usage("st.postgres_sink('postgresql://localhost/shop', 'calls')")
def postgres_sink(
    url: str,
    table: str,
    *,
    keys: str | Sequence[str] = (),
    create: bool = False,
    password: Secret | str | None = None,
    options: Mapping[str, Any] | None = None,
) -> PostgresSink:
    """Write rows to a table of PostgreSQL, each row exactly once, as fast as COPY.

    Rows are appended; with `keys`, they replace rows with the same keys. The table is made if `create` says so; otherwise it is checked when
    the query starts. `password` may be a `Secret`; `options` are those of libpq, such as `sslmode` and `sslrootcert`.

    >>> st.postgres_sink("postgresql://me:hush@db.example/calls", "heavy", keys="src").describe()
    'table "heavy" in PostgreSQL (calls at db.example)'
    """
    where = server("postgres_sink", url, password, options)
    name, by = table_and_keys("postgres_sink", table, keys)
    return PostgresSink(where.connect, name, by, create, POSTGRES, server=where)
