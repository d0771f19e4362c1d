"""The load balancer: what goes over an exchange, with the bucket of every row (SC-6)."""

from __future__ import annotations

import polars as pl

from springtide.compiler.plan import Exchange, Hash, Plan
from springtide.kernels import order
from springtide.kernels.hashing import bucket_of
from springtide.kernels.sliding import sliding_kernel
from springtide.query import steps
from springtide.query.windows import Sliding


def balance(plan: Plan, exchange: Exchange, tuples: pl.LazyFrame) -> pl.LazyFrame:
    """Turn tuples into the rows that go over an exchange: partial results where the head takes them, and buckets."""
    target = plan.subquery(exchange.target)
    head = plan.step(target.name)
    assert target.buckets is not None
    if exchange.ordered:
        tuples = tuples.with_columns(order.content(list(head.inputs[exchange.side].schema)))
    if isinstance(head, steps.Aggregate) and isinstance(head.window, Sliding):
        tuples = sliding_kernel(head).combine(tuples)
    keys = exchange.routing.keys if isinstance(exchange.routing, Hash) else ()
    return tuples.with_columns(bucket_of(keys, target.buckets))
