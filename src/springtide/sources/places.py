"""Where the files of a source are: on a mounted file system, or in an object store. Readers need not know which."""

from __future__ import annotations

import glob
import io
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qsl, unquote, urlsplit

from springtide.connectors import CheckpointError, Store
from springtide.connectors.file_ledger import FoundFile
from springtide.query.errors import QueryError, SpringtideError, shown
from springtide.query.places import local, scheme_of, without_secrets

PAUSE = 1.0
"""The least seconds between two listings of a store; a listing that takes long is made less often."""
_UNFINISHED = (".tmp", ".partial")
_AHEAD = 1 << 16
"""Bytes that are read from a store at once when single lines are wanted."""


class Place(ABC):
    """A folder, a file or a pattern."""

    grows = True
    """Whether something may be added to a file after it was found."""
    path: str
    """As the user wrote it, without secrets."""

    @abstractmethod
    def listed(self, suffixes: tuple[str, ...], *, again: bool = False) -> dict[str, str]:
        """Return the files that are there now, by name, in the order of their names: name → path. `again`: do not use the last listing."""

    @abstractmethod
    def root(self) -> str:
        """Return what precedes the name in every path: a folder may be moved, or be given by another path."""

    @abstractmethod
    def look(self, name: str, path: str) -> FoundFile | None:
        """Return what is known of a file that was listed; None if it is gone."""

    @abstractmethod
    def now(self, path: str) -> FoundFile | None:
        """Return what is known of a file at this moment."""

    @abstractmethod
    def open(self, path: str) -> BinaryIO:
        """Open a file for reading."""

    @abstractmethod
    def is_folder(self) -> bool:
        """Return whether the path is a folder that exists."""


class Disk(Place):
    """Files of a mounted file system."""

    def __init__(self, path: str) -> None:
        """Name them."""
        self.path = path

    def listed(self, suffixes: tuple[str, ...], *, again: bool = False) -> dict[str, str]:
        """List a folder, or the files that match a pattern."""
        path, root = os.path.abspath(self.path), self.root()
        if os.path.isdir(path):
            with os.scandir(path) as entries:
                found = [e.path for e in entries if e.name.endswith(suffixes) and e.is_file()]
        else:
            found = [f for f in ([path] if os.path.exists(path) else glob.glob(path)) if os.path.isfile(f)]
        return {f[len(root) :]: f for f in sorted(found) if is_meant(os.path.basename(f))}

    def root(self) -> str:
        """Return the folder that all files are in, with a slash."""
        path = os.path.abspath(self.path)
        if os.path.isdir(path):
            return os.path.join(path, "")
        while glob.has_magic(path) and not os.path.exists(path):
            path = os.path.dirname(path)
        return os.path.join(path if os.path.isdir(path) else os.path.dirname(path), "")

    def look(self, name: str, path: str) -> FoundFile | None:
        """Ask the file system."""
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return None
        return FoundFile(name, path, status.st_size, status.st_mtime_ns)

    def now(self, path: str) -> FoundFile | None:
        """Ask the file system."""
        return self.look(path, path)

    def open(self, path: str) -> BinaryIO:
        """Open a file."""
        return open(path, "rb")

    def is_folder(self) -> bool:
        """Return whether there is such a folder."""
        return os.path.isdir(self.path)


