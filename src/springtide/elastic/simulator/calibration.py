"""Calibration: a model derived from the measurements of a real run, and how well the two agree."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median

import numpy as np

from springtide.elastic.decisions import Decision
from springtide.elastic.simulator.cluster import SimulatedRun
from springtide.elastic.simulator.model import Model, ModelStep
from springtide.elastic.simulator.traces import Floats, Trace
from springtide.elastic.snapshot import Snapshot, SubqueryLoad, evened

ROUNDS = 20
"""The number of rounds after which a fit no longer changes."""
DEVIATION = 1.4826
"""A standard deviation is this many median deviations."""
WAITED = 0.1
"""If more than this share of the time before an epoch was idle, the epoch was waited for."""
WARMUP = 30.0
"""Seconds at the beginning of a run in which workers start and code is compiled; at most half of the known part of the run."""


def calibrated(snapshots: Sequence[Snapshot], decisions: Iterable[Decision] = ()) -> Model:
    """Make a model with the same costs as the run: for rows, epochs and new instances.

    Snapshots are those of epochs; decisions say how long new instances took to come. Without decisions, the model's default is used.
    """
    used = _warm([s for s in snapshots if s.rows])
    if len(used) < 2:
        raise ValueError("a model needs at least two epochs with rows")
    switched = [_moved(a, b) for a, b in pairwise(used)]
    steady = [used[0], *(s for s, moved in zip(used[1:], switched, strict=True) if not moved)]
    overhead, launch = _fixed(steady)
    full = [s.rows for s in used if s.backlog]
    startup = [d.took - d.outcome.seconds for d in decisions if d.took is not None and d.outcome and _is_more(d)]
    return Model(
        steps=_steps(used),
        overhead=overhead,
        launch=launch,
        handover=_handover(used[1:], switched, overhead, launch),
        pace=_pace(snapshots),
        pause=_pause(used),
        rows_per_epoch=round(median(full)) if full else None,
        slots=used[-1].slots,
        **{"startup": max(0.0, median(startup))} if startup else {},
    )


def load_of(snapshots: Sequence[Snapshot]) -> Trace:
    """Return the rows that arrived at the sources, second by second, from the start of the run's first epoch.

    The rows that an epoch reports as arrived came between two looks at the sources: at its own start and at that of the previous epoch.
    """
    begin = snapshots[0].time - snapshots[0].period
    times, came = [0.0], [0.0]
    for snapshot in snapshots:
        start = snapshot.time - snapshot.seconds - begin
        came.append(came[-1] + snapshot.rate * (start - times[-1]))
        times.append(start)
    end = snapshots[-1].time - begin
    came.append(came[-1] + snapshots[-1].rate * (end - times[-1]))
    times.append(end)
    whole = np.arange(max(2, int(times[-1]) + 1), dtype=np.float64)
    return Trace("run", np.diff(np.interp(whole, times, came)))


def first_degrees(snapshots: Sequence[Snapshot]) -> dict[str, int]:
    """Return the instances that the run started with."""
    return {name: own.instances for name, own in snapshots[0].subqueries.items()}


def degree_error_pct(run: SimulatedRun, snapshots: Sequence[Snapshot], since: float = -math.inf) -> float:
    """Return how far the instances of a simulated run are from those of the real one: averaged over time, as a share of the real ones.

    Subqueries count separately: one more here and one fewer there is two off. Anything before `since`, by the clock of the real run,
    does not count: the model may have been derived from it.
    """
    begin = snapshots[0].time - snapshots[0].period
    ends = np.array([e.end for e in run.epochs])
    off = total = 0.0
    for snapshot in (s for s in snapshots if s.time > since):
        place = min(int(np.searchsorted(ends, snapshot.time - begin)), ends.size - 1)
        simulated = run.epochs[place].degrees
        real = {name: own.instances for name, own in snapshot.subqueries.items()}
        off += snapshot.period * sum(abs(simulated[name] - n) for name, n in real.items())
        total += snapshot.period * sum(real.values())
    return 100 * off / total


def _warm(used: Sequence[Snapshot]) -> Sequence[Snapshot]:
    """Leave out the warm-up at the beginning of a run."""
    return [s for s in used if s.time > min(used[0].time + WARMUP, (used[0].time + used[-1].time) / 2)]


def _steps(used: Sequence[Snapshot]) -> dict[str, ModelStep]:
    """Find the cost of a row in each subquery, and the cost of an instance per epoch, which is the same for all subqueries.

    Since a policy gives a subquery instances in proportion to its rows, one subquery alone could not tell the two costs apart.
    """
    names = list(used[-1].subqueries)
    loads = [(place, s.subqueries[name]) for s in used for place, name in enumerate(names)]
    known = np.zeros((len(loads), len(names) + 1))
    for row, (place, own) in enumerate(loads):
        known[row, place], known[row, -1] = sum(own.rows_in), own.instances
    *costs, task = _least_deviations(known, np.array([sum(own.busy) for _, own in loads]))
    return {name: _step(used, name, cost, task) for name, cost in zip(names, costs, strict=True)}


def _step(used: Sequence[Snapshot], name: str, cost: float, task: float) -> ModelStep:
    loads = [s.subqueries[name] for s in used]
    last = loads[-1]
    rows, out = sum(sum(x.rows_in) for x in loads), sum(sum(x.rows_out) for x in loads)
    if last.upstream:
        above = sum(sum(s.subqueries[up].rows_out) for s in used for up in last.upstream)
    else:
        above = sum(s.rows for s in used)
    off = [sum(x.busy) / expected - 1 for x in loads if (expected := cost * sum(x.rows_in) + task * x.instances)]
    return ModelStep(
        cost=cost,
        task=task,
        upstream=last.upstream,
        takes=rows / above if above else 1.0,
        selectivity=out / rows if rows else 1.0,
        buckets=len(last.map.owners) or None,
        weights=_weights(loads),
        by_chance=bool(last.bucket_rows),
        noise=DEVIATION * median(abs(share) for share in off) if off else 0.0,
    )


def _least_deviations(known: Floats, found: Floats) -> list[float]:
    """Fit coefficients, none of them below 0, with the least sum of absolute deviations: single epochs that took much longer get no extra weight."""
    left = list(range(known.shape[1]))
    weights = np.ones(found.size)
    coefficients = np.zeros(known.shape[1])
    for _ in range(ROUNDS):
        roots = np.sqrt(weights)
        while left:
            solved = np.linalg.lstsq(known[:, left] * roots[:, None], found * roots, rcond=None)[0]
            if solved.min() >= 0:
                break
            del left[int(solved.argmin())]
        coefficients[:] = 0.0
        coefficients[left] = solved if left else 0.0
        off = np.abs(found - known @ coefficients)
        weights = 1 / np.maximum(off, 1e-6 + 1e-3 * float(np.median(off)))
    return [float(x) for x in coefficients]


def _weights(loads: Sequence[SubqueryLoad]) -> tuple[float, ...] | None:
    """Return the share of each bucket in the work; None if unknown."""
    busy, rows = [x.bucket_busy for x in loads if x.bucket_busy], [x.bucket_rows for x in loads if x.bucket_rows]
    known: Sequence[Sequence[float]] = busy or rows
    if not known or len({len(buckets) for buckets in known}) > 1:
        return None
    sums: Floats = np.sum(np.array(known, dtype=np.float64), axis=0)
    sums = sums if busy else evened(sums)
    total = float(sums.sum())
    return tuple((sums / total).tolist()) if total else None


def _pace(snapshots: Sequence[Snapshot]) -> float:
    """Return the time from the start of one epoch to the start of the next, where both were waited for: the others had no time to spare."""
    starts = [s.time - s.seconds for s in snapshots]
    paces = [b - a for a, b in pairwise(starts)]
    waited = [start - s.time > WAITED * pace for s, start, pace in zip(snapshots, starts[1:], paces, strict=False)]
    both = [pace for pace, one, other in zip(paces[1:], waited, waited[1:], strict=False) if one and other]
    return max(0.001, median(both) if both else min(paces))


def _pause(used: Sequence[Snapshot]) -> float:
    """Return the time between two epochs where nothing was waited for: the shortest one found."""
    return max(0.0, min(b.period - b.seconds for b in used[1:]))


def _moved(before: Snapshot, after: Snapshot) -> float:
    """Return the share of the buckets that changed owners, added up over the subqueries."""
    found = 0.0
    for name, own in after.subqueries.items():
        old = before.subqueries[name].map.owners if name in before.subqueries else own.map.owners
        found += sum(a != b for a, b in zip(old, own.map.owners, strict=False)) / len(old) if old else 0.0
    return found


def _handover(used: Sequence[Snapshot], moved: Sequence[float], overhead: float, launch: float) -> float:
    """Return how much longer the first epoch takes if all buckets change owners: others read the state, new workers warm up."""
    more = [
        max(0.0, s.seconds - _critical(s) - overhead - launch * _instances(s)) / share
        for s, share in zip(used, moved, strict=True)
        if share
    ]
    return median(more) if more else 0.0


def _instances(snapshot: Snapshot) -> int:
    return sum(own.instances for own in snapshot.subqueries.values())


def _fixed(used: Sequence[Snapshot]) -> tuple[float, float]:
    """Find the fixed cost of an epoch, and its cost per instance."""
    costs = np.array([max(0.0, s.seconds - _critical(s)) for s in used])
    overhead, launch = _least_deviations(np.array([[1.0, _instances(s)] for s in used]), costs)
    return overhead, launch


def _critical(snapshot: Snapshot) -> float:
    stages: dict[int, list[float]] = {}
    for name, own in snapshot.subqueries.items():
        stages.setdefault(snapshot.levels[name], []).extend(own.busy)
    slots = snapshot.slots or 10**9
    return sum(max(max(busy, default=0.0), sum(busy) / slots) for busy in stages.values())


def _is_more(decision: Decision) -> bool:
    return decision.instruction.after.instances > decision.instruction.before.instances
