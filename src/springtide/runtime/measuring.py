"""An epoch measured: from the reports of its tasks to a snapshot that policies and people look at. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from springtide.compiler.plan import Grid, Plan
from springtide.connectors import Slice
from springtide.elastic.snapshot import Latency, Snapshot, SourceLoad, SubqueryLoad
from springtide.runtime.epoch import Epoch, TaskReport
from springtide.state.manifest import Manifest
from springtide.state.metrics import EpochMetrics, SubqueryMetrics
from springtide.state.traffic import Traffic

_POINTS = 16
"""How many rows of a slice stand for all of them; they are taken to have come evenly between its first and its last one."""


def measure(
    plan: Plan,
    epoch: Epoch,
    reports: Sequence[TaskReport],
    manifest: Manifest,
    *,
    now: float,
    clock: float,
    seconds: float,
    period: float,
    between: float | None,
    backlogs: Mapping[str, tuple[int, int]],
    bucket_bytes: Mapping[str, Sequence[int]],
    slots: int | None,
    executors: int | None,
    traffic: Traffic | None = None,
) -> Snapshot:
    """Return the snapshot of an epoch; `backlogs` has the rows that waited at each source before and after it.

    `now` is a time that only goes on, `clock` the time of day, by which sources say when a row came. `between` is from when the
    epoch before began until this one did; None if there is none before it.
    """
    read: dict[str, int] = {}
    for report in reports:
        for name, counts in report.sources.items():
            read[name] = read.get(name, 0) + counts["read"]
    sources = {}
    for name in manifest.sources:
        (before, after), rows = backlogs.get(name, (0, 0)), read.get(name, 0)
        sources[name] = SourceLoad(rows, came(max(0, rows + after - before), period, between), after)
    subqueries = {
        q.name: _load(plan, q.name, epoch, reports, manifest, bucket_bytes.get(q.name, ()), seconds)
        for q in plan.subqueries
    }
    waits = latency([s for parts in epoch.slices.values() for part in parts for s in part], clock, clock - seconds)
    return Snapshot(now, epoch.number, seconds, period, sources, subqueries, waits, slots, executors, traffic=traffic)


def metrics_of(
    plan: Plan,
    reports: Sequence[TaskReport],
    *,
    at: float,
    seconds: float,
    backlog: int,
    events: Sequence[tuple[float, str]],
) -> EpochMetrics:
    """Return what a manifest says about an epoch's work: rows and seconds by subquery and instance."""
    subqueries, rows = {}, 0
    for q in plan.subqueries:
        own = sorted((r for r in reports if r.subquery == q.name), key=lambda r: r.instance)
        subqueries[q.name] = SubqueryMetrics(
            rows_in=tuple(r.rows_in for r in own),
            rows_out=tuple(r.rows_out for r in own),
            rejected=tuple(r.rejected for r in own),
            busy=tuple(round(r.busy, 6) for r in own),
        )
        rows += sum(r.rows_in for r in own) if q.head is None else 0
    published = sum(d.rows for r in reports for d in r.outbox)
    return EpochMetrics(at, round(seconds, 6), rows, published, backlog, subqueries, tuple(events))


def came(rows: int, period: float, between: float | None) -> int:
    """Return how many rows came in the time of an epoch, when so many came between two looks at the source.

    The source is looked at when an epoch begins, and the period ends with the epoch. After an epoch that took much longer than this one the
    two are not the same, and all that came during the long one would look like a jump.

    >>> came(12_000, period=3.0, between=12.0), came(12_000, period=3.0, between=None)
    (3000, 12000)
    """
    return round(rows * period / between) if between else rows


def _load(
    plan: Plan,
    name: str,
    epoch: Epoch,
    reports: Sequence[TaskReport],
    manifest: Manifest,
    bucket_bytes: Sequence[int],
    seconds: float,
) -> SubqueryLoad:
    own = [r for r in reports if r.subquery == name]
    grid = next((e.routing for e in plan.exchanges if e.target == name and isinstance(e.routing, Grid)), None)
    state = manifest.state.get(name)
    by_instance = _by_instance(own, epoch.maps[name].instances)
    return SubqueryLoad(
        map=epoch.maps[name],
        rows_in=tuple(sum(r.rows_in for r in reports) for reports in by_instance),
        rows_out=tuple(sum(r.rows_out for r in reports) for reports in by_instance),
        busy=tuple(round(sum(r.busy for r in reports), 6) for reports in by_instance),
        wait=tuple(round(sum(r.wait for r in reports), 6) for reports in by_instance),
        span=span_of(own, seconds) if own and not any(r.together for r in own) else None,
        upstream=tuple(dict.fromkeys(e.origin for e in plan.exchanges if e.target == name)),
        sources=plan.subquery(name).sources,
        bucket_rows=tuple(np.sum([r.buckets for r in own if r.buckets], axis=0).tolist())
        if any(r.buckets for r in own)
        else (),
        bucket_bytes=tuple(bucket_bytes),
        state_bytes=sum(s.bytes for s in state.segments) if state else 0,
        grid=(grid.rows, grid.columns) if grid else None,
    )


def _by_instance(own: Sequence[TaskReport], instances: int) -> list[list[TaskReport]]:
    """Sort the reports of a subquery by instance. Tasks on rows that Spark reads, as many as Spark chooses, are assigned to the instances in turn."""
    found: list[list[TaskReport]] = [[] for _ in range(instances)]
    for report in own:
        found[report.instance % instances].append(report)
    return found


def span_of(own: Sequence[TaskReport], seconds: float) -> float:
    """Return the time from the first start of a task to the last end, which clocks of machines tell: no less than one task and no more than the epoch."""
    told = max(r.began + r.wait + r.busy for r in own) - min(r.began for r in own)
    return round(max(min(told, seconds), *(r.wait + r.busy for r in own), 0.0), 6)


def latency(slices: Sequence[Slice], now: float, began: float) -> Latency | None:
    """Return percentiles of the time from when a row was there to be read until its epoch was published at `now`.

    A row whose arrival is unknown counts as having come when the epoch began.
    """
    if not slices:
        return None
    ends = [part.arrived or (began, began) for part in slices]
    came = np.concatenate([np.linspace(first, last, _POINTS) for first, last in ends])
    weights = np.repeat([part.rows / _POINTS for part in slices], _POINTS)
    order = np.argsort(-came)  # the latest came last and waited least
    waited, upto = np.maximum(now - came[order], 0.0), np.cumsum(weights[order])
    points = np.searchsorted(upto, np.array([0.5, 0.95, 0.99]) * upto[-1])
    p50, p95, p99 = (round(float(waited[min(p, waited.size - 1)]), 6) for p in points)
    return Latency(p50, p95, p99)
