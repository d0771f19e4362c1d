"""Commands to a running query: files in the checkpoint's control folder, taken up between two epochs. No open port."""

from __future__ import annotations

import json
import os
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Command:
    """One thing that a person wants of a running query."""

    name: str
    """`stop` or `scale`."""
    options: dict[str, Any] = field(default_factory=dict)


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


def receive(root: Path) -> list[Command]:
    """Take the commands that were left, oldest first; each is taken once. What cannot be read is put aside, with a name that says so."""
    commands = []
    for path in sorted((root / "control").glob("*.json")):
        try:
            data = json.loads(path.read_text())
            commands.append(Command(data["command"], dict(data.get("options", {}))))
            path.unlink()
        except (ValueError, KeyError, TypeError):
            path.rename(path.with_suffix(".unreadable"))
    return commands
