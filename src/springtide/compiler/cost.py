"""The cost of the three ways to parallelise a query: SC-5, section XI of the StreamCloud paper."""

from __future__ import annotations

from dataclasses import dataclass

from springtide.compiler.tables import columns
from springtide.query import steps
from springtide.query.errors import QueryError
from springtide.query.graph import Graph


@dataclass(frozen=True)
class Shape:
    """What the model needs to know about a query. Sources and sinks do not count as operators."""

    operators: int
    stateful: int
    prefix: bool
    """Whether the query starts with stateless operators."""


@dataclass(frozen=True)
class Strategy:
    """One way to parallelise: how many subclusters, channels and hops it takes."""

    name: str
    subclusters: int
    fan_out: float
    """The number of channels between instances in the whole system: f."""
    hops: int
    """How often a tuple moves to another instance: h."""

    def cost(self, alpha: float, beta: float, rate: float) -> float:
        """Return the weighted cost of channels and hops: c = α·f + β·ρ·h.

        >>> Strategy("operator-set-cloud", 3, 60, 2).cost(alpha=0.5, beta=0.1, rate=100)
        50.0
        """
        return alpha * self.fan_out + beta * rate * self.hops


def shape(graph: Graph) -> Shape:
    """Return the number of operators of a query, and what else the model needs."""
    operators = [s for s in graph if not isinstance(s, steps.Source | steps.Sink)]
    prefix = any(not s.stateful and any(isinstance(i.step, steps.Source) for i in s.inputs) for s in operators)
    return Shape(len(operators), sum(s.stateful for s in operators), prefix)


def strategies(query: Shape, nodes: int) -> tuple[Strategy, Strategy, Strategy]:
    """Return query-cloud, operator-cloud and operator-set-cloud for a query on `nodes` nodes.

    With k subclusters of the same size, each node has a channel to the N/k nodes of the next subcluster, and there are
    k - 1 such steps: f = N/k·(k - 1), h = k - 1. Operator-cloud has a subcluster per operator, operator-set-cloud one per
    stateful operator and one for the stateless prefix, if there is one. Query-cloud is one cluster in which every node
    talks to every other, before each stateful operator.

    >>> [(s.name, s.fan_out, s.hops) for s in strategies(Shape(operators=6, stateful=2, prefix=True), nodes=90)]
    [('query-cloud', 8010, 2), ('operator-cloud', 75.0, 5), ('operator-set-cloud', 60.0, 2)]
    """
    return (
        Strategy("query-cloud", 1, nodes * (nodes - 1), query.stateful),
        _subclusters("operator-cloud", query.operators, nodes),
        _subclusters("operator-set-cloud", query.stateful + query.prefix, nodes),
    )


def cost_text(graph: Graph, *, nodes: int, alpha: float, beta: float, rate: float) -> str:
    """Return the three strategies side by side, as text."""
    if nodes < 1:
        raise QueryError(f"{graph.name} (query)", f"a query cannot run on {nodes} nodes", "give at least 1")
    if not (0 <= alpha <= 1 and 0 <= beta <= 1 and rate >= 0):
        raise QueryError(
            f"{graph.name} (query)",
            f"α={alpha:g}, β={beta:g}, ρ={rate:g} are out of range",
            "α and β go from 0 to 1, ρ from 0",
        )
    query = shape(graph)
    prefix = "with a stateless prefix" if query.prefix else "no stateless prefix"
    rows = [("strategy", "subclusters", "fan-out f", "hops h", "cost c", "")]
    for s in strategies(query, nodes):
        mark = "← Springtide" if s.name == "operator-set-cloud" else ""
        rows.append(
            (s.name, str(s.subclusters), _number(s.fan_out), str(s.hops), _number(s.cost(alpha, beta, rate)), mark)
        )
    return "\n".join(
        [
            f"query {graph.name} on {nodes} nodes: l = {query.operators} operators, s = {query.stateful} stateful, {prefix}",
            f"c = α·f + β·ρ·h  with α = {alpha:g}, β = {beta:g}, ρ = {rate:,.10g} tuples/s",
            "",
            *columns(rows, right=[1, 2, 3, 4]),
        ]
    )


def _subclusters(name: str, count: int, nodes: int) -> Strategy:
    count = max(count, 1)
    return Strategy(name, count, nodes / count * (count - 1), count - 1)


def _number(value: float) -> str:
    return f"{value:,.1f}"
