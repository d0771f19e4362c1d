"""The progress of a run, worked out from the manifests and the snapshots of its epochs. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, median

from springtide.elastic.snapshot import Latency, Snapshot
from springtide.elastic.summaries import merged
from springtide.state.manifest import Manifest
from springtide.state.metrics import EpochMetrics

_SPAN = 5.0
"""Seconds that a rate looks back."""
_KEPT = 200
"""Epochs that are looked back at."""
_BAR = 2.0
"""Seconds of one bar."""
_BARS = 30
_TREND = 12
"""Bars of the instances."""


@dataclass(frozen=True, kw_only=True)
class SubqueryProgress:
    """One subquery now."""

    name: str
    instances: int
    rate_in: float | None
    rate_out: float | None
    utilisation: float | None
    """The average over its instances, as policies see it."""
    highest: float | None
    """The same of the busiest instance."""
    state_rows: int
    state_bytes: int
    trend: tuple[int, ...]
    """The instances of every two seconds, the last ones last."""


@dataclass(frozen=True)
class Progress:
    """A run now."""

    epoch: int
    """The last one that is committed; -1 before the first."""
    epochs: int
    """How many this run has done."""
    rows_in: int
    rows_out: int
    late: int
    rejected: int
    rate_in: float | None
    rate_out: float | None
    last: float | None
    """Seconds of the last epoch."""
    median: float | None
    waits: Latency | None
    """How long rows of the last epoch took from the source to the sinks."""
    latency: float | None
    """The longest that a row of the last epoch waited for its commit: it came just after the epoch before had begun."""
    backlog: int
    parts: tuple[SubqueryProgress, ...]
    rates: tuple[float, ...]
    """Rows in per second, of every two seconds, the last ones last."""


class Tracker:
    """Follows a run through its manifests."""

    def __init__(self, before: Manifest | None) -> None:
        """`before` is the checkpoint's state when the run began: what it counted was not done by this run."""
        self._before = before
        self._newest = before
        self._epochs: deque[EpochMetrics] = deque(maxlen=_KEPT)
        self._bars: dict[int, float] = {}
        self._trends: dict[str, dict[int, int]] = {}
        self._snapshots: deque[Snapshot] = deque(maxlen=_KEPT)
        self._done = self._rows_in = self._rows_out = 0

    def add(self, manifests: Iterable[Manifest], snapshot: Snapshot | None = None) -> bool:
        """Take in the manifests that are new, and the last measurements; return whether there were any manifests."""
        if snapshot is not None and (not self._snapshots or snapshot.epoch > self._snapshots[-1].epoch):
            self._snapshots.append(snapshot)
        newest = -1 if self._newest is None else self._newest.epoch
        fresh = [m for m in manifests if m.epoch > newest]
        for manifest in fresh:
            epoch = manifest.metrics
            self._spread(epoch)
            self._epochs.append(epoch)
            self._done += 1
            self._rows_in += epoch.rows
            self._rows_out += epoch.published
            self._newest = manifest
            self._follow(manifest)
        return bool(fresh)

    def progress(self, now: float) -> Progress:
        """Sum up what was taken in."""
        recent, span = self._recent(now)
        measured = self._measured(now)
        newest, own = self._newest, bool(self._epochs)
        return Progress(
            epoch=-1 if newest is None else newest.epoch,
            epochs=self._done,
            rows_in=self._rows_in,
            rows_out=self._rows_out,
            late=self._counted("late"),
            rejected=self._counted("rejected"),
            rate_in=sum(e.rows for e in recent) / span if recent else None,
            rate_out=sum(e.published for e in recent) / span if recent else None,
            last=self._epochs[-1].seconds if own else None,
            median=median(e.seconds for e in self._epochs) if own else None,
            waits=self._snapshots[-1].latency if self._snapshots else None,
            latency=self._latency(),
            backlog=newest.metrics.backlog if newest is not None and own else 0,
            parts=() if newest is None else tuple(self._part(n, newest, recent, span, measured) for n in newest.maps),
            rates=self._rates(),
        )

    def _recent(self, now: float) -> tuple[list[EpochMetrics], float]:
        """Return the epochs of the last seconds, and the time that they and the waiting between them took."""
        if not self._epochs:
            return [], 1.0
        epochs = list(self._epochs)
        last = epochs[-1]
        # an epoch that is at work is not a pause; a gap much longer than an epoch is
        end = now if now - last.at > _SPAN + last.seconds else last.at
        recent = [e for e in epochs if e.at > end - _SPAN] or ([last] if end == last.at else [])
        first = epochs.index(recent[0]) if recent else len(epochs)
        start = epochs[first - 1].at if first else recent[0].at - recent[0].seconds
        return recent, max(end - start, 1e-6)

    def _measured(self, now: float) -> Snapshot | None:
        """Sum up the last seconds, as the manager does."""
        recent = [s for s in self._snapshots if s.time > now - _SPAN - s.seconds]
        return merged(recent) if recent else None

    def _follow(self, manifest: Manifest) -> None:
        """Note the instances of each subquery."""
        bar = int(manifest.metrics.at // _BAR)
        for name, bucket_map in manifest.maps.items():
            trend = self._trends.setdefault(name, {})
            for missed in range(max(trend, default=bar) + 1, bar):
                trend[missed] = trend[missed - 1]
            trend[bar] = bucket_map.instances
            for old in [b for b in trend if b <= bar - _TREND]:
                del trend[old]

    def _rates(self) -> tuple[float, ...]:
        """Return the rate of each bar, without the last one, which is not complete yet."""
        if not self._bars:
            return ()
        last = max(self._bars)
        return tuple(self._bars.get(bar, 0.0) / _BAR for bar in range(max(min(self._bars), last - _BARS), last))

    def _spread(self, epoch: EpochMetrics) -> None:
        """Distribute the rows of an epoch over the time since the one before."""
        start = self._epochs[-1].at if self._epochs else epoch.at - epoch.seconds
        length = max(epoch.at - start, 1e-6)
        for bar in range(int(start // _BAR), int(epoch.at // _BAR) + 1):
            part = min(epoch.at, (bar + 1) * _BAR) - max(start, bar * _BAR)
            self._bars[bar] = self._bars.get(bar, 0.0) + epoch.rows * max(part, 0.0) / length
        for bar in [bar for bar in self._bars if bar < epoch.at // _BAR - _BARS]:
            del self._bars[bar]

    def _latency(self) -> float | None:
        if not self._epochs:
            return None
        last = self._epochs[-1]
        before = self._epochs[-2] if len(self._epochs) > 1 else last
        return last.at - (before.at - before.seconds)

    def _counted(self, what: str) -> int:
        def total(manifest: Manifest | None) -> int:
            return 0 if manifest is None else sum(getattr(s, what) for s in manifest.sources.values())

        return total(self._newest) - total(self._before)

    def _part(
        self, name: str, manifest: Manifest, recent: list[EpochMetrics], span: float, seen: Snapshot | None
    ) -> SubqueryProgress:
        measured = [e.subqueries[name] for e in recent if name in e.subqueries]
        segments = manifest.state[name].segments if name in manifest.state else ()
        used = seen.utilisation(name) if seen is not None and name in seen.subqueries else ()
        return SubqueryProgress(
            name=name,
            instances=manifest.maps[name].instances,
            rate_in=sum(sum(m.rows_in) for m in measured) / span if measured else None,
            rate_out=sum(sum(m.rows_out) for m in measured) / span if measured else None,
            utilisation=fmean(used) if used else None,
            highest=max(used) if used else None,
            state_rows=sum(s.rows for s in segments),
            state_bytes=sum(s.bytes for s in segments),
            trend=tuple(self._trends.get(name, {}).values()),
        )
