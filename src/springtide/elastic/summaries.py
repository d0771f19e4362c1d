"""Summaries: snapshots of a few consecutive epochs, combined into one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from springtide.elastic.snapshot import Latency, Snapshot, SourceLoad, SubqueryLoad
from springtide.state.traffic import Traffic

Number = TypeVar("Number", int, float)


def merged(snapshots: Sequence[Snapshot]) -> Snapshot:
    """Combine the last snapshots that have the same bucket maps as the very last one: measurements under another map do not count.

    Rows and times are added up, backlog and slots are those at the end, and latencies are the worst.
    """
    last = snapshots[-1]
    same = [last]
    for earlier in reversed(snapshots[:-1]):
        if _maps(earlier) != _maps(last):
            break
        same.append(earlier)
    if len(same) == 1:
        return last
    same.reverse()
    latencies = [s.latency for s in same if s.latency]
    return replace(
        last,
        seconds=sum(s.seconds for s in same),
        period=sum(s.period for s in same),
        sources={
            name: _source([(s.sources[name], s.period) for s in same if name in s.sources]) for name in last.sources
        },
        subqueries={name: _subquery(name, same) for name in last.subqueries},
        traffic=sum((s.traffic for s in same if s.traffic), Traffic()) if last.traffic else None,
        latency=Latency(*(max(getattr(x, p) for x in latencies) for p in ("p50", "p95", "p99"))) if latencies else None,
    )


def is_due(gathered: Sequence[Snapshot], every: float) -> bool:
    """Return whether these snapshots make a summary: with one more epoch like the last, it would be further from the desired length."""
    return sum(s.period for s in gathered) + gathered[-1].period / 2 >= every


def summaries_of(snapshots: Iterable[Snapshot], every: float) -> list[Snapshot]:
    """Return the summaries that a run made from its snapshots, so that a later run knows them as well.

    >>> [r.epoch for r in summaries_of([Snapshot(float(t), t, 1.0, 1.0, {}, {}) for t in range(7)], every=3.0)]
    [2, 5]
    """
    found: list[Snapshot] = []
    gathered: list[Snapshot] = []
    for snapshot in snapshots:
        gathered.append(snapshot)
        if is_due(gathered, every):
            found.append(merged(gathered))
            gathered = []
    return found


def _maps(snapshot: Snapshot) -> dict[str, tuple[int, int]]:
    return {name: (s.map.version, s.instances) for name, s in snapshot.subqueries.items()}


def _source(epochs: Sequence[tuple[SourceLoad, float]]) -> SourceLoad:
    """Combine the loads of epochs, each with its seconds."""
    loads = [load for load, _ in epochs]
    unknown = all(s.arrived is None for s in loads)
    came = [s.rows if s.arrived is None else s.arrived for s in loads]
    rates = [rows / seconds if seconds else None for rows, (_, seconds) in zip(came, epochs, strict=True)]
    return replace(
        loads[-1],
        rows=sum(s.rows for s in loads),
        arrived=None if unknown else sum(came),
        latest=rates[-1],
        sooner=rates[-2] if len(rates) > 1 else None,
    )


def _subquery(name: str, snapshots: Sequence[Snapshot]) -> SubqueryLoad:
    loads = [s.subqueries[name] for s in snapshots]
    return replace(
        loads[-1],
        rows_in=_sums(x.rows_in for x in loads),
        rows_out=_sums(x.rows_out for x in loads),
        busy=_sums(x.busy for x in loads),
        wait=_sums(x.wait for x in loads),
        # The sum of the longest spans exceeds the longest sum: stages wait for their slowest task in every epoch.
        span=sum(s.span(name) for s in snapshots),
        bucket_rows=_sums(x.bucket_rows for x in loads),
        bucket_busy=_sums(x.bucket_busy for x in loads),
    )


def _sums(columns: Iterable[tuple[Number, ...]]) -> tuple[Number, ...]:
    """Add up by instance or bucket; empty unless there are measurements every time."""
    found = list(columns)
    return tuple(sum(column) for column in zip(*found, strict=True)) if all(found) else ()
