"""Files that are there for good: a disk forgets at a power cut what it was not told to keep, content and names alike.

Content is kept by flushing the file, a name by flushing the folder that it is in. Names are flushed by the folder, once for all that is new in it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from pathlib import Path

PARTIAL = ".partial"
"""How the names of files end that are not whole yet."""
_REMEMBERED = 10_000
_named: set[tuple[str, int]] = set()
"""Folders of which this process knows that their names are there for good, with their inodes."""
_made = itertools.count()


def flush(path: Path) -> None:
    """Have the disk take a file, or a folder's names, for good."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_names(root: Path, files: Iterable[str]) -> None:
    """Have the disk take the names of files below a folder for good, and those of the folders on the way."""
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
    """Make a folder and those above it that are not there; their names are there for good."""
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        flush(folder.parent)


def write_through(path: Path, data: bytes) -> None:
    """Write a file; its content is there for good."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def settle(partial: Path, target: Path) -> None:
    """Give a file that was written under another name its own, in place of what has it. The name is flushed by the caller."""
    flush(partial)
    os.replace(partial, target)


def write(path: Path, data: bytes) -> None:
    """Write a file in place of one that may be there. It is whole or not there, for good."""
    partial = beside(path)
    try:
        write_through(partial, data)
        os.replace(partial, path)
        flush(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def create(path: Path, data: bytes) -> None:
    """Write a file that must not be there; if it is, that is a `FileExistsError`. It is whole or not there, for good."""
    partial = beside(path)
    try:
        write_through(partial, data)
        os.link(partial, path)  # refuses to overwrite, unlike rename
    finally:
        partial.unlink(missing_ok=True)
    flush(path.parent)


def beside(path: Path) -> Path:
    """Return a name for a file on its way, that no other writer has."""
    return path.with_name(f"{path.name}.{os.getpid()}-{next(_made)}{PARTIAL}")


def _key(folder: Path) -> tuple[str, int]:
    return str(folder), os.stat(folder).st_ino
