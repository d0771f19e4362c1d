"""The plan: what the passes turn a graph into, and what the runtime runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from springtide.query.graph import Graph
from springtide.query.steps import Step

BUCKETS = 256
"""How many buckets a subquery's keys are hashed to, unless the user says otherwise."""


OLD = "@old"
"""Suffix to the name of a subquery, for what is left of it at its old owners while they finish their windows (SC-9)."""


@dataclass(frozen=True)
class Hash:
    """A tuple goes to the bucket of its keys; with `many`, the only key is a list and the tuple goes to the bucket of each element."""

    keys: tuple[str, ...]
    many: bool = False

    def __str__(self) -> str:
        """Return a short description."""
        return f"hash({'each of ' if self.many else ''}{', '.join(self.keys)})"


@dataclass(frozen=True)
class Grid:
    """Left tuples go to a row of buckets, right tuples to a column: every pair meets once (SC-6)."""

    rows: int
    columns: int

    def __str__(self) -> str:
        """Return a short description."""
        return f"grid({self.rows} × {self.columns})"


@dataclass(frozen=True)
class Broadcast:
    """Every tuple goes to every instance and is stored in one bucket, in turn (ST-6)."""

    def __str__(self) -> str:
        """Return a short description."""
        return "broadcast"


@dataclass(frozen=True)
class Single:
    """All tuples go to one bucket: there are no keys."""

    def __str__(self) -> str:
        """Return a short description."""
        return "single"


Routing = Hash | Grid | Broadcast | Single
"""How tuples find their instance."""


@dataclass(frozen=True)
class Exchange:
    """Tuples that go from one subquery to the head of another."""

    origin: str
    """The subquery that sends."""
    step: str
    port: str
    """The step in that subquery, and its output, whose tuples are sent."""
    target: str
    """The subquery that receives."""
    side: int
    """Which input of its head: 0, or 1 for the right side of a join."""
    routing: Routing | None = None
    ordered: bool = False
    """Whether the receiver needs the total order, so that tuples carry their place in it."""


@dataclass(frozen=True)
class Subquery:
    """The unit of parallelism: a stateful head (or the sources) and the stateless steps after it, up to the next heads and the sinks.

    A stateless step that several subqueries reach runs in each of them, on the tuples that come from that subquery.
    """

    name: str
    head: str | None
    """The stateful step, or None for a stateless prefix."""
    sources: tuple[str, ...]
    chain: tuple[str, ...]
    """The stateless steps after the head or the sources, in order. They run as one lazy Polars query."""
    sinks: tuple[str, ...]
    buckets: int | None = None
    """None before the last pass and for a stateless prefix."""
    merges: bool = False
    """Whether it merges the results of the instances of another subquery with the same head; if so, it keeps no state."""

    @property
    def steps(self) -> tuple[str, ...]:
        """Every step of the subquery, in order."""
        return (*self.sources, *((self.head,) if self.head else ()), *self.chain, *self.sinks)


@dataclass(frozen=True)
class Plan:
    """A graph, cut into subqueries, with the exchanges between them."""

    graph: Graph
    buckets: int = BUCKETS
    """The wanted number of buckets per stateful subquery."""
    subqueries: tuple[Subquery, ...] = ()
    exchanges: tuple[Exchange, ...] = field(default=())

    def step(self, name: str) -> Step:
        """Return the step with that name."""
        return self.graph.step(name)

    def target(self, exchange: Exchange) -> Step:
        """Return the stateful step that an exchange leads to."""
        head = self.subquery(exchange.target).head
        assert head is not None
        return self.step(head)

    def combines(self, exchange: Exchange) -> bool:
        """Return whether partial results go over an exchange. Rankings that are to be merged are already as small as they get."""
        return self.target(exchange).combines and not self.subquery(exchange.target).merges

    def merge_of(self, subquery: Subquery) -> Subquery | None:
        """Return the subquery that merges the results of this one's instances, if there is one."""
        return next((s for s in self.subqueries if s.merges and not subquery.merges and s.head == subquery.head), None)

    def subquery(self, name: str) -> Subquery:
        """Return the subquery with that name, or the one that contains the step with that name."""
        for subquery in self.subqueries:
            if subquery.name == name:
                return subquery
        step = self.graph.name_of(self.graph.step(name))
        return next(s for s in self.subqueries if step in s.steps)
