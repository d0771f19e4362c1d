"""What a checkpoint remembers of the past: a line of JSON for each thing that happened, in files that are only ever added to.

    history/snapshots-000001-000000.jsonl      measurements of each epoch, of the first run
    history/decisions-000001-000000.jsonl      what was changed, when and why
    history/refused-000001-000000.jsonl        samples of rows that were late or rejected, and why

It is there for people and for policies; a query needs none of it to go on. So lines are not written through to the disk, and a line that
was cut short by a crash is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from springtide.query.ids import Generation
from springtide.state.names import HISTORY
from springtide.state.parsing import content, parsed

HistoryKind = Literal["snapshots", "decisions", "refused"]

PART = 8 << 20
"""Bytes after which a new file is begun."""
KEEP = 8
"""Files of a kind that are kept."""


class History:
    """The past of one checkpoint."""

    def __init__(self, root: Path) -> None:
        """Name the checkpoint's folder; nothing is touched yet."""
        self._folder = root / HISTORY

    def append(self, kind: HistoryKind, generation: Generation, record: dict[str, Any]) -> None:
        """Add a line."""
        self._folder.mkdir(exist_ok=True)
        with open(self._part(kind, generation), "ab") as file:
            file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")

    def read(self, kind: HistoryKind, last: int | None = None) -> list[dict[str, Any]]:
        """Return the records of a kind, oldest first; only the `last` ones if that is said."""
        found: list[dict[str, Any]] = []
        for path in reversed(self._parts(kind)):
            found = [*_lines(path), *found]
            if last is not None and len(found) >= last:
                break
        return found if last is None else found[-last:] if last else []

    def _part(self, kind: HistoryKind, generation: Generation) -> Path:
        parts = [p for p in self._parts(kind) if p.name.startswith(f"{kind}-{generation:06d}-")]
        if parts and parts[-1].stat().st_size < PART:
            return parts[-1]
        for old in self._parts(kind)[: -KEEP + 1]:
            old.unlink(missing_ok=True)
        number = 1 + int(parts[-1].stem.rpartition("-")[2]) if parts else 0
        return self._folder / f"{kind}-{generation:06d}-{number:06d}.jsonl"

    def _parts(self, kind: HistoryKind) -> list[Path]:
        return sorted(self._folder.glob(f"{kind}-*.jsonl"))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        lines = content(path).splitlines()
    except (
        OSError,
        ValueError,
    ):  # the run that writes it has just removed its oldest part, or it is not a file of Springtide's
        return
    for line in lines:
        try:
            found = parsed(line)
        except ValueError:  # cut short by a crash
            continue
        if isinstance(found, dict):
            yield found
