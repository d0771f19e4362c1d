"""The nodes of a query: one frozen class per operator. `Stream` makes them, `Graph` collects them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import polars as pl

from springtide.query.aggregates import BoundAggregate
from springtide.query.connectors import SinkConnector, SourceConnector
from springtide.query.errors import QueryError, shown
from springtide.query.ids import Micros
from springtide.query.operators import UserOperator
from springtide.query.text import expr_text
from springtide.query.types import length_text, schema_text
from springtide.query.windows import LastN, Sliding, Window

if TYPE_CHECKING:
    from springtide.query.stream import Stream

OUT = "out"
LATE = "late"
REJECTED = "rejected"

REASON = "reason"
"""The column of rejected rows that says why they were rejected."""

How = Literal["inner", "left"]
OnError = Literal["fail", "reject"]
Routing = Literal["grid", "broadcast"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Step:
    """One operator of a query."""

    kind: ClassVar[str]
    stateful: ClassVar[bool] = False

    name: str | None
    inputs: tuple[Stream, ...] = field(repr=False)
    schema: pl.Schema = field(repr=False)

    @property
    def combines(self) -> bool:
        """Whether its senders fold tuples into partial results, and send those instead."""
        return False

    def describe(self) -> str:
        """Return a short description of this step for people."""
        return ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Source(Step):
    """Tuples from outside. `ts` names the column with the event time; in the stream it is called `ts`."""

    kind: ClassVar[str] = "source"

    connector: SourceConnector
    ts: str | None
    max_disorder: Micros
    idle_after: Micros | None
    columns: pl.Schema = field(repr=False)
    """The columns as the connector has them."""

    def describe(self) -> str:
        """Return where the tuples come from."""
        disorder = f", disorder up to {length_text(self.max_disorder)}" if self.max_disorder else ""
        return f"{self.connector.describe()}{disorder} → {schema_text(self.schema)}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Map(Step):
    """Columns added or replaced; the timestamp stays."""

    kind: ClassVar[str] = "map"

    exprs: tuple[pl.Expr, ...]

    def describe(self) -> str:
        """Return which columns it makes."""
        return ", ".join(expr_text(e) for e in self.exprs)


@dataclass(frozen=True, eq=False, kw_only=True)
class Select(Step):
    """Columns chosen, dropped or renamed."""

    kind: ClassVar[str] = "select"

    exprs: tuple[pl.Expr, ...]

    def describe(self) -> str:
        """Return which columns are left."""
        return ", ".join(expr_text(e) for e in self.exprs)


@dataclass(frozen=True, eq=False, kw_only=True)
class Filter(Step):
    """Tuples for which the predicate holds."""

    kind: ClassVar[str] = "filter"

    predicate: pl.Expr

    def describe(self) -> str:
        """Return the predicate."""
        return expr_text(self.predicate)


@dataclass(frozen=True, eq=False, kw_only=True)
class Explode(Step):
    """One tuple for each element of a list column; none for an empty or null list."""

    kind: ClassVar[str] = "explode"

    column: str

    def describe(self) -> str:
        """Return the column."""
        return self.column


@dataclass(frozen=True, eq=False, kw_only=True)
class Split(Step):
    """Each tuple goes to the output of the first predicate that holds, or to the rest if none does (SC-1)."""

    kind: ClassVar[str] = "split"

    predicates: tuple[tuple[str, pl.Expr], ...]
    rest: str | None

    @property
    def ports(self) -> tuple[str, ...]:
        """The names of its outputs, in order."""
        return (*(port for port, _ in self.predicates), *([self.rest] if self.rest else []))

    def describe(self) -> str:
        """Return the outputs in order."""
        parts = [f"{port}: {expr_text(p)}" for port, p in self.predicates]
        return "; ".join(parts + ([f"{self.rest}: rest"] if self.rest else []))


@dataclass(frozen=True, eq=False, kw_only=True)
class Union(Step):
    """The tuples of several streams with the same columns."""

    kind: ClassVar[str] = "union"


@dataclass(frozen=True, eq=False, kw_only=True)
class Aggregate(Step):
    """Aggregates for each group in each window."""

    kind: ClassVar[str] = "aggregate"
    stateful: ClassVar[bool] = True

    by: tuple[str, ...]
    window: Window
    aggregates: tuple[BoundAggregate, ...]

    @property
    def combines(self) -> bool:
        """Whether its senders know a tuple's window: which tuples are the last n is known only where all tuples of a key meet."""
        return self.window.combines

    @property
    def rejected(self) -> pl.Schema:
        """The columns of rejected groups: those of the output except the aggregates, and the reason."""
        values = [a.name for a in self.aggregates]
        return pl.Schema({**{n: t for n, t in self.schema.items() if n not in values}, REASON: pl.String()})

    def describe(self) -> str:
        """Return the window, the groups and the aggregates."""
        by = f" by {', '.join(self.by)}" if self.by else ""
        return f"{self.window}{by}: {', '.join(map(str, self.aggregates))}"


