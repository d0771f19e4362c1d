"""Stores: where files are, by one name. A folder of this machine, of a mounted one, or an object store that Arrow can talk to.

    Store.at("ckpt/")                                         a folder
    Store.at("s3://bucket/folder?region=eu-central-1")        an object store; credentials come from its own environment
    Store.at("s3://bucket/folder?endpoint_override=host:9000&scheme=http&access_key=…&secret_key=…")
    Store.at("hdfs://…", "gs://…", "abfs://…")                whatever `pyarrow.fs` opens

A store is a plain value that goes to tasks; the connection is opened where it is used. Files are whole or not there. A call that fails for
a moment is tried again; one that keeps failing is a `CheckpointError` that says where. What is secret in an address is never shown.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

import pyarrow as pa
import pyarrow.fs

from springtide.query.places import local, without_secrets
from springtide.state import conditional, disk
from springtide.state.errors import AwayError, CheckpointError
from springtide.state.parsing import content, is_for_good

WAITS = (0.1, 0.4, 1.6)
"""Seconds before each further try."""
SECRET = ("access_key", "secret_key", "session_token", "sas_token", "password", "account_key")
"""Parts of an address that are not shown."""
_ATOMIC = ("s3", "gcs", "abfs")
"""Types of file system where a file is seen when it is whole; elsewhere it is written under another name and renamed."""
_FOR_GOOD = re.compile(
    r"ACCESS_DENIED|NO_SUCH_BUCKET|NoSuchBucket|AccessDenied|InvalidAccessKey|INVALID_ACCESS_KEY|SIGNATURE|Bucket .* not found",
    re.IGNORECASE,
)
"""What Arrow says of errors that do not go away by waiting."""
_S3 = ("region", "scheme", "endpoint_override", "access_key", "secret_key", "session_token", "role_arn")

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
    def at(where: str | Path | Store) -> Store:
        """Name a store: a folder, or a URL of any file system of `pyarrow.fs`. Nothing is touched yet."""
        if isinstance(where, Store):
            return where
        if (folder := local(where)) is not None:
            return _folder(folder)
        if isinstance(where, Path):
            hint = "give the address as text: a Path has lost one of its slashes"
            raise CheckpointError(without_secrets(where), "is an address, not a path", hint)
        return Store(where, _shown(urlsplit(where)))

    def under(self, folder: str) -> Store:
        """Name a folder of this store as a store of its own."""
        if self.local is not None:
            return _folder(self.local / folder)
        parts = urlsplit(self._address)
        return Store.at(parts._replace(path=f"{parts.path.rstrip('/')}/{quote(folder)}").geturl())

    @property
    def local(self) -> Path | None:
        """The folder, where the store is one."""
        return Path(self._address) if "://" not in self._address else None

    def __repr__(self) -> str:
        return f"Store({self.url!r})"

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, path: str) -> bytes:
        """Give what is in a file. One that is not there is a `FileNotFoundError`."""

        def read() -> bytes:
            if self.local is not None:
                return content(self.local / path)
            system, root = self._open()
            with system.open_input_file(_join(root, path)) as file:
                return bytes(file.read())

        return self._try("read", path, read)

    def fetch(self, path: str, local: Path) -> None:
        """Copy a file to a path of this machine. There it is whole or not at all."""

        def fetch() -> None:
            local.parent.mkdir(parents=True, exist_ok=True)
            partial = disk.beside(local)
            try:
                if self.local is not None:
                    shutil.copyfile(self.local / path, partial)
                else:
                    self._download(path, partial)
                disk.settle(partial, local)
            finally:
                partial.unlink(missing_ok=True)

        self._try("read", path, fetch)

    def exists(self, path: str) -> bool:
        """Tell whether a file is there."""
        return self._info(path) is not None

    def size(self, path: str) -> int:
        """Give the bytes of a file. One that is not there is a `FileNotFoundError`."""
        found = self._info(path)
        if found is None:
            raise FileNotFoundError(f"{self.url} has no file {path}")
        return found

    def files(self, folder: str = "") -> dict[str, int]:
        """Give the files below a folder, by path, with their bytes. A folder that is not there has none."""

        def look() -> dict[str, int]:
            if self.local is not None:
                base = self.local
                there = ((f, _size(f)) for f in (base / folder).rglob("*"))  # some may go meanwhile
                return {f.relative_to(base).as_posix(): size for f, size in there if size is not None}
            system, root = self._open()
            selector = pyarrow.fs.FileSelector(_join(root, folder), allow_not_found=True, recursive=True)
            start = len(root.rstrip("/")) + 1
            infos = system.get_file_info(selector)
            return {i.path[start:]: int(i.size) for i in infos if i.type == pyarrow.fs.FileType.File}

        found = self._try("list", folder or "its files", look)
        return {path: found[path] for path in sorted(found) if not path.endswith(disk.PARTIAL)}

    def list(self, folder: str = "") -> list[str]:
        """Give the paths of the files below a folder."""
        return [*self.files(folder)]

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, path: str, data: bytes) -> None:
        """Write a file, in place of one that is there. It is whole or not there."""

        def write() -> None:
            if self.local is not None:
                self._place(path, lambda partial: partial.write_bytes(data))
            else:
                self._upload(path, pa.py_buffer(data))

        self._try("write", path, write)

    def create(self, path: str, data: bytes) -> bool:
        """Write a file only if there is none; False if there is another. Of several who try at once one has made it.

        `data` must be the caller's own: a file with just this in it counts as made, for an answer can get lost.
        """

        def create() -> bool:
            try:
                if self.local is not None:
                    target = self.local / path
                    disk.make_folder(target.parent)
                    disk.create(target, data)
                else:
                    self._create(path, data)
                return True
            except FileExistsError:
                try:
                    return self.read(path) == data
                except FileNotFoundError:  # two tried at once, and neither has made it
                    raise OSError("it was written by another at the same time") from None

        return self._try("write", path, create)

    def flush_names(self, files: Iterable[str]) -> None:
        """Have the names of files that were written or put there for good; what is in them is, already."""
        if self.local is not None:
            disk.flush_names(self.local, files)

    def put(self, local: Path, path: str) -> None:
        """Copy a file of this machine into the store. It is whole or not there."""

        def put() -> None:
            if self.local is not None:
                self._place(path, lambda partial: shutil.copyfile(local, partial))
            elif local.stat().st_size:
                with pa.memory_map(str(local)) as file:
                    self._upload(path, file.read_buffer())
            else:  # nothing to map
                self._upload(path, pa.py_buffer(b""))

        self._try("write", path, put)

    def delete(self, path: str) -> None:
        """Remove a file; one that is not there is no error."""

        def delete() -> None:
            if self.local is not None:
                (self.local / path).unlink(missing_ok=True)
            else:
                system, root = self._open()
                system.delete_file(_join(root, path))

        try:
            self._try("remove", path, delete)
        except FileNotFoundError:
            return

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _place(self, path: str, fill: Callable[[Path], Any]) -> None:
        assert self.local is not None
        target = self.local / path
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = disk.beside(target)
        try:
            fill(partial)
            disk.settle(partial, target)
        finally:
            partial.unlink(missing_ok=True)

    def _upload(self, path: str, data: pa.Buffer) -> None:
        system, root = self._open()
        target = _join(root, path)
        atomic = system.type_name in _ATOMIC
        if not atomic:
            system.create_dir(target.rpartition("/")[0], recursive=True)
        written = target if atomic else str(disk.beside(Path(target)))
        with system.open_output_stream(written) as stream:
            stream.write(data)
        if not atomic:
            system.move(written, target)

    def _download(self, path: str, partial: Path) -> None:
        system, root = self._open()
        with system.open_input_file(_join(root, path)) as source, pa.OSFile(str(partial), "wb") as sink:
            expected = source.size()
            while block := source.read(16 << 20):
                sink.write(block)
        if partial.stat().st_size != expected:
            raise OSError(f"{partial.stat().st_size} of {expected} bytes came")

    def _info(self, path: str) -> int | None:
        def look() -> int | None:
            if self.local is not None:
                target = self.local / path
                return _size(target)
            system, root = self._open()
            info = system.get_file_info(_join(root, path))
            return int(info.size) if info.type == pyarrow.fs.FileType.File else None

        return self._try("look at", path, look)

    def _open(self) -> tuple[pyarrow.fs.FileSystem, str]:
        return _connection(self._address, os.getpid())

    def _create(self, path: str, data: bytes) -> None:
        parts = urlsplit(self._address)
        given, bucket = _given(parts)
        if "role_arn" in given:
            raise CheckpointError(
                self.url, "cannot be claimed with a role_arn", "give credentials of that role (AWS_ACCESS_KEY_ID …)"
            )
        if parts.scheme == "s3" and "region" not in given:
            # a server of somebody's own has no regions, but its signatures name one
            given["region"] = "us-east-1" if "endpoint_override" in given else pyarrow.fs.resolve_s3_region(bucket)
        target = _join(unquote(parts.path).strip("/"), path).lstrip("/")
        conditional.create(self.url, parts.scheme, bucket, given, target, data, os.getpid())

    def _try(self, verb: str, path: str, act: Callable[[], T]) -> T:
        for wait in (*WAITS, None):
            try:
                return act()
            except FileNotFoundError as error:
                if _FOR_GOOD.search(str(error)):
                    raise self._error(verb, path, error) from None
                raise FileNotFoundError(f"{self.url} has no file {path}") from None
            except (OSError, pa.ArrowException) as error:
                if not isinstance(error, OSError) or _hopeless(error):
                    raise self._error(verb, path, error) from None
                if wait is None:
                    raise self._error(verb, path, error, AwayError) from None
                time.sleep(wait)
        raise AssertionError  # the last try returns or raises

    def _error(
        self, verb: str, path: str, error: Exception, kind: type[CheckpointError] = CheckpointError
    ) -> CheckpointError:
        return kind(
            self.url,
            f"cannot {verb} {path}: {self._hide(str(error))}",
            "check that the place is reachable, has room, and may be read and written by you; then start again",
        )

    def _hide(self, text: str) -> str:
        """Take what is secret out of somebody else's words."""
        text = text.replace(self._address, self.url)
        for secret in _secrets(urlsplit(self._address)):
            for form in {secret, quote(secret), quote(secret, safe="")}:
                text = text.replace(form, "…")
        return text


