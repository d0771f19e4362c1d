"""Pass 4: find the exchanges that have to keep the total order."""

from __future__ import annotations

from dataclasses import replace

from springtide.compiler.plan import Plan
from springtide.query import steps
from springtide.query.errors import QueryError

MOST_EXPLODES = 3
"""The places in this many lists fit into 64 bits."""


def order(plan: Plan) -> Plan:
    """Mark exchanges to steps whose result depends on the total order; only there do tuples carry their place and wait.

    Such steps are windows of tuples (in aggregates and in joins), `first`, `last` and `collect`, and users' operators.
    """
    exchanges = tuple(replace(e, ordered=plan.target(e).ordered) for e in plan.exchanges)
    for exchange in exchanges:
        if exchange.ordered and (found := _explodes(plan.step(exchange.step))) > MOST_EXPLODES:
            step = plan.target(exchange)
            raise QueryError(
                f"{plan.graph.name_of(step)} ({step.kind})",
                f"it needs its tuples in order, but their order is lost when more than {MOST_EXPLODES} lists are exploded one after the other, and here there are {found}",
                "combine several of the lists into one with .map, and explode that",
            )
    return replace(plan, exchanges=exchanges)


def _explodes(step: steps.Step) -> int:
    """Return how many explode steps a tuple can have gone through since a source or a stateful step made it."""
    before = 0 if step.stateful else max((_explodes(stream.step) for stream in step.inputs), default=0)
    return before + isinstance(step, steps.Explode)
