"""Which head runs a subquery."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from springtide.compiler.plan import Plan
from springtide.query import steps
from springtide.query.windows import LastN, Session, Sliding
from springtide.runtime.heads.counting import CountingHead
from springtide.runtime.heads.head import Head
from springtide.runtime.heads.joining import TimeJoinHead
from springtide.runtime.heads.last_joining import LastJoinHead
from springtide.runtime.heads.long_sliding import sliding_head
from springtide.runtime.heads.operating import operating_head
from springtide.runtime.heads.rankings import RankingHead, RankingMergeHead, SketchRankingHead
from springtide.runtime.heads.sessions import SessionHead
from springtide.runtime.heads.theta import LastThetaHead, TimeThetaHead

_WINDOWED: dict[type, Callable[[steps.Aggregate, int], Head]] = {
    Sliding: sliding_head,
    LastN: CountingHead,
    Session: SessionHead,
}


@lru_cache(maxsize=256)
def head_of(plan: Plan, name: str) -> Head:
    """Give the head of a subquery; what it prepares is prepared once per process."""
    subquery = plan.subquery(name)
    assert subquery.head is not None
    step = plan.step(subquery.head)
    where = f"{subquery.head} ({step.kind})"
    buckets = subquery.buckets or 1
    match step:
        case steps.Aggregate():
            return _WINDOWED[type(step.window)](step, buckets)
        case steps.TopK() if step.sketch is not None:
            return SketchRankingHead(step, buckets, where)
        case steps.TopK():
            return (RankingMergeHead if subquery.merges else RankingHead)(step, buckets)
        case steps.Join():
            return (TimeJoinHead if isinstance(step.window, steps.Within) else LastJoinHead)(step, buckets)
        case steps.ThetaJoin():
            routing = next(e.routing for e in plan.exchanges if e.target == subquery.name)
            return (TimeThetaHead if isinstance(step.window, steps.Within) else LastThetaHead)(step, buckets, routing)
        case steps.Operate():
            return operating_head(where, step, buckets)
        case _:
            raise TypeError(f"{where} is no stateful step")


def check_runs(plan: Plan) -> None:
    """Refuse a plan with a step that the engine does not run, before anything is started."""
    for subquery in plan.subqueries:
        if subquery.head is not None:
            head_of(plan, subquery.name)
