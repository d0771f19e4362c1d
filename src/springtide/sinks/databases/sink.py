"""A table of any database that has transactions and a driver by PEP 249 (DB-API). Tried with SQLite.

In one transaction, decided by the first statement:

    UPDATE springtide_ledger SET epoch = …  WHERE target = … AND epoch = …   exactly one row, or nothing at all happens
    INSERT INTO table …                                                      the rows of the epoch
    COMMIT                                                                   if nobody knows how it ended, the ledger says it

Two runs that want the same entry wait for each other at the UPDATE; the second finds another entry, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any, ClassVar

import polars as pl

from springtide.connectors import Advice, Entry, LedgerSink, Outbox, Owner, Publication, Target, failpoint
from springtide.query.errors import QueryError, SinkError, shown
from springtide.query.usage import usage
from springtide.sinks.columns import twins
from springtide.sinks.databases import sql
from springtide.sinks.databases.dialects import Dialect, declared_dialect, dialect_of, unfit
from springtide.sinks.databases.outbox import TableFiles, without_key
from springtide.sinks.databases.sql import ENTRY
from springtide.tables.names import LEDGER, Table, listed, quoted

_FINAL = {"DataError", "IntegrityError", "NotSupportedError", "ProgrammingError", "ProgramLimitExceeded"}
"""The errors of PEP 249, and one of PostgreSQL's, that come again however often the statement is tried."""


@dataclass(frozen=True)
class DatabaseSink(LedgerSink):
    """A table of a database. Derive from it for one that inserts in a way of its own: see `DatabaseTarget.insert`."""

    connection: Callable[[], Any]
    """Returns a new connection, by PEP 249. It stays in the driver."""
    table: Table
    keys: tuple[str, ...] = ()
    """Rows with the same keys replace each other; none: rows are appended."""
    create: bool = False
    dialect: Dialect | None = None

    called: ClassVar[str] = "database_sink"
    """What a user calls to get one, for messages."""

    @property
    def outbox(self) -> Outbox:
        """Tasks write Arrow files, and refuse what the table will not take."""
        return TableFiles(sink=self.called, keys=self.keys, dialect=self.dialect or declared_dialect(self.connection))

    @property
    def advice(self) -> Advice:  # type: ignore[override]
        """What people can do about a table that is refused."""
        entry = f"its row in {self.table.ledger} (target = '{self.table.name}')"
        return Advice(
            elsewhere="give this sink another table",
            anew=f"to start over, empty the table and delete {entry}",
            back=f"delete the rows of the epochs after {{epoch}} and {entry}",
        )

    def describe(self) -> str:
        """Say which table."""
        return f"table {self.table}"

    @property
    def place(self) -> Hashable:
        """Which table it is, as far as the function that connects reveals it; the ledger decides the rest."""
        how = self.connection
        called: Hashable = how
        if isinstance(how, partial):
            called = how.func, how.args, tuple(sorted(how.keywords.items()))
        try:
            hash(called)
        except TypeError:  # nothing to compare by value: only the same object is the same
            called = id(how)
        return "database", called, self.table

    def check(self, schema: pl.Schema) -> str | None:
        """Refuse what a database cannot hold, and keys that are not there."""
        if missing := [key for key in self.keys if key not in schema]:
            return f"there is no column {missing[0]!r} to use as a key"
        return unfit(schema, self.dialect.type_of) if self.dialect is not None else None

    def connect(self, owner: Owner) -> Target:
        """Connect, and check the table against the rows that will come."""
        connection = self.connection()
        try:
            target = self.target(connection, owner)
            target.check()
        except BaseException:
            connection.close()
            raise
        return target

    def target(self, connection: Any, owner: Owner) -> DatabaseTarget:
        """Return the table as a run sees it through a connection."""
        return DatabaseTarget(self, connection, owner, self.dialect or dialect_of(connection))