# ── addresses ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _folder(path: Path) -> Store:
    return Store(str(path.absolute()), str(path.absolute()))


def _shown(parts: SplitResult) -> str:
    query = urlencode([(k, v) for k, v in parse_qsl(parts.query) if k not in SECRET], safe=":/")
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query=query).geturl()


def _secrets(parts: SplitResult) -> list[str]:
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    found = [unquote(user), unquote(password), *(v for k, v in parse_qsl(parts.query) if k in SECRET)]
    return sorted((s for s in found if s), key=len, reverse=True)


@functools.lru_cache(maxsize=64)
def _connection(address: str, process: int) -> tuple[pyarrow.fs.FileSystem, str]:
    """Open the file system of an address, once in a process: a connection does not survive a fork."""
    parts = urlsplit(address)
    if parts.scheme != "s3":
        system, root = pyarrow.fs.FileSystem.from_uri(address)
        return system, root
    given, bucket = _given(parts)
    if unknown := sorted(given.keys() - set(_S3)):
        raise pa.ArrowInvalid(f"an s3 address has no part {', '.join(unknown)}; there are {', '.join(_S3)}")
    if "region" not in given and "endpoint_override" not in given:
        given["region"] = pyarrow.fs.resolve_s3_region(bucket)
    once = pyarrow.fs.AwsStandardS3RetryStrategy(max_attempts=1)  # tries are counted here, for every kind of store
    system = pyarrow.fs.S3FileSystem(**given, retry_strategy=once, connect_timeout=3, request_timeout=30)
    return system, f"{bucket}{unquote(parts.path)}"


def _given(parts: SplitResult) -> tuple[dict[str, str], str]:
    """Give the parts of an s3 address by name, and the bucket."""
    given = dict(parse_qsl(parts.query))
    user, _, bucket = parts.netloc.rpartition("@")
    if user:
        name, _, password = user.partition(":")
        given |= {"access_key": unquote(name), "secret_key": unquote(password)}
    return given, bucket


def _join(root: str, path: str) -> str:
    return f"{root.rstrip('/')}/{path}".rstrip("/")


# ── local files ───────────────────────────────────────────────────────────────────────────────────────────────────


def _size(path: Path) -> int | None:
    """Give the bytes of a file; None if there is none, or no longer."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _hopeless(error: OSError) -> bool:
    return is_for_good(error) or bool(_FOR_GOOD.search(str(error)))
