"""Durable files: at a power cut, a disk forgets what it was not told to flush, content and names alike.

Content is made durable by flushing the file, a name by flushing the folder that it is in, once for everything that is new in that folder.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from pathlib import Path

PARTIAL = ".partial"
"""How the names of unfinished files end."""
_REMEMBERED = 10_000
_named: set[tuple[str, int]] = set()
"""Folders whose names this process knows to be durable, with their inodes."""
_made = itertools.count()


def flush(path: Path) -> None:
    """Make the content of a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_names(root: Path, files: Iterable[str]) -> None:
    """Make the names of files below a folder durable, and those of the folders in between."""
    if len(_named) > _REMEMBERED:
        _named.clear()
    folders: dict[Path, None] = {}
    for folder in dict.fromkeys((root / file).parent for file in files):
        while folder not in folders:
            folders[folder] = None
            if folder == root or _key(folder) in _named:
                break
            folder = folder.parent
    for folder in folders:
        flush(folder)
    _named.update(_key(folder) for folder in folders)


def make_folder(path: Path) -> None:
    """Make a folder and any missing parents; their names are durable."""
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        flush(folder.parent)


def write_through(path: Path, data: bytes) -> None:
    """Write a file and make its content durable."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def settle(partial: Path, target: Path) -> None:
    """Rename a file to its final name, replacing what has that name. The caller flushes the name."""
    flush(partial)
    os.replace(partial, target)


def write(path: Path, data: bytes) -> None:
    """Write a file, replacing one that may be there. It is durable, and whole or not there."""
    partial = beside(path)
    try:
        write_through(partial, data)
        os.replace(partial, path)
        flush(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def create(path: Path, data: bytes) -> None:
    """Write a file that must not exist yet; if it does, raise a `FileExistsError`. It is durable, and whole or not there."""
    partial = beside(path)
    try:
        write_through(partial, data)
        os.link(partial, path)  # refuses to overwrite, unlike rename
    finally:
        partial.unlink(missing_ok=True)
    flush(path.parent)


def beside(path: Path) -> Path:
    """Return a temporary name that no other writer uses."""
    return path.with_name(f"{path.name}.{os.getpid()}-{next(_made)}{PARTIAL}")


def _key(folder: Path) -> tuple[str, int]:
    return str(folder), os.stat(folder).st_ino
