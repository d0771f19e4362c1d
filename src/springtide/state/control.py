"""Commands to a running query: files in the checkpoint's control folder, taken up between two epochs. No open port.

`ask` sends a command and waits for the answer to it; see `springtide.state.answers` for what becomes of a command.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from springtide.state.answers import Answer, read_answer
from springtide.state.checkpoint import Checkpoint
from springtide.state.names import CONTROL
from springtide.state.names import command as command_file
from springtide.state.parsing import content, parsed

_LONGEST = 1 << 20
"""The most bytes that a command may have."""
_POLL = 0.05
"""Seconds between two looks for an answer."""


@dataclass(frozen=True)
class Command:
    """Something that a person asks of a running query."""

    name: str
    """`stop`, `scale`, `move`, `rebalance`, `pause`, `resume` or `reload`."""
    options: dict[str, Any] = field(default_factory=dict)
    """`scale`: step, instances, protocol; `move`: step, buckets, to, protocol; `rebalance`: step, protocol."""
    file: Path | None = field(default=None, compare=False)
    """Where it was left. The file is removed when the command has been carried out."""


def ask(checkpoint: Checkpoint, command: Command, wait: float) -> Answer:
    """Send a command to the run that holds the checkpoint, and return its answer after at most `wait` seconds.

    The answer is `sent` if no run has taken the command up by then, and not `final` if more will become known later. If the run ends first,
    the next one carries the command out, except for `stop`, which is withdrawn.
    """
    until = time.monotonic() + wait
    file = send(checkpoint.root, command)
    while True:
        is_over = time.monotonic() >= until or not checkpoint.in_use()
        answer = read_answer(file)  # after looking at the clock and the run, so that a last answer is not missed
        if is_over or (answer is not None and answer.final):
            break
        time.sleep(_POLL)
    if command.name == "stop" and answer is None and not checkpoint.in_use():
        checkpoint.withdraw(file)  # it ended by itself, or was killed: the next run must not stop at once
        last = checkpoint.latest()
        return Answer("done", epoch=-1 if last is None else last.epoch)
    return answer or Answer("sent", final=False)


def send(root: Path, command: Command) -> Path:
    """Leave a command for the run that holds the checkpoint, and return its file; the answer will be next to it."""
    folder = root / CONTROL
    folder.mkdir(exist_ok=True)
    name = f"{time.time_ns()}-{uuid.uuid4().hex[:6]}"
    partial = folder / f".{name}.partial"
    partial.write_text(json.dumps({"command": command.name, "options": command.options}))
    left = root / command_file(name)
    os.replace(partial, left)
    return left


Refuse = Callable[[Path, str], None]
"""Called with a file that is not a command, and why."""


def receive(root: Path, known: Collection[Path] = (), refuse: Refuse = lambda file, reason: None) -> list[Command]:
    """Return the commands that were left and are not `known` yet, oldest first.

    The file stays until whoever carries the command out removes it: what a crash cuts short is found again by the next run. A file that is
    not a command is renamed, so that its name says so; anything that is not a file or cannot be read stays as it is. `refuse` is told of both.
    """
    commands = []
    for path in _left(root / CONTROL):
        if path in known:
            continue
        try:
            commands.append(_command(path))
        except FileNotFoundError:  # its sender has withdrawn it
            continue
        except OSError as error:
            refuse(path, f"it cannot be read ({error.strerror})")
        except ValueError as error:
            refuse(path, _put_aside(path, str(error)))
    return commands


def _left(folder: Path) -> list[Path]:
    """List the commands in the control folder. If the folder is a link, the files that it leads to are not ours."""
    if folder.is_symlink():
        return []
    try:
        return sorted(folder / name for name in os.listdir(folder) if name.endswith(".json") and name[0] != ".")
    except OSError:  # it does not exist or cannot be listed: then there are no commands in it
        return []


def _command(path: Path) -> Command:
    given = parsed(content(path, _LONGEST, follow=False))
    if not isinstance(given, dict) or not isinstance(given.get("command"), str):
        raise ValueError("it does not name a command")
    options = given.get("options", {})
    if not isinstance(options, dict):
        raise ValueError("its options have no names")
    return Command(given["command"], options, path)


def _put_aside(path: Path, reason: str) -> str:
    aside = path.with_suffix(".unreadable")
    try:
        path.rename(aside)
    except OSError as error:
        return f"{reason}; it could not be put aside ({error.strerror})"
    return f"{reason}; it is now {aside.name}"
