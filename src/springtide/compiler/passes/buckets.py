"""Pass 5: give the stateful subqueries their buckets."""

from __future__ import annotations

from dataclasses import replace

from springtide.compiler.plan import Plan, Single


def assign_buckets(plan: Plan) -> Plan:
    """Give each stateful subquery the wanted number of buckets, or one if nothing tells its tuples apart; a prefix gets none."""
    single = {e.target for e in plan.exchanges if isinstance(e.routing, Single)}
    return replace(
        plan,
        subqueries=tuple(
            replace(s, buckets=None if s.head is None else 1 if s.name in single else plan.buckets)
            for s in plan.subqueries
        ),
    )
