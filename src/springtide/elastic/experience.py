"""Experience: what earlier changes of a query teach about the next ones. Pure: it is all derived from earlier summaries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from springtide.elastic.snapshot import Snapshot

NEAR = 0.1
"""Values that differ by at most this share are treated as equal."""


LAST = 5
"""How many earlier changes are considered: those from long ago may stem from a different cluster."""
_COMPARED = 3
"""How many summaries before and after a change are compared."""


def delay(summaries: Sequence[Snapshot]) -> float | None:
    """Return the seconds from a decision for more instances until they work: the median of the last measurements, or None if there are none.

    >>> summaries = [
    ...     Snapshot(float(t), t, 1.0, 1.0, {}, {}, took=took) for t, took in enumerate([{}, {"a": 30.0}, {"a": 20.0}])
    ... ]
    >>> delay(summaries), delay(summaries[:1])
    (25.0, None)
    """
    found: list[float] = []
    for summary in reversed(summaries):
        if summary.took:
            found += summary.took.values()
            if len(found) >= LAST:
                break
    return median(found) if found else None


@dataclass(frozen=True)
class DegreeChange:
    """A change in the number of instances, as the summaries show it."""

    at: int
    """The index of the first summary with the new number."""
    before: int
    after: int


def changes(summaries: Sequence[Snapshot], name: str) -> Iterator[DegreeChange]:
    """Yield the changes in a subquery's number of instances, the most recent first."""
    for at in range(len(summaries) - 1, 0, -1):
        old, new = summaries[at - 1].subqueries.get(name), summaries[at].subqueries.get(name)
        if old is not None and new is not None and old.instances != new.instances:
            yield DegreeChange(at, old.instances, new.instances)


def settling(summaries: Sequence[Snapshot], name: str) -> float | None:
    """Return for how many seconds after a change a row's cost still differed from what it was later: the median of the last changes.

    State is read again, caches are cold, new workers warm up. What is measured in that time is the change itself.
    """
    found, end = [], len(summaries)
    for change in changes(summaries, name):
        after = summaries[change.at : end]
        end = change.at
        costs = [cost for r in after if (cost := r.subqueries[name].seconds_per_row)]
        if len(costs) >= 3:
            final = median(costs)
            near = (i for i, cost in enumerate(costs) if abs(cost - final) <= NEAR * final)
            steady = next(near, len(costs))  # none if half of the costs are much higher and half much lower
            found.append(sum(r.period for r in after[:steady]))
        if len(found) == LAST:
            break
    return median(found) if found else None


@dataclass(frozen=True)
class Gain:
    """What the last scale-out of a subquery achieved."""

    time: float
    """When it took effect."""
    before: int
    after: int
    share: float
    """The share of the expected speed-up that was achieved: 1 is all of it, 0 none."""


def gain(summaries: Sequence[Snapshot], name: str) -> Gain | None:
    """Measure the last scale-out of a subquery by the time that its stage takes per row; None if there was none recently.

    The last summaries before it are compared with the most recent ones, not with the summary of the change itself: until the buckets are
    balanced, new instances may achieve little.

    >>> from springtide.elastic.snapshot import SubqueryLoad
    >>> from springtide.state.manifest import BucketMap
    >>> def summary(time, n, span):
    ...     own = SubqueryLoad(BucketMap.even(8, n), (100,), (100,), (span,) * n, span=span)
    ...     return Snapshot(float(time), time, 1.0, 1.0, {}, {"heavy": own})
    >>> halved = [summary(0, 2, 0.8), summary(1, 4, 0.5), summary(2, 4, 0.4)]
    >>> gain(halved, "heavy")
    Gain(time=1.0, before=2, after=4, share=1.0)
    >>> gain([*halved[:2], summary(2, 4, 0.8)], "heavy").share
    0.0
    """
    change = next(changes(summaries, name), None)
    if change is None or change.after < change.before:
        return None
    old = [c for r in summaries[max(0, change.at - _COMPARED) : change.at] if (c := _stage_cost(r, name))]
    new = [c for r in summaries[change.at + 1 :][-_COMPARED:] if (c := _stage_cost(r, name))]
    if not old or not new:
        return None
    quicker = fmean(old) / fmean(new) - 1
    return Gain(summaries[change.at].time, change.before, change.after, quicker / (change.after / change.before - 1))


def _stage_cost(summary: Snapshot, name: str) -> float:
    """Return the seconds that the stage takes per row of the subquery."""
    own = summary.subqueries.get(name)
    rows = sum(own.rows_in) if own else 0
    return summary.span(name) / rows if rows else 0.0


def rates(summaries: Sequence[Snapshot], source: str, seconds: float) -> tuple[list[float], list[float]]:
    """Return the times and rates of what arrived at a source in the last seconds, oldest first.

    Everything before the very first rows is left out: a query that has just started is not a growing load.
    """
    times: list[float] = []
    found: list[float] = []
    since = summaries[-1].time - seconds if summaries else 0.0
    for summary in reversed(summaries):
        if summary.time <= since:
            break
        load = summary.sources.get(source)
        if load is not None and summary.period > 0:
            times.append(summary.time)
            found.append((load.rows if load.arrived is None else load.arrived) / summary.period)
    while len(found) > 1 and not found[-1]:
        times.pop()
        found.pop()
    return times[::-1], found[::-1]


def steps(summaries: Sequence[Snapshot]) -> float:
    """Return the usual time between two summaries."""
    last = [b.time - a.time for a, b in pairwise(summaries[-10:])]
    return median(last) if last else summaries[-1].period
