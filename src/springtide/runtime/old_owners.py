"""Window recreation (SC-9): while old owners finish the old windows, a subquery exists twice.

    calls ──→ heavy@old    the map before; panes of windows up to the last that had begun; gone when that one is closed
        └───→ heavy        the map after; panes of the windows that follow

A pane that is in old and new windows goes to both owners.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from springtide.compiler.plan import OLD, Plan


def at_old_owners(subquery: str) -> str:
    """Return the name of the part of a subquery that its old owners still run.

    >>> at_old_owners("heavy")
    'heavy@old'
    """
    return subquery + OLD


@lru_cache(maxsize=64)
def with_old_owners(plan: Plan, leaving: tuple[str, ...]) -> Plan:
    """Return the plan with these subqueries twice; their inputs and outputs are the same. It does not depend on their order: exchanges are known by their numbers."""
    if not leaving:
        return plan
    leaving = tuple(sorted(leaving))
    subqueries = [replace(q, name=at_old_owners(q.name)) for q in plan.subqueries if q.name in leaving]
    exchanges = list(plan.exchanges)
    for name in leaving:
        exchanges += [replace(e, target=at_old_owners(name)) for e in exchanges if e.target == name]
        exchanges += [replace(e, origin=at_old_owners(name)) for e in exchanges if e.origin == name]
    return replace(plan, subqueries=(*plan.subqueries, *subqueries), exchanges=tuple(exchanges))
