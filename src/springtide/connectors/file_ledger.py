"""The ledger of a source of files: what became of each file, so that each is read once, whatever its name.

    files     [[file of the checkpoint, records in it, checksum], …]: older records, moved out of the position when there are many
    recent    records of the last epochs
    read, changed, gone    how many files of each fate there are

A ledger is a part of a position, plain JSON; the runtime keeps `files` and adds what is in them as `base`. Later records of a
file stand for earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import astuple, dataclass, field
from typing import Any, Literal

Fate = Literal["read", "changed", "gone"]
"""Read; changed since it was read; gone before it was read."""

FATES: tuple[Fate, ...] = ("read", "changed", "gone")

NOTHING_READ: dict[str, Any] = {"ledger": {}}
"""The position of a source of files before anything was read, so that a run can remember which files it saw."""

_LOOKED_AT = 1000
"""How many files that were read are checked for changes in one look, after the first; the next look takes others."""


@dataclass(frozen=True)
class FileRecord:
    """What became of a file."""

    name: str
    size: int
    modified: int
    """When it was last changed, in nanoseconds, according to its folder when it was read."""
    rows: int
    fate: Fate = "read"
    tag: str = ""
    """What else distinguishes this version from another: in an object store, its ETag."""

    def written(self) -> list[Any]:
        """Return it as plain JSON."""
        return [*astuple(self)][: None if self.tag else -1]


@dataclass(frozen=True)
class FoundFile:
    """A file that is there."""

    name: str
    """Relative to the folder of the source."""
    path: str
    size: int
    modified: int
    tag: str = ""

    def record(self, rows: int, fate: Fate = "read") -> FileRecord:
        """Write down what became of it."""
        return FileRecord(self.name, self.size, self.modified, rows, fate, self.tag)


Look = Callable[[str, str], FoundFile | None]
"""Looks at a file by its name and its path; None if it is gone."""


@dataclass
class Base:
    """What a run remembers of a source's files besides its position; apart from `records`, it matters only for reports."""

    records: dict[str, FileRecord] = field(default_factory=dict)
    """What is in the ledger's files."""
    waiting: dict[str, None] = field(default_factory=dict)
    """Files that were seen and are not dealt with yet."""
    turn: int | None = None
    """Which of the files that were read are looked at next; None at first, for all of them."""


class Ledger:
    """The ledger of a position, and what one look adds to it."""

    def __init__(self, written: Mapping[str, Any] | None) -> None:
        """Open what a position has; None at the beginning."""
        self._written = dict(written or {})
        self.base: Base = self._written.get("base") or Base()
        self._recent = {r[0]: FileRecord(*r) for r in self._written.get("recent", ())}
        self._new: dict[str, FileRecord] = {}

    def get(self, name: str) -> FileRecord | None:
        """Return what became of a file; None if nothing has yet."""
        return self._new.get(name) or self._committed(name)

    def _committed(self, name: str) -> FileRecord | None:
        return self._recent.get(name) or self.base.records.get(name)

    def records(self) -> dict[str, FileRecord]:
        """Return what became of every file."""
        return self.base.records | self._recent | self._new

    def is_done(self, name: str) -> bool:
        """Return whether a file was read."""
        record = self.get(name)
        return record is not None and record.fate != "gone"

    def unread(self, names: Set[str]) -> list[str]:
        """Return those of these files that were not read."""
        known = names & (self.base.records.keys() | self._recent.keys() | self._new.keys())
        return [*(names - known), *(n for n in known if not self.is_done(n))]

    @property
    def is_empty(self) -> bool:
        """Whether no file was dealt with."""
        return not (self._recent or self.base.records or self._new)

    @property
    def is_new(self) -> bool:
        """Whether this look has added anything."""
        return bool(self._new)

    def add(self, record: FileRecord) -> None:
        """Write down what became of a file."""
        self._new[record.name] = record

    def look_again(self, paths: Mapping[str, str], look: Look) -> list[tuple[FileRecord, FileRecord]]:
        """Find files that have changed since they were read; return each as it was and as it is. Each change is found once."""
        names = list(paths)
        if self.base.turn is not None and len(names) > _LOOKED_AT:
            start = self.base.turn % len(names)
            self.base.turn = start + _LOOKED_AT
            names = (names[start:] + names[:start])[:_LOOKED_AT]
        else:
            self.base.turn = 0
        changed = []
        for name in filter(self.is_done, names):
            was, now = self.get(name), look(name, paths[name])
            if was is None or now is None or (was.size, was.modified, was.tag) == (now.size, now.modified, now.tag):
                continue
            changed.append((was, now.record(was.rows, "changed")))
            self.add(changed[-1][1])
        return changed

    def miss(self, paths: Mapping[str, str]) -> list[str]:
        """Find files that were seen and are gone before they were read."""
        gone = [n for n in self.base.waiting if n not in paths and self.get(n) is None]
        for name in gone:
            self.add(FileRecord(name, 0, 0, 0, "gone"))
        return gone

    def wait_for(self, names: Iterable[str]) -> None:
        """Remember files that were seen, and forget those that a committed record covers."""
        self.base.waiting = {n: None for n in self.base.waiting if self._committed(n) is None} | dict.fromkeys(names)

    def written(self) -> dict[str, Any]:
        """Return the ledger as it is after this look."""
        counts = {fate: self._written.get(fate, 0) for fate in FATES}
        for record in self._new.values():
            if (was := self._committed(record.name)) is not None:
                counts[was.fate] -= 1
            counts[record.fate] += 1
        recent = [*self._written.get("recent", ()), *(r.written() for r in self._new.values())]
        return self._written | counts | {"recent": recent}