@dataclass(frozen=True, eq=False, kw_only=True)
class TopK(Step):
    """The k most frequent (or heaviest) values in each window."""

    kind: ClassVar[str] = "top_k"
    stateful: ClassVar[bool] = True

    k: int
    by: tuple[str, ...]
    per: tuple[str, ...]
    window: Sliding
    weight: str | None
    sketch: int | None
    """Size of the frequent-items sketch, or None for exact counts."""

    @property
    def combines(self) -> bool:
        """Always true: its senders send counts or sketches."""
        return True

    def describe(self) -> str:
        """Return the ranking."""
        per = f" per {', '.join(self.per)}" if self.per else ""
        weight = f" by {self.weight}" if self.weight else ""
        how = f", sketch of {self.sketch}" if self.sketch else ""
        return f"{self.k} × {', '.join(self.by)}{weight}{per}, {self.window}{how}"


@dataclass(frozen=True)
class Within:
    """A join window in time: pairs whose timestamps are at most this many microseconds apart."""

    ordered: ClassVar[bool] = False
    length: int

    def __str__(self) -> str:
        """Return it as the user wrote it."""
        return f"within {length_text(self.length)}"


JoinWindow = Within | LastN
"""Joins look back over a length of time or over the last n tuples of the other side."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Join(Step):
    """Pairs of tuples with equal keys."""

    kind: ClassVar[str] = "join"
    stateful: ClassVar[bool] = True

    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    window: JoinWindow
    how: How
    where: pl.Expr | None
    right_columns: tuple[tuple[str, str], ...]
    """Columns of the right side in the output: (name on that side, name in the output)."""

    def describe(self) -> str:
        """Return the keys and the window."""
        keys = ", ".join(a if a == b else f"{a} = {b}" for a, b in zip(self.left_on, self.right_on, strict=True))
        where = "" if self.where is None else f" where {expr_text(self.where)}"
        return f"{self.how} on {keys}, {_join_window(self.window)}{where}"


@dataclass(frozen=True, eq=False, kw_only=True)
class ThetaJoin(Step):
    """Pairs of tuples for which a predicate holds."""

    kind: ClassVar[str] = "theta_join"
    stateful: ClassVar[bool] = True

    predicate: pl.Expr
    window: JoinWindow
    routing: Routing | None
    right_columns: tuple[tuple[str, str], ...]

    def describe(self) -> str:
        """Return the predicate and the window."""
        return f"{expr_text(self.predicate)}, {_join_window(self.window)}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Operate(Step):
    """A user's operator with explicit state."""

    kind: ClassVar[str] = "operator"
    stateful: ClassVar[bool] = True

    operator: UserOperator
    keys: tuple[str, ...]
    many: bool
    """Whether the only key is a list column, so that a tuple has several keys (ST-2)."""
    on_error: OnError = "fail"
    """What happens when `process` fails: the query fails too, or the row goes to the side output."""

    @property
    def rejected(self) -> pl.Schema:
        """The columns of rejected rows: those of the input, and the reason."""
        return pl.Schema({**self.inputs[0].schema, REASON: pl.String()})

    def describe(self) -> str:
        """Return which operator runs over which keys."""
        keys = f" by {'each of ' if self.many else ''}{', '.join(self.keys)}" if self.keys else ""
        errors = ", errors reject the row" if self.on_error == "reject" else ""
        return f"{type(self.operator).__name__}{keys}{errors}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Sink(Step):
    """Rows that are sent to the outside."""

    kind: ClassVar[str] = "sink"

    connector: SinkConnector

    def describe(self) -> str:
        """Return where the rows go."""
        return self.connector.describe()


_COLUMN_CALLED_NAME = {
    "map": "; to make a column with that name write pl.col('x').alias('name')",
    "select": "; to make a column with that name write pl.col('x').alias('name')",
    "aggregate": "; to make a column with that name give the aggregate another one, as in n=st.count(), and rename it afterwards: .rename({'n': 'name'})",
    "split": "; give the output another name",
}


def check_name(kind: str, name: Any) -> None:
    """Refuse a name that cannot be part of a path, a command or a report."""
    if not isinstance(name, str):
        hint = f"name= is what the step is called{_COLUMN_CALLED_NAME.get(kind, '')}"
        raise QueryError(f"({kind})", f"name={shown(name)} is not a string", hint)
    if not name.strip() or name.startswith(".") or any(c in "/\\=" or not c.isprintable() for c in name):
        raise QueryError(
            f"{name!r} ({kind})", "this name cannot be used in files and commands", "use letters, digits, - and _"
        )


def _join_window(window: JoinWindow) -> str:
    return f"last {window.size} of the other side" if isinstance(window, LastN) else str(window)
