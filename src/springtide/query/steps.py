"""The nodes of a query: one frozen class per operator. `Stream` makes them, `Graph` collects them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import polars as pl

from springtide.query.aggregates import BoundAggregate
from springtide.query.connectors import SinkConnector, SourceConnector
from springtide.query.ids import Micros
from springtide.query.operators import UserOperator
from springtide.query.text import expr_text
from springtide.query.types import COUNT, length_text, schema_text
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

    @property
    def ordered(self) -> bool:
        """Whether its result depends on the total order of its tuples."""
        return False

    @property
    def outputs(self) -> dict[str, pl.Schema | None]:
        """Its outputs with their columns; None if a stream may have other columns than this step says."""
        return {OUT: self.schema}

    def reads(self, side: int) -> Iterable[str]:
        """Return the columns that it reads on one of its inputs."""
        return ()

    def describe(self) -> str:
        """Return a short description of this step for people."""
        return ""

    def describe_state(self) -> dict[str, Any]:
        """Return what people need to make sense of its state: its columns, its keys, its aggregates, the lengths of its window."""
        return {"columns": " | ".join(schema_text(stream.schema) for stream in self.inputs)}


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

    @property
    def outputs(self) -> dict[str, pl.Schema | None]:
        """Its rows, those that came too late and those that it rejected."""
        return {OUT: self.schema, LATE: self.schema, REJECTED: None}

    def describe(self) -> str:
        """Return where the tuples come from."""
        disorder = f", disorder up to {length_text(self.max_disorder)}" if self.max_disorder else ""
        return f"{self.connector.describe()}{disorder} → {schema_text(self.schema)}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Map(Step):
    """Columns added or replaced; the timestamp stays."""

    kind: ClassVar[str] = "map"

    exprs: tuple[pl.Expr, ...]

    def reads(self, side: int) -> Iterable[str]:
        """Return the columns in its expressions."""
        return _roots(self.exprs)

    def describe(self) -> str:
        """Return which columns it makes."""
        return ", ".join(expr_text(e) for e in self.exprs)


@dataclass(frozen=True, eq=False, kw_only=True)
class Select(Step):
    """Columns chosen, dropped or renamed."""

    kind: ClassVar[str] = "select"

    exprs: tuple[pl.Expr, ...]

    def reads(self, side: int) -> Iterable[str]:
        """Return the columns in its expressions."""
        return _roots(self.exprs)

    def describe(self) -> str:
        """Return which columns are left."""
        return ", ".join(expr_text(e) for e in self.exprs)


@dataclass(frozen=True, eq=False, kw_only=True)
class Filter(Step):
    """Tuples for which the predicate holds."""

    kind: ClassVar[str] = "filter"

    predicate: pl.Expr

    def reads(self, side: int) -> Iterable[str]:
        """Return the columns in its predicate."""
        return _roots([self.predicate])

    def describe(self) -> str:
        """Return the predicate."""
        return expr_text(self.predicate)


@dataclass(frozen=True, eq=False, kw_only=True)
class Explode(Step):
    """One tuple for each element of a list column; none for an empty or null list."""

    kind: ClassVar[str] = "explode"

    column: str

    def reads(self, side: int) -> Iterable[str]:
        """Return the column."""
        return [self.column]

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

    @property
    def outputs(self) -> dict[str, pl.Schema | None]:
        """One for each predicate, and the rest."""
        return dict.fromkeys(self.ports, self.schema)

    def reads(self, side: int) -> Iterable[str]:
        """Return the columns in its predicates."""
        return _roots(predicate for _, predicate in self.predicates)

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

    @property
    def ordered(self) -> bool:
        """Whether its window or one of its aggregates depends on the total order."""
        return self.window.ordered or any(a.traits.ordered for a in self.aggregates)

    @property
    def outputs(self) -> dict[str, pl.Schema | None]:
        """Its groups, and those that it rejected."""
        return {OUT: self.schema, REJECTED: self.rejected}

    def reads(self, side: int) -> Iterable[str]:
        """Return its keys, and the columns in its aggregates."""
        inputs = [a.aggregate.input for a in self.aggregates if a.aggregate.input is not None]
        user = [e for a in self.aggregates if a.aggregate.user is not None for e in a.aggregate.user.add.values()]
        return [*self.by, *_roots([*inputs, *user])]

    def describe(self) -> str:
        """Return the window, the groups and the aggregates."""
        by = f" by {', '.join(self.by)}" if self.by else ""
        return f"{self.window}{by}: {', '.join(map(str, self.aggregates))}"

    def describe_state(self) -> dict[str, Any]:
        """Return its keys and what is aggregated."""
        values = {a.name: a.input_type or a.output_type for a in self.aggregates}
        columns = pl.Schema({**{k: self.inputs[0].schema[k] for k in self.by}, **values})
        return {
            "columns": schema_text(columns),
            "keys": list(self.by),
            "aggregates": [a.name for a in self.aggregates],
            **self.window.lengths(),
        }


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

    def reads(self, side: int) -> Iterable[str]:
        """Return the columns of what is ranked, of the groups and of the weight."""
        return [*self.per, *self.by, *([self.weight] if self.weight else [])]

    def describe(self) -> str:
        """Return the ranking."""
        per = f" per {', '.join(self.per)}" if self.per else ""
        weight = f" by {self.weight}" if self.weight else ""
        how = f", sketch of {self.sketch}" if self.sketch else ""
        return f"{self.k} × {', '.join(self.by)}{weight}{per}, {self.window}{how}"

    def describe_state(self) -> dict[str, Any]:
        """Return what is counted."""
        columns = pl.Schema({column: self.inputs[0].schema[column] for column in self.reads(0)})
        return {
            "columns": schema_text(columns),
            "keys": [*self.per, *self.by],
            "aggregates": [COUNT],
            **self.window.lengths(),
        }


@dataclass(frozen=True)
class Within:
    """A join window in time: pairs whose timestamps are at most this many microseconds apart."""

    ordered: ClassVar[bool] = False
    length: Micros

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

    @property
    def ordered(self) -> bool:
        """Whether its window depends on the total order."""
        return self.window.ordered

    def reads(self, side: int) -> Iterable[str]:
        """Return the keys of that side, and the columns that the right side gives to pairs."""
        return self.left_on if side == 0 else [*self.right_on, *(there for there, _ in self.right_columns)]

    def describe(self) -> str:
        """Return the keys and the window."""
        keys = ", ".join(a if a == b else f"{a} = {b}" for a, b in zip(self.left_on, self.right_on, strict=True))
        where = "" if self.where is None else f" where {expr_text(self.where)}"
        return f"{self.how} on {keys}, {_join_window(self.window)}{where}"

    def describe_state(self) -> dict[str, Any]:
        """Return the tuples of both sides, and the keys that both call the same."""
        return {**super().describe_state(), "keys": [k for k in self.left_on if k in self.right_on]}


@dataclass(frozen=True, eq=False, kw_only=True)
class ThetaJoin(Step):
    """Pairs of tuples for which a predicate holds."""

    kind: ClassVar[str] = "theta_join"
    stateful: ClassVar[bool] = True

    predicate: pl.Expr
    window: JoinWindow
    routing: Routing | None
    right_columns: tuple[tuple[str, str], ...]

    @property
    def ordered(self) -> bool:
        """Whether its window depends on the total order."""
        return self.window.ordered

    def reads(self, side: int) -> Iterable[str]:
        """Return the columns that the right side gives to pairs."""
        return [] if side == 0 else [there for there, _ in self.right_columns]

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

    @property
    def ordered(self) -> bool:
        """Always true: nobody knows what user code does with the order."""
        return True

    @property
    def outputs(self) -> dict[str, pl.Schema | None]:
        """Its rows, and those that it rejected if it does not fail instead."""
        rejected: dict[str, pl.Schema | None] = {REJECTED: self.rejected} if self.on_error == "reject" else {}
        return {OUT: self.schema, **rejected}

    def reads(self, side: int) -> Iterable[str]:
        """Return its keys; what user code reads nobody knows."""
        return self.keys

    def describe(self) -> str:
        """Return which operator runs over which keys."""
        keys = f" by {'each of ' if self.many else ''}{', '.join(self.keys)}" if self.keys else ""
        errors = ", errors reject the row" if self.on_error == "reject" else ""
        return f"{type(self.operator).__name__}{keys}{errors}"

    def describe_state(self) -> dict[str, Any]:
        """Return the tuples that it takes, and its keys."""
        return {**super().describe_state(), "keys": list(self.keys)}


@dataclass(frozen=True, eq=False, kw_only=True)
class Sink(Step):
    """Rows that are sent to the outside."""

    kind: ClassVar[str] = "sink"

    connector: SinkConnector

    @property
    def outputs(self) -> dict[str, pl.Schema | None]:
        """None: nothing follows a sink."""
        return {}

    def describe(self) -> str:
        """Return where the rows go."""
        return self.connector.describe()


def _join_window(window: JoinWindow) -> str:
    return f"last {window.size} of the other side" if isinstance(window, LastN) else str(window)


def _roots(exprs: Iterable[pl.Expr]) -> list[str]:
    return [column for expr in exprs for column in expr.meta.root_names()]
