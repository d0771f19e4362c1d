"""Experience: what earlier changes of a query teach about the next ones. Pure; it is all in the reports of before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from springtide.elastic.snapshot import Snapshot

NEAR = 0.1
"""What is this near, as a share, is the same."""


LAST = 5
"""So many earlier changes are looked at: what was long ago may be another cluster's."""
_COMPARED = 3
"""Reports before a change and after it."""


def delay(reports: Sequence[Snapshot]) -> float | None:
    """Return the seconds from the decision for more instances until they work: the median of the last ones measured, None before any.

    >>> reports = [
    ...     Snapshot(float(t), t, 1.0, 1.0, {}, {}, took=took) for t, took in enumerate([{}, {"a": 30.0}, {"a": 20.0}])
    ... ]
    >>> delay(reports), delay(reports[:1])
    (25.0, None)
    """
    found: list[float] = []
    for report in reversed(reports):
        if report.took:
            found += report.took.values()
            if len(found) >= LAST:
                break
    return median(found) if found else None


@dataclass(frozen=True)
class Change:
    """Another number of instances, as the reports show it."""

    at: int
    """The first report with it."""
    before: int
    after: int


def changes(reports: Sequence[Snapshot], name: str) -> Iterator[Change]:
    """Return the changes of a subquery's number of instances, the last one first."""
    for at in range(len(reports) - 1, 0, -1):
        old, new = reports[at - 1].subqueries.get(name), reports[at].subqueries.get(name)
        if old is not None and new is not None and old.instances != new.instances:
            yield Change(at, old.instances, new.instances)


def settling(reports: Sequence[Snapshot], name: str) -> float | None:
    """Return the seconds after a change in which a row still took another time than later: the median of the last changes.

    State is read again, caches are cold, new workers warm up. What is measured meanwhile is the change.
    """
    found, end = [], len(reports)
    for change in changes(reports, name):
        after = reports[change.at : end]
        end = change.at
        costs = [cost for r in after if (cost := r.subqueries[name].seconds_per_row)]
        if len(costs) >= 3:
            final = median(costs)
            near = (i for i, cost in enumerate(costs) if abs(cost - final) <= NEAR * final)
            steady = next(near, len(costs))  # none, where half of them are much more and half much less
            found.append(sum(r.period for r in after[:steady]))
        if len(found) == LAST:
            break
    return median(found) if found else None


@dataclass(frozen=True)
class Gain:
    """What the last scale-out of a subquery brought."""

    time: float
    """When it took effect."""
    before: int
    after: int
    share: float
    """Of the speed that so many more instances should bring: 1 is all of it, 0 nothing."""


def gain(reports: Sequence[Snapshot], name: str) -> Gain | None:
    """Measure the last scale-out of a subquery by the time that its stage takes for a row; None if there was none lately.

    The last reports before it are compared with the last ones there are, not with that of the change itself: until the buckets are
    balanced, new instances may bring little.

    >>> from springtide.elastic.snapshot import SubqueryLoad
    >>> from springtide.state.manifest import BucketMap
    >>> def report(time, n, span):
    ...     own = SubqueryLoad(BucketMap.even(8, n), (100,), (100,), (span,) * n, span=span)
    ...     return Snapshot(float(time), time, 1.0, 1.0, {}, {"heavy": own})
    >>> halved = [report(0, 2, 0.8), report(1, 4, 0.5), report(2, 4, 0.4)]
    >>> gain(halved, "heavy")
    Gain(time=1.0, before=2, after=4, share=1.0)
    >>> gain([*halved[:2], report(2, 4, 0.8)], "heavy").share
    0.0
    """
    change = next(changes(reports, name), None)
    if change is None or change.after < change.before:
        return None
    old = [c for r in reports[max(0, change.at - _COMPARED) : change.at] if (c := _stage_cost(r, name))]
    new = [c for r in reports[change.at + 1 :][-_COMPARED:] if (c := _stage_cost(r, name))]
    if not old or not new:
        return None
    quicker = fmean(old) / fmean(new) - 1
    return Gain(reports[change.at].time, change.before, change.after, quicker / (change.after / change.before - 1))


def _stage_cost(report: Snapshot, name: str) -> float:
    """Return the seconds that the stage takes for a row of the subquery."""
    own = report.subqueries.get(name)
    rows = sum(own.rows_in) if own else 0
    return report.span(name) / rows if rows else 0.0


def rates(reports: Sequence[Snapshot], source: str, seconds: float) -> tuple[list[float], list[float]]:
    """Return times and rates of what came to a source in the last seconds, oldest first.

    What was before the first rows of all is left out: a query that has just begun is no load that grows.
    """
    times: list[float] = []
    found: list[float] = []
    since = reports[-1].time - seconds if reports else 0.0
    for report in reversed(reports):
        if report.time <= since:
            break
        load = report.sources.get(source)
        if load is not None and report.period > 0:
            times.append(report.time)
            found.append((load.rows if load.arrived is None else load.arrived) / report.period)
    while len(found) > 1 and not found[-1]:
        times.pop()
        found.pop()
    return times[::-1], found[::-1]


def steps(reports: Sequence[Snapshot]) -> float:
    """Return the usual time between two reports."""
    last = [b.time - a.time for a, b in pairwise(reports[-10:])]
    return median(last) if last else reports[-1].period