class DatabaseTarget(Target):
    """A table, as one run is connected to it."""

    def __init__(self, sink: DatabaseSink, connection: Any, owner: Owner, dialect: Dialect) -> None:
        """Keep a connection, which belongs to this target alone from now on."""
        self.sink, self.connection, self.owner, self.dialect = sink, connection, owner, dialect
        self.table, self.columns = sink.table, list(owner.schema)
        self._ledger = dialect.escaped(str(sink.table.ledger))

    # ── at the start ──────────────────────────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        """Refuse a table that does not exist, does not fit the rows, or has rows whose owner is unknown."""
        if (why := unfit(self.owner.schema, self.dialect.type_of)) is not None:
            raise self.refused(f"cannot take these rows: {why}", "change the column before this sink")
        if not self.dialect.has_capitals and (found := twins(self.columns)) is not None:
            raise self.refused(
                f"cannot tell the columns {found[0]!r} and {found[1]!r} apart", "rename one before this sink"
            )
        with self.transaction(keep=False) as cursor:
            if self.exists(cursor, self.table):
                self.check_columns(cursor)
                self._check_past(cursor)
            elif not self.sink.create:
                raise self.refused("does not exist", "create it, or let this sink create it: create=True")

    def check_columns(self, cursor: Any) -> None:
        """Refuse a table without a column for each of the rows' columns, or without a unique index for the keys."""
        cursor.execute(f"SELECT * FROM {self.table} WHERE 1 = 0")
        there = [column[0] for column in cursor.description]
        if missing := [name for name in self.columns if name not in there]:
            raise self.refused(
                f"has no column {', '.join(map(repr, missing))}",
                f"add it, or select other columns; the table has {', '.join(there)}",
            )
        if self.sink.keys:
            names = listed(self.columns)
            replace = self.dialect.on_conflict(self.columns, self.sink.keys)
            try:
                cursor.execute(
                    f"EXPLAIN INSERT INTO {self.table} ({names}) SELECT {names} FROM {self.table} WHERE 1 = 0 {replace}"
                )
            except Exception as error:
                if _kind(error) is None and "ON CONFLICT" not in str(error):
                    raise
                raise self.refused(
                    f"cannot be upserted by {', '.join(self.sink.keys)}: {_line(error)}",
                    "make these columns the primary key, or give them a unique index",
                ) from error

    def _check_past(self, cursor: Any) -> None:
        """Refuse to append if it is unknown whether the rows of the last epoch are already there."""
        if self.sink.keys or self.owner.commit is None or self._entry(cursor) is not None:
            return
        cursor.execute(f"SELECT COUNT(*) FROM (SELECT 1 FROM {self.table} LIMIT 1) AS found")
        if cursor.fetchone()[0]:
            values = Entry.of(self.owner)
            raise self.refused(
                f"has rows but no entry in {self.table.ledger}: it is unknown whether those of epoch {self.owner.epoch} are among them",
                f"restore the entry (target '{self.table.name}', query '{values.query}', sink '{values.sink}', checkpoint"
                f" '{values.checkpoint}', generation {values.generation}; epoch {self.owner.epoch} and commit_id '{self.owner.commit}'"
                " if its rows are there, otherwise epoch -1 and commit_id ''), or give this sink another table",
            )

    # ── the ledger ────────────────────────────────────────────────────────────────────────────────────────────────

    def entry(self) -> Entry | None:
        """Look up what the ledger says of the table."""
        with self.transaction(keep=False) as cursor:
            return self._entry(cursor)

    def _entry(self, cursor: Any) -> Entry | None:
        if not self.exists(cursor, self.table.ledger):
            return None
        (name,) = self.dialect.parameters(1)
        cursor.execute(f"SELECT {listed(ENTRY)} FROM {self._ledger} WHERE target = {name}", (self.table.name,))
        row = cursor.fetchone()
        return None if row is None else Entry(*row)

    def swap(self, before: Entry | None, after: Entry, publication: Publication | None) -> bool:
        """Replace the entry and add the rows, in one transaction."""
        if before is None:
            with self.transaction() as cursor:
                cursor.execute(sql.create_ledger(self.table))
                if self.sink.create:
                    cursor.execute(self._create())
        with self.transaction() as cursor:
            if not self._replace(cursor, before, after):
                self.connection.rollback()
                self._check_entry(cursor, before)
                return False
            if publication is not None:
                self.insert(cursor, publication)
            failpoint("database: rows")
        failpoint("database: commit")
        return True

    def _create(self) -> str:
        kinds = [(name, self.dialect.type_of(dtype) or "") for name, dtype in self.owner.schema.items()]
        return sql.create(self.table, kinds, self.sink.keys)

    def _replace(self, cursor: Any, before: Entry | None, after: Entry) -> bool:
        marks = self.dialect.parameters(13)
        if before is None:
            statement = f"INSERT INTO {self._ledger} (target, {listed(ENTRY)}) VALUES ({', '.join(marks[:7])})"
            try:
                cursor.execute(statement, (self.table.name, *astuple(after)))
            except Exception as error:
                if _kind(error) == "IntegrityError":
                    return False
                raise
            return True
        new = ", ".join(f"{quoted(c)} = {mark}" for c, mark in zip(ENTRY, marks[:6], strict=True))
        old = " AND ".join(f"{quoted(c)} = {mark}" for c, mark in zip(ENTRY, marks[7:], strict=True))
        cursor.execute(
            f"UPDATE {self._ledger} SET {new} WHERE target = {marks[6]} AND {old}",
            (*astuple(after), self.table.name, *astuple(before)),
        )
        return bool(cursor.rowcount == 1)

    def _check_entry(self, cursor: Any, before: Entry | None) -> None:
        if before is not None and self._entry(cursor) is None:
            raise self.refused(
                f"has lost its entry in {self.table.ledger}: the last was {before}, commit {before.commit or 'none'}",
                "restore it from a copy, or give this sink another table; the rows of the last epoch were not written",
            )

    # ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def insert(self, cursor: Any, publication: Publication) -> None:
        """Insert the rows of an epoch; the transaction has begun, and is committed afterwards. Subclasses may do it in a faster way."""
        marks = ", ".join(self.dialect.parameters(len(self.columns)))
        statement = self.dialect.escaped(f"INSERT INTO {self.table} ({listed(self.columns)})") + f" VALUES ({marks})"
        if self.sink.keys:
            statement += f" {self.dialect.escaped(self.dialect.on_conflict(self.columns, self.sink.keys))}"
        frame = self.latest(publication.frame()) if self.sink.keys else publication.frame()
        if (why := self.dialect.unfit_value(frame)) is not None:  # tasks did not know which database it is
            anyway = "to write null instead for rows that are committed: dialect=replace(SQLITE, has_nan=True)"
            raise self.refused(f"cannot take these rows: {why[0]}", f"{why[1]}; {anyway}")
        if frame.height:
            cursor.executemany(statement, self.dialect.values(frame))

    def latest(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Keep only the last of the rows with the same keys."""
        if (why := without_key(frame, self.sink.keys)) is not None:
            raise self.refused(*why)
        return frame.unique(list(self.sink.keys), keep="last", maintain_order=True)

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def exists(self, cursor: Any, table: Table) -> bool:
        """Tell whether there is a table."""
        statement, parameters = self.dialect.tables(table)
        cursor.execute(statement.format(*self.dialect.parameters(len(parameters))), tuple(parameters))
        return bool(cursor.fetchone()[0])

    @contextmanager
    def transaction(self, *, keep: bool = True) -> Iterator[Any]:
        """Run statements in one transaction, which is rolled back on an error. Errors that would come again are raised as refusals."""
        cursor = self.connection.cursor()
        try:
            if keep and self.dialect.begin is not None:
                cursor.execute(self.dialect.begin)
            yield cursor
            if keep:
                self.connection.commit()
            else:
                self.connection.rollback()
        except SinkError:
            self.connection.rollback()
            raise
        except Exception as error:
            if _kind(error) is None:
                raise  # the connection may be gone: it is closed, which rolls back
            self.connection.rollback()
            raise self.refused(f"does not take the rows: {_line(error)}", "change the rows or the table") from error
        except BaseException:  # the process ends: nobody should have to wait for its locks
            self.connection.close()
            raise

    def refused(self, problem: str, hint: str) -> SinkError:
        """Return the error that says what is wrong with the table."""
        return SinkError(self.owner.step, f"{self.sink.describe()} {problem}", hint)

    def close(self) -> None:
        """Close the connection; what is not committed is rolled back."""
        self.connection.close()


def _kind(error: BaseException) -> str | None:
    """Return which of the final errors of PEP 249 it is; None: it may be temporary."""
    return next((cls.__name__ for cls in type(error).__mro__ if cls.__name__ in _FINAL), None)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


@usage("st.database_sink(lambda: sqlite3.connect('shop.db'), 'calls')")
def database_sink(
    connect: Callable[[], Any],
    table: str,
    *,
    keys: str | Sequence[str] = (),
    create: bool = False,
    dialect: Dialect | None = None,
) -> DatabaseSink:
    """Write rows to a table of any database with transactions and a driver by PEP 249, each row exactly once.

    `connect` returns a new connection. Rows are appended; with `keys`, they replace rows with the same keys, so that each key has its
    latest row. The table `springtide_ledger` next to it says which epoch is there; it is written in one transaction with the rows.

    >>> import sqlite3
    >>> st.database_sink(lambda: sqlite3.connect("calls.db"), "heavy", keys="src", create=True).describe()
    'table "heavy"'
    """
    if not callable(connect):
        raise QueryError("(database_sink)", f"{shown(connect)} is not a function", "give one that returns a connection")
    return DatabaseSink(connect, *table_and_keys("database_sink", table, keys), create, dialect)


def table_and_keys(step: str, table: str, keys: str | Sequence[str]) -> tuple[Table, tuple[str, ...]]:
    """Check the names that a user gave."""
    if not isinstance(table, str) or not table or not all(table.split(".")):
        raise QueryError(f"({step})", f"{shown(table)} is not the name of a table", 'give one such as "calls"')
    if Table.named(table).name == LEDGER:
        raise QueryError(
            f"({step})",
            f"the table {LEDGER} is reserved: it says which epochs are in the other tables",
            "name another table",
        )
    names = (keys,) if isinstance(keys, str) else tuple(keys)
    if not all(isinstance(key, str) for key in names) or len(set(names)) != len(names):
        raise QueryError(
            f"({step})", f"keys={shown(keys)} does not name different columns", 'write for example keys=["src"]'
        )
    return Table.named(table), names
