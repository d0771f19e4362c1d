"""The files of a checkpoint as the page reads them: a piece at a time, from a folder or from a store."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from springtide.state.stores import Store


@dataclass(frozen=True)
class Files:
    """The files of one checkpoint."""

    store: Store

    @staticmethod
    def at(where: str | Path) -> Files:
        """Name a folder or a URL; nothing is touched yet."""
        return Files(Store.at(where))

    @property
    def is_local(self) -> bool:
        """Return whether looking costs next to nothing."""
        return self.store.local is not None

    def sizes(self, folder: str, prefix: str) -> dict[str, int]:
        """Return the files of a folder whose names begin with a prefix, with their sizes, in the order of their names."""
        root = self.store.local
        if root is None:
            found = {path: size for path, size in self.store.files(folder).items() if _name(path).startswith(prefix)}
            return dict(sorted(found.items()))
        found = {}
        try:
            with os.scandir(root / folder) as entries:
                for entry in entries:
                    if entry.name.startswith(prefix) and entry.is_file():
                        found[f"{folder}/{entry.name}"] = entry.stat().st_size
        except OSError:  # it is not there (yet), or a file of it has just been removed
            return dict(sorted(found.items()))
        return dict(sorted(found.items()))

    def read(self, path: str, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to `end`; fewer, or none, if the file has become shorter or is gone."""
        root = self.store.local
        try:
            if root is None:
                return self.store.read(path, start, end - start) if end > start else b""
            descriptor = os.open(root / path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    return b""
                return os.pread(descriptor, end - start, start)
            finally:
                os.close(descriptor)
        except OSError:
            return b""


def _name(path: str) -> str:
    return path.rpartition("/")[2]
