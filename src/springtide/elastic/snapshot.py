"""What the policies see: one moment of a running query, measured. Plain data, and the numbers derived from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from statistics import fmean
from typing import Any
from warnings import warn

import numpy as np
import numpy.typing as npt

from springtide.query.html import table
from springtide.query.ids import EpochNumber
from springtide.state.bucket_map import BucketMap
from springtide.state.traffic import Traffic

FORMAT = 1

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SourceLoad:
    """What arrived at a source and what was read from it."""

    rows: int = 0
    """Rows read in this time."""
    arrived: int | None = None
    """Rows that arrived in this time, read or not; None if unknown: then everything that arrived is assumed to have been read."""
    backlog: int = 0
    """Rows that were there when the last epoch began but did not fit into it."""
    latest: float | None = None
    """Rows per second that arrived in the last epoch, if there were several: after a jump this shows all of it, whereas the average does not."""
    sooner: float | None = None
    """Rows per second that arrived in the epoch before that."""


@dataclass(frozen=True)
class Latency:
    """How long rows took from the source to the sink, in seconds, by percentile."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class SubqueryLoad:
    """What a subquery did. Tuples have one entry per instance, those named after buckets one per bucket; an empty tuple means not measured."""

    map: BucketMap
    """For a stateless prefix: the number of instances, and no buckets."""
    rows_in: tuple[int, ...]
    rows_out: tuple[int, ...]
    busy: tuple[float, ...]
    """Seconds of work."""
    wait: tuple[float, ...] = ()
    """Seconds between the start of a task and its work: waiting for a worker and for its input."""
    span: float | None = None
    """Seconds from the first start to the last end of its tasks; None if not measured."""
    upstream: tuple[str, ...] = ()
    """The subqueries whose rows it takes."""
    sources: tuple[str, ...] = ()
    """The sources that it reads."""
    bucket_rows: tuple[int, ...] = ()
    bucket_busy: tuple[float, ...] = ()
    """Seconds of work, or anything proportional to it."""
    bucket_bytes: tuple[int, ...] = ()
    """Size of the state."""
    state_bytes: int = 0
    grid: tuple[int, int] | None = None
    """Rows and columns, if the buckets form a grid (SC-6)."""
    limit: int | None = None
    """The most instances that the user's limits allow, if the manager has filled it in."""

    @property
    def instances(self) -> int:
        """Return the degree of parallelism."""
        return self.map.instances

    @cached_property
    def bucket_weights(self) -> tuple[float, ...]:
        """Return how much work each bucket has relative to the others: by its work, otherwise by its rows; empty if unknown.

        If few rows came, it is chance which buckets got them. So buckets are assumed to have the same number of rows as far as they differ by no
        more than chance (James and Stein): a bucket without rows in one epoch will have some in the next.

        >>> SubqueryLoad(BucketMap.even(4, 1), (4,), (4,), (1.0,), bucket_rows=(2, 0, 1, 1)).bucket_weights
        (1.0, 1.0, 1.0, 1.0)
        >>> SubqueryLoad(BucketMap.even(4, 1), (4,), (4,), (1.0,), bucket_rows=(400, 0, 0, 0)).bucket_weights
        (399.0, 0.333..., 0.333..., 0.333...)
        """
        if self.bucket_busy or not any(self.bucket_rows):
            return self.bucket_busy or tuple(map(float, self.bucket_rows))
        return tuple(evened(np.array(self.bucket_rows, dtype=np.float64)).tolist())

    def to_json(self) -> dict[str, Any]:
        """Write it for the checkpoint."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"map": self.map.to_json()}

    @property
    def most(self) -> int | None:
        """Return how many instances it can have at most: the user's limit, and no more than it has buckets; None if unbounded."""
        bounds = [n for n in (self.limit, len(self.map.owners)) if n]
        return min(bounds) if bounds else None

    @property
    def selectivity(self) -> float:
        """Return the number of rows out per row in (AS-4); 1 before any came in."""
        rows = sum(self.rows_in)
        return sum(self.rows_out) / rows if rows else 1.0

    @property
    def seconds_per_row(self) -> float:
        """Return the work that a row takes, without waiting; 0 before any came in."""
        rows = sum(self.rows_in)
        return sum(self.busy) / rows if rows else 0.0


