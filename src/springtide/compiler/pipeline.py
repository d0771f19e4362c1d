"""The compiler: an ordered tuple of passes, each `Plan → Plan` (SC-3, SC-5)."""

from __future__ import annotations

from collections.abc import Callable

from springtide.compiler.passes.buckets import assign_buckets
from springtide.compiler.passes.order import order
from springtide.compiler.passes.route import route
from springtide.compiler.passes.split import split
from springtide.compiler.passes.validate import validate
from springtide.compiler.plan import BUCKETS, Plan
from springtide.query.graph import Graph

Pass = Callable[[Plan], Plan]

PASSES: tuple[Pass, ...] = (validate, split, route, order, assign_buckets)
"""Every pass, in order: later ones rely on what earlier ones have filled in."""


def compile(graph: Graph, buckets: int = BUCKETS) -> Plan:
    """Cut a query into subqueries and decide how tuples go from one to the next.

    >>> clicks = st.source("clicks", st.memory(schema={"page": pl.String, "ts": st.TIME}), ts="ts")
    >>> hits = clicks.aggregate(by="page", window=st.tumbling("1m"), n=st.count(), name="hits")
    >>> plan = compile(st.Query("hits", hits.to(st.memory_sink())))
    >>> [subquery.name for subquery in plan.subqueries]
    ['clicks', 'hits']
    """
    plan = Plan(graph, buckets)
    for run in PASSES:
        plan = run(plan)
    return plan
