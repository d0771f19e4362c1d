"""Pass 5: find the exchanges before which partial results can be built."""

from __future__ import annotations

from dataclasses import replace

from springtide.compiler.plan import Plan
from springtide.query import steps
from springtide.query.windows import Session, Sliding


def combine(plan: Plan) -> Plan:
    """Mark exchanges to aggregates whose window is one of time and whose functions all combine, and to rankings.

    The panes of a sliding window lie where the clock says, so a sender can fold its tuples into one partial result per
    key and pane. Tuples of a key in one cell of time as long as a session's gap are of one session, so a sender folds them
    into a piece of it. Which tuples are in a window of n is only known where all tuples of the key are.
    """
    return replace(plan, exchanges=tuple(replace(e, combine=combines(plan.target(e))) for e in plan.exchanges))


def combines(step: steps.Step) -> bool:
    """Tell whether partial results of this step can be built before the exchange and merged after it."""
    if isinstance(step, steps.TopK):
        return True
    if isinstance(step, steps.Aggregate):
        return isinstance(step.window, Sliding | Session) and all(a.traits.combines for a in step.aggregates)
    return False
