"""Calibration: a model from what a real run measured, and how well the two agree."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median

import numpy as np

from springtide.elastic.decisions import Decision
from springtide.elastic.simulator.cluster import Run
from springtide.elastic.simulator.model import Model, Step
from springtide.elastic.simulator.traces import Floats, Trace
from springtide.elastic.snapshot import Snapshot, SubqueryLoad

WAITED = 0.1
"""An epoch before which so much of the time was idle, as a share, was waited for."""

SURE = 4.0
"""What is within so many standard errors of 0 may be nothing."""


def calibrated(snapshots: Sequence[Snapshot], decisions: Iterable[Decision] = ()) -> Model:
    """Make a model that costs what the run did: rows, epochs, new instances.

    Snapshots are those of epochs, decisions say how long new instances took to come; without any it is the model's default.
    """
    used = [s for s in snapshots if s.rows]
    if len(used) < 2:
        raise ValueError("a model takes two epochs with rows at least")
    switched = [_moved(a, b) for a, b in pairwise(used)]
    steady = [used[0], *(s for s, moved in zip(used[1:], switched, strict=True) if not moved)]
    overhead, launch = _fixed(steady)
    full = [s.rows for s in used if s.backlog]
    startup = [d.took - d.outcome.seconds for d in decisions if d.took is not None and d.outcome and _is_more(d)]
    return Model(
        steps={name: _step(used, name) for name in used[-1].subqueries},
        overhead=overhead,
        launch=launch,
        handover=_handover(used[1:], switched, overhead, launch),
        pace=_pace(used),
        rows_per_epoch=max(full) if full else None,
        slots=used[-1].slots,
        **{"startup": max(0.0, median(startup))} if startup else {},
    )


def load_of(snapshots: Sequence[Snapshot]) -> Trace:
    """Give the rows that came to the sources, second by second, from when the first epoch of the run began."""
    begin = snapshots[0].time - snapshots[0].period
    times, came = [0.0], [0.0]
    for snapshot in snapshots:
        times.append(snapshot.time - begin)
        came.append(came[-1] + snapshot.rate * snapshot.period)
    whole = np.arange(max(2, int(times[-1]) + 1), dtype=np.float64)
    return Trace("run", np.diff(np.interp(whole, times, came)))


def first_degrees(snapshots: Sequence[Snapshot]) -> dict[str, int]:
    """Give the instances that the run began with."""
    return {name: own.instances for name, own in snapshots[0].subqueries.items()}


def degree_error_pct(run: Run, snapshots: Sequence[Snapshot], since: float = -math.inf) -> float:
    """Say how far the instances of a simulated run are from those of the real one: over time, as a share of the real ones.

    Subqueries count by themselves: one more here and one less there is two off. What was before `since`, by the clock of the
    real run, does not count: the model may have been made from it.
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


def _step(used: Sequence[Snapshot], name: str) -> Step:
    loads = [s.subqueries[name] for s in used]
    last = loads[-1]
    rows, out = sum(sum(x.rows_in) for x in loads), sum(sum(x.rows_out) for x in loads)
    if last.upstream:
        above = sum(sum(s.subqueries[up].rows_out) for s in used for up in last.upstream)
    else:
        above = sum(s.rows for s in used)
    cost, task = _cost(loads)
    costs = np.array([(sum(x.busy) - task * x.instances) / n for x in loads if (n := sum(x.rows_in))])
    return Step(
        cost=cost,
        task=task,
        upstream=last.upstream,
        takes=rows / above if above else 1.0,
        selectivity=out / rows if rows else 1.0,
        buckets=len(last.map.owners) or None,
        weights=_weights(loads),
        noise=float(costs.std() / costs.mean()) if costs.size > 1 else 0.0,
    )


def _cost(loads: Sequence[SubqueryLoad]) -> tuple[float, float]:
    """Find what a row costs, and what an instance costs in each epoch, by least squares.

    A policy gives as many instances as there are rows: where the two cannot be told apart, it is all the rows' cost.
    """
    rows = np.array([sum(x.rows_in) for x in loads], dtype=np.float64)
    busy = np.array([sum(x.busy) for x in loads])
    if not rows.any():
        return 0.0, 0.0
    both = np.stack([rows, np.array([x.instances for x in loads], dtype=np.float64)], axis=1)
    (cost, task), _, rank, _ = np.linalg.lstsq(both, busy, rcond=None)
    if rank == 2 and cost > 0 and len(loads) > 2:
        rest = busy - both @ np.array([cost, task])
        error = math.sqrt(float(rest @ rest) / (len(loads) - 2) * float(np.linalg.inv(both.T @ both)[1, 1]))
        if task > SURE * error:
            return float(cost), float(task)
    return float(busy.sum() / rows.sum()), 0.0


def _weights(loads: Sequence[SubqueryLoad]) -> tuple[float, ...] | None:
    """Give the share of each bucket in the work; None where nobody knows."""
    known = [weights for x in loads if (weights := x.bucket_busy or x.bucket_rows)]
    if not known or len({len(b) for b in known}) > 1:
        return None
    sums: Floats = np.sum(np.array(known, dtype=np.float64), axis=0)
    total = float(sums.sum())
    return tuple((sums / total).tolist()) if total else None


def _pace(used: Sequence[Snapshot]) -> float:
    """Give the time from the start of an epoch to that of the next, by those that waited: others had no time to."""
    paces = [(b.time - b.seconds - (a.time - a.seconds), b.period - b.seconds) for a, b in pairwise(used)]
    waited = [pace for pace, idle in paces if idle > WAITED * pace]
    return max(0.001, median(waited or [pace for pace, _ in paces]))


def _moved(before: Snapshot, after: Snapshot) -> float:
    """Give the share of the buckets that changed hands, added up over the subqueries."""
    found = 0.0
    for name, own in after.subqueries.items():
        old = before.subqueries[name].map.owners if name in before.subqueries else own.map.owners
        found += sum(a != b for a, b in zip(old, own.map.owners, strict=False)) / len(old) if old else 0.0
    return found


def _handover(used: Sequence[Snapshot], moved: Sequence[float], overhead: float, launch: float) -> float:
    """Give what the first epoch takes longer when all buckets change hands: state is read by others, new workers warm up."""
    more = [
        max(0.0, s.seconds - _critical(s) - overhead - launch * _instances(s)) / share
        for s, share in zip(used, moved, strict=True)
        if share
    ]
    return median(more) if more else 0.0


def _instances(snapshot: Snapshot) -> int:
    return sum(own.instances for own in snapshot.subqueries.values())


def _fixed(used: Sequence[Snapshot]) -> tuple[float, float]:
    """Find what an epoch costs at all and for each instance, by least squares; neither is under 0."""
    costs = np.array([max(0.0, s.seconds - _critical(s)) for s in used])
    instances = np.array([_instances(s) for s in used], dtype=np.float64)
    if np.ptp(instances) == 0:
        return float(np.median(costs)), 0.0
    slope, start = (float(x) for x in np.polyfit(instances, costs, 1))
    if slope <= 0:
        return float(np.median(costs)), 0.0
    return (start, slope) if start >= 0 else (0.0, float(np.median(costs / instances)))


def _critical(snapshot: Snapshot) -> float:
    stages: dict[int, list[float]] = {}
    for name, own in snapshot.subqueries.items():
        stages.setdefault(snapshot.levels[name], []).extend(own.busy)
    slots = snapshot.slots or 10**9
    return sum(max(max(busy, default=0.0), sum(busy) / slots) for busy in stages.values())


def _is_more(decision: Decision) -> bool:
    return decision.instruction.after.instances > decision.instruction.before.instances
