"""Caches: what a node keeps on its own disk of a checkpoint that is in an object store.

    CACHE/springtide-1000-9f86d081884c/        user and store
        state/…  outbox/…  buffer/…            files as they are called in the store; whole or not there
        pieces/…                               what it has of segments of which it needs some buckets only (`springtide.state.pieces`)
        pending/…                              one mark for each segment that is still on its way to the store

A cache may be deleted at any moment, and stays after a run, so that the next one finds it warm. It is bounded: what was not used for the
longest time goes first. Nothing in it counts without its checksum. On each node it is in the folder that `SPRINGTIDE_CACHE` names there, else where
the query says, else in the folder for temporary files.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from springtide.state import private
from springtide.state.names import BUFFER, LOCK, PENDING, PIECES, STATE

VARIABLE = "SPRINGTIDE_CACHE"
LIMIT = 10 << 30
"""Bytes of segments that a node keeps by default."""
_YOUNG = 60.0
"""Seconds for which a file that was used stays in any case, and after which its next use is noted again."""
_FRESH = 2.0
"""Seconds for which a file that was written stays even if the disk is full."""
_BETWEEN = 10.0
"""Seconds between two looks at the size of a cache, in one process."""
_SPARE = 0.1
"""The share of its disk's room that a cache leaves free, if the disk is smaller than its limit."""
_looked: dict[str, float] = {}


@dataclass(frozen=True)
class Cache:
    """The cache of one checkpoint, on every node. Plain data: it goes to the tasks."""

    url: str
    """Where the checkpoint is, without secrets."""
    folder: str | None = None
    """Where the query wants caches to be."""
    limit: int = LIMIT

    def here(self) -> Path:
        """Return the folder on this node, creating it if necessary. One that belongs to somebody else is refused."""
        folder = self.place()
        private.make(folder)
        return folder

    def place(self) -> Path:
        """Return the path of the folder on this node; nothing is touched."""
        parent = os.environ.get(VARIABLE) or self.folder or tempfile.gettempdir()
        digest = hashlib.blake2b(self.url.encode(), digest_size=6).hexdigest()
        return Path(parent).absolute() / f"springtide-{os.getuid()}-{digest}"

    def clear(self) -> None:
        """Remove everything in the cache of this node, except the lock that a run holds."""
        for path in self.here().iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name not in (LOCK, private.MARKER):
                path.unlink(missing_ok=True)

    def trim(self, *, now: bool = False) -> int:
        """If there is too much, remove what has not been used for the longest time; return the bytes removed. What is on its way to the store stays."""
        here = self.place()
        if not now and time.monotonic() - _looked.get(str(here), -_BETWEEN) < _BETWEEN:
            return 0
        _looked[str(here)] = time.monotonic()
        files, spare = self._segments()
        size = sum(map(_room, files.values()))
        free = shutil.disk_usage(here).free if files else 0
        excess = size - min(self.limit, round((size + free) * (1 - _SPARE)))
        return _remove({path: stat for path, stat in spare.items() if time.time() - stat.st_atime > _YOUNG}, excess)

    def make_room(self) -> int:
        """Remove half of what the store has too, since the disk is full; return the bytes removed. What was just written may not be there yet."""
        _, spare = self._segments()
        spare = {path: stat for path, stat in spare.items() if time.time() - stat.st_mtime > _FRESH}
        return _remove(spare, -(-sum(map(_room, spare.values())) // 2))

    def _segments(self) -> tuple[dict[Path, os.stat_result], dict[Path, os.stat_result]]:
        """Return what is here of segments and buffers, and of this all that is not on its way to the store."""
        here = self.place()
        pending = {mark_of(path) for path in _files(here / PENDING)}
        files: dict[Path, os.stat_result] = {}
        for path in [*_files(here / STATE), *_files(here / PIECES), *_files(here / BUFFER)]:
            with suppress(FileNotFoundError):
                files |= {path: path.stat()} if path.suffix in (".arrow", ".blob") else {}
        return files, {p: stat for p, stat in files.items() if p.relative_to(here).as_posix() not in pending}


def used(path: Path) -> None:
    """Note that a file of a cache was used, so that it stays longer than others."""
    with suppress(OSError):
        stat = path.stat()
        if time.time() - stat.st_atime > _YOUNG:
            os.utime(path, ns=(time.time_ns(), stat.st_mtime_ns))


def marked(here: Path, file: str) -> Path:
    """Return the mark that a file is still on its way to the store."""
    return here / PENDING / file.replace("/", "\x7f")


def mark_of(path: Path) -> str:
    """Return the file that a mark is of."""
    return path.name.replace("\x7f", "/")


def _room(stat: os.stat_result) -> int:
    """Return how much disk space a file takes; one with holes takes less than its length."""
    return min(stat.st_size, stat.st_blocks * 512)


def _remove(files: Mapping[Path, os.stat_result], excess: int) -> int:
    """Remove so many bytes of files, first what was not used for the longest time."""
    gone = 0
    for path, stat in sorted(files.items(), key=lambda item: item[1].st_atime):
        if gone >= excess:
            break
        path.unlink(missing_ok=True)
        gone += _room(stat)
    return gone


def _files(folder: Path) -> list[Path]:
    """Return the files of a cache; others may remove some at any moment."""
    found = []
    with suppress(OSError):
        for path in folder.rglob("*"):
            with suppress(OSError):
                if path.is_file():
                    path.stat()
                    found.append(path)
    return found
