"""Predictive: AUTOSCALE. Estimates how busy each subquery will be in the next minute, from its own view and its predecessors' (AS-1 … AS-6).

The numbers in brackets refer to the paper's formulas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from springtide.elastic import sizing
from springtide.elastic.forecast import Forecaster, Linear, Series
from springtide.elastic.policies.policy import Proposal
from springtide.elastic.snapshot import Snapshot
from springtide.query.plurals import plural
from springtide.query.usage import usage_of
from springtide.state.instructions import Trigger

Activity = Literal["low", "medium", "high", "critical"]
Decision = Literal["scale-in", "nothing", "scale-out"]

THETA_MAX = 0.8
"""θmax: up to here activity is medium, then high, and above 1 critical."""
LEAST_SHARE = 0.1
"""A subquery whose stage has less than this share of the epoch is not scaled out: it could not save more than that."""
MATRIX: Mapping[tuple[Activity, bool], Decision] = {
    ("low", False): "scale-in",
    ("low", True): "nothing",
    ("medium", False): "nothing",
    ("medium", True): "nothing",
    ("high", False): "nothing",
    ("high", True): "scale-out",
    ("critical", False): "scale-out",
    ("critical", True): "scale-out",
}
"""Table I: activity, and whether the input is increasing → what to do (AS-5)."""


@dataclass(frozen=True)
class Estimate:
    """The expected state of a subquery in the next window."""

    input: float
    """Rows that it will have to process: those that arrive and those that are waiting (3)."""
    capacity: float
    """Rows that it will be able to process (5)."""
    now: float
    """Rows that it can process at present (4)."""
    selectivity: float
    """Rows out per row in (7)."""
    increasing: bool
    above: float | None = None
    """What its predecessors will send it; set if it was combined with the subquery's own estimate."""

    @property
    def level(self) -> float:
        """Return the activity level: LAL (6), or GAL (10) once it has been combined with what the predecessors send."""
        return self.input / self.capacity if self.capacity else math.inf

    @property
    def output(self) -> float:
        """Return the rows that it will emit: no more than it can process (8), times the selectivity (9)."""
        return min(self.input, self.now) * self.selectivity


