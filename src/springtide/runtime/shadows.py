"""Window recreation (SC-9): while old windows are finished by their old owners, a subquery is there twice.

    calls ──→ heavy@old    the map before; panes of windows up to the last that had begun; gone when that one is closed
        └───→ heavy        the map after; panes of the windows that follow

A pane that is in old and new windows goes to both owners.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from springtide.compiler.plan import OLD, Plan


def shadow_of(subquery: str) -> str:
    """Name what is left of a subquery at its old owners."""
    return subquery + OLD


@lru_cache(maxsize=64)
def with_shadows(plan: Plan, shadows: tuple[str, ...]) -> Plan:
    """Give the plan with these subqueries twice; what they get and give goes the same ways. A plan that has them is as it should be."""
    if all(shadow_of(name) in {q.name for q in plan.subqueries} for name in shadows):
        return plan
    subqueries = [replace(q, name=shadow_of(q.name)) for q in plan.subqueries if q.name in shadows]
    exchanges = list(plan.exchanges)
    for name in shadows:
        exchanges += [replace(e, target=shadow_of(name)) for e in exchanges if e.target == name]
        exchanges += [replace(e, origin=shadow_of(name)) for e in exchanges if e.origin == name]
    return replace(plan, subqueries=(*plan.subqueries, *subqueries), exchanges=tuple(exchanges))
