"""`springtide history`: what was changed while a query ran, why, and what it cost."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from springtide.cli.formatting import clock, count, extra, rate, seconds, size
from springtide.cli.show import show, width
from springtide.cli.status import CheckpointPath
from springtide.compiler.tables import GAP, columns
from springtide.elastic.decisions import Decision, decisions_of
from springtide.elastic.snapshot import Snapshot
from springtide.query.plurals import plural
from springtide.state.checkpoint import Checkpoint
from springtide.state.from_outside import from_outside
from springtide.state.history import History
from springtide.state.instructions import Refusal
from springtide.state.names import HISTORY
from springtide.state.traffic import Traffic

_DAY = 86_400
_REFUSALS = 10
"""How many are shown by default."""


def history(
    ckpt: CheckpointPath,
    last: Annotated[int | None, typer.Option(metavar="N", min=1, help="Show only the last N.")] = None,
    snapshots: Annotated[
        bool, typer.Option("--snapshots", help="Show what was measured in each epoch instead.")
    ] = False,
) -> None:
    """Show what was changed while a query ran, why, how long it took and what it cost.

    What the rules of elasticity refused comes last. With --snapshots it shows the measurements of each epoch.
    """
    checkpoint = from_outside(ckpt)
    name, past = checkpoint.identity()["query"], History(checkpoint.root)
    checkpoint.bring(HISTORY)
    if snapshots:
        epochs = [Snapshot.from_json(record) for record in past.read("snapshots", last)]
        parts = [f"query {name}, {plural(len(epochs), 'epoch')}"]
        parts += ["\n".join(snapshot_lines(epochs))] if epochs else []
    else:
        decisions = decisions_of(past.read("decisions"))
        shown = decisions[-last:] if last else decisions
        of = "" if len(shown) == len(decisions) else f", the last {len(shown)}"
        parts = [f"query {name}, {plural(len(decisions), 'decision')}{of}"]
        parts += ["\n".join(decision_lines(shown, running=checkpoint.in_use(), wide=width()))] if shown else []
        refusals = _refusals(checkpoint)[-(last or _REFUSALS) :]
        parts += ["\n".join(["what was refused last", *refusal_lines(refusals)])] if refusals else []
    show("\n\n".join(parts))


def decision_lines(decisions: Sequence[Decision], *, running: bool, wide: int) -> list[str]:
    """Write decisions as a table, each with its trigger and its reason below."""
    stamp = stamps([d.at for d in decisions])
    head = ["time", "subquery", "change", "buckets", "state", "took", "extra", "epoch"]
    rows = [[stamp(d.at), *_cells(d, running)] for d in decisions]
    lines = columns([head, *rows], right=range(3, 8))
    indent = " " * (len(rows[0][0]) + len(GAP))
    found = [lines[0]]
    for decision, line in zip(decisions, lines[1:], strict=True):
        trigger, reason = decision.instruction.trigger, decision.instruction.reason
        why = f"{trigger} – {reason}" if trigger else reason
        why += f"; it waited {seconds(decision.waited)} for executors" if decision.waited else ""
        found += [line, *textwrap.wrap(why, max(wide, 40), initial_indent=indent, subsequent_indent=indent)]
    return found


def _cells(decision: Decision, running: bool) -> list[str]:
    told, outcome = decision.instruction, decision.outcome
    buckets = f"{len(told.moved)}/{len(told.after.owners)}" if told.after.owners else "–"
    change = decision.change + (f" ({decision.protocol})" if decision.protocol != "virtual" else "")
    if outcome is None:
        became = "overtaken" if decision.overtaken else "under way" if running else "waits"
        return [told.subquery, change, buckets, "–", became, "–", "–"]
    moved = size(outcome.bytes_moved) if told.after.owners else "–"
    cost = [seconds(decision.took), extra(outcome.extra_seconds), f"{outcome.epoch:,}"]
    return [told.subquery, change, buckets, moved, *cost]


def refusal_lines(refusals: Sequence[Refusal]) -> list[str]:
    """Write what was proposed but refused."""
    stamp = stamps([r.time for r in refusals])
    rows = [
        [stamp(r.time), r.subquery, r.rule, f"{r.wanted}; {r.why}{f' ({r.times} times)' if r.times > 1 else ''}"]
        for r in refusals
    ]
    return columns([["time", "subquery", "rule", "what and why"], *rows])


def _refusals(checkpoint: Checkpoint) -> Sequence[Refusal]:
    manifest = checkpoint.latest()
    return manifest.elastic.refusals if manifest is not None and manifest.elastic else ()


def snapshot_lines(snapshots: Sequence[Snapshot]) -> list[str]:
    """Write a line for each epoch: what came, how long it took, and how busy the instances of each subquery were."""
    stamp = stamps([s.time for s in snapshots])
    names = list(dict.fromkeys(name for s in snapshots for name in s.subqueries))
    traffic_heads = ["requests", "near"] if any(s.traffic for s in snapshots) else []
    head = ["time", "epoch", "took", "rows", "arriving", "backlog", "p50", "p95", *traffic_heads, *names]
    rows = [
        [
            stamp(s.time),
            f"{s.epoch:,}",
            seconds(s.seconds),
            count(s.rows),
            rate(s.rate),
            count(s.backlog),
            seconds(s.latency.p50 if s.latency else None),
            seconds(s.latency.p95 if s.latency else None),
            *(_traffic(s.traffic) if traffic_heads else []),
            *(
                f"{s.subqueries[n].instances} × {s.mean_utilisation(n):.0%}" if n in s.subqueries else "–"
                for n in names
            ),
        ]
        for s in snapshots
    ]
    return columns([head, *rows], right=range(1, len(head)))


def _traffic(traffic: Traffic | None) -> list[str]:
    """Write how many requests an epoch cost, and how much of the state that it read was on the node that read it."""
    if traffic is None:
        return ["–", "–"]
    return [count(traffic.requests), "–" if traffic.near is None else f"{traffic.near:.1%}"]


def stamps(times: Sequence[float]) -> Callable[[float], str]:
    """Choose how to write times: with the date, unless they are from the last 24 hours."""
    if times and time.time() - min(times) > _DAY:
        return lambda at: time.strftime("%F %T", time.localtime(at))
    return clock
