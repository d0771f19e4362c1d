"""Files in a folder of a mounted file system."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from springtide.state import disk
from springtide.state.backend import FileInfo
from springtide.state.parsing import LONGEST, content


class Folder:
    """A folder as a place for files."""

    def __init__(self, root: Path) -> None:
        """Name it; nothing is touched yet."""
        self._root = root

    def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """Return what is in a file, or a part of it."""
        if start == 0 and length is None:
            return content(self._root / path)
        with open(self._root / path, "rb") as file:
            file.seek(start)
            return file.read(LONGEST if length is None else length)

    def fetch(self, path: str, to: Path) -> None:
        """Copy a file out of the folder."""
        shutil.copyfile(self._root / path, to)

    def put(self, path: str, data: bytes | Path) -> None:
        """Write a file and make its content durable; the caller flushes its name."""
        if isinstance(data, Path):
            source = data
            self._place(path, lambda partial: shutil.copyfile(source, partial))
        else:
            written = data
            self._place(path, lambda partial: partial.write_bytes(written))

    def create(self, path: str, data: bytes) -> None:
        """Write a file durably, only if there is none."""
        target = self._root / path
        disk.make_folder(target.parent)
        disk.create(target, data)

    def copy(self, path: str, to: str) -> None:
        """Give a file a second name: by a hard link, if the file system has them."""
        target = self._root / to
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(self._root / path, target)
        except FileExistsError:
            return
        except FileNotFoundError:
            raise
        except OSError:  # no hard links here
            self.put(to, self._root / path)

    def list(self, folder: str) -> dict[str, int]:
        """Return the files below a folder; some may disappear meanwhile."""
        there = ((f, _size(f)) for f in (self._root / folder).rglob("*"))
        return {f.relative_to(self._root).as_posix(): size for f, size in there if size is not None}

    def size(self, path: str) -> int | None:
        """Return the bytes of a file."""
        return _size(self._root / path)

    def infos(self, folder: str) -> dict[str, FileInfo]:
        """Return the files below a folder with what the file system says of each."""
        found = {path: self.info(path) for path in self.list(folder)}
        return {path: info for path, info in found.items() if info is not None}

    def info(self, path: str) -> FileInfo | None:
        """Return what the file system says of a file."""
        try:
            found = (self._root / path).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FileInfo(found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None

    def delete(self, paths: Sequence[str]) -> None:
        """Remove files."""
        for path in paths:
            (self._root / path).unlink(missing_ok=True)

    def _place(self, path: str, fill: Callable[[Path], Any]) -> None:
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = disk.beside(target)
        try:
            fill(partial)
            disk.settle(partial, target)
        finally:
            partial.unlink(missing_ok=True)


def _size(path: Path) -> int | None:
    """Return the bytes of a file; None if there is none, or no longer."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None
