"""Commands to a running query: files in the checkpoint's control folder, taken up between two epochs. No open port."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


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


def receive(root: Path, known: Collection[Path] = ()) -> list[Command]:
    """Read the commands that were left and are not `known`, oldest first. What cannot be read is put aside, with a name that says so.

    The file stays until whoever does the command removes it: what a crash cuts short is found again by the next run.
    """
    commands = []
    for path in sorted((root / "control").glob("*.json")):
        if path in known:
            continue
        try:
            data = json.loads(path.read_text())
            commands.append(Command(data["command"], dict(data.get("options", {})), path))
        except FileNotFoundError:  # whoever left it has thought better of it
            continue
        except (ValueError, KeyError, TypeError):
            path.rename(path.with_suffix(".unreadable"))
    return commands
