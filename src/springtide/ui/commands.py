"""What a person asks for on the page: checked, left for the query, and followed until its answer is there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from springtide.query.errors import SpringtideError, nearest
from springtide.state.answers import Answer, read_answer
from springtide.state.checkpoint import Checkpoint
from springtide.state.control import Command, send
from springtide.state.names import command as command_file
from springtide.state.savepoints import save, savepoints

_INSTANCES, _BUCKETS = 10_000, 1 << 16
_ID = re.compile(r"[0-9]{1,20}-[0-9a-f]{6}")

Options = Mapping[str, Any]


class RefusedCommand(SpringtideError):
    """Raised when a command makes no sense, or cannot be done now."""


def execute(checkpoint: Checkpoint, name: str, options: Options) -> dict[str, Any]:
    """Carry out a command; return the id under which its answer can be looked up, or the answer if it is already there."""
    if name == "savepoint":
        return {"answer": _saved(checkpoint, options)}
    if name not in _CHECKED:
        raise RefusedCommand(f"there is no command {name!r}; {nearest(name, [*_CHECKED, 'savepoint'])}")
    query = checkpoint.identity()["query"]
    if not checkpoint.in_use():
        raise RefusedCommand(f"the query {query!r} is not running, so nothing would carry the command out")
    given = _CHECKED[name](checkpoint, options)
    return {"id": send(checkpoint.root, Command(name, given)).stem}


def answer_to(checkpoint: Checkpoint, name: str, id: str) -> dict[str, Any]:
    """Return what became of a command; its status is `sent` until the query has taken it up."""
    if not _ID.fullmatch(id):
        raise RefusedCommand("there is no such command")
    file = checkpoint.root / command_file(id)
    running = checkpoint.in_use()
    answer = read_answer(file)  # after looking at the run, so that its last words are not missed
    if answer is None and not running:
        if name == "stop":
            checkpoint.withdraw(file)  # it ended by itself: the next run must not stop at once
            last = checkpoint.latest()
            answer = Answer("done", epoch=None if last is None else last.epoch)
        else:
            answer = Answer("failed", "the query ended before it carried the command out; its next run will")
    return _plain(answer or Answer("sent", final=False))


def _plain(answer: Answer) -> dict[str, Any]:
    return asdict(answer) | {"what": str(answer.change) if answer.change else ""}


def _saved(checkpoint: Checkpoint, options: Options) -> dict[str, Any]:
    name = _text(options, "name")
    save(checkpoint.store, name)
    return _plain(Answer("done", f"savepoint {name} is kept", savepoints(checkpoint.store)[name].epoch))


def _scale(checkpoint: Checkpoint, options: Options) -> dict[str, Any]:
    return {
        "step": _step(checkpoint, options),
        "instances": _whole(options, "instances", 1, _INSTANCES),
        "protocol": None,
    }


def _move(checkpoint: Checkpoint, options: Options) -> dict[str, Any]:
    wanted = options.get("buckets")
    if not isinstance(wanted, list) or not wanted or not all(_is_whole(b, 0, _BUCKETS) for b in wanted):
        raise RefusedCommand("name the buckets to move, by their numbers")
    to = _whole(options, "to", 0, _INSTANCES)
    return {"step": _step(checkpoint, options), "buckets": sorted(set(wanted)), "to": to, "protocol": None}


def _rebalance(checkpoint: Checkpoint, options: Options) -> dict[str, Any]:
    return {"step": _step(checkpoint, options), "protocol": None}


def _switch(checkpoint: Checkpoint, options: Options) -> dict[str, Any]:
    manifest = checkpoint.latest()
    if manifest is not None and not manifest.elastic:
        raise RefusedCommand("the query is not elastic: there are no automatic changes to pause")
    return {}


def _stop(checkpoint: Checkpoint, options: Options) -> dict[str, Any]:
    return {}


_CHECKED: Mapping[str, Callable[[Checkpoint, Options], dict[str, Any]]] = {
    "scale": _scale,
    "move": _move,
    "rebalance": _rebalance,
    "pause": _switch,
    "resume": _switch,
    "stop": _stop,
}


def _step(checkpoint: Checkpoint, options: Options) -> str:
    step, manifest = _text(options, "step"), checkpoint.latest()
    names = {*checkpoint.identity()["steps"], *(manifest.maps if manifest else ())}
    if step not in names:
        raise RefusedCommand(f"the query has no step {step!r}; {nearest(step, names)}")
    return step


def _text(options: Options, name: str) -> str:
    value = options.get(name)
    if not isinstance(value, str) or not value:
        raise RefusedCommand(f"{name} is missing")
    return value


def _whole(options: Options, name: str, least: int, most: int) -> int:
    value = options.get(name)
    if not _is_whole(value, least, most):
        raise RefusedCommand(f"{name} must be a whole number from {least:,} to {most:,}")
    return int(str(value))


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
