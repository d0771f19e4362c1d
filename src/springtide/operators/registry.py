"""Which operator runs a subquery."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from springtide.compiler.plan import Plan
from springtide.operators.counting.operator import CountingOperator
from springtide.operators.join.last_operator import LastJoinOperator
from springtide.operators.join.time_operator import TimeJoinOperator
from springtide.operators.operator import Operator
from springtide.operators.ranking.operator import RankingMergeOperator, RankingOperator, SketchRankingOperator
from springtide.operators.sessions.operator import SessionOperator
from springtide.operators.sliding.long import sliding_operator
from springtide.operators.theta.operator import LastThetaOperator, TimeThetaOperator
from springtide.operators.user import user_operator
from springtide.query import steps
from springtide.query.windows import LastN, Session, Sliding, Window

MakeOperator = Callable[[steps.Aggregate, int], Operator]
"""Makes the operator of an aggregate from its step and the number of buckets."""

_WINDOWS: dict[type[Window], MakeOperator] = {
    Sliding: sliding_operator,
    LastN: CountingOperator,
    Session: SessionOperator,
}
_JOINS = {steps.Within: TimeJoinOperator, LastN: LastJoinOperator}
_THETA_JOINS = {steps.Within: TimeThetaOperator, LastN: LastThetaOperator}


def register_window(window: type[Window], make: MakeOperator) -> None:
    """Register which operator runs aggregates over a type of window.

    Call it in the module that defines the window: every process that receives a query with such a window has imported that module.
    """
    _WINDOWS[window] = make


@lru_cache(maxsize=256)
def operator_of(plan: Plan, name: str) -> Operator:
    """Return the operator of a subquery; its preparations are made once per process."""
    subquery = plan.subquery(name)
    assert subquery.head is not None
    step = plan.step(subquery.head)
    where = f"{subquery.head} ({step.kind})"
    buckets = subquery.buckets or 1
    match step:
        case steps.Aggregate():
            if type(step.window) not in _WINDOWS:
                raise TypeError(
                    f"{where}: no operator is registered for the window '{step.window}'; see register_window"
                )
            return _WINDOWS[type(step.window)](step, buckets)
        case steps.TopK() if step.sketch is not None:
            return SketchRankingOperator(step, buckets, where)
        case steps.TopK():
            return (RankingMergeOperator if subquery.merges else RankingOperator)(step, buckets)
        case steps.Join():
            return _JOINS[type(step.window)](step, buckets)
        case steps.ThetaJoin():
            routing = next(e.routing for e in plan.exchanges if e.target == subquery.name)
            return _THETA_JOINS[type(step.window)](step, buckets, routing)
        case steps.Operate():
            return user_operator(where, step, buckets)
        case _:
            raise TypeError(f"{where} is not a stateful step")


def check_runs(plan: Plan) -> None:
    """Refuse a plan that has a step the engine cannot run, before anything is started."""
    for subquery in plan.subqueries:
        if subquery.head is not None:
            operator_of(plan, subquery.name)
