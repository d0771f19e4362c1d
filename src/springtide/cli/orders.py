"""Orders to a query that runs elsewhere: left in its checkpoint, and followed until it is known what became of them.

send ──→ taken up between two epochs ──→ an epoch runs with it ──→ committed: the file is gone, the decision is in the history
                                   └──→ refused: the file is gone, the next manifest says why
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from springtide.cli.errors import CommandError
from springtide.elastic.decisions import Decision, decisions_of
from springtide.query.errors import nearest
from springtide.runtime.reconfiguring import BY_HAND
from springtide.state.checkpoint import Checkpoint
from springtide.state.control import Command, send
from springtide.state.history import History
from springtide.state.manifest import Manifest

_LOOK = 0.05
_LAST = 50
"""Records of decisions that are looked at."""


@dataclass(frozen=True)
class Answer:
    """What became of an order. All is empty when it was done and changed nothing."""

    left: bool = False
    """Nobody has done it yet."""
    refused: str | None = None
    decision: Decision | None = None
    manifest: Manifest | None = None
    """The last one when the order was done."""


def running(ckpt: Path) -> tuple[Checkpoint, dict[str, Any]]:
    """Open the checkpoint of a query that is at work."""
    checkpoint = Checkpoint(ckpt)
    identity = checkpoint.identity()
    if not checkpoint.in_use():
        raise CommandError(f"the query {identity['query']!r} is not running on {ckpt}; springtide run starts it")
    return checkpoint, identity


def check_step(checkpoint: Checkpoint, identity: dict[str, Any], step: str) -> None:
    """Refuse a step that the query does not have."""
    manifest = checkpoint.latest()
    names = {*identity["steps"], *(manifest.maps if manifest else ())}
    if step not in names:
        raise CommandError(f"the query {identity['query']!r} has no step {step!r}; {nearest(step, names)}")


def order(checkpoint: Checkpoint, command: Command, wait: float) -> Answer:
    """Leave an order and follow it for some seconds."""
    until = time.monotonic() + wait
    known, events = {d.id for d in _decisions(checkpoint)}, _events(checkpoint.latest())
    left = send(checkpoint.root, command)
    if not within(until, lambda: not left.exists()):
        return Answer(left=True)

    def decision() -> Decision | None:
        fresh = [d for d in _decisions(checkpoint) if d.id not in known and d.instruction.reason == BY_HAND]
        return fresh[-1] if fresh else None

    if decision() is not None:  # it was written before the epoch; what it cost comes a moment after the commit
        within(until, lambda: (d := decision()) is not None and (d.outcome is not None or d.overtaken))
        return Answer(decision=decision(), manifest=checkpoint.latest())
    taken = checkpoint.latest()
    begin = f"the command {command.name!r} was refused: "

    def refusal() -> str | None:
        new = [text for at, text in _events(checkpoint.latest()) - events if text.startswith(begin)]
        return new[-1].removeprefix(begin) if new else None

    # A refusal is told by the next manifest. Without one there was nothing to do.
    within(until, lambda: refusal() is not None or epoch_of(checkpoint.latest()) > epoch_of(taken))
    return Answer(refused=refusal(), manifest=checkpoint.latest())


def within(until: float, done: Callable[[], bool]) -> bool:
    """Wait for something, up to a moment of the monotonic clock."""
    while not done():
        if time.monotonic() >= until:
            return False
        time.sleep(_LOOK)
    return True


def epoch_of(manifest: Manifest | None) -> int:
    """Give the epoch of a manifest; -1 before the first."""
    return -1 if manifest is None else manifest.epoch


def _decisions(checkpoint: Checkpoint) -> list[Decision]:
    return decisions_of(History(checkpoint.root).read("decisions", _LAST))


def _events(manifest: Manifest | None) -> set[tuple[float, str]]:
    return set() if manifest is None else {(at, text) for at, text in manifest.metrics.get("events", ())}
