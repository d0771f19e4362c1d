"""The cluster: a model run with a trace, epoch by epoch, and a manager that is told what happened and decides.

    rows that came → epoch: stage after stage, each as long as its busiest instance → snapshot → manager ─┐
          ▲                                                                                                │
          └──────────────── bucket maps of the next epoch, once their instances are there ◀────────────────┘

Deterministic: the same model, trace and seed lead to the same run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from springtide.elastic import maps
from springtide.elastic.manager import Manager
from springtide.elastic.settings import Elastic
from springtide.elastic.simulator.model import RECOVERY, SOURCE, Model
from springtide.elastic.simulator.traces import Trace
from springtide.elastic.snapshot import Latency, Snapshot, SourceLoad, SubqueryLoad
from springtide.query.ids import EpochNumber
from springtide.state.bucket_map import BucketMap
from springtide.state.instructions import Instruction

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class SimulatedEpoch:
    """The results of one epoch."""

    start: float
    end: float
    rows: int
    first: float
    """When its first row arrived."""
    p99: float
    """Latency of its rows."""
    waiting: float
    """Rows that are waiting at its end."""
    degrees: Mapping[str, int]
    paid: int
    """Instances that are present or on their way."""
    work: float
    """Seconds that its stages take per row."""
    failed: bool = False


@dataclass
class SimulatedRun:
    """The results of a run."""

    model: Model
    trace: Trace
    epochs: list[SimulatedEpoch] = field(default_factory=list)
    done: list[Instruction] = field(default_factory=list)
    """Instructions, in the order in which they took effect."""
    snapshots: list[Snapshot] = field(default_factory=list)
    """One for each epoch, if requested."""

    @property
    def degrees(self) -> Floats:
        """Return the total number of instances, epoch by epoch."""
        return np.array([sum(e.degrees.values()) for e in self.epochs], dtype=np.float64)


def run(
    model: Model,
    trace: Trace,
    elastic: Elastic,
    *,
    seed: int = 0,
    degrees: Mapping[str, int] | None = None,
    known: Sequence[tuple[float, Mapping[str, int]]] = (),
    keep: bool = False,
) -> SimulatedRun:
    """Run a trace through a model; unless `degrees` are given, start with the fewest instances that the first load needs.

    If `known` says which degrees there were from which times on, these are used until the last of these times, and no decisions are made before.
    """
    first = degrees or model.fewest(float(trace.rates[0]))
    return _Cluster(model, trace, elastic, seed, first, known, keep).run()


class _Cluster:
    def __init__(
        self,
        model: Model,
        trace: Trace,
        elastic: Elastic,
        seed: int,
        degrees: Mapping[str, int],
        known: Sequence[tuple[float, Mapping[str, int]]],
        keep: bool,
    ) -> None:
        self.model, self.keep = model, keep
        self.manager, self.known = Manager(elastic), list(known)
        if self.known:
            self.manager.pause()
        self.result = SimulatedRun(model, trace)
        self.random = np.random.default_rng(seed)
        self.arrived = trace.arrived()
        self.seconds = np.arange(self.arrived.size, dtype=np.float64)
        self.maps = {n: BucketMap.even(s.buckets or 0, degrees[n]) for n, s in model.steps.items()}
        self.weights = {n: _weights(s.buckets, s.weights) for n, s in model.steps.items()}
        self.proportions = {n: tuple(weights.tolist()) for n, weights in self.weights.items()}
        self.shares = {n: self._shared(n) for n in model.steps}
        self.todo: list[tuple[float, Instruction]] = []
        self.levels: dict[int, list[str]] = {}
        for name, level in model.levels.items():
            self.levels.setdefault(level, []).append(name)
        self.failure = self._next_failure(0.0)

    def run(self) -> SimulatedRun:
        start, before, looked, taken, number = 0.0, 0.0, 0.0, 0.0, 0
        length = float(self.result.trace.seconds)
        while start < length:
            extra = self._take_effect(start) if not self.known else self._follow(start)
            there = self._came(start)
            most = self.model.rows_per_epoch
            rows = int(there - taken) if most is None else min(int(there - taken), most)
            loads, times = self._work(rows)
            seconds = self.model.fixed(sum(m.instances for m in self.maps.values())) + extra + sum(times.values())
            failed = self.failure < start + seconds
            if failed:
                seconds += max(0.0, self.failure - start) + RECOVERY
                self.failure = self._next_failure(start + seconds)
            end = start + seconds
            self._measure(
                number=number,
                start=start,
                end=end,
                before=before,
                looked=looked,
                taken=taken,
                rows=rows,
                loads=loads,
                times=times,
                failed=failed,
            )
            taken += rows
            before, looked, number = end, start, number + 1
            # Rows that were there but were not taken need not wait for the pace.
            start = max(end + self.model.pause, 0.0 if there - taken >= 1 else start + self.model.pace)
        return self.result

    # ── an epoch ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _work(self, rows: int) -> tuple[dict[str, tuple[float, float, Floats]], dict[int, float]]:
        """Return the rows in, rows out and work of each instance by subquery, and how long each stage takes."""
        noise = self.random.standard_normal(len(self.maps))
        found: dict[str, tuple[float, float, Floats]] = {}
        for (name, step), shock in zip(self.model.steps.items(), noise, strict=True):
            came = step.takes * (sum(found[up][1] for up in step.upstream) if step.upstream else float(rows))
            share = self.shares[name]
            if step.by_chance and came >= 1:
                share = self.random.multinomial(int(came), share / share.sum()) / int(came)
            busy = share * (came * step.cost * max(0.0, 1 + step.noise * float(shock))) + step.task
            found[name] = (came, came * step.selectivity, busy)
        times = {}
        for level, names in self.levels.items():
            longest = max(float(found[name][2].max()) for name in names)
            total = sum(float(found[name][2].sum()) for name in names)
            times[level] = max(longest, total / self.model.slots) if self.model.slots else longest
        return found, times

    def _measure(
        self,
        *,
        number: int,
        start: float,
        end: float,
        before: float,
        looked: float,
        taken: float,
        rows: int,
        loads: Mapping[str, tuple[float, float, Floats]],
        times: Mapping[int, float],
        failed: bool,
    ) -> None:
        waiting = self._came(end) - taken - rows
        ages = end - self._when(taken + rows * np.array([0.0, 0.01, 0.05, 0.5])) if rows else np.zeros(4)
        oldest, p99, p95, p50 = (float(age) for age in ages)
        paid = {name: m.instances for name, m in self.maps.items()}
        for _, instruction in self.todo:
            paid[instruction.subquery] = max(paid[instruction.subquery], instruction.after.instances)
        self.result.epochs.append(
            SimulatedEpoch(
                start=start,
                end=end,
                rows=rows,
                first=end - oldest,
                p99=p99,
                waiting=waiting,
                degrees={name: m.instances for name, m in self.maps.items()},
                paid=sum(paid.values()),
                work=sum(times.values()) / rows if rows else 0.0,
                failed=failed,
            )
        )
        # As in a real run, sources are looked at when an epoch begins: at its end, it is not known what has arrived since.
        came, between = self._came(start) - self._came(looked), start - looked
        arrived = round(came * (end - before) / between) if between else round(came)
        left = self._came(start) - taken - rows
        snapshot = Snapshot(
            time=end,
            epoch=EpochNumber(number),
            seconds=end - start,
            period=end - before,
            sources={SOURCE: SourceLoad(rows, arrived, max(0, int(left)))},
            subqueries={name: self._load(name, *load, times) for name, load in loads.items()},
            latency=Latency(p50, p95, p99) if rows else None,
            slots=self.model.slots,
        )
        if self.keep:
            self.result.snapshots.append(snapshot)
        for instruction in self.manager.handle(snapshot):
            more = instruction.after.instances > instruction.before.instances
            self.todo.append((end + self.model.startup if more else end, instruction))

    def _load(self, name: str, came: float, gone: float, busy: Floats, times: Mapping[int, float]) -> SubqueryLoad:
        step, share = self.model.steps[name], self.shares[name]
        rows_in, rows_out = _shared_out(share, came), _shared_out(share, gone)
        return SubqueryLoad(
            map=self.maps[name],
            rows_in=rows_in,
            rows_out=rows_out,
            busy=tuple(busy.tolist()),
            span=times[self.model.levels[name]] if self.model.slots else float(busy.max()),
            upstream=step.upstream,
            sources=() if step.upstream else (SOURCE,),
            # Not as rows: a few rows spread over many buckets would look uneven.
            bucket_busy=self.proportions[name],
        )

    # ── changes ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_effect(self, now: float) -> float:
        """Use the maps whose instances are there; return the time that it takes to hand over the buckets."""
        extra = 0.0
        for due, instruction in [entry for entry in self.todo if entry[0] <= now]:
            self.todo.remove((due, instruction))
            name = instruction.subquery
            self.maps[name] = instruction.after
            self.shares[name] = self._shared(name)
            self.result.done.append(instruction)
            buckets = len(instruction.after.owners)
            extra += self.model.handover * len(instruction.moved) / buckets if buckets else 0.0
        return extra

    def _follow(self, now: float) -> float:
        """Use the degrees that are known; after the last of them, the manager decides."""
        while self.known and self.known[0][0] <= now + self.model.pace:
            for name, instances in self.known.pop(0)[1].items():
                if instances != self.maps[name].instances:
                    self.maps[name] = maps.scale(self.maps[name], instances, self.proportions[name])
                    self.shares[name] = self._shared(name)
        if not self.known:
            self.manager.resume()
        return 0.0

    def _shared(self, name: str) -> Floats:
        """Return the share of each instance in the rows of a subquery."""
        own = self.maps[name]
        if not own.owners:
            return np.full(own.instances, 1 / own.instances)
        return np.array(maps.totals(own, self.weights[name].tolist()))

    def _next_failure(self, now: float) -> float:
        if not self.model.failures:
            return float("inf")
        per_second = self.model.failures * sum(m.instances for m in self.maps.values()) / 3600
        return now + float(self.random.exponential(1 / per_second))

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _came(self, time: float) -> float:
        """Count the rows that arrived up to a time; after the end of the trace, the last rate continues."""
        last = float(self.seconds[-1])
        beyond = max(0.0, time - last) * float(self.result.trace.rates[-1])
        return float(np.interp(time, self.seconds, self.arrived)) + beyond

    def _when(self, rows: Floats) -> Floats:
        """Return when rows arrived."""
        return np.interp(rows, self.arrived, self.seconds)


def _shared_out(share: Floats, rows: float) -> tuple[int, ...]:
    """Divide rows among instances in whole numbers that add up to the total.

    >>> _shared_out(np.full(4, 0.25), 10.0)
    (2, 3, 3, 2)
    """
    upto = np.rint(np.cumsum(share) * rows).astype(np.int64)
    upto[1:] -= upto[:-1].copy()
    return tuple(upto.tolist())


def _weights(buckets: int | None, weights: tuple[float, ...] | None) -> Floats:
    if weights is not None:
        return np.asarray(weights)
    return np.full(buckets, 1 / buckets) if buckets else np.empty(0)
