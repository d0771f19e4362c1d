"""Sizing: the fewest instances that keep up with a load, and how much work a subquery has in the first place. Pure.

The stages of an epoch run one after another. In each stage, the work of a second takes as long as the slowest subquery of the
stage, and all stages together must not take longer than a second. One more instance helps most where most time is spent: the
total number of instances is smallest when they grow with the square root of the work of a stage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from springtide.elastic.snapshot import Snapshot, SourceLoad

ROUNDING = 1e-9
"""Exceeding a whole number by less than this is treated as a rounding error."""
NEARLY = 1.1
"""If no number of instances is enough, this many times the shortest possible time is good enough."""
FIXED = 0.1
"""The fixed cost of an epoch may take up this share of it: with more rows to process, epochs become longer until it does."""


@dataclass(frozen=True)
class WorkRate:
    """The work of a subquery per second."""

    level: int
    """The stage in which it runs."""
    seconds: float
    """Seconds of work for a single instance."""
    heaviest: float = 0.0
    """The part of `seconds` that falls to one bucket, which several instances cannot share."""
    least: int = 1
    most: int | None = None

    def time(self, instances: int) -> float:
        """Return how long it takes with this many instances."""
        return max(self.seconds / instances, self.heaviest)

    def times(self, factor: float) -> WorkRate:
        """Return the work when `factor` times as many rows arrive."""
        return replace(self, seconds=self.seconds * factor, heaviest=self.heaviest * factor)


Works = Mapping[str, WorkRate]
Degrees = Mapping[str, int]


def taken(works: Works, degrees: Degrees) -> float:
    """Return the time that all stages take for the work of a second: if it exceeds what is available, a backlog grows."""
    stages: dict[int, float] = {}
    for name, work in works.items():
        stages[work.level] = max(stages.get(work.level, 0.0), work.time(degrees[name]))
    return sum(stages.values())


def fewest(works: Works, available: float = 1.0) -> dict[str, int]:
    """Return the fewest instances with which all work is done in the available share of the time.

    If no number is enough, return the one that achieves the most.

    >>> fewest({"calls": WorkRate(0, 1.0), "heavy": WorkRate(1, 4.0)})
    {'calls': 3, 'heavy': 6}
    """
    return grown(works, {name: work.least for name, work in works.items()}, available)


def grown(works: Works, degrees: Degrees, available: float = 1.0) -> dict[str, int]:
    """Add as few instances as necessary, and remove none.

    >>> grown({"calls": WorkRate(0, 1.0), "heavy": WorkRate(1, 4.0)}, {"calls": 5, "heavy": 1})
    {'calls': 5, 'heavy': 5}
    """
    available = max(available, NEARLY * _at_best(works))
    found = dict(degrees)
    for name, wanted in _by_roots(works, available).items():
        found[name] = max(found[name], wanted)
    if taken(works, found) <= available + ROUNDING:
        return shrunk(works, found, available, least=degrees)
    while taken(works, found) > available + ROUNDING:
        step = _best_step(works, found)
        if step is None:
            return found
        found.update(step)
    return shrunk(works, found, available, least=degrees)


def shrunk(works: Works, degrees: Degrees, available: float = 1.0, least: Degrees | None = None) -> dict[str, int]:
    """Remove as many instances as can be spared, starting with those whose removal costs the least time.

    >>> shrunk({"calls": WorkRate(0, 1.0), "heavy": WorkRate(1, 4.0)}, {"calls": 9, "heavy": 9})
    {'calls': 3, 'heavy': 6}
    """
    found = dict(degrees)
    floor = {name: max(work.least, (least or {}).get(name, 1)) for name, work in works.items()}
    stages: dict[int, dict[str, float]] = {}
    for name, work in works.items():
        stages.setdefault(work.level, {})[name] = work.time(found[name])
    while True:
        total = sum(max(stage.values()) for stage in stages.values())
        best: tuple[float, str] | None = None
        for name, work in works.items():
            if found[name] > floor[name]:
                longest = max(stages[work.level].values())
                time = total + max(0.0, work.time(found[name] - 1) - longest)
                if time <= available + ROUNDING and (best is None or time < best[0]):
                    best = (time, name)
        if best is None:
            return found
        name = best[1]
        found[name] -= 1
        stages[works[name].level][name] = works[name].time(found[name])


def fewer_changes(
    works: Works, before: Degrees, after: Degrees, available: float = 1.0, spare: float = 0.0
) -> dict[str, int]:
    """Leave as many subqueries unchanged as possible, as long as this takes at most `spare` more instances in total, as a share.

    >>> works = {"calls": WorkRate(0, 0.01), "heavy": WorkRate(1, 5.0)}
    >>> fewer_changes(works, {"calls": 1, "heavy": 5}, {"calls": 2, "heavy": 6})
    {'calls': 1, 'heavy': 6}
    """
    most = sum(after.values()) * (1 + spare)
    found, kept = dict(after), {name for name in works if after[name] == before[name]}
    for name in sorted(works.keys() - kept, key=lambda n: (abs(after[n] - before[n]), n)):
        still = kept | {name}
        held = {n: replace(w, least=before[n], most=before[n]) if n in still else w for n, w in works.items()}
        start = {n: before[n] if n in still else min(found[n], before[n]) for n in works}
        tried = grown(held, start, available)
        if sum(tried.values()) <= most + ROUNDING and taken(works, tried) <= available + ROUNDING:
            found, kept = tried, still
    return found


def _by_roots(works: Works, available: float) -> dict[str, int]:
    """Return whole numbers of instances no greater than the square-root rule suggests: a starting point close to the result."""
    stages: dict[int, float] = {}
    for work in works.values():
        stages[work.level] = stages.get(work.level, 0.0) + work.seconds
    roots = sum(math.sqrt(seconds) for seconds in stages.values())
    found = {}
    for name, work in works.items():
        if not work.seconds or available <= 0:
            continue
        time = max(available * math.sqrt(stages[work.level]) / roots, work.heaviest)
        wanted = math.floor(work.seconds / time)
        found[name] = max(work.least, wanted if work.most is None else min(wanted, work.most))
    return found


def _at_best(works: Works) -> float:
    """Return the time that it takes with all instances that are of any use."""
    stages: dict[int, float] = {}
    for work in works.values():
        least = max(work.heaviest, work.seconds / work.most if work.most else 0.0)
        stages[work.level] = max(stages.get(work.level, 0.0), least)
    return sum(stages.values())


def _best_step(works: Works, degrees: Degrees) -> dict[str, int] | None:
    """Find the stage that saves the most time per additional instance, and the new degrees of its subqueries."""
    best: tuple[float, dict[str, int]] | None = None
    for level in sorted({work.level for work in works.values()}):
        stage = {name: work for name, work in works.items() if work.level == level}
        longest = max(work.time(degrees[name]) for name, work in stage.items())
        # Aim for the time of each subquery, now or with one more instance; all subqueries of the stage have to meet it.
        for aim in {work.time(degrees[name] + more) for name, work in stage.items() for more in (0, 1)}:
            tried = {name: _for_time(work, degrees[name], aim) for name, work in stage.items()}
            more = sum(tried[name] - degrees[name] for name in tried)
            gain = longest - max(work.time(tried[name]) for name, work in stage.items())
            if more and gain > ROUNDING * longest and (best is None or gain / more > best[0]):
                best = (gain / more, tried)
    return best[1] if best else None


def _for_time(work: WorkRate, instances: int, time: float) -> int:
    """Return the number of instances, at least `instances`, with which it takes no longer than `time`, as far as more instances help."""
    wanted = math.ceil(work.seconds / max(time, work.heaviest) - ROUNDING) if work.seconds else instances
    return max(instances, wanted if work.most is None else min(wanted, work.most))


# ── from a snapshot ───────────────────────────────────────────────────────────────────────────────────────────────────


def works(summary: Snapshot) -> dict[str, WorkRate]:
    """Return the work of each subquery per second, as if everything read had been spread as evenly as its buckets allow."""
    return {name: _work(summary, name) for name in summary.subqueries}


def _work(summary: Snapshot, name: str) -> WorkRate:
    own, period = summary.subqueries[name], summary.period or 1.0
    total = sum(own.busy)
    mean = total / len(own.busy) if own.busy else 0.0
    heaviest = total * hottest(summary, name)
    least = max(mean, heaviest)
    uneven = max(own.busy, default=0.0) / least if least else 1.0
    buckets = len(own.map.owners)
    if buckets:  # balancing leaves no instance more than a bucket above the average
        uneven = min(uneven, 1 + own.instances / buckets)
    return WorkRate(summary.levels[name], total * uneven / period, heaviest / period, most=own.most)


def hottest(summary: Snapshot, name: str) -> float:
    """Return the share of the heaviest bucket in the work of a subquery; 0 if unknown."""
    weights = summary.subqueries[name].bucket_weights
    total = sum(weights)
    return max(weights) / total if total else 0.0


def available(summary: Snapshot, before: Snapshot | None) -> float:
    """Return the share of the time that is left for work if epochs are as long as they need to be.

    The rest is the fixed cost of an epoch: at most `FIXED` of the time.
    """
    epochs = max(1, summary.epoch - before.epoch) if before is not None else 1
    critical = sum(_critical(summary, level) for level in set(summary.levels.values()))
    fixed = max(0.0, summary.seconds - critical) / epochs
    pace = summary.period / epochs
    return 1 - fixed / max(pace, fixed / FIXED) if fixed else 1.0


def _critical(summary: Snapshot, level: int) -> float:
    busy = [b for name, own in summary.subqueries.items() if summary.levels[name] == level for b in own.busy]
    return max(max(busy, default=0.0), sum(busy) / summary.slots if summary.slots else 0.0)


def factors(summary: Snapshot, wanted: Mapping[str, float]) -> dict[str, float]:
    """Return by what factor the rows of each subquery grow if the sources deliver `wanted` rows per second.

    It follows the plan from the sources to the sinks: rows from two sides are weighted by their numbers (AS-4).
    """
    found: dict[str, float] = {}

    def factor(name: str) -> float:
        if name not in found:
            own = summary.subqueries[name]
            sides = [(summary.sources[s].rows, _ratio(summary, s, wanted[s])) for s in own.sources if s in wanted]
            sides += [(sum(summary.subqueries[up].rows_out), factor(up)) for up in own.upstream]
            total = sum(rows for rows, _ in sides)
            found[name] = sum(rows * ratio for rows, ratio in sides) / total if total else 1.0
        return found[name]

    return {name: factor(name) for name in summary.subqueries}


def arrivals(source: SourceLoad, period: float) -> float:
    """Return the rows that arrived at a source, per second."""
    return (source.rows if source.arrived is None else source.arrived) / period if period else 0.0


def _ratio(summary: Snapshot, source: str, wanted: float) -> float:
    read = summary.sources[source].rows
    return wanted * summary.period / read if read else 1.0
