"""Commands to a running query: files in the checkpoint's control folder, taken up between two epochs. No open port."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from springtide.state.parsing import content, parsed

_LONGEST = 1 << 20
"""Bytes of a command at most."""


@dataclass(frozen=True)
class Command:
    """One thing that a person wants of a running query."""

    name: str
    """`stop`, `scale`, `move`, `rebalance`, `pause` or `resume`."""
    options: dict[str, Any] = field(default_factory=dict)
    file: Path | None = field(default=None, compare=False)
    """Where it was left; it is gone when the command has been done for good."""


def send(root: Path, command: Command) -> Path:
    """Leave a command for the run that holds the checkpoint; the file is there until it is taken up."""
    folder = root / "control"
    folder.mkdir(exist_ok=True)
    name = f"{time.time_ns()}-{uuid.uuid4().hex[:6]}"
    partial = folder / f".{name}.partial"
    partial.write_text(json.dumps({"command": command.name, "options": command.options}))
    left = folder / f"{name}.json"
    os.replace(partial, left)
    return left


Refuse = Callable[[Path, str], None]
"""Is told of a file that is no command, and why."""


def receive(root: Path, known: Collection[Path] = (), refuse: Refuse = lambda file, reason: None) -> list[Command]:
    """Read the commands that were left and are not `known`, oldest first.

    The file stays until whoever does the command removes it: what a crash cuts short is found again by the next run. A file that is no command
    is put aside, with a name that says so; what is no file, or may not be read, is somebody's own and stays. Each of them is refused.
    """
    commands = []
    for path in _left(root / "control"):
        if path in known:
            continue
        try:
            commands.append(_command(path))
        except FileNotFoundError:  # whoever left it has thought better of it
            continue
        except OSError as error:
            refuse(path, f"it cannot be read ({error.strerror})")
        except ValueError as error:
            refuse(path, _put_aside(path, str(error)))
    return commands


def _left(folder: Path) -> list[Path]:
    """Name what is in the control folder; one that is a link leads to files that are not ours."""
    if folder.is_symlink():
        return []
    try:
        return sorted(folder / name for name in os.listdir(folder) if name.endswith(".json") and name[0] != ".")
    except OSError:  # it is not there, or cannot be looked into: then nobody leaves commands in it
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
