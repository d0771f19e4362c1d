"""A query as it is now: everything that the page shows except the past, as plain JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

from springtide.elastic.snapshot import Snapshot
from springtide.elastic.summaries import merged
from springtide.query.ids import InstanceId
from springtide.query.types import END_OF_TIME
from springtide.state.accounts import SINK, imbalances
from springtide.state.manifest import Manifest, SourceState
from springtide.ui.graph import graph, rates

State = Literal["running", "ended", "stopped", "waiting", "gone"]

STREAMS = 12
"""How many physical streams of a source are shown: those that are farthest behind."""
RECENT = 5.0
"""How many seconds the current numbers are taken over."""


@dataclass(frozen=True)
class CheckpointNow:
    """What was read of a checkpoint."""

    identity: Mapping[str, Any]
    kept: Sequence[Manifest] = ()
    """The epochs whose manifests are there, oldest first."""
    running: bool = False
    recent: Sequence[Snapshot] = ()
    """The last measurements, oldest first."""
    savepoints: Mapping[str, Manifest] = field(default_factory=dict)
    gone: str | None = None
    """Why it can no longer be read, if it cannot."""


def now_of(seen: CheckpointNow) -> dict[str, Any]:
    """Return everything about a query that is true now."""
    last = seen.kept[-1] if seen.kept else None
    measured = recent_load(seen.recent)
    manager = last.elastic if last else None
    drawn = graph(seen.identity, seen.kept, measured)
    # In the order of the plan; in a manifest they are in alphabetical order.
    names = (
        [n for n in dict.fromkeys([*(q["name"] for q in drawn["subqueries"]), *last.maps]) if n in last.maps]
        if last
        else []
    )
    return {
        "query": seen.identity["query"],
        "state": state_of(seen),
        "gone": seen.gone,
        "epoch": last.epoch if last else None,
        "at": last.metrics.at if last else None,
        "elastic": bool(last and last.elastic),
        "paused": bool(manager and manager.paused),
        "overview": _overview(seen, last, measured),
        "graph": drawn,
        "subqueries": [_subquery(name, last, measured) for name in names] if last else [],
        "sources": [_source(name, state, measured) for name, state in last.sources.items()] if last else [],
        "refusals": [vars(r) for r in reversed(manager.refusals)] if manager else [],
        "events": events_of(seen.kept),
        "unaccounted": list(imbalances(last.accounts)) if last else [],
        "savepoints": [{"name": name} | epoch_of(m) for name, m in seen.savepoints.items()],
        "stateful": _stateful(seen.identity, last, names),
    }


def state_of(seen: CheckpointNow) -> State:
    """Return whether a query runs, waits, has ended, was stopped, or is gone."""
    if seen.gone is not None:
        return "gone"
    last = seen.kept[-1] if seen.kept else None
    if last is None:
        return "running" if seen.running else "waiting"
    return "running" if seen.running else "ended" if last.ended else "stopped"


def recent_load(recent: Sequence[Snapshot]) -> Snapshot | None:
    """Sum up the last seconds, as the manager does."""
    if not recent:
        return None
    end = recent[-1].time
    return merged([s for s in recent if s.time > end - RECENT] or [recent[-1]])


def events_of(kept: Sequence[Manifest]) -> list[dict[str, Any]]:
    """Return the events of the kept epochs, the newest first, each once."""
    found = {(at, text): None for m in kept for at, text in m.metrics.events}
    return [{"at": at, "text": text} for at, text in sorted(found, reverse=True)]


def _overview(seen: CheckpointNow, last: Manifest | None, measured: Snapshot | None) -> dict[str, Any]:
    sources = list(last.sources.values()) if last else []
    waits = seen.recent[-1].latency if seen.recent else None
    sinks = [n for n in last.accounts if n.startswith(f"{SINK} ")] if last else []
    per_second = rates(seen.kept)
    out = sum(per_second.get(n, 0.0) for n in sinks) if sinks and per_second else None
    return {
        "arriving": measured.rate if measured else None,
        "read": measured.rows / measured.period if measured and measured.period else None,
        "out": out,
        "rows_in": sum(s.accepted + s.late + s.rejected for s in sources),
        "rows_out": sum(last.accounts[n].get("written", 0) for n in sinks) if last else 0,
        "late": sum(s.late for s in sources),
        "rejected": sum(s.rejected for s in sources),
        "backlog": last.metrics.backlog if last else 0,
        "seconds": last.metrics.seconds if last else None,
        "median": median(s.seconds for s in seen.recent) if seen.recent else None,
        "p50": waits.p50 if waits else None,
        "p95": waits.p95 if waits else None,
        "p99": waits.p99 if waits else None,
        "slots": measured.slots if measured else None,
        "executors": measured.executors if measured else None,
        "state_bytes": sum(s.bytes for s in last.segments()) if last else 0,
    }


def _subquery(name: str, last: Manifest, measured: Snapshot | None) -> dict[str, Any]:
    own, state = last.maps[name], last.state.get(name)
    load = measured.subqueries.get(name) if measured else None
    found: dict[str, Any] = {
        "name": name,
        "instances": own.instances,
        "version": own.version,
        "buckets": len(own.owners),
        "stateful": state is not None,
        "segments": len(state.segments) if state else 0,
        "state_rows": sum(s.rows for s in state.segments) if state else 0,
        "state_bytes": sum(s.bytes for s in state.segments) if state else 0,
        "most": len(own.owners) or None,
        "rate_in": None,
        "rate_out": None,
        "utilisation": None,
        "deviation": None,
        "each": [],
    }
    if measured is None or load is None or load.instances != own.instances:
        return found
    period = measured.period or 1.0
    used = measured.utilisation(name)
    counts = [len(own.buckets_of(InstanceId(i))) for i in range(own.instances)] if own.owners else []
    found["each"] = [
        {
            "utilisation": used[i],
            "rate_in": load.rows_in[i] / period,
            "rate_out": load.rows_out[i] / period,
            "busy": load.busy[i] / period,
            "wait": load.wait[i] / period if i < len(load.wait) else None,
            "buckets": counts[i] if counts else None,
        }
        for i in range(min(own.instances, len(used)))
    ]
    return found | {
        "rate_in": sum(load.rows_in) / period,
        "rate_out": sum(load.rows_out) / period,
        "utilisation": measured.mean_utilisation(name),
        "deviation": measured.deviation(name),
        "most": load.most,
        "coming": measured.coming.get(name),
    }


def _source(name: str, state: SourceState, measured: Snapshot | None) -> dict[str, Any]:
    load = measured.sources.get(name) if measured else None
    slowest = sorted(state.times.items(), key=lambda item: (item[1], item[0]))
    time = slowest[0][1] if slowest else None
    period = measured.period if measured and measured.period else 1.0
    return {
        "name": name,
        "accepted": state.accepted,
        "late": state.late,
        "rejected": state.rejected,
        "ended": state.ended or time == END_OF_TIME,
        "backlog": load.backlog if load else None,
        "arriving": (load.rows if load.arrived is None else load.arrived) / period if load else None,
        "time": _time(time),
        "greatest": _time(state.greatest if state.greatest > -END_OF_TIME else None),
        "streams": len(state.times),
        "slowest": [{"name": n, "time": _time(t), "ended": t == END_OF_TIME} for n, t in slowest[:STREAMS]],
        "held_by": held_by(state),
        "files": state.files if any(state.files.values()) else None,
    }


def held_by(state: SourceState) -> dict[str, Any] | None:
    """Return which physical stream holds the merged time of a source back, and by how much; None if none does."""
    times = {n: t for n, t in state.times.items() if t != END_OF_TIME}
    if len(times) < 2:
        return None
    slowest, time = min(times.items(), key=lambda item: (item[1], item[0]))
    second = min(t for n, t in times.items() if n != slowest)
    return {"stream": slowest, "seconds": (second - time) / 1e6} if second > time else None


def _time(micros: int | None) -> float | None:
    """Return an event time in seconds, for JSON and browsers; None if there is none yet, or if time has ended."""
    return None if micros is None or abs(micros) >= END_OF_TIME else micros / 1e6


def epoch_of(manifest: Manifest) -> dict[str, Any]:
    """Return a summary of one epoch: when, how long, its rows, and the state that it keeps and that it wrote."""
    segments, metrics = list(manifest.segments()), manifest.metrics
    return {
        "epoch": manifest.epoch,
        "at": metrics.at,
        "seconds": metrics.seconds,
        "rows": metrics.rows,
        "published": metrics.published,
        "segments": len(segments),
        "bytes": sum(s.bytes for s in segments),
        "new_bytes": sum(s.bytes for s in segments if s.epoch == manifest.epoch),
        "rows_in": sum(s.accepted for s in manifest.sources.values()),
        "ended": manifest.ended,
    }


def _stateful(identity: Mapping[str, Any], last: Manifest | None, names: Sequence[str]) -> list[dict[str, Any]]:
    if last is None:
        return []
    descriptions = identity.get("state", {})
    return [{"name": name, "keys": descriptions.get(name, {}).get("keys", [])} for name in names if name in last.state]
