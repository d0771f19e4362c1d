"""Between a run and people elsewhere, where the checkpoint is in an object store: commands come in, answers and the history go out.

    control/ID.json      left in the store by somebody; brought to the folder of the run, and removed from the store when it is gone there
    control/ID.result    the answer; brought to the store whenever it changes
    history/…            brought to the store every few seconds

The run works on its own folder (`springtide.state.control`) and knows nothing of this. A run that lost its checkpoint changes nothing in the store.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from springtide.state.claims import Lease
from springtide.state.errors import CheckpointError
from springtide.state.names import ANSWER, CONTROL, HISTORY
from springtide.state.stores import Store

_PARTS = 2
"""Files with snapshots that a node begins with."""
_LOOK = 1.0
"""Seconds between two looks for commands; each is one listing."""
_BEAT = 10.0
"""Seconds between two copies of the history."""


def bring_history(store: Store, root: Path) -> None:
    """Have on this node what was measured last on others: policies learn from it, and nothing else needs it."""
    with suppress(OSError, CheckpointError):
        for path in [p for p in store.list(HISTORY) if p.startswith(f"{HISTORY}/snapshots-")][-_PARTS:]:
            if not (root / path).exists():
                store.fetch(path, root / path)


class Relay:
    """The errands of one run."""

    def __init__(self, store: Store, root: Path, lease: Callable[[], Lease]) -> None:
        """Begin to run them, in the background."""
        self._store, self._root, self._lease = store, root, lease
        self._brought: set[str] = set()
        """Commands of the store that the folder has, or had."""
        self._sent: dict[str, tuple[int, int]] = {}
        """Files that the store has, as they were: bytes, and when they were written."""
        self._beat = -_BEAT
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="springtide-relay", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Bring the last answers out."""
        self._over.set()
        self._thread.join()
        with suppress(OSError, CheckpointError):
            if not self._lease().is_lost():
                self._bring_out(CONTROL)
                self._bring_out(HISTORY)
                self._store.delete(*self._done())

    def _run(self) -> None:
        while True:
            with suppress(OSError, CheckpointError):  # a store that is away is the business of whoever commits
                self.once()
            if self._over.wait(_LOOK):
                return

    def once(self) -> None:
        """Look once in both places."""
        self._bring_in()
        due = time.monotonic() - self._beat >= _BEAT
        if (due or self._changed(CONTROL) or self._done()) and not self._lease().is_lost():
            self._bring_out(CONTROL)
            self._store.delete(*self._done())
            self._brought -= set(self._done())
            if due:
                self._bring_out(HISTORY)
                self._beat = time.monotonic()

    def _bring_in(self) -> None:
        for path in self._store.list(CONTROL):
            if path.endswith(".json") and path not in self._brought:
                with suppress(FileNotFoundError):
                    self._store.fetch(path, self._root / path)
                    self._brought.add(path)

    def _done(self) -> list[str]:
        """Return the commands that were brought here and are gone."""
        return sorted(path for path in self._brought if not (self._root / path).exists())

    def _bring_out(self, folder: str) -> None:
        for path, stamp in self._changed(folder).items():
            with suppress(FileNotFoundError):
                self._store.put(self._root / path, path)
                self._sent[path] = stamp

    def _changed(self, folder: str) -> dict[str, tuple[int, int]]:
        """Return the files for people that are not in the store as they are now."""
        found = {}
        for file in (self._root / folder).glob("*"):
            with suppress(OSError):
                if file.suffix in (ANSWER, ".jsonl") and file.is_file():
                    stat = file.stat()
                    found[f"{folder}/{file.name}"] = stat.st_size, stat.st_mtime_ns
        return {path: stamp for path, stamp in found.items() if self._sent.get(path) != stamp}
