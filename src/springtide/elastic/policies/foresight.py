"""Foresight: have instances when they are needed, and as few as possible. Springtide's own policy.

now          + delay + summary           + delay + summary
 ├──────────────────┼───────────────────────────┤
 a decision made     one at the next summary     the decision after this one can take effect only here:
 now works from here would be too late           a change provides for the time up to here
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from springtide.elastic import experience, sizing
from springtide.elastic.forecast import Forecast, Forecaster, Series, Trend
from springtide.elastic.policies.policy import Proposal
from springtide.elastic.sizing import WorkRate
from springtide.elastic.snapshot import Snapshot
from springtide.query.plurals import plural
from springtide.query.usage import usage_of
from springtide.state.instructions import Trigger

POINTS = 8
"""The number of points in time ahead that are considered."""
DEVIATIONS = 2.0
"""Provide for this many standard deviations above the expected load: it is exceeded 1 time in 40."""
SPARE = 0.05
"""Using this many more instances, as a share, is better than changing another subquery."""
JUMP = 8.0
"""An epoch whose rate is this many standard deviations above the expected rate is the beginning of something new.

These are deviations of a summary; a single epoch fluctuates more than the average of several."""


@usage_of("st.Foresight(delay=30, drain=30)", "(foresight)")
@dataclass(frozen=True)
class Foresight:
    """Scale out when waiting for one more summary would be too late; scale in when it is worthwhile.

    The load of each source is forecast, with its possible error, and carried along the plan to every subquery. How far ahead it looks
    depends on how long new instances have taken to come, as measured. The fewest sufficient instances are found by sizing all stages
    together. Headroom is not a fixed share: it is the noise of this load.
    """

    forecast: Forecaster = field(default_factory=Trend)
    worth: float = 0.1
    """Scale in if at least this share of all instances can go; less is not worth a reconfiguration."""
    delay: float = 30.0
    """Seconds that new instances take to come, until this has been measured."""
    drain: float = 30.0
    """Seconds in which a backlog should be cleared; longer if instances take longer to come."""

    def __post_init__(self) -> None:
        """Refuse settings that make no sense."""
        if min(self.delay, self.drain) < 0 or not 0 <= self.worth < 1:
            raise ValueError("delay and drain are not negative, and worth is a share")

    def decide(self, snapshot: Snapshot, history: Sequence[Snapshot]) -> Sequence[Proposal]:
        """Look ahead, and size all subqueries together."""
        if not snapshot.rows:
            return ()
        summaries = (*history, snapshot)
        measured = experience.delay(summaries)
        wait = (self.delay if measured is None else measured) + experience.steps(summaries)
        looked = {name: self._ahead(summaries, name, wait) for name in snapshot.sources}
        ahead = {name: forecast for name, forecast in looked.items() if forecast is not None}
        if len(ahead) < len(looked):
            return ()  # instances for part of a jump would get in the way of those for all of it
        before = history[-1] if history else None
        waiting = {name: float(source.backlog) for name, source in snapshot.sources.items()}
        left = sizing.available(snapshot, before)
        degrees = {name: snapshot.coming.get(name, own.instances) for name, own in snapshot.subqueries.items()}
        works = sizing.works(snapshot)
        soon = {
            name: max(forecast.upper(DEVIATIONS)[: POINTS // 2]) + waiting[name] / max(2 * wait, self.drain)
            for name, forecast in ahead.items()
        }
        fullness = sizing.taken(self._times(snapshot, works, soon), degrees) / left
        now = {name: sizing.arrivals(source, snapshot.period) for name, source in snapshot.sources.items()}
        changed = any(_degrees(summary) != _degrees(snapshot) for summary in history[-2:])
        if changed and sizing.taken(self._times(snapshot, works, now), degrees) <= left:
            return ()  # all are sized together: if one has just changed, none is changed again, unless it is urgent
        if fullness > 1 + sizing.ROUNDING:
            later = {
                name: max(forecast.upper(DEVIATIONS))
                + self._backlog_later(snapshot, name, waiting[name], wait) / max(wait, self.drain)
                for name, forecast in ahead.items()
            }
            todo = self._times(snapshot, works, later)
            wanted = sizing.grown(todo, degrees, left)
        else:
            # Scale in only if the load has been like this for as long as new instances take to come, and they will not be missed soon.
            if snapshot.coming or any(waiting.values()) or any(f.seen < wait for f in ahead.values()):
                return ()
            later = {name: max(forecast.upper(DEVIATIONS + 1)) for name, forecast in ahead.items()}
            todo = self._times(snapshot, works, later)
            wanted = sizing.shrunk(todo, degrees, left)
            if sum(degrees.values()) - sum(wanted.values()) < max(1, self.worth * sum(degrees.values())):
                return ()
        wanted = sizing.fewer_changes(todo, degrees, wanted, left, SPARE)
        return self._proposals(snapshot, degrees, wanted, fullness, later, wait)

    def _ahead(self, summaries: Sequence[Snapshot], source: str, wait: float) -> Forecast | None:
        """Look ahead to when the decision after this one could take effect; the first half reaches to when one at the next summary would.

        None: a jump began in the last epoch, and only the next summary will show how high it goes.
        """
        past = Series.of(*experience.rates(summaries, source, self.forecast.lookback))
        now = summaries[-1].time
        found = self.forecast.forecast(past, [now + 2 * wait * (k + 1) / POINTS for k in range(POINTS)])
        # A line through a jump lies somewhere between both sides. A summary in which the load jumps has only part of the jump; its last
        # epoch has all of it.
        load = summaries[-1].sources[source]
        latest = sizing.arrivals(load, summaries[-1].period) if load.latest is None else load.latest
        if latest <= (most := found.upper(JUMP)[0]):
            return found
        if self._sooner(summaries, source) <= most:
            return None
        return replace(found, rates=tuple(max(rate, latest) for rate in found.rates), seen=0.0)

    def _sooner(self, summaries: Sequence[Snapshot], source: str) -> float:
        """Return the rate in the epoch before the last one; infinite if it is not known."""
        load, before = summaries[-1].sources[source], summaries[-2] if len(summaries) > 1 else None
        if load.sooner is not None:
            return load.sooner
        if load.latest is not None or before is None or source not in before.sources:
            return math.inf
        earlier = before.sources[source]
        return sizing.arrivals(earlier, before.period) if earlier.latest is None else earlier.latest

    def _backlog_later(self, snapshot: Snapshot, source: str, waiting: float, wait: float) -> float:
        """Count the rows that will be waiting when new instances come."""
        growing = sizing.arrivals(snapshot.sources[source], snapshot.period) - self._read(snapshot, source)
        return waiting + max(0.0, growing) * wait if waiting else 0.0

    def _read(self, snapshot: Snapshot, source: str) -> float:
        return snapshot.sources[source].rows / snapshot.period if snapshot.period else 0.0

    def _times(
        self, snapshot: Snapshot, works: Mapping[str, WorkRate], wanted: Mapping[str, float]
    ) -> dict[str, WorkRate]:
        factors = sizing.factors(snapshot, wanted)
        return {name: work.times(factors[name]) for name, work in works.items()}

    def _proposals(
        self,
        snapshot: Snapshot,
        degrees: Mapping[str, int],
        wanted: Mapping[str, int],
        fullness: float,
        rates: Mapping[str, float],
        wait: float,
    ) -> list[Proposal]:
        found = []
        expected, now = sum(rates.values()), snapshot.rate
        for name, instances in wanted.items():
            n = degrees[name]
            if instances == n:
                continue
            reason = (
                f"{now:,.0f} rows/s come now, and up to {expected:,.0f} are to be done in the next {2 * wait:.0f} s; "
                f"by then {fullness:.0%} of the time would be filled: {instances} instead of {plural(n, 'instance')}"
            )
            found.append(Proposal(name, reason, Trigger("time filled", fullness, 1.0), instances=instances))
        return found


def _degrees(summary: Snapshot) -> list[int]:
    return [own.instances for own in summary.subqueries.values()]
