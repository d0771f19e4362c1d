"""A checkpoint on disk: one folder, one query, one run at a time.

springtide.json       format, query, hash: who may use this checkpoint; its id, and the ids of those it was made from
lock                  held by the run that uses it
manifests/000000007   the log: the commit record of epoch 7, or the claim of a run that took over then (`springtide.state.log`)
state/…               segments
buffer/…              what went into epochs whose state is not durable yet, where it cannot be read again
outbox/…              rows on their way to sinks
published             which sinks have the rows of the last epoch, and for each the last epochs that it was given
savepoints/NAME/…     savepoints: checkpoints of their own
control/…             commands to the running query
spark/                Spark's own offsets and commits, where Spark reads (`springtide.state.spark_records`)
spark-runs/…          where Spark writes them during a run
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import socket
import time
import uuid
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from springtide.state import disk
from springtide.state.caches import Cache
from springtide.state.claims import Lease, Sighting, new_token, take
from springtide.state.errors import AnotherFormError, CheckpointError
from springtide.state.forms import Identity, changes, check_identity
from springtide.state.log import NEWER, Log, Records
from springtide.state.manifest import Manifest
from springtide.state.names import BUFFER, LOCK, MANIFESTS, MARKER, OUTBOX, SAVEPOINTS, SPARK, STATE, numbered
from springtide.state.parsing import content, is_for_good, parsed
from springtide.state.shapes import anything, listed, may, record, text, whole
from springtide.state.stores import Store

FORMAT = 1
KEEP = 10
"""How many manifests are kept."""
_ATTEMPTS = 5
_FORGOTTEN = 86_400
"""Seconds after which leftovers of a copy are removed."""

_REPLACED = ", which was replaced while it ran"

_BEGUN = (LOCK, f"{MARKER}{disk.PARTIAL}")
"""What a run leaves behind that dies while it creates a checkpoint."""


def _ancestor(where: str, value: Any) -> None:
    listed(anything)(where, value)
    if len(value) != 2:
        raise ValueError(f"{where} is not an id and an epoch")
    text(where, value[0])
    whole()(where, value[1])


_MARKER = record(
    identity=check_identity,
    id=may(text),
    ancestors=may(listed(_ancestor)),
)
"""What a springtide.json must look like: it says whose a checkpoint is."""


@dataclass(frozen=True)
class Lineage:
    """Which checkpoint this is, and from which others, at which epochs, it was made."""

    id: str
    ancestors: tuple[tuple[str, int], ...] = ()
    """(id, epoch), the oldest first."""

    @staticmethod
    def new() -> Lineage:
        """Begin a checkpoint that was made from no other."""
        return Lineage(uuid.uuid4().hex)

    @staticmethod
    def of(marker: bytes) -> Lineage:
        """Read it from a springtide.json. One that an older version wrote has no id: its content, which never changes, stands for it."""
        data = json.loads(marker)
        own = data.get("id") or hashlib.sha256(marker).hexdigest()[:32]
        return Lineage(own, tuple((id, epoch) for id, epoch in data.get("ancestors", ())))

    def copied(self, epoch: int) -> Lineage:
        """Begin a checkpoint that continues after an epoch of this one."""
        return Lineage(uuid.uuid4().hex, (*self.ancestors, (self.id, epoch)))

    def shared_with(self, id: str) -> int | None:
        """Return the last epoch that this checkpoint has in common with another; None if neither was made from the other."""
        return next((epoch for other, epoch in reversed(self.ancestors) if other == id), None)

    def to_json(self) -> dict[str, Any]:
        """Write it into a springtide.json."""
        return {"id": self.id, "ancestors": [list(a) for a in self.ancestors]}


class Checkpoint:
    """The folder, and what may be done with it."""

    def __init__(
        self, where: str | Path | Store, options: Mapping[str, Any] | None = None, cache: Cache | None = None
    ) -> None:
        """Give a folder, or the address of an object store with its options; nothing is touched yet.

        `cache` says where nodes keep their copies of a checkpoint in an object store.
        """
        self.store = Store.at(where, options)
        self.cache: Cache | None = None
        if self.store.local is None:
            self.cache = replace(cache or Cache(""), url=self.store.url)
        self.root = self.store.local or self.cache.place()  # type: ignore[union-attr]
        self.log = Log(Store.at(self.root))

    @property
    def remote(self) -> Store | None:
        """The object store that the checkpoint is in; the folder is then a cache of it."""
        return self.store if self.cache is not None else None

    # ── opening ───────────────────────────────────────────────────────────────────────────────────────────────────

    def acquire(self, identity: Identity, sighting: Sighting | None = None) -> Lease:
        """Take the checkpoint for one run of one query, creating it if necessary. From now on an older run can neither commit nor publish.

        A run that stood by has a `sighting`, and is refused if another was faster.
        """
        descriptor, token = self.lock(replacing=sighting is not None), new_token()
        try:
            if self.found() is None and self.log.store.create(MARKER, marker_of(identity, Lineage.new())):
                lease = Lease.first(self.log, token)
            else:
                if sighting is None:
                    self.check(identity)
                lease = self.claim(token, sighting, identity)
                self._renew(identity)
        except BaseException:
            os.close(descriptor)
            raise
        lease.descriptor = descriptor
        return lease

    def make(self, identity: Identity) -> None:
        """Create the checkpoint if necessary, for a later run; refuse one that is in use or belongs to another query."""
        descriptor = self.lock()
        try:
            if self.found() is not None or not self.log.store.create(MARKER, marker_of(identity, Lineage.new())):
                self.check(identity)
        finally:
            os.close(descriptor)

    def claim(self, token: str, sighting: Sighting | None = None, identity: Identity | None = None) -> Lease:
        """Take over from the last run; with a `sighting`, only from the one that was seen.

        With an `identity`, only for a query of the form of the very epoch that it continues from: the run at work may replace it at any time.
        """
        while True:
            records = self.log.read()
            records.manifests()  # what is damaged is found before anything changes
            if sighting is not None:
                sighting.check(records)
            if identity is not None:
                self.check(identity, records=records)
            lease = take(self.log, records, token)
            if lease is not None:
                return lease

    def lock(self, may_have: Container[str] = (), *, replacing: bool = False) -> int:
        """Keep other runs of this machine out; return the lock. The folder must be a checkpoint, empty, or have nothing but what it `may_have`.

        `replacing` replaces the lock of a run that is presumed dead: it may only be paused, and would hold its lock for ever.
        """
        if self.root.exists() and not self.root.is_dir():
            raise self._error("is a file", "give an empty or a new folder")
        if self.found() is None and self.root.exists():
            names = {f.name for f in self.root.iterdir()}
            if self.cache is None and any(
                n not in _BEGUN and n not in may_have and not n.startswith(f"{MARKER}.") for n in names
            ):
                raise self._error("is not empty and not a Springtide checkpoint", "give an empty or a new folder")
        if self.cache is not None:
            self.cache.here()
        disk.make_folder(self.root)
        if replacing and self.in_use():
            fresh = disk.beside(self.root / LOCK)
            fresh.touch(0o644)
            fresh.replace(self.root / LOCK)
        descriptor = os.open(self.root / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self._lock(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _lock(self, descriptor: int) -> None:
        for attempt in range(_ATTEMPTS):  # whoever checks whether it is in use holds it for a moment
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

    def check(self, identity: Identity, marker: bytes | None = None, records: Records | None = None) -> None:
        """Refuse a query that the checkpoint does not belong to; `marker` and `records` of a log say whose it is, if that is not to be read here."""
        began: Identity = parsed(self._valid(marker) if marker is not None else self.marker())["identity"]
        now = _form(self.log.tail() if records is None else records)
        found = began if now is None else now
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
            raise AnotherFormError(
                self.store.url,
                f"was written by another form of this query{'' if now is None else _REPLACED}: {'; '.join(changed)}",
                "start the old form, or give the new one a new checkpoint; from a savepoint stateless steps and sinks may "
                "change, and code whose state still fits says so with version = the digest that it had",
            )

    def _renew(self, identity: Identity) -> None:
        """Record whose the checkpoint is, if that says more than the record that was there, or says it for another version of Polars.

        Where the query was replaced while it ran, its manifests say it.
        """
        if _form(self.log.tail()) is not None:
            return
        marker = self.marker()
        if (said := renewed(marker, identity)) != marker:
            disk.write(self.root / MARKER, said)

    def identity(self) -> Identity:
        """Return which query this checkpoint belongs to: the form that made the newest epoch."""
        found = self.first_identity()
        with suppress(CheckpointError):  # damaged manifests are reported when they are needed
            found = (_form(self.log.tail()) or found).copy()
        return found

    def first_identity(self) -> Identity:
        """Return which query this checkpoint began with."""
        found: Identity = parsed(self.marker())["identity"]
        return found

    def lineage(self) -> Lineage:
        """Return which checkpoint this is, and from which others it was made."""
        return Lineage.of(self.marker())

    def found(self) -> bytes | None:
        """Read springtide.json, which makes the folder a checkpoint, without checking it; None if there is none yet."""
        try:
            return content(self.root / MARKER)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, OSError) as error:
            if isinstance(error, OSError) and not is_for_good(error):
                raise
            return b""

    def marker(self) -> bytes:
        """Read springtide.json, which makes the folder a checkpoint, and check it. What a cache has lost of it is in the store."""
        data = self.found()
        if self.cache is not None:
            with suppress(CheckpointError):
                return self._valid(data or b"")
            with suppress(FileNotFoundError):
                data = self.store.read(MARKER)
        if data is None:
            raise self._error("does not exist, or is not a Springtide checkpoint", "check the path")
        return self._valid(data)

    def _valid(self, data: bytes) -> bytes:
        try:
            marker = parsed(data)
            version = marker["format"]
            if version == FORMAT:
                _MARKER("it", marker)
        except (ValueError, KeyError, TypeError):
            raise self._error(
                "has a damaged springtide.json", "restore that file from a copy, or start with a new checkpoint"
            ) from None
        if version != FORMAT:
            raise self._error(f"has format {version}, but this version of Springtide reads {FORMAT}", NEWER)
        return data

    def in_use(self) -> bool:
        """Return whether a run holds the checkpoint now."""
        try:
            descriptor = os.open(self.root / LOCK, os.O_RDONLY)  # enough for those who may only read
        except FileNotFoundError:
            return False
        except PermissionError:  # it cannot be told; copying works either way
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # two who look must not mistake each other for a run
            return False
        except OSError:
            return True
        finally:
            os.close(descriptor)

    def bring(self, folder: str) -> None:
        """Have the files of a folder on this machine: they are."""

    def withdraw(self, command: Path) -> None:
        """Take back a command that was left and that no run has taken up."""
        command.unlink(missing_ok=True)

    # ── manifests ─────────────────────────────────────────────────────────────────────────────────────────────────

    def epochs(self) -> list[int]:
        """List the epochs whose manifests are there."""
        return self.log.read().epochs()

    def latest(self) -> Manifest | None:
        """Read the newest manifest."""
        found = self.log.tail().manifests() or self.log.tail().manifests()  # a run may have forgotten it meanwhile
        return found[-1] if found else None

    def manifest(self, epoch: int) -> Manifest:
        """Read the manifest of an epoch."""
        for records in (self.log.of_epoch(epoch), self.log.tail()):
            for manifest in records.manifests():
                if manifest.epoch == epoch:
                    return manifest
        raise self._error(f"has no manifest of epoch {epoch}", f"it has {self.epochs()}")

    def history(self) -> list[Manifest]:
        """Read the manifests that are kept, oldest first."""
        return self.log.read().manifests()

    def forget(self, epoch: int) -> None:
        """Remove an old epoch's manifest."""
        self.log.forget_epoch(epoch)

    def left(self, keep: Container[str], epoch: int) -> list[Path]:
        """Return what a run that died left behind: segments that no manifest names, and rows of epochs that were not committed."""
        segments = (*self._files(STATE), *self._files(BUFFER))
        return [
            *(f for f in segments if str(f.relative_to(self.root)) not in keep),
            *(f for f in self._files(OUTBOX) if f.parent.name != numbered(epoch)),
            *(f for f in self._files(MANIFESTS) if f.suffix == ".partial"),
            # an unfinished first offset would make Spark refuse the folder
            *(f for f in self._files(SPARK) if ".tmp" in f.suffixes[-2:]),
        ]

    def sweep(self, left: Iterable[Path]) -> None:
        """Remove what was left behind, if nobody took the checkpoint before it was listed: then none of it belongs to a newer run."""
        for path in left:
            path.unlink(missing_ok=True)
        for folder in (self.root / SAVEPOINTS).glob(".*"):  # left by a copy; one that is still being made is younger
            if time.time() - folder.stat().st_mtime > _FORGOTTEN:
                shutil.rmtree(folder, ignore_errors=True)

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _files(self, folder: str) -> Iterator[Path]:
        return (f for f in (self.root / folder).rglob("*") if f.is_file())

    def _error(self, problem: str, hint: str) -> CheckpointError:
        return CheckpointError(self.store.url, problem, hint)


def _form(records: Records) -> Identity | None:
    """Return the form of the query that made the newest epoch, if the query was replaced while it ran."""
    newest = records.manifests()
    return newest[-1].form if newest else None


def marker_of(identity: Identity, lineage: Lineage, **more: Any) -> bytes:
    """Return what is in a springtide.json: what makes a folder the checkpoint of a query."""
    body = {"format": FORMAT, "identity": identity, "created": time.time(), **lineage.to_json(), **more}
    return json.dumps(body, indent=1).encode()


def renewed(marker: bytes, identity: Identity) -> bytes:
    """Return a springtide.json with what is known of the query by now; what else it says stays."""
    known = parsed(marker)
    if known["identity"] == identity:
        return marker
    return json.dumps(known | Lineage.of(marker).to_json() | {"identity": identity}, indent=1).encode()
