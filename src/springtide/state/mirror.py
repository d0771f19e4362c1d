"""A checkpoint whose log is in its backup: a store that has everything that a start on another machine needs, and that decides who may write.

    segments, outbox, buffer   as they are written, or with the next checkpoint
    spark/                     Spark's offsets, where Spark reads
    manifest N                 last: after this epoch N has happened

The folder on this machine has copies. Where the checkpoint itself is in the store, the folder is a cache: whatever it has that the store does not know is
forgotten. If the store is the backup of a folder that is out of date, because another machine continued, the folder is brought up to date when a run takes over.
One that the store knows nothing of, because it is new or a run went on without it, goes into the store as a whole (`attach`).
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import Enum

from springtide.state import disk
from springtide.state.checkpoint import Checkpoint, Lineage, marker_of, renewed
from springtide.state.claims import Lease, Sighting, attach, new_token, take
from springtide.state.errors import CheckpointError
from springtide.state.forms import Identity
from springtide.state.log import Log, Records, Slot
from springtide.state.manifest import Manifest
from springtide.state.names import BUFFER, MANIFESTS, MARKER, OUTBOX, PUBLISHED, SPARK, STATE, epoch_of
from springtide.state.spark_records import in_order, valid_files
from springtide.state.stores import Store

_SWEPT = (STATE, BUFFER, OUTBOX)
"""Folders that contain only what some manifest names."""
_TOGETHER = 8
"""For how many epochs files are removed from an object store at once: checking the claim and removing are two requests."""
_AT_ONCE = 8
_MANY = 500
"""The most files that wait to be removed: stores remove a thousand at once."""
_CACHED = (MANIFESTS, SPARK, PUBLISHED)
"""What a run leaves behind that dies while it fills an empty folder."""


class Relation(Enum):
    """How a folder compares with its backup."""

    SAME = "the same"
    BEHIND = "older epochs, or none"
    AHEAD = "epochs that the backup does not have, and all those that it has"
    APART = "epochs that the backup does not have, while it has others"


def relation(here: Records, there: Records) -> Relation:
    """Compare the log of a folder with that of its backup.

    A run with a backup writes there first, so that what a folder has more was written by a run without it: one whose claim the backup does not know.
    Its copy in the folder is not flushed: what a power cut has left of a record says nothing.
    """
    here = here.whole()
    if not here:
        return Relation.BEHIND if there else Relation.SAME
    if not there:
        return Relation.AHEAD
    tokens = here.tokens()
    if tokens:
        known = tokens[-1] in there.tokens()
    elif here.last in there.data:
        known = there.data[here.last] == here.data[here.last]
    else:  # forgotten there by now
        known = here.last < there.last
    if known:
        return Relation.SAME if here.last == there.last else Relation.BEHIND
    theirs = there.tokens()[-1:]
    ahead = here.data.get(there.last) == there.data[there.last] and set(theirs) <= set(tokens)
    return Relation.AHEAD if ahead else Relation.APART


class Mirror:
    """One checkpoint and its backup."""

    def __init__(self, checkpoint: Checkpoint, store: Store) -> None:
        """Name both; nothing is touched yet."""
        self._root, self._checkpoint, self._store = checkpoint.root, checkpoint, store
        self.log = Log(store)
        self.restored = False
        """Whether an empty folder was filled from the backup."""
        self._detached: Records | None = None
        """What the backup has, until it has what the folder has."""
        self.records: set[str] = set()
        """Files of Spark's own records that the backup has."""
        self._read_log: Records | None = None
        """The log as it was read last."""
        self._found: set[str] = set()
        """Segments of epochs that are over, from the last listing."""
        self._sweeper = ThreadPoolExecutor(1, "springtide-sweeper")
        """Removes files while the query goes on."""
        self._leaving: tuple[list[str], list[str]] = [], []
        """Files and records that are to be removed."""
        self._waited = 0
        """Epochs for which they wait."""

    @property
    def url(self) -> str:
        """Where the backup is, without what is secret in the address."""
        return self._store.url

    @property
    def is_detached(self) -> bool:
        """Whether the folder has epochs that the backup does not have yet."""
        return self._detached is not None

    # ── at the start of a run ─────────────────────────────────────────────────────────────────────────────────────

    def acquire(self, identity: Identity, sighting: Sighting | None = None) -> Lease:
        """Take the checkpoint for one run, on whatever machine the last one was. An older run can neither commit nor publish from now on.

        Somebody who stood by has a `sighting`, and is refused if another was faster.
        """
        descriptor, token = self._checkpoint.lock(may_have=_CACHED, replacing=sighting is not None), new_token()
        try:
            self._forget_stale()
            lease = self._acquire(identity, token, sighting)
        except BaseException:
            os.close(descriptor)
            raise
        lease.descriptor = descriptor
        return lease

    def history(self) -> list[Manifest]:
        """Return the manifests that are kept, as the log has them that counts: what a cache has of them may be gone again."""
        if self._detached is not None or self._read_log is None:
            return self._checkpoint.history()
        return self._read_log.manifests()

    def fill(self, identity: Identity) -> None:
        """Bring the folder up to date without taking over; raise what is wrong with it, or with the backup."""
        self._forget_stale()
        marker = self._marker(identity)
        if marker is None:
            return
        descriptor = self._checkpoint.lock(may_have=_CACHED)
        try:
            here, there = self._checkpoint.log.read(), self.log.read()
            found = self._related(here, there)
            if found in (Relation.BEHIND, Relation.SAME):
                self._cache(here, there, marker, outdated=found is Relation.BEHIND)
        finally:
            os.close(descriptor)

    def _acquire(self, identity: Identity, token: str, sighting: Sighting | None) -> Lease:
        while True:
            marker, own = self._marker(identity if sighting is None else None), self._checkpoint.found()
            here, there = self._checkpoint.log.read(), self.log.read()
            if marker is None and own is None:
                if there:
                    raise self._unfinished()
                made = marker_of(identity, Lineage.new())
                if self._store.create(MARKER, made):
                    self._mark(made)
                    return Lease.first(self.log, token)
                continue  # somebody else made it at the same time
            if marker is None and there and not set(there.tokens()) <= set(here.tokens()):
                raise self._unfinished()
            if self._checkpoint.cache is not None and relation(here, there) not in (Relation.SAME, Relation.BEHIND):
                self._checkpoint.cache.clear()  # a listing is stale, or the cache is from another time: the store decides
                continue
            if marker is None or (found := self._related(here, there)) is Relation.AHEAD:
                self._detached = there
                return self._checkpoint.claim(token, identity=identity)
            there.manifests()  # what is damaged is found before anything changes
            if sighting is not None:
                sighting.check(there)
            self._checkpoint.check(identity, marker, there)  # the run at work may have replaced the query just now
            lease = take(self.log, there, token)
            if lease is not None:
                marker = self._renew(marker, identity, there)
                self._cache(here, there.with_more(self.log.read(there.data)), marker, outdated=found is Relation.BEHIND)
                return lease

    def _forget_stale(self) -> None:
        """Empty a cache that does not belong to what is in the store: it is from an earlier checkpoint, or has records that the store never had."""
        cache, theirs, ours = self._checkpoint.cache, self._read(MARKER), self._checkpoint.found()
        if cache is None:
            return
        try:
            same = theirs is not None and (ours is None or Lineage.of(ours).id == Lineage.of(theirs).id)
            there = self.log.read() if same else None
            if there is not None and relation(self._checkpoint.log.read(), there) in (Relation.BEHIND, Relation.SAME):
                return
        except (ValueError, KeyError, TypeError, AttributeError, CheckpointError):
            pass  # what is damaged here is useless; what is damaged there is reported by the next reader
        cache.clear()

    def _marker(self, identity: Identity | None) -> bytes | None:
        """Return the backup's springtide.json; None if there is none yet. With an `identity`, refuse one of another query."""
        theirs, ours = self._read(MARKER), self._checkpoint.found()
        if identity is not None and (theirs is not None or ours is not None):
            self._checkpoint.check(identity, theirs, self._newest() if theirs is not None else None)
        if self._checkpoint.cache is not None:
            ours = None  # one of another checkpoint was cleared
        if theirs is not None and ours is not None and Lineage.of(theirs).id != self._checkpoint.lineage().id:
            raise CheckpointError(
                str(self._root), f"is not the one whose backup is in {self.url}", "give it a backup of its own"
            )
        return theirs

    def _newest(self) -> Records:
        """Return the last records: those of the folder, if that went on without the backup; a cache never does."""
        there = self.log.tail()
        here = Records({}, "") if self._checkpoint.cache is not None else self._checkpoint.log.tail()
        return here if here and (not there or here.last > there.last) else there

    def _renew(self, marker: bytes, identity: Identity, there: Records) -> bytes:
        if any(m.form is not None for m in there.manifests()[-1:]):
            return marker  # the manifests say it, since the query was replaced
        said = renewed(marker, identity)
        if said != marker:
            self._store.write(MARKER, said)
            self._store.flush_names([MARKER])
        return said

    def _related(self, here: Records, there: Records) -> Relation:
        found = relation(here, there)
        if found is Relation.APART:
            raise CheckpointError(
                str(self._root),
                f"and its backup {self.url} have diverged (epoch {here.last.epoch} here, {there.last.epoch} there)",
                "give an empty folder to continue from the backup, or another backup to continue from here",
            )
        return found

    def _unfinished(self) -> CheckpointError:
        return CheckpointError(
            self.url,
            "has the beginnings of another checkpoint's backup",
            "start again where that checkpoint is, or give an empty place",
        )

    def _cache(self, here: Records, there: Records, marker: bytes, *, outdated: bool) -> None:
        """Copy the backup's log to the folder, and Spark's offsets if the folder is out of date. What makes it a checkpoint comes last."""
        self._read_log = there
        empty = self._checkpoint.found() is None
        folder, local = self._checkpoint.log, self._checkpoint.log.store
        if empty or outdated:  # before the log: with that, the folder counts as up to date
            self._fetch_offsets()
            (self._root / PUBLISHED).unlink(missing_ok=True)
            if self._store.exists(PUBLISHED):
                self._store.fetch(PUBLISHED, self._root / PUBLISHED)
        for slot, data in there.data.items():
            if here.data.get(slot) != data:
                local.write(slot.path, data)
        folder.forget(slot for slot in here.data if slot not in there.data)
        if self._checkpoint.found() != marker:
            self._mark(marker)
        self.restored = self.restored or (empty and bool(there))

    def _mark(self, marker: bytes) -> None:
        """Make the folder a checkpoint, durably: one with files but no springtide.json would be refused as somebody else's."""
        store = self._checkpoint.log.store
        store.write(MARKER, marker)
        store.flush_names([MARKER])

    def _fetch_offsets(self) -> None:
        theirs = self._store.list(SPARK)
        for file in self._checkpoint.log.store.list(SPARK):
            if file not in theirs and theirs:
                (self._root / file).unlink(missing_ok=True)
        self.bring_records(again=True)

    def bring_records(self, *, again: bool = False) -> None:
        """Bring Spark's records that the folder lacks, or has with another length; `again`: all of them."""
        if self._detached is not None:
            return  # the folder knows more than its backup
        here = {} if again else self._checkpoint.log.store.files(SPARK)
        lacking = [file for file, size in self._store.files(SPARK).items() if here.get(file) != size]
        with ThreadPoolExecutor(_AT_ONCE, "springtide-records") as pool:  # some hundreds, each a request
            for _ in pool.map(lambda file: self._store.fetch(file, self._root / file), lacking):
                pass

    def _read(self, path: str) -> bytes | None:
        try:
            return self._store.read(path)
        except FileNotFoundError:
            return None

    # ── when everything is whole ──────────────────────────────────────────────────────────────────────────────────

    def begin(self, lease: Lease, manifests: Iterable[Manifest], keep: Container[str]) -> Lease:
        """Copy to the backup what it lacks; from now on its log is the one that counts. Of its other files, only those in `keep` stay."""
        self.records = set(self._store.list(SPARK))
        if self._detached is not None:
            lease = self._attach(lease, self._detached, [*manifests][-1:])
            self._detached = None
        useless = [f for folder in _SWEPT for f in self._store.list(folder) if f not in keep]
        self.remove(lease, useless)
        return lease

    def _attach(self, lease: Lease, there: Records, newest: list[Manifest]) -> Lease:
        wanted = [f for m in newest for f in (*(d.file for d in m.outbox), *m.buffers())]
        files = [f for f in wanted if (self._root / f).exists()]  # a sink may have taken its file for good
        for file in files:
            self._store.put(self._root / file, file)
        self._store.flush_names([*files, *(f for m in newest for f in m.files())])
        self.keep_records(valid_files(self._checkpoint.log.store.list(SPARK)).values(), lease)
        taken = attach(self.log, there, lease, newest[0] if newest else None)
        marker = self._checkpoint.found()
        assert marker is not None
        if taken is None or not self._store.create(MARKER, marker):
            raise CheckpointError(
                self.url, "was begun by another run at the same time", "give this checkpoint a backup of its own"
            )
        self._cache(self._checkpoint.log.read(), self.log.read(), marker, outdated=False)
        taken.descriptor, lease.descriptor = lease.descriptor, -1
        return taken

    # ── with every epoch ──────────────────────────────────────────────────────────────────────────────────────────

    def copy(self, manifest: Manifest, lease: Lease, data: bytes) -> bool:
        """Copy to the folder what was committed. If the folder is gone, it is made again, and an event says so."""
        slot = lease.epochs[manifest.epoch][-1]
        if self._checkpoint.found() is not None:
            (self._root / MANIFESTS).mkdir(exist_ok=True)
            partial = disk.beside(self._root / slot.path)
            partial.write_bytes(data)
            partial.replace(self._root / slot.path)
            return False
        marker = self._read(MARKER)
        assert marker is not None
        self._cache(self._checkpoint.log.read(), self.log.read(), marker, outdated=True)
        return True

    def keep_records(self, files: Iterable[str], lease: Lease, known: Mapping[str, bytes] = {}) -> None:
        """Copy Spark's own records to the backup before their epoch is committed, those last that refer to others. Of some it is `known` what they say.

        A record of another run with the same name is never overwritten: the newest epoch may need it.
        """
        new = in_order(f for f in files if f not in self.records)
        for file in new:
            try:
                data = known[file] if file in known else (self._root / file).read_bytes()
            except FileNotFoundError:
                raise self._unusable(file, "is gone") from None
            if not self._store.create(file, data):
                lease.check()
                raise self._unusable(file, f"is not the one in {self.url}")
            self.records.add(file)
        self._store.flush_names(new)

    def forget_records(self, files: set[str], lease: Lease) -> None:
        """Remove, soon, records of Spark's from the backup."""
        if files:
            self.remove(lease, sorted(files))
            self.records -= files

    def _unusable(self, file: str, problem: str) -> CheckpointError:
        return CheckpointError(
            str(self._root),
            f"cannot copy Spark's record {file} to its backup: it {problem}",
            "start again: the query continues from its last committed epoch",
        )

    def put(self, file: str, lease: Lease) -> None:
        """Copy a file of the checkpoint to the backup as it is now, unless a newer run has taken over."""
        if not lease.is_lost():
            self._store.put(self._root / file, file)
            self._store.flush_names([file])

    def remove(self, lease: Lease, files: Iterable[str], records: Iterable[str] = ()) -> None:
        """Forget records, and files that only older ones named, soon, if the checkpoint still belongs to this run.

        One that stays is found by the next start.
        """
        self._leaving[0].extend(files)
        self._leaving[1].extend(records)
        self._waited += 1
        if self._waited >= _TOGETHER or sum(map(len, self._leaving)) >= _MANY or self._store.local is not None:
            self._let_go(lease)

    def _let_go(self, lease: Lease) -> None:
        (gone, forgotten), self._leaving, self._waited = self._leaving, ([], []), 0
        if gone or forgotten:
            self._sweeper.submit(self._remove, lease, gone, forgotten)

    def _remove(self, lease: Lease, files: Iterable[str], records: Iterable[str]) -> None:
        lease.check()
        slots = [slot for record in records if (slot := Slot.of(record.rpartition("/")[2])) is not None]
        self.log.note_forgotten(slots, lease.ends)
        self._store.delete(*records)  # first: nobody must find a manifest without its files
        self._store.delete(*files)
        self._store.flush_names(records)

    def look_for_segments(self, before: int) -> None:
        """Begin to list the segments of epochs before this one."""

        def look() -> None:
            self._found = {f for f in self._store.list(STATE) if epoch_of(f.rpartition("/")[2]) < before}

        self._sweeper.submit(look)

    def found_segments(self) -> set[str]:
        """Return what was found since this was last asked. Which of it is needed must be looked at now: a recovery writes segments of epochs that are over."""
        found, self._found = self._found, set()
        return found

    def close(self, lease: Lease) -> None:
        """Finish what is under way."""
        self._let_go(lease)
        self._sweeper.shutdown(wait=True)
