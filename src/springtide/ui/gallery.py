"""Which checkpoints the page shows: the one that was named, or all in a folder."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from springtide.query.places import local
from springtide.state.names import MARKER
from springtide.state.stores import Store
from springtide.ui import now
from springtide.ui.watching import Watched

_DEEP = 3
"""How many folders below the given one are searched."""
_MOST = 500
"""Checkpoints that are shown."""


class Gallery:
    """The checkpoints of one page, by a key that is part of its addresses."""

    def __init__(self, where: str | Path) -> None:
        """Name a checkpoint, or a folder with several."""
        folder = local(where)
        self.folder = folder if folder is not None and folder.is_dir() and not (folder / MARKER).is_file() else None
        self._where = where
        self._known: dict[str, Watched] = {}
        self._lock = threading.Lock()
        if self.folder is None:
            self._add(where)

    @property
    def title(self) -> str:
        """A title for what is shown."""
        return str(self.folder) if self.folder is not None else Store.at(self._where).url

    def get(self, key: str) -> Watched | None:
        """Return a checkpoint by its key."""
        if key not in self._known:
            self._look()
        return self._known.get(key)

    def list(self) -> list[dict[str, Any]]:
        """Return a line for each checkpoint: running ones first, then by when they last did something."""
        self._look()
        with self._lock:
            known = list(self._known.items())
        lines = [_line(key, watched, self.folder) for key, watched in known]
        return sorted(lines, key=lambda line: (line["state"] != "running", -(line["at"] or 0.0), line["place"]))

    def _look(self) -> None:
        if self.folder is not None:
            for root in found(self.folder):
                self._add(root)

    def _add(self, where: str | Path) -> None:
        key = hashlib.sha256(Store.at(where).url.encode()).hexdigest()[:12]
        with self._lock:
            if key not in self._known and len(self._known) < _MOST:
                self._known[key] = Watched(where)


def found(folder: Path, deep: int = _DEEP) -> Iterator[Path]:
    """Find the checkpoints below a folder, but not those inside another checkpoint."""
    try:
        with os.scandir(folder) as entries:
            folders = sorted(e.name for e in entries if e.is_dir(follow_symlinks=False) and not e.name.startswith("."))
    except OSError:
        return
    for name in folders:
        if (folder / name / MARKER).is_file():
            yield folder / name
        elif deep > 1:
            yield from found(folder / name, deep - 1)


def _line(key: str, watched: Watched, folder: Path | None) -> dict[str, Any]:
    watched.glance()
    seen = watched.seen()
    last = seen.kept[-1] if seen.kept else None
    root = watched.root
    place = str(root.relative_to(folder)) if folder is not None and root is not None else watched.files.store.url
    return {
        "key": key,
        "query": seen.identity["query"],
        "place": place,
        "state": now.state_of(seen),
        "epoch": last.epoch if last else None,
        "at": last.metrics.at if last else None,
        "instances": {name: m.instances for name, m in last.maps.items()} if last else {},
    }