@dataclass(frozen=True)
class Snapshot:
    """One measured epoch, or several consecutive ones combined (see `summaries.merged`).

    How busy an instance is depends on the time that it could have used. The stages of an epoch run one after another: while a subquery
    of one stage works, those of the others cannot. So the time available to a stage is its share of the whole time, including the
    wait for rows; its share is measured by how long the stages took. In a query that is just able to keep up, all instances
    are therefore 100 % busy, regardless of the number of stages; with a single stage and epochs directly after one another, it is
    busy time divided by wall time.

    >>> heavy = SubqueryLoad(BucketMap.even(4, 2), (60, 40), (1, 1), (0.3, 0.2), upstream=("calls",))
    >>> calls = SubqueryLoad(BucketMap.even(0, 1), (100,), (100,), (0.1,), sources=("calls",))
    >>> now = Snapshot(8.0, 7, 0.5, 1.0, {"calls": SourceLoad(100, 120, 20)}, {"calls": calls, "heavy": heavy})
    >>> [round(busy, 3) for busy in now.utilisation("heavy")]
    [0.4, 0.267]
    """

    time: float
    """When the epoch ended, in seconds, by any clock as long as later snapshots use the same one."""
    epoch: EpochNumber
    seconds: float
    """How long the epoch took."""
    period: float
    """The time since the end of the previous epoch: `seconds` plus the wait before it."""
    sources: Mapping[str, SourceLoad]
    subqueries: Mapping[str, SubqueryLoad]
    """By name, in the order of the plan."""
    latency: Latency | None = None
    slots: int | None = None
    """How many tasks can currently run at once."""
    executors: int | None = None
    took: Mapping[str, float] = field(default_factory=dict)
    """Subquery → seconds from the instruction to have more instances until it had them, if that happened in this time."""
    coming: Mapping[str, int] = field(default_factory=dict)
    """Subquery → the number of instances that it has been told to have but does not have yet."""
    traffic: Traffic | None = None
    """Requests to object stores, and how much state was read from them; None if the checkpoint is in a folder."""

    # ── the sources ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def rows(self) -> int:
        """Count the rows that were read."""
        return sum(s.rows for s in self.sources.values())

    @property
    def backlog(self) -> int:
        """Count the rows that wait at the sources."""
        return sum(s.backlog for s in self.sources.values())

    @property
    def rate(self) -> float:
        """Return the rows that arrived at the sources, per second."""
        return _arrived(self.sources.values()) / self.period if self.period else 0.0

    # ── the graph ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def levels(self) -> Mapping[str, int]:
        """Return the stage of the epoch in which each subquery runs: after the last subquery that it takes rows from."""
        found: dict[str, int] = {}

        def level(name: str) -> int:
            if name not in found:
                found[name] = 1 + max((level(up) for up in self.subqueries[name].upstream), default=-1)
            return found[name]

        return {name: level(name) for name in self.subqueries}

    def origins(self, name: str) -> Mapping[str, SourceLoad]:
        """Return the sources whose rows reach a subquery."""
        reached, todo = set[str](), [name]
        while todo:
            own = self.subqueries[todo.pop()]
            reached.update(own.sources)
            todo.extend(own.upstream)
        return {source: load for source, load in self.sources.items() if source in reached}

    # ── how busy ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def span(self, name: str) -> float:
        """Return the seconds that the stage of a subquery took; if not measured, the least that its work must have taken."""
        return self._spans[self.levels[name]]

    def share(self, name: str) -> float:
        """Return the share of a subquery's stage in the time that all stages took."""
        total = sum(self._spans.values())
        return self.span(name) / total if total else 1.0

    @cached_property
    def _spans(self) -> Mapping[int, float]:
        spans = {}
        for level in sorted(set(self.levels.values())):
            stage = [s for name, s in self.subqueries.items() if self.levels[name] == level]
            measured = [s.span for s in stage if s.span is not None]
            busy = [seconds for s in stage for seconds in s.busy]
            at_least = max(max(busy, default=0.0), sum(busy) / self.slots if self.slots else 0.0)
            spans[level] = max(measured, default=at_least)
        return spans

    def utilisation(self, name: str) -> tuple[float, ...]:
        """Return how busy each instance was, as a share of the time that it could have used."""
        time = self.share(name) * self.period
        return tuple(busy / time if time else 0.0 for busy in self.subqueries[name].busy)

    def deviation(self, name: str) -> float:
        """Return the standard deviation of the utilisation across the instances."""
        time, busy = self.share(name) * self.period, self.subqueries[name].busy
        return float(np.std(busy)) / time if time and busy else 0.0

    def load(self, name: str) -> float:
        """Return the work that arrives for a subquery, as a number of instances that are always busy.

        It is based on what arrives at the sources, not on what was read: while a backlog grows there is more to do than is being done, and
        while it shrinks there is less.

        >>> prefix = SubqueryLoad(BucketMap.even(0, 2), (50, 50), (50, 50), (0.9, 0.9), sources=("calls",))
        >>> Snapshot(1.0, 0, 1.0, 1.0, {"calls": SourceLoad(100, 300, 200)}, {"calls": prefix}).load("calls")
        5.4
        """
        origins = self.origins(name).values()
        read = sum(s.rows for s in origins)
        return sum(self.utilisation(name)) * (_arrived(origins) / read if read else 1.0)

    def owed(self, name: str) -> float:
        """Return the work that the backlog will cause for a subquery, in seconds of one instance that is always busy."""
        origins = self.origins(name).values()
        read, waiting = sum(s.rows for s in origins), sum(s.backlog for s in origins)
        return sum(self.utilisation(name)) * self.period * waiting / read if read else 0.0

    def has_backlog(self, name: str) -> bool:
        """Return whether rows that did not fit into an epoch are waiting for a subquery."""
        return any(s.backlog for s in self.origins(name).values())

    def is_behind(self, name: str) -> bool:
        """Return the same; this is the old name of `has_backlog`."""
        warn("Snapshot.is_behind is called has_backlog now", DeprecationWarning, stacklevel=2)
        return self.has_backlog(name)

    def bucket_loads(self, name: str) -> tuple[float, ...]:
        """Divide the utilisation of each instance among its buckets: by their work, otherwise by their rows; empty if unknown."""
        own = self.subqueries[name]
        weights = own.bucket_weights
        if not weights:
            return ()
        loads, owners = np.array(weights), own.map.array
        sums = np.bincount(owners, loads, own.instances)[owners]
        shares = loads * np.array(self.utilisation(name))[owners]
        return tuple(np.divide(shares, sums, out=np.zeros(len(weights)), where=sums != 0).tolist())

    def mean_utilisation(self, name: str) -> float:
        """Return the average over the instances: U_av of SC-10."""
        return fmean(found) if (found := self.utilisation(name)) else 0.0

    def _repr_html_(self) -> str:
        """Show in a notebook what each subquery did."""
        rows = [
            (
                name,
                own.instances,
                f"{sum(own.rows_in):,}",
                f"{sum(own.rows_out):,}",
                f"{self.mean_utilisation(name):.0%}",
                f"{own.state_bytes:,}",
            )
            for name, own in self.subqueries.items()
        ]
        head = ["subquery", "instances", "rows in", "rows out", "utilisation", "state in bytes"]
        return table(head, rows, title=f"epoch {self.epoch}: {self.seconds:.2f} s of work in {self.period:.2f} s")

    # ── on paper ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def to_json(self) -> dict[str, Any]:
        """Write it for the checkpoint."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return plain | {
            "format": FORMAT,
            "sources": {name: asdict(s) for name, s in self.sources.items()},
            "subqueries": {name: s.to_json() for name, s in self.subqueries.items()},
            "latency": asdict(self.latency) if self.latency else None,
            "took": dict(self.took),
            "coming": dict(self.coming),
            "traffic": asdict(self.traffic) if self.traffic else None,
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> Snapshot:
        """Read what `to_json` wrote, even after a round trip through JSON."""
        if data["format"] != FORMAT:
            raise ValueError(f"a snapshot of format {data['format']}, but this version of Springtide reads {FORMAT}")
        plain = {key: value for key, value in data.items() if key != "format"}
        return Snapshot(
            **plain
            | {
                "sources": {name: SourceLoad(**s) for name, s in data["sources"].items()},
                "subqueries": {name: _load(s) for name, s in data["subqueries"].items()},
                "latency": Latency(**data["latency"]) if data["latency"] else None,
                "traffic": Traffic(**data["traffic"]) if data.get("traffic") else None,
            }
        )


def evened(rows: Floats) -> Floats:
    """Treat counts as equal if they differ by no more than chance."""
    mean, variance = float(rows.mean()), float(rows.var())
    trust = max(0.0, 1 - mean / variance) if variance else 0.0
    found: Floats = mean + trust * (rows - mean)
    return found


def _arrived(loads: Iterable[SourceLoad]) -> int:
    return sum(s.rows if s.arrived is None else s.arrived for s in loads)


def _load(data: dict[str, Any]) -> SubqueryLoad:
    found: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
    return SubqueryLoad(**found | {"map": BucketMap.from_json(data["map"])})