@usage_of("st.Predictive(theta_min=0.3)", "(predictive)")
@dataclass(frozen=True)
class Predictive:
    """Decide by the expected activity, not by the measured one.

    Differences from the paper are due to Springtide's epochs. Rows wait at the sources only: for the first subquery, that backlog is its
    pending input; the others will receive their part of it, according to selectivity. An instance can work for its stage's share of
    the time, so capacity counts that share of the window and not all of it.
    The grace period is up to the manager (AS-6).
    """

    forecast: Forecaster = field(default_factory=Linear)
    window: float = 60.0
    """Δ, in seconds."""
    theta_min: float = 0.3
    """θmin: up to here, activity is low; it is below `THETA_MAX`."""
    combine: Literal["max", "min"] = "max"
    """Which of two estimates of a subquery's input counts: the cautious one or the economical one."""

    def __post_init__(self) -> None:
        """Refuse a threshold that is inconsistent with θmax."""
        if not 0 <= self.theta_min < THETA_MAX:
            raise ValueError(f"theta_min must satisfy 0 ≤ theta_min < {THETA_MAX:g}, not {self.theta_min:g}")

    def decide(self, snapshot: Snapshot, history: Sequence[Snapshot]) -> Sequence[Proposal]:
        """Estimate each subquery on its own, make the estimates consistent along the graph, and look up the decision."""
        summaries = self._within(snapshot, history)
        estimates = self.consistent(snapshot, self.local(snapshot, summaries))
        found = (self._proposal(snapshot, name, estimate) for name, estimate in estimates.items())
        return [proposal for proposal in found if proposal]

    def activity(self, level: float) -> Activity:
        """Return the activity for an activity level (AS-3).

        >>> [Predictive().activity(level) for level in (0.3, 0.8, 1.0, 1.01)]
        ['low', 'medium', 'high', 'critical']
        """
        if level <= self.theta_min:
            return "low"
        return "medium" if level <= THETA_MAX else "high" if level <= 1 else "critical"

    # ── estimates ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def local(self, snapshot: Snapshot, summaries: Sequence[Snapshot]) -> dict[str, Estimate]:
        """Look at each subquery on its own (1)–(7)."""
        left = sizing.available(snapshot, summaries[-2] if len(summaries) > 1 else None)
        found: dict[str, Estimate] = {}
        pending: dict[str, float] = {}
        for name, own in snapshot.subqueries.items():
            pending[name] = sum(snapshot.sources[s].backlog for s in own.sources if s in snapshot.sources)
            pending[name] += sum(pending[up] * found[up].selectivity for up in own.upstream if up in found)
            past = Series.of([r.time for r in summaries], [self._received(r, name) for r in summaries])
            ahead = [snapshot.time + self.window * (k + 1) / len(summaries) for k in range(len(summaries))]
            forecast = self.forecast.forecast(past, ahead)
            coming = sum(forecast.rates) / len(ahead) * self.window
            capacities = self._capacities(snapshot, summaries, name, left)
            found[name] = Estimate(
                input=coming + pending[name],
                capacity=expected(capacities),
                now=capacities[-1],
                selectivity=_selectivity(summaries, name),
                increasing=forecast.trend > 0,
            )
        return found

    def consistent(self, snapshot: Snapshot, local: Mapping[str, Estimate]) -> dict[str, Estimate]:
        """Go along the graph; after a critical subquery, its expected output counts as well (algorithm 1, AS-4)."""
        found = dict(local)
        for name in sorted(snapshot.subqueries, key=lambda n: snapshot.levels[n]):
            parents = snapshot.subqueries[name].upstream
            if any(self.activity(found[up].level) == "critical" for up in parents):
                above = sum(found[up].output for up in parents)
                own = found[name]
                chosen = max(own.input, above) if self.combine == "max" else min(own.input, above)
                found[name] = Estimate(chosen, own.capacity, own.now, own.selectivity, own.increasing, above)
        return found

    def _within(self, snapshot: Snapshot, history: Sequence[Snapshot]) -> list[Snapshot]:
        """Return the summaries of the last window, but at least two if there are that many."""
        found = [snapshot]
        for summary in reversed(history):
            if summary.time <= snapshot.time - self.window and len(found) >= 2:
                break
            if summary.subqueries.keys() != snapshot.subqueries.keys():
                break
            found.append(summary)
        return found[::-1]

    def _received(self, summary: Snapshot, name: str) -> float:
        own = summary.subqueries[name]
        if not own.sources:
            return sum(own.rows_in) / summary.period if summary.period else 0.0
        return sum(sizing.arrivals(summary.sources[s], summary.period) for s in own.sources if s in summary.sources)

    def _capacities(self, snapshot: Snapshot, summaries: Sequence[Snapshot], name: str, left: float) -> list[float]:
        """Return the capacity (4) that the subquery would have according to each summary, with its current instances and share."""
        usable = snapshot.share(name) * left * self.window
        costs = [cost for r in summaries if (cost := r.subqueries[name].seconds_per_row)]
        degree = snapshot.subqueries[name].instances
        return [usable / cost * degree for cost in costs] if costs and usable else [math.inf]

    # ── decisions ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _proposal(self, snapshot: Snapshot, name: str, estimate: Estimate) -> Proposal | None:
        n, level = snapshot.subqueries[name].instances, estimate.level
        activity = self.activity(level)
        decision = MATRIX[activity, estimate.increasing]
        if decision == "nothing" or (decision == "scale-out" and snapshot.share(name) < LEAST_SHARE):
            return None
        wanted = n + 1 if activity == "high" else max(1, math.ceil(n * level - sizing.ROUNDING))  # (11)
        if wanted == n:
            return None
        bound = self.theta_min if activity == "low" else THETA_MAX if activity == "high" else 1.0
        side = "" if estimate.above is None else f", {estimate.above:,.0f} of them by what comes before it"
        trend = "growing" if estimate.increasing else "not growing"
        reason = (
            f"{estimate.input:,.0f} rows are expected in {self.window:g} s{side}, and {plural(n, 'instance')} can do {estimate.capacity:,.0f}: "
            f"activity {level:.0%} is {activity}, input {trend}; {wanted} instead of {n}"
        )
        return Proposal(name, reason, Trigger("activity", level, bound), instances=wanted)


def expected(capacities: Sequence[float]) -> float:
    """Correct the last capacity by its correlation with the earlier ones (5).

    The paper adds the covariance itself, which is not a number of rows; here it is divided by the variance: the last capacity
    returns towards the mean by as much as earlier ones did.

    >>> expected([100.0, 100.0, 100.0]), round(expected([100.0, 90.0, 110.0, 95.0, 120.0]), 1)
    (100.0, 103.0)
    """
    if len(capacities) < 3 or not math.isfinite(sum(capacities)):
        return capacities[-1]
    values = np.asarray(capacities)
    before, after = values[:-1] - values.mean(), values[1:] - values.mean()
    variance = float(before @ before)
    if variance <= 0:
        return capacities[-1]
    slope = min(1.0, max(0.0, float(before @ after) / variance))
    return float(values.mean() + slope * (values[-1] - values.mean()))


def _selectivity(summaries: Sequence[Snapshot], name: str) -> float:
    rows = sum(sum(r.subqueries[name].rows_in) for r in summaries)
    return sum(sum(r.subqueries[name].rows_out) for r in summaries) / rows if rows else 1.0
