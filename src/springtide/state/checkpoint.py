"""A checkpoint on disk: one folder, one query, one run at a time.

springtide.json       format, query, hash: who may use this checkpoint; its id, and those that it was made of
lock                  held by the run that uses it
generation            counts the runs; a manifest of an older one is refused
manifests/000000007   the commit record of epoch 7
state/…               segments
buffer/…              what went into epochs whose state is not durable yet, where it cannot be read again
outbox/…              rows on their way to sinks
published             which sinks have the rows of the last epoch
savepoints/NAME/…     savepoints: checkpoints of their own
control/…             commands to the running query
spark/                Spark's own offsets and commits
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import socket
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from springtide.query.places import local, without_secrets
from springtide.state.errors import CheckpointError
from springtide.state.forms import changes
from springtide.state.manifest import Manifest, NewerFormat
from springtide.state.parsing import content, is_for_good, parsed
from springtide.state.segment import flush
from springtide.state.shapes import anything, each, listed, may, record, text, whole

FORMAT = 1
KEEP = 10
"""How many manifests are kept."""
_ATTEMPTS = 5
_FORGOTTEN = 86_400
"""Seconds after which what a copy has left behind is removed."""

_BEGUN = ("lock", "springtide.json.partial")
"""What a run leaves that dies while it makes a checkpoint."""


def _ancestor(where: str, value: Any) -> None:
    listed(anything)(where, value)
    if len(value) != 2:
        raise ValueError(f"{where} is not an id and an epoch")
    text(where, value[0])
    whole()(where, value[1])


_LAYOUT = record(keys=may(listed(text)), aggregates=may(listed(text)), size=may(whole(1)), every=may(whole(1)))
_MARKER = record(
    identity=record(
        query=text,
        steps=each(text),
        buckets=whole(),
        hash=anything,
        polars=text,
        state=may(each(_LAYOUT)),
        forms=may(each(each(listed(text)))),
    ),
    id=may(text),
    ancestors=may(listed(_ancestor)),
)
"""What a springtide.json must look like: it says whose a checkpoint is."""
_EPOCH = re.compile(r"[0-9]{9,18}")
_NEWER = "use a newer version of Springtide"


@dataclass
class Lease:
    """The right to write: the open lock file and this run's generation."""

    generation: int
    descriptor: int

    def release(self) -> None:
        """Let another run in."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


@dataclass(frozen=True)
class Lineage:
    """Which checkpoint this is, and of which others, at which epochs, it was made."""

    id: str
    ancestors: tuple[tuple[str, int], ...] = ()
    """(id, epoch), the oldest first."""

    @staticmethod
    def new() -> Lineage:
        """Begin a checkpoint that was made of no other."""
        return Lineage(uuid.uuid4().hex)

    @staticmethod
    def of(marker: bytes) -> Lineage:
        """Read it from a springtide.json. One that an older version wrote has no id: its content, which never changes, stands for it."""
        data = json.loads(marker)
        own = data.get("id") or hashlib.sha256(marker).hexdigest()[:32]
        return Lineage(own, tuple((id, epoch) for id, epoch in data.get("ancestors", ())))

    def copied(self, epoch: int) -> Lineage:
        """Begin a checkpoint that goes on behind an epoch of this one."""
        return Lineage(uuid.uuid4().hex, (*self.ancestors, (self.id, epoch)))

    def shared_with(self, id: str) -> int | None:
        """Give the last epoch that this checkpoint has in common with another; None if neither is the other nor was made of it."""
        return next((epoch for other, epoch in reversed(self.ancestors) if other == id), None)

    def to_json(self) -> dict[str, Any]:
        """Write it into a springtide.json."""
        return {"id": self.id, "ancestors": [list(a) for a in self.ancestors]}


class Checkpoint:
    """The folder, and what may be done with it."""

    def __init__(self, root: str | Path) -> None:
        """Name a folder; nothing is touched yet."""
        folder = local(root)
        if folder is None:
            raise CheckpointError(
                without_secrets(root),
                "is not a folder of a mounted file system",
                "give a folder that all executors see; a copy of it can be kept there by st.Durability(backup=…)",
            )
        self.root = folder.absolute()

    # ── opening ───────────────────────────────────────────────────────────────────────────────────────────────────

    def acquire(self, identity: dict[str, Any], after: int = 0) -> Lease:
        """Take the checkpoint for one run of one query, making it if it is not there; the run's generation is later than `after`."""
        marker = self.root / "springtide.json"
        if self.root.exists() and not self.root.is_dir():
            raise self._error("is a file", "give an empty or a new folder")
        if not marker.exists() and self.root.exists() and any(f.name not in _BEGUN for f in self.root.iterdir()):
            raise self._error("is not empty and not a Springtide checkpoint", "give an empty or a new folder")
        self.root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self._lock(descriptor)
            if marker.exists():
                self._check(identity)
            else:
                self._write(
                    marker,
                    marker_of(identity, Lineage.new()),
                )
            generation = max(self._generation(), after) + 1
            self._write(self.root / "generation", str(generation).encode())
        except BaseException:
            os.close(descriptor)
            raise
        return Lease(generation, descriptor)

    def _lock(self, descriptor: int) -> None:
        for attempt in range(_ATTEMPTS):  # somebody who only looks whether it is in use holds it for a moment
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if attempt == _ATTEMPTS - 1:
                    owner = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another run"
                    hint = "stop that run first, or give this one another checkpoint"
                    raise self._error(f"is in use by {owner}", hint) from None
                time.sleep(0.05)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)

    def _check(self, identity: dict[str, Any]) -> None:
        found = self.identity()
        if found == identity:
            return
        if found["query"] != identity["query"]:
            raise self._error(
                f"belongs to the query {found['query']!r}, not {identity['query']!r}",
                "give this query a checkpoint of its own",
            )
        if found["hash"] != identity["hash"]:
            raise self._error(
                f"was written with another hash of keys (Polars {found['polars']}, here {identity['polars']})",
                f"use Polars {found['polars']}, or start with a new checkpoint",
            )
        changed = list(changes(found, identity))
        if found["buckets"] != identity["buckets"]:
            changed.append(f"buckets: {found['buckets']} → {identity['buckets']}")
        if changed:
            raise self._error(
                f"was written by another form of this query: {'; '.join(changed)}",
                "start the old form, or give the new one a new checkpoint; from a savepoint stateless steps and sinks may "
                "change, and code whose state still fits says so with version = the digest that it had",
            )
        self._write_identity(
            identity
        )  # where it says more than what was there, or says it of another version of Polars

    def _write_identity(self, identity: dict[str, Any]) -> None:
        """Write anew whose the checkpoint is; what else the file says stays."""
        marker = self.root / "springtide.json"
        known = parsed(self.marker())
        self._write(marker, json.dumps(known | {"identity": identity}, indent=1).encode())

    def identity(self) -> dict[str, Any]:
        """Say which query this checkpoint belongs to."""
        found: dict[str, Any] = parsed(self.marker())["identity"]
        return found

    def lineage(self) -> Lineage:
        """Say which checkpoint this is, and of which others it was made."""
        return Lineage.of(self.marker())

    def marker(self) -> bytes:
        """Read what makes the folder a checkpoint; what is in it is as it must be."""
        try:
            data = content(self.root / "springtide.json")
            marker = parsed(data)
            version = marker["format"]
            if version == FORMAT:
                _MARKER("it", marker)
        except (FileNotFoundError, NotADirectoryError):
            raise self._error("is not there, or not a Springtide checkpoint", "check the path") from None
        except (ValueError, KeyError, TypeError, OSError) as error:
            if isinstance(error, OSError) and not is_for_good(error):
                raise
            raise self._error(
                "has a damaged springtide.json", "restore that file from a copy, or start with a new checkpoint"
            ) from None
        if version != FORMAT:
            raise self._error(f"has format {version}, this version of Springtide reads {FORMAT}", _NEWER)
        return data

    def in_use(self) -> bool:
        """Tell whether a run holds the checkpoint now."""
        try:
            descriptor = os.open(self.root / "lock", os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # two who look do not take each other for a run
            return False
        except OSError:
            return True
        finally:
            os.close(descriptor)

    # ── manifests ─────────────────────────────────────────────────────────────────────────────────────────────────

    def epochs(self) -> list[int]:
        """List the epochs whose manifests are there."""
        folder = self.root / "manifests"
        return sorted(int(f.name) for f in folder.iterdir() if _EPOCH.fullmatch(f.name)) if folder.is_dir() else []

    def latest(self) -> Manifest | None:
        """Read the newest manifest."""
        found = self._read(self.epochs()[-1:]) or self._read(self.epochs()[-1:])
        return found[-1] if found else None

    def manifest(self, epoch: int) -> Manifest:
        """Read the manifest of an epoch."""
        path = self._manifest_path(epoch)
        try:
            found = Manifest.decode(content(path))
            if found.epoch != epoch:
                raise ValueError(f"it is of epoch {found.epoch}")
            return found
        except FileNotFoundError:
            raise self._error(f"has no manifest of epoch {epoch}", f"it has {self.epochs()}") from None
        except NewerFormat as error:
            raise self._error(f"cannot be read: the manifest of epoch {epoch} {error}", _NEWER) from None
        except (ValueError, KeyError, TypeError, OSError) as error:
            if isinstance(error, OSError) and not is_for_good(error):
                raise
            raise self._error(
                f"cannot be read: the manifest of epoch {epoch} is damaged ({error})",
                "restore that file, or start with a new checkpoint",
            ) from None

    def commit(self, manifest: Manifest, lease: Lease) -> None:
        """Write the manifest: after this the epoch has happened. A run that lost the checkpoint is refused."""
        if self._generation() != lease.generation:
            raise self._error(
                "was taken over by a newer run", "this run is stale: start it again if it is the one you want"
            )
        path = self._manifest_path(manifest.epoch)
        path.parent.mkdir(exist_ok=True)
        partial = path.with_name(f"{path.name}.{lease.generation}.partial")
        try:
            _write_through(partial, manifest.encode())
            os.link(partial, path)  # refuses to overwrite, unlike rename
        except FileExistsError:
            if path.read_bytes() != manifest.encode():  # else it was written, though it seemed to have failed
                raise self._error(
                    f"has a manifest of epoch {manifest.epoch} already", "another run wrote it: start again"
                ) from None
        finally:
            partial.unlink(missing_ok=True)
        flush(path.parent)

    def is_held_by(self, lease: Lease) -> bool:
        """Tell whether no newer run has taken the checkpoint over."""
        return self._generation() == lease.generation

    def replace(self, manifest: Manifest) -> None:
        """Write the manifest of an epoch that was committed anew: its state was lost and is there again, in other files."""
        self._write(self._manifest_path(manifest.epoch), manifest.encode())

    def history(self) -> list[Manifest]:
        """Read the manifests that are kept, oldest first."""
        return self._read(self.epochs())

    def forget(self, epoch: int) -> None:
        """Remove an old manifest."""
        self._manifest_path(epoch).unlink(missing_ok=True)

    def sweep(self, keep: set[str], epoch: int) -> None:
        """Remove what a run that died left behind: segments that no manifest speaks of, and rows of no committed epoch."""
        for path in (*self._files("state"), *self._files("buffer")):
            if str(path.relative_to(self.root)) not in keep:
                path.unlink(missing_ok=True)
        for path in self._files("outbox"):
            if path.parent.name != f"{epoch:09d}":
                path.unlink(missing_ok=True)
        for path in self._files("manifests"):
            if path.suffix == ".partial":
                path.unlink(missing_ok=True)
        for path in self._files("spark"):
            if ".tmp" in path.suffixes[-2:]:  # an unfinished first offset would make Spark refuse the folder
                path.unlink(missing_ok=True)
        for folder in (self.root / "savepoints").glob(".*"):  # of a copy; one that is still being made is younger
            if time.time() - folder.stat().st_mtime > _FORGOTTEN:
                shutil.rmtree(folder, ignore_errors=True)

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _read(self, epochs: Sequence[int]) -> list[Manifest]:
        """Read manifests, but for those that a run forgets at this moment."""
        found = []
        for epoch in epochs:
            try:
                found.append(self.manifest(epoch))
            except CheckpointError:
                if self._manifest_path(epoch).exists():
                    raise
        return found

    def _files(self, folder: str) -> Iterator[Path]:
        return (f for f in (self.root / folder).rglob("*") if f.is_file())

    def _manifest_path(self, epoch: int) -> Path:
        return self.root / "manifests" / f"{epoch:09d}"

    def _generation(self) -> int:
        try:
            found = int(content(self.root / "generation", 100))
            whole(most=2**62)("it", found)
            return found
        except FileNotFoundError:
            return 0
        except (ValueError, OSError) as error:
            if isinstance(error, OSError) and not is_for_good(error):
                raise
            raise self._error("has a damaged generation file", "write the number of the last run into it") from None

    def _write(self, path: Path, data: bytes) -> None:
        partial = path.with_name(f"{path.name}.partial")
        _write_through(partial, data)
        os.replace(partial, path)

    def _error(self, problem: str, hint: str) -> CheckpointError:
        return CheckpointError(str(self.root), problem, hint)


def marker_of(identity: Mapping[str, Any], lineage: Lineage, **more: Any) -> bytes:
    """Give what is in a springtide.json: what makes a folder the checkpoint of a query."""
    body = {"format": FORMAT, "identity": dict(identity), "created": time.time(), **lineage.to_json(), **more}
    return json.dumps(body, indent=1).encode()


def _write_through(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
