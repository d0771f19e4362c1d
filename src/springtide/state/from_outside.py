"""A checkpoint as others than its run see it: read whenever it is asked for something, wherever it is."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path

from springtide.state.checkpoint import Checkpoint
from springtide.state.log import Log
from springtide.state.names import CONTROL, MARKER
from springtide.state.pulse import is_heard
from springtide.state.read_only import ReadOnlyCheckpoint
from springtide.state.stores import Store

_BETWEEN = 0.3
"""Seconds between two looks at the store."""


def from_outside(where: str | Path) -> Checkpoint:
    """Return a checkpoint by its folder or its address, to look at and to leave commands for its run."""
    store = Store.at(where)
    return Checkpoint(where) if store.local is not None else RemoteCheckpoint(store)


class RemoteCheckpoint(ReadOnlyCheckpoint):
    """A checkpoint in an object store."""

    def __init__(self, store: Store) -> None:
        """Name it; what is brought from it is in a folder of its own, for as long as this is there."""
        folder = tempfile.mkdtemp(prefix="springtide-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        super().__init__(store, Path(folder))
        self.log = Log(store)
        self._looked, self._runs = -_BETWEEN, False
        self._sent: set[str] = set()
        self._looking = threading.Lock()

    def found(self) -> bytes | None:
        """Read what makes the place a checkpoint."""
        try:
            return self.store.read(MARKER)
        except FileNotFoundError:
            return None

    def in_use(self) -> bool:
        """Return whether a run was heard from lately. Commands that were left are taken to it, and its answers back."""
        with self._looking:  # a page asks from several threads
            if time.monotonic() - self._looked >= _BETWEEN:
                self._exchange()
                self._runs = is_heard(self.store)
                self._looked = time.monotonic()
            return self._runs

    def bring(self, folder: str) -> None:
        """Have the files of a folder here."""
        for path in self.store.list(folder):
            with suppress(FileNotFoundError):
                self.store.fetch(path, self.root / path)

    def withdraw(self, command: Path) -> None:
        """Take back a command, from the store too: the next run must not find it."""
        with self._looking:
            super().withdraw(command)
            self._exchange()

    def _exchange(self) -> None:
        mine = {f"{CONTROL}/{f.name}": f for f in (self.root / CONTROL).glob("*.json")}
        for path, file in mine.items():
            if path not in self._sent:
                self.store.put(file, path)
                self._sent.add(path)
        for path in self._sent:
            answer = path.removesuffix(".json") + ".result"
            with suppress(FileNotFoundError):
                self.store.fetch(answer, self.root / answer)
            if path not in mine:  # it was withdrawn
                self.store.delete(path)
        self._sent &= mine.keys()
