"""Stores: places for files, named by a path or an address. A folder of this machine, of a mounted one, or an object store.

    Store.at("ckpt/")                                         a folder
    Store.at("s3://bucket/folder?region=eu-central-1")        an object store; credentials come from its own environment
    Store.at("gs://bucket/folder"), Store.at("az://container/folder"), Store.at("abfss://container@account.dfs.core.windows.net/folder")
    Store.at("s3://bucket/folder", {"endpoint_override": "host:9000", "scheme": "http", "access_key": …, "secret_key": …})

A store is a plain value that goes to tasks; what it is of is opened where it is used (`springtide.state.backend`). Files are whole or not there. A call
that fails for a moment is tried again; one that keeps failing is a `CheckpointError` that says where. What is secret in an address is never shown.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from springtide.query.places import local, without_secrets
from springtide.state import addresses, disk, object_store
from springtide.state.backend import Backend, FileInfo
from springtide.state.errors import AwayError, CheckpointError
from springtide.state.folders import Folder
from springtide.state.parsing import is_for_good
from springtide.state.traffic import count

WAITS = (0.1, 0.4, 1.6)
"""Seconds before each further try."""
_FOR_GOOD = re.compile(
    r"ACCESS_DENIED|NO_SUCH_BUCKET|NoSuchBucket|AccessDenied|InvalidAccessKey|INVALID_ACCESS_KEY|SIGNATURE|Bucket .* not found",
    re.IGNORECASE,
)
"""What stores say about errors that waiting does not cure."""

OPENERS: dict[str, Callable[[str, int], Backend]] = dict.fromkeys(addresses.SCHEMES.values(), object_store.opened)
"""Functions that open a store by its address in this process, by kind."""

T = TypeVar("T")


@dataclass(frozen=True)
class Store:
    """A place for files. Paths in it are relative, with slashes.

    >>> Store.at("s3://bucket/ckpt?access_key=me&secret_key=hidden&scheme=http")
    Store('s3://bucket/ckpt?scheme=http')
    """

    _address: str = field(repr=False)
    url: str
    """How it is shown: the address without what is secret in it."""

    @staticmethod
    def at(where: str | Path | Store, options: Mapping[str, Any] | None = None) -> Store:
        """Return a store: a folder, or the address of an object store, perhaps with options. Nothing is touched yet."""
        if isinstance(where, Store):
            return where
        if (folder := local(where)) is not None:
            return _folder(folder)
        if isinstance(where, Path):
            hint = "give the address as a string: a Path loses one of its slashes"
            raise CheckpointError(without_secrets(where), "is an address, not a path", hint)
        addresses.scheme_of(where)
        address = addresses.with_options(where, options)
        return Store(address, addresses.shown(address))

    def under(self, folder: str) -> Store:
        """Return a folder of this store as a store of its own."""
        if self.local is not None:
            return _folder(self.local / folder)
        return Store.at(addresses.under(self._address, folder))

    @cached_property
    def local(self) -> Path | None:
        """The folder, where the store is one."""
        return Path(self._address) if "://" not in self._address else None

    def __repr__(self) -> str:
        return f"Store({self.url!r})"

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """Return what is in a file, or so many bytes of it from `start` on. One that is not there is a `FileNotFoundError`."""
        return self._try("read", path, lambda: self._backend.get(path, start, length))

    def fetch(self, path: str, local: Path) -> None:
        """Copy a file to a path of this machine. There it is whole or not at all."""

        def fetch() -> None:
            local.parent.mkdir(parents=True, exist_ok=True)
            partial = disk.beside(local)
            try:
                self._backend.fetch(path, partial)
                disk.settle(partial, local)
            finally:
                partial.unlink(missing_ok=True)

        self._try("read", path, fetch)

    def exists(self, path: str) -> bool:
        """Return whether a file is there."""
        return self._size(path) is not None

    def size(self, path: str) -> int:
        """Return the bytes of a file. One that is not there is a `FileNotFoundError`."""
        found = self._size(path)
        if found is None:
            raise FileNotFoundError(f"{self.url} has no file {path}")
        return found

    def files(self, folder: str = "") -> dict[str, int]:
        """Return the files below a folder, by path, with their bytes. A folder that is not there has none."""
        found = self._try("list", folder or "its files", lambda: self._backend.list(folder))
        if self.local is None:
            count(requests=len(found) // object_store.STEP)  # an answer has so many names at most
        return {path: found[path] for path in sorted(found) if not path.endswith(disk.PARTIAL)}

    def infos(self, folder: str = "") -> dict[str, FileInfo]:
        """Return the files below a folder, by path, with what the place says of each."""
        found = self._try("list", folder or "its files", lambda: self._backend.infos(folder))
        return {path: found[path] for path in sorted(found) if not path.endswith(disk.PARTIAL)}

    def info(self, path: str) -> FileInfo | None:
        """Return what the place says of a file; None if there is none."""
        return self._try("look at", path, lambda: self._backend.info(path))

    def list(self, folder: str = "") -> list[str]:
        """Return the paths of the files below a folder."""
        return [*self.files(folder)]

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, path: str, data: bytes) -> None:
        """Write a file, replacing one that is there. It is whole or not there."""
        self._try("write", path, lambda: self._backend.put(path, data))

    def put(self, local: Path, path: str) -> None:
        """Copy a file of this machine into the store. It is whole or not there."""
        self._try("write", path, lambda: self._backend.put(path, local))

    def create(self, path: str, data: bytes) -> bool:
        """Write a file only if there is none; False if there is another. If several try at once, one succeeds.

        `data` must be the caller's own: a file with just this in it counts as made, for an answer can get lost.
        """

        def create() -> bool:
            try:
                self._backend.create(path, data)
                return True
            except FileExistsError:
                try:
                    return self.read(path) == data
                except FileNotFoundError:  # two tried at once, and neither succeeded
                    raise OSError("it was written by another at the same time") from None

        return self._try("write", path, create)

    def copy(self, path: str, to: str) -> None:
        """Let a file of the store be there under a second name, without taking it to this machine."""
        self._try("copy", path, lambda: self._backend.copy(path, to))

    def flush_names(self, files: Iterable[str]) -> None:
        """Make the names of files that were written durable; their content already is."""
        if self.local is not None:
            disk.flush_names(self.local, files)

    def delete(self, *paths: str) -> None:
        """Remove files; it is no error if some do not exist."""
        if not paths:
            return
        try:
            self._try("remove", paths[0], lambda: self._backend.delete(paths))
        except FileNotFoundError:
            return

    def check_writable(self) -> None:
        """Refuse a store that cannot be reached, read or written, by writing a small file and removing it."""
        name = f".probe-{secrets.token_hex(8)}"
        try:
            self.write(name, b"springtide")
            self.read(name)
        except FileNotFoundError:
            raise CheckpointError(
                self.url, "does not show what was written to it", "use a store with consistent reads"
            ) from None
        self.delete(name)

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _size(self, path: str) -> int | None:
        return self._try("look at", path, lambda: self._backend.size(path))

    @property
    def _backend(self) -> Backend:
        if self.local is not None:
            return Folder(self.local)
        return OPENERS[addresses.scheme_of(self._address)](self._address, os.getpid())

    def _try(self, verb: str, path: str, act: Callable[[], T]) -> T:
        for wait in (*WAITS, None):
            if self.local is None:
                count(requests=1)
            try:
                return act()
            except FileNotFoundError as error:
                if _FOR_GOOD.search(str(error)):
                    raise self._error(verb, path, error) from None
                raise FileNotFoundError(f"{self.url} has no file {path}") from None
            except ValueError as error:
                raise self._error(verb, path, error) from None
            except OSError as error:
                if _is_hopeless(error):
                    raise self._error(verb, path, error) from None
                if wait is None:
                    raise self._error(verb, path, error, AwayError) from None
                time.sleep(wait)
        raise AssertionError  # the last try returns or raises

    def _error(
        self, verb: str, path: str, error: Exception, kind: type[CheckpointError] = CheckpointError
    ) -> CheckpointError:
        said = str(error) if self.local is not None else addresses.hidden(str(error), self._address)
        return kind(
            self.url,
            f"cannot {verb} {path}: {said}",
            "check that the place is reachable, has room, and may be read and written by you; then start again",
        )


def _folder(path: Path) -> Store:
    return Store(str(path.absolute()), str(path.absolute()))


def _is_hopeless(error: OSError) -> bool:
    return isinstance(error, PermissionError) or is_for_good(error) or bool(_FOR_GOOD.search(str(error)))
