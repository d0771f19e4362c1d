"""Pass 6: find the exchanges that have to keep the total order."""

from __future__ import annotations

from dataclasses import replace

from springtide.compiler.plan import Plan
from springtide.query import steps
from springtide.query.windows import LastN


def order(plan: Plan) -> Plan:
    """Mark exchanges to steps whose result depends on the total order; only there tuples carry their place and wait.

    These are windows of tuples (in aggregates and in joins), `first`, `last` and `collect`, and users' operators.
    """
    return replace(plan, exchanges=tuple(replace(e, ordered=needs_order(plan.target(e))) for e in plan.exchanges))


def needs_order(step: steps.Step) -> bool:
    """Tell whether the result of this step depends on the total order of its tuples."""
    match step:
        case steps.Operate():
            return True
        case steps.Join() | steps.ThetaJoin():
            return isinstance(step.window, LastN)
        case steps.Aggregate():
            return isinstance(step.window, LastN) or any(a.traits.ordered for a in step.aggregates)
    return False
