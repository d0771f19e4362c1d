"""A table of PostgreSQL as bounded input: the table as it was when the query began, whatever happens to it or to the run meanwhile.

The driver takes a snapshot and exports it; tasks read ranges of the table in that snapshot, as Arrow. A snapshot ends with the session that took
it. After a crash a new one is taken, in which rows that are newer than the first snapshot are skipped, and a sum over the places of those that
are still to be read tells whether all of them are still there. If not, the run ends and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import polars as pl

from springtide.connectors import Feed, Owner, Read, Secret, Slice, Source
from springtide.query.errors import QueryError, shown
from springtide.query.types import schema_from, type_text
from springtide.query.usage import usage
from springtide.sources.postgres_feed import PostgresFeed, seen_by
from springtide.sources.postgres_types import Column, may_be_read_as, native, selected
from springtide.tables.names import Table, quoted
from springtide.tables.postgres import Server, server

_STEP = "(postgres)"
_COLUMNS = """
SELECT a.attname, t.typname, a.atttypmod FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_KIND = "SELECT relkind FROM pg_class WHERE oid = to_regclass(%s)"
_OTHERS = {"v": "a view", "f": "a foreign table", "S": "a sequence", "i": "an index", "c": "a type"}


@dataclass(frozen=True, eq=False, kw_only=True)
class PostgresTable(Source):
    """A table of PostgreSQL."""

    server: Server
    table: Table
    declared: pl.Schema | None = None
    where: str | None = None
    order_by: str | None = None
    replayable: bool = field(default=False, init=False)
    """A later run cannot read the same slices again: the snapshot ends with the run."""

    def schema(self) -> pl.Schema:
        """Return the columns: as declared, or those that the table had when it was first asked for them."""
        return pl.Schema({column.name: column.dtype for column in self.columns})

    def describe(self) -> str:
        """Say which table, and where."""
        return f"table {self.table} in PostgreSQL ({self.server})"

    def open(self, owner: Owner) -> Feed:
        """Connect."""
        return PostgresFeed(self, owner.step)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The columns that are read, with their types there and here."""
        with self.server.connect() as connection:
            kind = connection.execute(_KIND, (str(self.table),)).fetchone()
            found = connection.execute(_COLUMNS, (str(self.table),)).fetchall()
        if kind is None:
            raise self._refused("does not exist", "check its name, its schema and your rights")
        if kind[0] in _OTHERS:
            raise self._refused(
                f"is {_OTHERS[kind[0]]}, and a later run could not tell whether it has changed",
                "make a table or a materialized view of it, and read that",
            )
        there = {name: (typname, modifier) for name, typname, modifier in found}
        wanted = self.declared or dict.fromkeys(there)
        if missing := [name for name in [*wanted, *filter(None, [self.order_by])] if name not in there]:
            raise self._refused(f"has no column {missing[0]!r}", f"it has {', '.join(there)}")
        return tuple(self._column(name, *there[name], dtype) for name, dtype in wanted.items())

    def _column(self, name: str, kind: str, modifier: int, wanted: pl.DataType | None) -> Column:
        dtype = wanted or native(kind, modifier)
        if dtype is None:
            other = " or pl.Float64" if kind == "numeric" else ""
            raise self._refused(
                f"has {name!r} as {kind}, for which Springtide has no type",
                f"give schema={{{name!r}: pl.String{other}, …}} to read it as that type, or leave the column out of the schema",
            )
        if not may_be_read_as(kind, modifier, dtype):
            own = native(kind, modifier)
            raise self._refused(
                f"has {name!r} as {kind}, which cannot be read as {type_text(dtype)}",
                f"declare it as {type_text(own) if own is not None else 'Float64' if kind == 'numeric' else 'String'}",
            )
        return Column(name, kind, dtype)

    def read(self, part: Slice) -> Read:
        """Read a range in the run's snapshot, as Arrow."""
        exported, table, condition, first = part.data
        order = f" ORDER BY {quoted(self.order_by)}, ctid" if self.order_by is not None else ""
        statement = f"SELECT {selected(self.columns)} FROM ONLY {table} WHERE {condition}"
        rows = self.server.read(f"{statement}{order}", exported)
        if rows is None:  # that snapshot is gone: read the rows that it saw, all of which must still be there
            rows = self.server.read(f"{statement} AND {seen_by(first)}{order}")
            if rows.num_rows != part.rows:
                raise ConnectionError(f"the snapshot in which {self.describe()} was read is gone")
        frame = pl.DataFrame(rows)
        changes = [
            pl.col(column.name).cast(column.dtype)
            for column in self.columns
            if frame[column.name].dtype != column.dtype
        ]
        return Read(frame.with_columns(changes).lazy())

    def _refused(self, problem: str, hint: str) -> QueryError:
        return QueryError(_STEP, f"{self.describe()} {problem}", hint)


@usage("st.postgres('postgresql://localhost/shop', 'calls')")
def postgres(
    url: str,
    table: str,
    *,
    schema: Mapping[str, Any] | None = None,
    where: str | None = None,
    order_by: str | None = None,
    password: Secret | str | None = None,
    options: Mapping[str, Any] | None = None,
) -> PostgresTable:
    """Read a table of PostgreSQL as it is when the query begins; the input ends with its last row.

    All columns are read, or those of `schema`, and only rows for which `where` (an SQL condition) holds. Rows come in the order in which they
    are stored, or by the column `order_by`, which should have an index: a query with event time wants the rows in the order of that time.

    Tasks read ranges of the table side by side, all from one snapshot. Rows that are inserted later are not part of the input. A run that continues
    after another one has a snapshot of its own: if rows that are still to be read were changed or deleted between the two, it ends with
    an error that says how many. The partitions of a table are its physical streams. `password` may be a `Secret`; `options` are those of libpq.

    >>> st.postgres("postgresql://me:hush@db.example/calls", "calls", order_by="ts").describe()
    'table "calls" in PostgreSQL (calls at db.example)'
    """
    if not isinstance(table, str) or not table or not all(table.split(".")):
        raise QueryError(_STEP, f"{shown(table)} is not the name of a table", 'give one such as "calls"')
    for option, value in (("where", where), ("order_by", order_by)):
        if value is not None and (not isinstance(value, str) or not value):
            raise QueryError(_STEP, f"{option}={shown(value)}", "give a string, or leave it out")
    try:
        import adbc_driver_postgresql  # noqa: F401
    except ImportError as error:
        hint = "pip install 'springtide[postgres]'"
        raise QueryError(_STEP, "adbc-driver-postgresql is not installed", hint) from error
    declared = None if schema is None else schema_from(_STEP, "schema", schema)
    return PostgresTable(
        server=server("postgres", url, password, options),
        table=Table.named(table),
        declared=declared,
        where=where,
        order_by=order_by,
    )
