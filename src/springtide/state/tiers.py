"""Tiers: the places where the files of a checkpoint can be, the nearest first.

    memory    a folder of the run's own in shared memory: segments that are not durable yet, where state is made durable only every few seconds
    root      the checkpoint's folder: on the disk of this machine, or on a file system that all machines see
    backup    a store that outlives all machines; the root is then no more than a cache of it

A file has the same name in every tier. It is looked for where it is nearest, and a copy that is damaged counts as none.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from springtide.state import disk, private
from springtide.state.errors import LostError
from springtide.state.segment import Segment, checksum
from springtide.state.stores import Store

_REMEMBERED = 100_000
_whole: set[tuple[str, int, int, int | None]] = set()
"""Files that this process has written or verified, with their checksums. Segments never change."""


@dataclass(frozen=True)
class Tiers:
    """Where files are. Plain data: it goes to the tasks."""

    root: str
    memory: str | None = None
    backup: Store | None = None

    # ── segments ──────────────────────────────────────────────────────────────────────────────────────────────────

    def place(self, file: str) -> Path:
        """Say where a new segment is written."""
        if self.memory is None:
            return Path(self.root) / file
        private.make(Path(self.memory))  # it may have been lost; nobody else is to put something in its place
        return Path(self.memory) / file

    def keep(self, segment: Segment) -> None:
        """Take note of a segment that was just written; where every epoch is durable it goes to the backup now."""
        path = Path(self.memory or self.root) / segment.file
        _remember(path, segment)
        if self.backup is not None and self.memory is None:
            self.backup.put(path, segment.file)

    def find(self, segment: Segment) -> Path:
        """Give the nearest whole copy of a segment, fetching it from the backup if there is no other."""
        found = self.nearest(segment)
        if found is not None:
            return found
        path = Path(self.root) / segment.file
        if self.backup is not None and self.backup.exists(segment.file):
            self.backup.fetch(segment.file, path)
            if is_whole(path, segment):
                return path
            path.unlink(missing_ok=True)
        raise LostError(
            self.root,
            f"has lost a segment: {segment} is {self.fate(segment)}",
            "restore it from a backup, or go on from an older checkpoint (springtide checkpoint verify says what there is)",
        )

    def nearest(self, segment: Segment) -> Path | None:
        """Give the nearest whole copy that can be mapped."""
        return next((p for p in self.copies(segment) if is_whole(p, segment)), None)

    def copies(self, segment: Segment) -> list[Path]:
        """Name the files of a segment that are here, whole or not."""
        places = [Path(place) / segment.file for place in (self.memory, self.root) if place]
        return [path for path in places if path.exists()]

    def fate(self, segment: Segment) -> str:
        """Say what became of a segment of which there is no whole copy."""
        return "damaged" if self.copies(segment) else "missing"

    def persist(self, segments: Iterable[Segment]) -> None:
        """Make segments durable: in the root, and in the backup if there is one (SEEP's persist)."""
        files = []
        for segment in segments:
            self._persist(segment)
            files.append(segment.file)
        disk.flush_names(Path(self.root), files)
        if self.backup is not None:
            self.backup.flush_names(files)

    def _persist(self, segment: Segment) -> None:
        path, near = Path(self.root) / segment.file, Path(self.memory or self.root) / segment.file
        if not is_whole(path, segment):
            if near != path and near.exists():
                copy_through(near, path)
            # What counts is what has arrived; else it is fetched from the backup.
            if not is_whole(path, segment) and self.find(segment) != path:
                raise OSError(f"{segment} was damaged while it was copied to {self.root}")
        if self.backup is not None and not self.backup.exists(segment.file):
            self.backup.put(path, segment.file)

    def remove(self, file: str) -> None:
        """Remove a file from the tiers of this machine."""
        for place in (self.memory, self.root):
            if place is not None:
                (Path(place) / file).unlink(missing_ok=True)

    def clear_memory(self) -> None:
        """Give the shared memory back; everything in it is elsewhere."""
        if self.memory is not None:
            private.remove(Path(self.memory))

    # ── other files ───────────────────────────────────────────────────────────────────────────────────────────────

    def settle(self, file: str) -> None:
        """Make a file that was written in the root durable."""
        path = Path(self.root) / file
        disk.flush(path)
        if self.backup is not None:
            self.backup.put(path, file)

    def fetched(self, file: str) -> Path:
        """Name a file of the root; if it is not here, and the backup has it, it is fetched."""
        path = Path(self.root) / file
        if self.backup is not None and not path.exists() and self.backup.exists(file):
            self.backup.fetch(file, path)
        return path


def is_whole(path: Path, segment: Segment) -> bool:
    """Tell whether a file is there and what it was; its content is looked at once in each process, unless the file is another."""
    try:
        found = os.stat(path)
        if segment.crc is None:
            return True
        if found.st_size != segment.bytes:
            return False
        if _identity(path, found, segment) in _whole:
            return True
        if checksum(path) != segment.crc:
            return False
        _remember(path, segment)
    except FileNotFoundError:  # it may also go while it is looked at
        return False
    return True


def copy_through(source: Path, target: Path) -> None:
    """Copy a file so that it is whole or not there; its name is flushed by the caller."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    shutil.copyfile(source, partial)
    disk.settle(partial, target)


def _remember(path: Path, segment: Segment) -> None:
    if len(_whole) > _REMEMBERED:
        _whole.clear()
    _whole.add(_identity(path, os.stat(path), segment))


def _identity(path: Path, found: os.stat_result, segment: Segment) -> tuple[str, int, int, int | None]:
    return str(path), found.st_ino, found.st_mtime_ns, segment.crc