class StorePlace(Place):
    """Files of an object store. A file appears whole; one that has changed is another file.

    >>> place = StorePlace("s3://bucket/in/day=*/x.csv?region=eu-central-1&secret_key=hidden")
    >>> place.path, place.root()
    ('s3://bucket/in/day=*/x.csv', 's3://bucket/in/')
    """

    grows = False

    def __init__(self, address: str, options: Mapping[str, Any] | None = None) -> None:
        """Name them; nothing is asked yet."""
        Store.at(address)  # refuses what is not the address of a store
        parts = urlsplit(address)
        self._store = Store.at(parts._replace(path="", fragment="").geturl(), options)
        self._base = self._store.url.partition("?")[0].rstrip("/")
        keys = unquote(parts.path).strip("/").split("/") if parts.path.strip("/") else []
        plain = next((n for n, key in enumerate(keys) if glob.has_magic(key)), len(keys))
        self._folder, self._pattern = "/".join(keys[:plain]), keys[plain:]
        self.path = "/".join([self._base, *keys])
        self._seen: dict[str, FoundFile] = {}
        self._due = 0.0

    def __getstate__(self) -> dict[str, Any]:
        """Leave the listing in the driver: tasks are told what to read."""
        return self.__dict__ | {"_seen": {}, "_due": 0.0}

    def listed(self, suffixes: tuple[str, ...], *, again: bool = False) -> dict[str, str]:
        """List a folder of the store, or the files that match a pattern; no more often than necessary."""
        if again or time.monotonic() >= self._due:
            began = time.monotonic()
            before, self._seen = self._seen, {f.name: f for f in self._list(suffixes)}
            for name in (
                before.keys() - self._seen.keys()
            ):  # a listing may be stale: ask by name for what seems to be gone
                if (still := self.now(before[name].path)) is not None:
                    self._seen[name] = replace(still, name=name)
            ended = time.monotonic()
            self._due = ended + max(PAUSE, 10 * (ended - began)) if PAUSE else 0.0
        return {name: self._seen[name].path for name in sorted(self._seen)}

    def _list(self, suffixes: tuple[str, ...]) -> list[FoundFile]:
        infos = self._store.infos(self._folder)
        found = {key[len(self._folder) :].lstrip("/"): info for key, info in infos.items()}
        wanted = {name for name in found if is_meant(name.rpartition("/")[2]) and self._matches(name, suffixes)}
        if not wanted and not self._pattern and self._folder:  # one file, perhaps
            info = self._store.info(self._folder)
            if info is None or not is_meant(name := self._folder.rpartition("/")[2]):
                return []
            return [FoundFile(name, self.root_of_one() + name, info.size, info.modified, info.tag)]
        root = self.root()
        return [FoundFile(n, root + n, i.size, i.modified, i.tag) for n, i in found.items() if n in wanted]

    def _matches(self, name: str, suffixes: tuple[str, ...]) -> bool:
        if not self._pattern:
            return "/" not in name and name.endswith(suffixes)
        keys = name.split("/")
        return len(keys) == len(self._pattern) and all(
            fnmatchcase(key, wanted) and key.startswith(".") <= wanted.startswith(".")
            for key, wanted in zip(keys, self._pattern, strict=True)
        )

    def root(self) -> str:
        """Return the address of the folder that all files are in, with a slash."""
        one = self._seen and not self._pattern and next(iter(self._seen.values())).path == self.path
        return self.root_of_one() if one else "/".join(filter(None, [self._base, self._folder])) + "/"

    def root_of_one(self) -> str:
        """Return the address of the folder that a single file is in."""
        return self.path.rpartition("/")[0] + "/"

    def look(self, name: str, path: str) -> FoundFile | None:
        """Return what the last listing said."""
        return self._seen.get(name)

    def now(self, path: str) -> FoundFile | None:
        """Ask the store."""
        info = self._store.info(self._key(path))
        return None if info is None else FoundFile(path, path, info.size, info.modified, info.tag)

    def open(self, path: str) -> BinaryIO:
        """Open a file; each read is one request."""
        return io.BufferedReader(Ranged(self._store, self._key(path)), _AHEAD)

    def ranged(self, file: FoundFile) -> Ranged:
        """Open a file whose size is known."""
        return Ranged(self._store, self._key(file.path), file.size)

    def is_folder(self) -> bool:
        """Return whether the path may be a folder: a store has no empty ones."""
        return not self._pattern

    def check(self) -> None:
        """Refuse a store that cannot be reached or listed."""
        self._store.infos(self._folder)

    def _key(self, path: str) -> str:
        return path.removeprefix(self._base).lstrip("/")


class Ranged(io.RawIOBase):
    """A file of a store, read on demand."""

    def __init__(self, store: Store, key: str, size: int | None = None) -> None:
        """Name it; nothing is asked yet."""
        self._store, self._key, self._at, self._size = store, key, 0, size

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def seekable(self) -> bool:
        """Say that it can be read from anywhere."""
        return True

    @property
    def length(self) -> int:
        """Bytes of the file."""
        if self._size is None:
            self._size = self._store.size(self._key)
        return self._size

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to another place."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at}.get(whence)
        self._at = max(0, offset + (self.length if start is None else start))
        return self._at

    def tell(self) -> int:
        """Return the place."""
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read as much as there is room for, in one request."""
        wanted = min(len(buffer), self.length - self._at)
        if wanted <= 0:
            return 0
        data = self._store.read(self._key, self._at, wanted)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def check_tag(where: Place, path: str, tag: Sequence[str]) -> None:
    """Refuse a file that is not the expected version, if one is expected."""
    if tag and ((now := where.now(path)) is None or now.tag != tag[0]):
        raise SpringtideError(
            f"{path} was changed while it was read; write new files under new names, and start again to continue"
        )


def is_meant(name: str) -> bool:
    """Tell whether a file is read: those that begin with . or _ or end with .tmp or .partial are not.

    >>> is_meant("a.csv"), is_meant("_a.csv"), is_meant("a.csv.tmp")
    (True, False, False)
    """
    return not name.startswith((".", "_")) and not name.endswith(_UNFINISHED)


def place_of(kind: str, path: Any, options: Mapping[str, Any] | None = None) -> Place:
    """Take a path or an address as users write it."""
    if not isinstance(path, str | Path) or not str(path):
        raise QueryError(f"({kind})", f"{shown(path)} is not a path", "give the folder, a file or a pattern")
    folder = local(path)
    if folder is not None:
        if options:
            hint = "leave storage_options out, or give an address such as s3://bucket/folder"
            raise QueryError(f"({kind})", f"{path} is a path, but storage_options are only for object stores", hint)
        return Disk(str(path) if scheme_of(path) is None else str(folder))
    where = without_secrets(path)
    if isinstance(path, Path):
        raise QueryError(f"({kind})", f"{where} is an address, not a path", "give it as a string: a Path loses a slash")
    query = urlsplit(path).query
    if query and len(parse_qsl(query)) < query.count("&") + 1:
        hint = "in an address, a ? begins the options, as in s3://bucket/in/*.csv?region=…; write * in a pattern"
        raise QueryError(f"({kind})", f"what follows the ? in {where} is not an option", hint)
    if urlsplit(path).fragment:
        raise QueryError(f"({kind})", f"{where} has a # in it", "write %23 for a # in a name")
    try:
        return StorePlace(path, options)
    except CheckpointError as error:
        hint = f"{error.hint}; st.spark reads anything that Spark can"
        raise QueryError(f"({kind})", f"{error.path} {error.problem}", hint) from None
