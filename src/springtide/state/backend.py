"""What a place for files can do: one contract, and one implementation for each kind of place.

    folders.Folder    a folder of a mounted file system
    object_store.ObjectFolder a bucket of an object store

Paths are relative, with slashes. A file is whole or does not exist, for every reader and after any crash. What goes wrong is one of Python's own errors:

    FileNotFoundError    there is no such file
    FileExistsError      there is one, and there was to be none
    PermissionError      this will not change by waiting, nor will a ValueError
    OSError              anything else: it may work the next time

After an `OSError` nobody knows whether a write has happened. `springtide.state.stores.Store` asks again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class FileInfo:
    """What a place says about a file without reading it: two of these tell whether it is still the same file."""

    size: int
    modified: int
    """When it was written last, in nanoseconds."""
    tag: str = ""
    """What else distinguishes one version from another (an ETag), if the place has it."""


class Backend(Protocol):
    """A place for files."""

    def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """Return the content of a file, or `length` bytes of it from `start` on; fewer if it ends before."""
        ...

    def fetch(self, path: str, to: Path) -> None:
        """Copy a file to a path of this machine; if that fails, the copy may be incomplete."""
        ...

    def put(self, path: str, data: bytes | Path) -> None:
        """Write a file, replacing one that is there; `data` may be a file of this machine."""
        ...

    def create(self, path: str, data: bytes) -> None:
        """Write a file only if there is none. If several try at once, one succeeds."""
        ...

    def copy(self, path: str, to: str) -> None:
        """Give a file a second name as well."""
        ...

    def list(self, folder: str) -> dict[str, int]:
        """Return the files below a folder with their bytes; a folder that is not there has none."""
        ...

    def size(self, path: str) -> int | None:
        """Return the bytes of a file; None if there is none."""
        ...

    def infos(self, folder: str) -> dict[str, FileInfo]:
        """Return the files below a folder with what the place says of each."""
        ...

    def info(self, path: str) -> FileInfo | None:
        """Return what the place says of a file; None if there is none."""
        ...

    def delete(self, paths: Sequence[str]) -> None:
        """Remove files; it is no error if some do not exist."""
        ...
