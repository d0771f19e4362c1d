"""A store in this process that does everything that a real one may do to its users. The seed decides what, and when.

    409, 412              a conditional write that is refused because another is under way, or because there is a file
    lost answers          a write has happened, and an error comes back
    torn connections      nothing has happened, or half of what was read came
    throttling            a few calls in a row are turned away
    lagging listings      a listing that does not have the last files yet, or still has some that are gone

Single files are consistent: who reads after a write that has ended sees it. A store without that is not one that we use.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TypeVar
from unittest import mock

from springtide.state import addresses, stores
from springtide.state.backend import FileInfo

T = TypeVar("T")


@dataclass
class Misbehaving:
    """A bucket. `trouble` is the share of calls with which something is wrong; `lag` how many changes a listing may be behind."""

    seed: int = 0
    trouble: float = 0.2
    lag: int = 3
    files: dict[str, bytes] = field(default_factory=dict)
    requests: dict[str, int] = field(default_factory=dict)
    """How often it was asked, by verb."""

    def __post_init__(self) -> None:
        self._random, self._lock = Random(self.seed), threading.RLock()
        self._changes: list[tuple[str, bytes | None]] = []
        """The last changes: a file, and what was there before."""
        self._in_a_row = 0
        self._clock, self._written = 0, dict[str, int]()
        """How many writes there were, and which of them was the last to each file."""

    # ── what a backend does ───────────────────────────────────────────────────────────────────────────────────────

    def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        data = self._call("get", lambda: self._found(path))
        end = len(data) if length is None else start + length
        return data[start:end]

    def fetch(self, path: str, to: Path) -> None:
        data = self._call("get", lambda: self._found(path))
        if self._happens(0.1):
            to.write_bytes(data[: len(data) // 2])
            raise OSError("connection reset by peer")
        to.write_bytes(data)

    def put(self, path: str, data: bytes | Path) -> None:
        content = data.read_bytes() if isinstance(data, Path) else bytes(data)
        self._call("put", lambda: self._set(path, content))

    def create(self, path: str, data: bytes) -> None:
        def create() -> None:
            if path in self.files:
                raise FileExistsError("412 Precondition Failed")
            self._set(path, bytes(data))

        if self._happens(0.3):  # 409: two conditional writes at once; which one wins is not known yet
            raise OSError("409 ConditionalRequestConflict")
        self._call("create", create)

    def copy(self, path: str, to: str) -> None:
        self._call("copy", lambda: self._set(to, self._found(path)))

    def list(self, folder: str) -> dict[str, int]:
        def look() -> dict[str, int]:
            then = dict(self.files)
            behind = self._random.randint(0, self.lag) if self._happens(1.0) else 0
            for path, before in reversed(self._changes[len(self._changes) - behind :] if behind else []):
                if before is None:
                    then.pop(path, None)
                else:
                    then[path] = before
            prefix = f"{folder.rstrip('/')}/" if folder else ""
            return {path: len(data) for path, data in then.items() if path.startswith(prefix)}

        return self._call("list", look)

    def size(self, path: str) -> int | None:
        return self._call("head", lambda: len(self.files[path]) if path in self.files else None)

    def infos(self, folder: str) -> dict[str, FileInfo]:
        return {path: self._info(path, size) for path, size in self.list(folder).items()}

    def info(self, path: str) -> FileInfo | None:
        size = self.size(path)
        return None if size is None else self._info(path, size)

    def delete(self, paths: Sequence[str]) -> None:
        def delete() -> None:
            for path in paths:
                if path in self.files:
                    self._changes.append((path, self.files.pop(path)))

        self._call("delete", delete)

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _call(self, verb: str, act: Callable[[], T]) -> T:
        with self._lock:
            self.requests[verb] = self.requests.get(verb, 0) + 1
            if self._in_a_row:
                self._in_a_row -= 1
                raise OSError("503 SlowDown")
            if self._happens(0.2):
                self._in_a_row = self._random.randint(0, 1)
                raise OSError("503 SlowDown")
            if self._happens(0.3):
                raise OSError("connection refused")
            result = act()
            if self._happens(0.4):
                raise OSError("timed out")  # it has happened all the same
            return result

    def _happens(self, share: float) -> bool:
        return self._random.random() < self.trouble * share

    def _found(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    def _set(self, path: str, data: bytes) -> None:
        self._changes.append((path, self.files.get(path)))
        self.files[path] = data
        self._clock += 1
        self._written[path] = self._clock

    def _info(self, path: str, size: int) -> FileInfo:
        at = self._written.get(path, 0)
        return FileInfo(size, (1_700_000_000 + at) * 10**9, f"{at}")


class Within:
    """A folder of a bucket."""

    def __init__(self, bucket: Misbehaving, folder: str) -> None:
        self._bucket, self._prefix = bucket, f"{folder}/" if folder else ""

    def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        return self._bucket.get(self._prefix + path, start, length)

    def fetch(self, path: str, to: Path) -> None:
        self._bucket.fetch(self._prefix + path, to)

    def put(self, path: str, data: bytes | Path) -> None:
        self._bucket.put(self._prefix + path, data)

    def create(self, path: str, data: bytes) -> None:
        self._bucket.create(self._prefix + path, data)

    def copy(self, path: str, to: str) -> None:
        self._bucket.copy(self._prefix + path, self._prefix + to)

    def list(self, folder: str) -> dict[str, int]:
        found = self._bucket.list(f"{self._prefix}{folder}".rstrip("/"))
        return {path.removeprefix(self._prefix): size for path, size in found.items()}

    def size(self, path: str) -> int | None:
        return self._bucket.size(self._prefix + path)

    def infos(self, folder: str) -> dict[str, FileInfo]:
        found = self._bucket.infos(f"{self._prefix}{folder}".rstrip("/"))
        return {path.removeprefix(self._prefix): info for path, info in found.items()}

    def info(self, path: str) -> FileInfo | None:
        return self._bucket.info(self._prefix + path)

    def delete(self, paths: Sequence[str]) -> None:
        self._bucket.delete([self._prefix + path for path in paths])


@contextmanager
def served(**buckets: Misbehaving) -> Iterator[None]:
    """Have buckets be there under fake://NAME/…; nobody waits between tries."""

    def opened(address: str, process: int) -> Within:
        name, folder = addresses.bucket_of(address)
        return Within(buckets[name], folder)

    with (
        mock.patch.dict(addresses.SCHEMES, {"fake": "fake"}),
        mock.patch.dict(stores.OPENERS, {"fake": opened}),
        mock.patch.object(stores, "WAITS", (0.0,) * 12),
    ):
        yield
