"""Tiers: the places where the files of a checkpoint can be, the nearest first.

    memory    a folder of the run's own in shared memory: segments that are not durable yet, where state is made durable only every few seconds
    root      the checkpoint's folder: on the disk of this machine, or on a file system that all machines see
    backup    a store that outlives all machines; the root is then no more than a copy of it

Where the checkpoint itself is in an object store, that is the backup, and the root is a cache on each node (`springtide.state.caches`).

A file has the same name in every tier. It is looked for where it is nearest, and a copy that is damaged counts as none.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import polars as pl

from springtide.state import disk, names, private
from springtide.state.caches import Cache, used
from springtide.state.errors import CheckpointError, LostError
from springtide.state.names import STATE
from springtide.state.pieces import rows_of
from springtide.state.segment import Segment, checksum
from springtide.state.stores import Store
from springtide.state.traffic import count
from springtide.state.uploads import uploads

_REMEMBERED = 100_000
_ARRIVES = 10.0
"""Seconds to wait for a segment that is on its way from another node to the store."""
_LOOKS = (0.02, 0.05, 0.1, 0.2)
"""Seconds before each further look; the last number is repeated."""
_READS = 3
_FULL = re.compile(r"No space left on device|Disk quota exceeded|os error (28|122)\b")
T = TypeVar("T")
_whole: set[tuple[str, int, int, int | None]] = set()
"""Files that this process has written or verified, with their checksums. Segments never change."""


@dataclass(frozen=True)
class Tiers:
    """Where files are. Plain data: it goes to the tasks."""

    root: str
    """The checkpoint's folder; with a cache, that of the driver's node."""
    shared_memory: str | None = None
    backup: Store | None = None
    cache: Cache | None = None
    """What nodes keep of a checkpoint that is in the backup alone."""
    uploads_later: bool = False
    """Whether segments go from caches to the backup while the query continues, or before their epoch is committed."""

    @property
    def here(self) -> Path:
        """The root as this node has it."""
        return Path(self.root) if self.cache is None else self.cache.here()

    # ── segments ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def through(self) -> bool:
        """Whether a new segment is flushed to the disk: it is neither in shared memory nor in a cache."""
        return self.shared_memory is None and self.cache is None

    def place(self, file: str) -> Path:
        """Return where a new segment is written."""
        if self.shared_memory is None:
            return self.here / file
        private.make(Path(self.shared_memory))  # it may have been lost; nobody else must be able to put something there
        return Path(self.shared_memory) / file

    def with_room(self, write: Callable[[], T]) -> T:
        """Write something to this node's disk. If that is full, the cache gives way, half of it at a time."""
        while True:
            try:
                return write()
            except (OSError, CheckpointError, pl.exceptions.PolarsError) as error:
                if self.cache is None or _FULL.search(str(error)) is None or not self.cache.make_room():
                    raise

    def keep(self, segment: Segment) -> None:
        """Take note of a segment that was just written; if every epoch is durable, it goes to the backup now."""
        path = (Path(self.shared_memory) if self.shared_memory is not None else self.here) / segment.file
        _remember(path, segment)
        if self.backup is None or self.shared_memory is not None:
            return
        if self.cache is not None and self.uploads_later:
            uploads(self.backup, self.cache).begin(segment.file)
        else:
            self.backup.put(path, segment.file)
            if self.cache is not None:
                self.cache.trim()

    def read(self, segment: Segment, how: Callable[[Path], T]) -> T:
        """Read a segment. The file may disappear between being found and being opened: a cache promises nothing."""
        for _ in range(_READS if self.cache is not None else 0):
            path = self.find(segment)
            try:
                return how(path)
            except CheckpointError:
                if path.exists():
                    raise
        return how(self.find(segment))

    def pieces(self, segment: Segment, buckets: Collection[int]) -> pl.DataFrame | None:
        """Read some buckets of a segment of which this node has no copy by range; None if it is better read as a whole, or cannot be read otherwise."""
        if self.cache is None or self.backup is None or segment.index is None or self.nearest(segment) is not None:
            return None
        cache, store = self.cache, self.backup
        for seconds in (_ARRIVES if self.uploads_later else 0.0, None):
            try:
                found = self.with_room(lambda: rows_of(cache.here(), store, segment, buckets))
                cache.trim()
                return found
            except FileNotFoundError:
                if seconds is None or self.absent([segment], seconds):
                    break
            except ValueError:  # damaged; whoever reads it as a whole will say so
                break
        return None

    def find(self, segment: Segment) -> Path:
        """Return the nearest whole copy of a segment, fetching it from the backup if there is no other."""
        found = self.nearest(segment)
        if found is not None:
            if self.cache is not None:
                used(found)
            return found
        path = self.here / segment.file
        if self.backup is not None and self._fetch(segment, path):
            if is_whole(path, segment):
                if self.cache is not None:
                    self.cache.trim()
                return path
            path.unlink(missing_ok=True)
        raise LostError(
            self.root if self.cache is None else self.cache.url,
            f"has lost a segment: {segment} is {self.fate(segment)}",
            "restore it from a backup, or continue from an older checkpoint (springtide checkpoint verify says what there is)",
        )

    def _fetch(self, segment: Segment, path: Path) -> bool:
        """Fetch a segment from the backup, as soon as it is there; False if it does not come."""
        assert self.backup is not None
        for seconds in (_ARRIVES if self.uploads_later else 0.0, None):
            with suppress(FileNotFoundError):
                self._fetched(segment.file, path)
                count(fetched=segment.bytes)
                return True
            if seconds is None or self.absent([segment], seconds):
                break
        return False

    def absent(self, segments: Collection[Segment], seconds: float = 0.0) -> list[Segment]:
        """Return the segments that the backup does not have, after so many seconds in which they may still arrive."""
        assert self.backup is not None
        until, looks = time.monotonic() + seconds, iter(_LOOKS)
        left = list(segments)
        if len(left) > len(_LOOKS):  # one request for all; a listing may be stale, so the others are asked for
            there = self.backup.files(STATE)
            left = [s for s in left if there.get(s.file) != s.bytes]
        while left := [s for s in left if not self.backup.exists(s.file)]:
            if time.monotonic() >= until:
                break
            time.sleep(next(looks, _LOOKS[-1]))
        return left

    def nearest(self, segment: Segment) -> Path | None:
        """Return the nearest whole copy that can be mapped."""
        return next((p for p in self.copies(segment) if is_whole(p, segment)), None)

    def copies(self, segment: Segment) -> list[Path]:
        """Return the files of a segment that are here, whole or not."""
        places = [place / segment.file for place in self._places()]
        return [path for path in places if path.exists()]

    def fate(self, segment: Segment) -> str:
        """Return what became of a segment of which there is no whole copy."""
        return "damaged" if self.copies(segment) else "missing"

    def persist(self, segments: Iterable[Segment]) -> None:
        """Make segments durable: in the root, and in the backup if there is one (SEEP's persist)."""
        if self.cache is not None:
            self._arrive([*segments])
            return
        files = []
        for segment in segments:
            self._persist(segment)
            files.append(segment.file)
        disk.flush_names(Path(self.root), files)
        if self.backup is not None:
            self.backup.flush_names(files)

    def _persist(self, segment: Segment) -> None:
        path, near = Path(self.root) / segment.file, Path(self.shared_memory or self.root) / segment.file
        if not is_whole(path, segment):
            if near != path and near.exists():
                copy_through(near, path)
            # What counts is what has arrived; else it is fetched from the backup.
            if not is_whole(path, segment) and self.find(segment) != path:
                raise OSError(f"{segment} was damaged while it was copied to {self.root}")
        if self.backup is not None and not self.backup.exists(segment.file):
            self.backup.put(path, segment.file)

    def _arrive(self, segments: list[Segment]) -> None:
        """Wait until the backup has segments that are in the caches of nodes."""
        for segment in self.absent(segments, _ARRIVES if self.uploads_later else 0.0):
            assert self.backup is not None
            path = self.nearest(segment)
            if path is None:
                self.find(segment)  # it is lost, unless it has just arrived
            else:
                self.backup.put(path, segment.file)

    def remove(self, file: str) -> None:
        """Remove a file from the tiers of this machine."""
        for place in self._places():
            (place / file).unlink(missing_ok=True)

    def _places(self) -> list[Path]:
        return [*([Path(self.shared_memory)] if self.shared_memory is not None else []), self.here]

    def clear_shared_memory(self) -> None:
        """Give the shared memory back; everything in it is elsewhere too."""
        if self.shared_memory is not None:
            private.remove(Path(self.shared_memory))

    # ── other files ───────────────────────────────────────────────────────────────────────────────────────────────

    def settle(self, file: str) -> str:
        """Make a file that was written in the root durable; return what it is called now. In a cache, the name has its checksum."""
        path = self.here / file
        disk.flush(path)  # in a cache too: a sink may take the file itself
        if self.cache is not None:
            file = names.checked(file, checksum(path))
            path = path.replace(self.here / file)
        if self.backup is not None:
            self.backup.put(path, file)
        return file

    def fetched(self, file: str) -> Path:
        """Return the path of a file of the root; if it is not here whole and the backup has it, it is fetched."""
        path = self.here / file
        if self.backup is not None and not self._is_as_settled(path):
            path.unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                self._fetched(file, path)
        return path

    def _is_as_settled(self, path: Path) -> bool:
        crc = names.checksum_of(path.name) if self.cache is not None else None
        try:
            return path.exists() if crc is None else checksum(path) == crc
        except FileNotFoundError:
            return False

    def _fetched(self, file: str, path: Path) -> None:
        assert self.backup is not None
        store = self.backup
        self.with_room(lambda: store.fetch(file, path))


def is_whole(path: Path, segment: Segment) -> bool:
    """Return whether a file exists unchanged; each process checks its content once, and again if the file is replaced."""
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
