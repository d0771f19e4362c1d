"""The driver's part of reading a PostgreSQL table: the snapshot, and which ranges of the table come next. Rows are counted here, not read.

position   snapshot   which transactions the first snapshot of this query saw
           tables     for each table (or each partition of it)
               next   the page to go on with, or with `order_by` the last value that was read
               rows   how many rows were read
               left   how many are left, and a sum over their places
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from springtide.connectors import Feed, Slice, Take
from springtide.query.errors import SpringtideError
from springtide.query.types import END_OF_TIME, FIRST_TIME, LAST_TIME
from springtide.tables.names import Table, literal, quoted

if TYPE_CHECKING:
    from springtide.sources.postgres import PostgresTable

_PIECE = 50_000
"""The least rows in a slice, if there are several: slices are read side by side."""
_PIECES = 16
_RELATIONS = """
SELECT n.nspname, c.relname, c.oid::int8, pg_relation_filenode(c.oid)::int8,
       pg_relation_size(c.oid) / current_setting('block_size')::int8
FROM pg_partition_tree(to_regclass(%(table)s)) p JOIN pg_class c ON c.oid = p.relid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.isleaf AND c.relkind IN ('r', 'm') UNION
SELECT n.nspname, c.relname, c.oid::int8, pg_relation_filenode(c.oid)::int8,
       pg_relation_size(c.oid) / current_setting('block_size')::int8
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%(table)s) AND c.relkind IN ('r', 'm') ORDER BY 1, 2
"""
_TOTAL = "count(*), coalesce(sum(hashtid(ctid)), 0)::int8"


def seen_by(snapshot: str) -> str:
    """Write the condition that selects, in a later snapshot, the rows that a snapshot saw.

    A row keeps 32 bits of the number of the transaction that wrote it: it must be older than any that had not begun then, and not one of those that were running.

    >>> seen_by("720:726:720,723")
    "age(xmin) > age('726'::xid) AND xmin <> ALL('{720,723}'::xid[])"
    """
    _, newest, running = snapshot.split(":")
    ran = ",".join(str(int(number) % 2**32) for number in running.split(",") if number)
    return f"age(xmin) > age('{int(newest) % 2**32}'::xid) AND xmin <> ALL('{{{ran}}}'::xid[])"


@dataclass(frozen=True)
class Part:
    """A table, or a partition of one: how far it was read, and what is left."""

    oid: int
    file: int
    """The file that the table is in: in another file, rows have other places."""
    pages: int
    next: Any
    rows: int
    left: tuple[int, int]


def _close(connection: Any) -> None:
    with suppress(Exception):
        connection.close()


class PostgresFeed(Feed):
    """Takes ranges of a table, all from one snapshot."""

    def __init__(self, source: PostgresTable, step: str) -> None:
        """Connect at the first take."""
        self._source, self._step = source, step
        self._connection: Any = None
        self._ending: Callable[[], Any] = lambda: None
        self._exported = self._snapshot = self._first = ""
        self._since = "true"
        """The condition that selects the rows of the first snapshot in the current one."""

    def take(self, position: Any, limit: int, ts: str | None) -> Take:
        """Take what comes next of each table, in proportion to what is left of it."""
        try:
            parts = self._parts(position)
            waiting = sum(part.left[0] for part in parts.values())
            slices: list[Slice] = []
            for name, part in parts.items():
                wanted = min(part.left[0], max(1, limit * part.left[0] // max(1, waiting)))
                found, parts[name] = self._cut(name, part, wanted, ts)
                slices += found
        except SpringtideError:
            raise
        except Exception:
            self.close()  # the snapshot may be gone with the connection
            raise
        left = {name: part.left[0] for name, part in parts.items()}
        return Take(
            tuple(slices),
            {
                "snapshot": position["snapshot"] if position else self._snapshot,
                "tables": {n: asdict(p) for n, p in parts.items()},
            },
            times={name: END_OF_TIME for name, count in left.items() if not count},
            streams=tuple(parts),
            ended=not any(left.values()),
            backlog=sum(left.values()),
        )

    def close(self) -> None:
        """End the snapshot."""
        if self._connection is not None:
            self._connection = None
            self._ending()

    # ── the snapshot ──────────────────────────────────────────────────────────────────────────────────────────────

    def _parts(self, position: Any) -> dict[str, Part]:
        if position is None:
            self._connect()
            return self._begin()
        parts = {n: Part(**{**p, "left": tuple(p["left"])}) for n, p in position["tables"].items()}
        if self._connect():
            self._resume(position["snapshot"], parts)
        return parts

    def _connect(self) -> bool:
        """Take a snapshot if there is none; return whether it is new."""
        if self._connection is not None:
            self._ask("SELECT 1")
            return False
        self._connection = self._source.server.connect()
        self._ending = weakref.finalize(self, _close, self._connection)  # a failed run may have left it open
        self._connection.execute("SET idle_in_transaction_session_timeout = 0")
        self._connection.commit()
        self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        ((self._exported, self._snapshot),) = self._ask("SELECT pg_export_snapshot(), pg_current_snapshot()::text")
        self._first, self._since = self._snapshot, "true"
        return True

    def _begin(self) -> dict[str, Part]:
        self._refuse_nulls()
        parts = {}
        for schema, name, oid, file, pages in self._ask(_RELATIONS, {"table": str(self._source.table)}):
            table = str(Table(name, schema))
            left = self._ask(f"SELECT {_TOTAL} FROM ONLY {table} WHERE {self._wanted}")[0]
            parts[table] = Part(oid, file, pages, None if self._source.order_by else 0, 0, tuple(left))
        if not parts:
            raise self._refused("no longer exists", "create it again, or read another table")
        return parts

    def _refuse_nulls(self) -> None:
        if (column := self._source.order_by) is None:
            return
        where = f"{quoted(column)} IS NULL AND {self._wanted}"
        ((found,),) = self._ask(f"SELECT EXISTS (SELECT 1 FROM {self._source.table} WHERE {where})")
        if found:
            raise self._refused(
                f"has rows without a value in {column!r}, so they have no place in the order",
                f'leave them out: where="{column} IS NOT NULL"',
            )

    def _resume(self, snapshot: str, parts: dict[str, Part]) -> None:
        """Make sure that the rows still to be read are the same as before: in a new snapshot, those that the first one saw."""
        if snapshot != self._snapshot:
            self._first, self._since = snapshot, seen_by(snapshot)
        there = {
            str(Table(n, s)): (oid, file)
            for s, n, oid, file, _ in self._ask(_RELATIONS, {"table": str(self._source.table)})
        }
        for table, part in parts.items():
            if not part.left[0]:
                continue
            if there.get(table) != (part.oid, part.file):
                raise self._refused(
                    f"is not the one that the query began with: {table} was dropped, created again or rewritten (VACUUM FULL, CLUSTER, TRUNCATE)",
                    "start again with a new checkpoint",
                )
            left = tuple(self._ask(f"SELECT {_TOTAL} FROM ONLY {table} WHERE {self._range(part.next, None)}")[0])
            if left != part.left:
                lost = part.left[0] - left[0]
                raise self._refused(
                    f"was changed while no run held its snapshot: of the {part.left[0]} rows of {table} that were still to be read,"
                    f" {lost if lost > 0 else 'some'} were updated or deleted",
                    "undo that if you can, or start again with a new checkpoint; rows that were inserted do not matter",
                )

    # ── ranges ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _wanted(self) -> str:
        return f"({self._source.where})" if self._source.where is not None else "true"

    def _range(self, first: Any, stop: Any) -> str:
        """Write the condition for a range; without a stop it goes to the end."""
        column, bounds = self._source.order_by, []
        if column is None:
            bounds = [f"ctid >= '({first},0)'::tid"] + ([f"ctid < '({stop},0)'::tid"] if stop is not None else [])
        else:
            bounds += [f"{quoted(column)} > {literal(first)}"] if first is not None else []
            bounds += [f"{quoted(column)} <= {literal(stop)}"] if stop is not None else []
        return " AND ".join([*bounds, self._wanted, self._since])

    def _cut(self, table: str, part: Part, wanted: int, ts: str | None) -> tuple[list[Slice], Part]:
        """Cut about as many rows as are wanted into slices, and say what is left after that."""
        slices: list[Slice] = []
        piece = max(_PIECE, -(-wanted // _PIECES))
        taken = 0
        while taken < wanted and part.left[0]:
            stop = self._stop(table, part, min(piece, wanted - taken))
            condition = self._range(part.next, stop)
            rows, places, greatest = self._ask(
                f"SELECT {_TOTAL}, {self._greatest(ts)} FROM ONLY {table} WHERE {condition}"
            )[0]
            if rows:
                slices.append(Slice(table, part.rows, rows, [self._exported, table, condition, self._first], greatest))
            taken += rows
            part = replace(part, next=stop, rows=part.rows + rows, left=(part.left[0] - rows, part.left[1] - places))
        return slices, part

    def _stop(self, table: str, part: Part, rows: int) -> Any:
        if (column := self._source.order_by) is None:
            pages = max(1, part.pages - part.next)
            return min(part.pages, part.next + max(1, rows * pages // part.left[0]))
        found = self._ask(
            f"SELECT {quoted(column)}::text FROM ONLY {table} WHERE {self._range(part.next, None)}"
            f" ORDER BY {quoted(column)} OFFSET {min(rows, part.left[0]) - 1} LIMIT 1"
        )
        return found[0][0]

    def _greatest(self, ts: str | None) -> str:
        """Write the expression for the greatest time of a range, in microseconds."""
        kinds = {column.name: column.kind for column in self._source.columns}
        if ts is None:
            return "0"  # without time they can be read in any order
        name = quoted(ts)
        times = {
            "int8": f"max({name})",
            "int4": f"max({name})::int8",
            "date": f"extract(epoch FROM max({name}) FILTER (WHERE isfinite({name}))) * 1000000",
        }
        times |= dict.fromkeys(("timestamp", "timestamptz"), times["date"])
        found = times.get(kinds.get(ts, ""), "NULL::int8")
        return f"CASE WHEN {found} BETWEEN {FIRST_TIME} AND {LAST_TIME} THEN ({found})::int8 END"

    def _ask(self, statement: str, parameters: Any = None) -> list[Any]:
        # without parameters a % is a %
        return self._connection.execute(statement, parameters).fetchall()  # type: ignore[no-any-return]

    def _refused(self, problem: str, hint: str) -> SpringtideError:
        return SpringtideError(f"step {self._step}: {self._source.describe()} {problem}; {hint}")
