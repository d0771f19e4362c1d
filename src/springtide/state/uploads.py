"""Uploads in the background: segments go to the store while the query continues.

A segment has a mark in the cache of its node until it has arrived. A process that dies leaves its marks, and the next one on that node takes them up; with the
node the segments are lost, and are rebuilt from what went in. Writing a file twice does no harm: its name is its own.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from springtide.state.caches import Cache, mark_of, marked
from springtide.state.names import PENDING
from springtide.state.stores import Store

_AT_ONCE = 4
_AGAIN = 5.0
"""Seconds between two looks for what others have left."""


class Uploads:
    """What one process has on its way to one store."""

    def __init__(self, store: Store, cache: Cache) -> None:
        """Take up what processes that are gone have left on this node."""
        self._store, self._cache = store, cache
        self._pool = ThreadPoolExecutor(_AT_ONCE, "springtide-upload")
        self._lock = threading.RLock()  # an upload that ends at once removes itself while it is being added
        self._under_way: dict[str, Future[None]] = {}
        self._taken_up = 0.0
        self._take_up()

    def begin(self, file: str) -> None:
        """Upload a file of the cache to the store."""
        mark = marked(self._cache.here(), file)
        mark.parent.mkdir(exist_ok=True)
        mark.touch()
        self._submit(file)
        if time.monotonic() - self._taken_up >= _AGAIN:
            self._take_up()

    def drain(self) -> None:
        """Wait until everything on its way from this node has arrived; what fails stays marked, and its error is raised."""
        self._take_up()
        with self._lock:
            futures = [*self._under_way.values()]
        failures = [error for f in futures if (error := f.exception()) is not None]
        if failures:
            raise failures[0]

    def _take_up(self) -> None:
        """Continue with what is marked: the processes that began it may be gone, and what failed is tried again."""
        self._taken_up = time.monotonic()
        with suppress(FileNotFoundError):
            for mark in (self._cache.place() / PENDING).iterdir():
                self._submit(mark_of(mark))

    def _submit(self, file: str) -> None:
        with self._lock:
            if file not in self._under_way:
                future = self._pool.submit(self._upload, file)
                self._under_way[file] = future
                future.add_done_callback(lambda _: self._forget(file))

    def _upload(self, file: str) -> None:
        here = self._cache.place()
        with suppress(FileNotFoundError):  # the cache was deleted, or is no longer used
            self._store.put(here / file, file)
        marked(here, file).unlink(missing_ok=True)
        self._cache.trim()

    def _forget(self, file: str) -> None:
        with self._lock:
            self._under_way.pop(file, None)


_open: dict[tuple[Store, Path, int], Uploads] = {}
_opening = threading.Lock()


def uploads(store: Store, cache: Cache) -> Uploads:
    """Return this process's uploads from its node's cache to a store."""
    key = store, cache.place(), os.getpid()
    with _opening:
        if key not in _open:
            _open[key] = Uploads(store, cache)
        return _open[key]
