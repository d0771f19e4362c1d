"""Decisions as the page shows them: what, why, before → after, and what it cost. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from springtide.elastic.decisions import Decision, decisions_of


def decisions(records: Iterable[Mapping[str, Any]], *, running: bool) -> list[dict[str, Any]]:
    """Return the decisions that the history has records of, the newest first."""
    return [decision(d, running=running) for d in reversed(decisions_of(records))]


def decision(found: Decision, *, running: bool) -> dict[str, Any]:
    """Return one decision with all that is known of it."""
    told, outcome = found.instruction, found.outcome
    trigger = told.trigger
    state = "done" if outcome else "overtaken" if found.overtaken else "under way" if running else "waits"
    return {
        "id": found.id,
        "at": found.at,
        "subquery": told.subquery,
        "kind": told.kind,
        "change": found.change,
        "before": told.before.instances,
        "after": told.after.instances,
        "reason": told.reason,
        "trigger": None
        if trigger is None
        else {"text": str(trigger), "metric": trigger.metric, "value": trigger.value, "bound": trigger.bound},
        "moved": len(told.moved),
        "buckets": len(told.after.owners),
        "protocol": found.protocol,
        "state": state,
        "decided_after": told.epoch,
        "waited": found.waited,
        "took": found.took,
        "epoch": outcome.epoch if outcome else None,
        "seconds": outcome.seconds if outcome else None,
        "extra": outcome.extra_seconds if outcome else None,
        "bytes": outcome.bytes_moved if outcome else None,
    }
