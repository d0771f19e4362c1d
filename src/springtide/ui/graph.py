"""The query as a graph with rates on its edges: what a checkpoint says of its form, and what its accounts count. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from springtide.elastic.snapshot import Snapshot
from springtide.state.accounts import EXCHANGE, SINK, SOURCE
from springtide.state.manifest import Manifest

_COUNTED = {EXCHANGE: "sent", SINK: "given", SOURCE: "accepted"}


def graph(identity: Mapping[str, Any], kept: Sequence[Manifest], last: Snapshot | None) -> dict[str, Any]:
    """Return subqueries with their steps, and edges with rows per second over the epochs that are kept.

    A checkpoint of an older version does not say how its steps are connected: then each subquery is a box without steps.
    """
    drawn = identity.get("graph") or _boxes(last, kept)
    said = identity.get("steps", {})
    kinds: Mapping[str, str] = drawn.get("kinds", {})
    per_second = rates(kept)
    return {
        "subqueries": [
            {
                "name": part["name"],
                "head": part["head"],
                "steps": [
                    {"name": step, "kind": kinds.get(step, ""), "what": _what(said.get(step, ""), kinds.get(step, ""))}
                    for step in part["steps"]
                ],
            }
            for part in drawn["subqueries"]
        ],
        "edges": [edge | {"rate": per_second.get(edge["account"] or "")} for edge in drawn["edges"]],
        "exchanges": [
            e | {"rate": per_second.get(e["account"] or "", _given_by(last, e["from"]))} for e in drawn["exchanges"]
        ],
    }


def rates(kept: Sequence[Manifest]) -> dict[str, float]:
    """Return rows per second of every account, between the first and the last of the epochs that are kept.

    >>> from springtide.state.metrics import EpochMetrics
    >>> def epoch(at, sent):
    ...     return Manifest(0, 1, metrics=EpochMetrics(at), accounts={"exchange a → b": {"sent": sent}})
    >>> rates([epoch(10.0, 100), epoch(12.0, 300)])
    {'exchange a → b': 100.0}
    """
    if len(kept) < 2:
        return {}
    first, last = kept[0], kept[-1]
    span = last.metrics.at - first.metrics.at
    if span <= 0:
        return {}
    found = {}
    for account, counts in last.accounts.items():
        what = _COUNTED.get(account.split(" ", 1)[0])
        if what is not None:
            before = first.accounts.get(account, {}).get(what, 0)
            found[account] = max(0, counts.get(what, 0) - before) / span
    return found


def _given_by(last: Snapshot | None, name: str) -> float | None:
    """Return the rows per second that a subquery emits, where the rows along its edges are not counted."""
    if last is None or name not in last.subqueries or not last.period:
        return None
    return sum(last.subqueries[name].rows_out) / last.period


def _boxes(last: Snapshot | None, kept: Sequence[Manifest]) -> dict[str, Any]:
    if last is None:
        names = list(kept[-1].maps) if kept else []
        return {"subqueries": [_box(name) for name in names], "edges": [], "exchanges": []}
    return {
        "subqueries": [_box(name) for name in last.subqueries],
        "edges": [],
        "exchanges": [
            {"from": up, "step": None, "port": "out", "to": name, "account": None}
            for name, load in last.subqueries.items()
            for up in load.upstream
            if up in last.subqueries
        ],
    }


def _box(name: str) -> dict[str, Any]:
    return {"name": name, "head": None, "steps": []}


def _what(said: str, kind: str) -> str:
    """Return what a step does; for a source that would be the types of its columns, which do not help here."""
    return "" if kind == "source" else said.removeprefix(f"{kind}: ")
