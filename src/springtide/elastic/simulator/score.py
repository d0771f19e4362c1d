"""The score of a run: how stable, how accurate, how late, how expensive."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import numpy as np

from springtide.elastic.simulator import optimum
from springtide.elastic.simulator.cluster import SimulatedEpoch, SimulatedRun

BOUND = 30.0
"""Seconds after which a row is late: the processing timeout of AUTOSCALE's table II."""


@dataclass(frozen=True)
class Score:
    """The measurements of a run; times are in seconds."""

    reconfigurations: int
    """How often a subquery got a new bucket map: fewer is more stable."""
    off_pct: float
    """The distance from the smallest sufficient number of instances, averaged over time."""
    settling: float
    """The average time from when the load exceeded what the instances could handle until nothing was waiting any more."""
    overshoot_pct: float
    """By how much the highest number of instances exceeds the highest number needed."""
    congested: float
    """How long the load exceeded what the instances could handle."""
    late: float
    """How long rows came out later than the bound."""
    late_rows: int
    """The number of rows that came out later than the bound."""
    hours: float
    """Instance-hours, counted from when the instances were requested."""
    least_hours: float
    """The same for the optimum in hindsight."""

    @property
    def excess_pct(self) -> float:
        """Return the instance-hours above the optimum; below 0 if the policy was late instead."""
        return 100 * (self.hours / self.least_hours - 1)


def score_of(run: SimulatedRun, bound: float = BOUND) -> Score:
    """Compute all measurements."""
    epochs, model = run.epochs, run.model
    needed = optimum.needed(model, run.trace)
    length = needed.size * model.pace
    least = optimum.paid(needed, model.pace, model.startup)
    lengths = np.array([_length(a, b, length) for a, b in pairwise([*epochs, None])])
    places = np.minimum((np.array([e.start for e in epochs]) / model.pace).astype(np.int64), needed.size - 1)
    degrees = run.degrees
    late_rows = [_late(run, e, bound) for e in epochs]
    congested = [_is_congested(run, e) for e in epochs]
    return Score(
        reconfigurations=len(run.done),
        off_pct=100 * float((np.abs(degrees - needed[places]) / needed[places]) @ lengths / lengths.sum()),
        settling=_settling(run, congested),
        overshoot_pct=100 * (float(degrees.max() / needed.max()) - 1),
        congested=float(np.array(congested) @ lengths),
        late=float(np.array([e.p99 > bound for e in epochs]) @ lengths),
        late_rows=round(sum(late_rows)),
        hours=float(np.array([e.paid for e in epochs]) @ lengths) / 3600,
        least_hours=float(least.sum()) * model.pace / 3600,
    )


def _length(epoch: SimulatedEpoch | None, after: SimulatedEpoch | None, length: float) -> float:
    """Return the time from the start of one epoch to the start of the next, within the trace."""
    assert epoch is not None
    return max(0.0, (length if after is None else min(after.start, length)) - epoch.start)


def _late(run: SimulatedRun, epoch: SimulatedEpoch, bound: float) -> float:
    """Count the rows that arrived more than `bound` before the end of their epoch."""
    span = epoch.end - bound - epoch.first
    if not epoch.rows or span <= 0:
        return 0.0
    arrived = run.trace.arrived()
    seconds = np.arange(arrived.size)
    since, until = np.interp([epoch.first, epoch.end - bound], seconds, arrived)
    return min(float(epoch.rows), float(until - since))


def _is_congested(run: SimulatedRun, epoch: SimulatedEpoch) -> bool:
    """Return whether more arrived than could be processed."""
    second = min(int(epoch.start), run.trace.seconds - 1)
    rates = run.trace.rates[second : second + max(1, round(epoch.end - epoch.start))]
    room = run.model.available(sum(epoch.degrees.values()))
    return bool(epoch.work * float(rates.mean()) > room)


def _settling(run: SimulatedRun, congested: list[bool]) -> float:
    """Average the stretches from when the load is too high until it no longer is and no more than an epoch's rows are waiting."""
    found: list[float] = []
    since: float | None = None
    for epoch, too_much in zip(run.epochs, congested, strict=True):
        second = min(int(epoch.end), run.trace.seconds - 1)
        usual = float(run.trace.rates[second]) * (max(run.model.pace, epoch.end - epoch.start) * 1.5)
        if since is None and too_much and epoch.waiting > usual:
            since = epoch.start
        elif since is not None and not too_much and epoch.waiting <= usual:
            found.append(epoch.end - since)
            since = None
    if since is not None:
        found.append(run.epochs[-1].end - since)
    return fmean(found) if found else 0.0
