"""What a run keeps: its manifests, the tiers that its state is in, and what becomes of them with every epoch.

begin → ( commit → settle )* → close
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from springtide.query.errors import SpringtideError
from springtide.query.ids import NO_EPOCH
from springtide.runtime.durability import Durability
from springtide.runtime.persisting import Persister, kept_after
from springtide.runtime.recovering import lost, missing
from springtide.state import private, stores
from springtide.state.checkpoint import Checkpoint, Lineage
from springtide.state.claims import Lease, Sighting
from springtide.state.errors import CheckpointError
from springtide.state.forms import Identity
from springtide.state.links import refuse_links
from springtide.state.manifest import Manifest
from springtide.state.mirror import Mirror
from springtide.state.names import BUFFER, PUBLISHED, SEGMENTS, STATE, epoch_of, outbox
from springtide.state.published import Published, read_published, write_published
from springtide.state.pulse import EVERY, Pulse
from springtide.state.relay import Relay, bring_history
from springtide.state.spark_records import SparkRecords

SWEPT = 50
"""How often, in epochs, the disk is searched for what failed attempts have left."""


class Storage:
    """The checkpoint of one run."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        identity: Identity,
        durability: Durability,
        timer: Callable[[], float],
        note: Callable[[str], None],
        sighting: Sighting | None = None,
        signs: float | None = None,
    ) -> None:
        """Take the checkpoint; an empty one is filled from its backup.

        A run that stood by has a `sighting`. Others that stand by see `signs` of life at this interval, in seconds.
        """
        self.checkpoint, self._retain, self._note = checkpoint, durability.retain, note
        store = checkpoint.remote or durability.store
        self._mirror = Mirror(checkpoint, store) if store is not None else None
        if checkpoint.remote is not None:
            checkpoint.remote.check_writable()
        refuse_links(checkpoint.root)
        self._signs = signs if signs is not None else EVERY if checkpoint.remote is not None else None
        self._pulse: Pulse | None = None
        self.lease: Lease = (self._mirror or checkpoint).acquire(identity, sighting)
        if self._mirror is not None and self._mirror.restored and checkpoint.remote is None:
            note(f"the checkpoint was restored from {self._mirror.url}")
        self.tiers, self._parent = durability.tiers(checkpoint), durability.parent
        self.persister = Persister(self.tiers, durability.seconds, timer, note)
        self._relay: Relay | None = None
        self.leaving: set[str] = set()
        """Files of epochs that were forgotten with the last one. The disk may still remember their records until the next one is made."""
        self.spark_records: SparkRecords | None = None
        """What Spark writes about what it reads, if it reads anything."""
        self._begun = False
        if checkpoint.remote is not None:
            bring_history(checkpoint.remote, checkpoint.root)
        if self._signs is not None:  # from now on: others that stand by must see at once that there is a run again
            self._pulse = Pulse(store or checkpoint.store, self._signs, lambda: self.lease.is_lost())
        try:
            self.kept: list[Manifest] = (self._mirror or checkpoint).history()
        except BaseException:
            self.release()
            raise

    @property
    def manifest(self) -> Manifest:
        """The last epoch that was committed; one with the number -1 before there is any."""
        return self.kept[-1] if self.kept else Manifest(NO_EPOCH, self.lease.generation)

    @property
    def durable(self) -> Manifest | None:
        """The last epoch whose state is durable; None before there is any."""
        return next((m for m in reversed(self.kept) if m.epoch in self.persister.whole), None)

    @property
    def in_background(self) -> bool:
        """Whether epochs are committed before their state is durable."""
        return self.persister.in_background

    # ── at the start ──────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, recover: Callable[[], None]) -> None:
        """Make whole what the last run left; `recover` rebuilds what is lost of it."""
        if self.kept:
            self._make_whole(recover)
        if self.tiers.shared_memory is not None:
            private.make(Path(self.tiers.shared_memory))
        private.sweep(self._parent, self.checkpoint.root, keep=self.tiers.shared_memory)
        if self._mirror is not None:
            keep = _needed(self.kept) | {d.file for d in self.manifest.outbox}
            attached = self._mirror.is_detached
            self.lease = self._mirror.begin(self.lease, self.kept, keep)
            if attached:
                self.kept = self._mirror.history()
        if self.checkpoint.remote is not None:
            self._relay = Relay(self.checkpoint.remote, self.checkpoint.root, lambda: self.lease)
        left = self.checkpoint.left(_needed(self.kept), self.manifest.epoch)
        self.check()  # after the listing: what a newer run writes is not in it, however late this is removed
        self.checkpoint.sweep(left)
        self._begun = True

    def folder_for_spark(self) -> Path:
        """Return a folder with Spark's records of what it has read; what Spark writes there from now on is kept with every epoch that takes a micro-batch."""
        if self._mirror is not None:
            self._mirror.bring_records()
        apart = self.checkpoint.cache is not None
        self.spark_records = SparkRecords(self.checkpoint.root, self.lease, apart=apart)
        for wait in (0.0, *stores.WAITS):
            if self._mirror is None or self.spark_records.fit(self.manifest):
                break
            time.sleep(wait)  # the folder has lost some, or a listing is out of date
            self._mirror.bring_records(again=True)
            self.spark_records = SparkRecords(self.checkpoint.root, self.lease, apart=apart)
        return self.spark_records.own

    def _make_whole(self, recover: Callable[[], None]) -> None:
        """Bring the state that the last run left in shared memory to the durable tiers."""
        if self.tiers.cache is not None:
            self._make_whole_there(recover)
            return
        own, log = self.tiers, self.manifest.log
        if log is not None:
            memory = private.left(log.shared_memory, self.checkpoint.root)
            self.tiers, left = replace(own, shared_memory=None), replace(own, shared_memory=memory)
            try:
                if lost(left, self.manifest):
                    recover()
                left.persist(self.manifest.segments())
            finally:
                self.tiers = own
            if memory is not None:
                private.remove_left(memory, self.checkpoint.root)
        elif own.backup is not None:
            own.persist(self.manifest.segments())
        durable = replace(own, shared_memory=None)
        self.persister.whole = {m.epoch for m in self.kept if all(durable.copies(s) for s in m.segments())}
        self.persister.whole.add(self.manifest.epoch)

    def _make_whole_there(self, recover: Callable[[], None]) -> None:
        """Bring all state of the last epoch to the store; what no remaining node has in its cache is rebuilt."""
        if lost(self.tiers, self.manifest):
            recover()
        self.tiers.persist(self.manifest.segments())
        assert self.tiers.backup is not None
        there = self.tiers.backup.files(STATE)
        self.persister.whole = {m.epoch for m in self.kept if all(s.file in there for s in m.segments())}
        self.persister.whole.add(self.manifest.epoch)

    # ── with every epoch ──────────────────────────────────────────────────────────────────────────────────────────

    def commit(self, manifest: Manifest) -> None:
        """Commit an epoch. Doing so again changes nothing."""
        if self.spark_records is not None and manifest.batch is not None and manifest.batch != self.manifest.batch:
            self._keep_records(self.spark_records, manifest.batch)
        try:
            self._flush_names(manifest)
        except FileNotFoundError:
            self.check()  # a run that took over has swept the files of an epoch that it did not know of
            raise
        data = self.lease.commit(manifest)
        if self._mirror is not None:
            self._copy(manifest, data)
        if manifest.epoch > self.manifest.epoch:
            self.kept.append(manifest)

    def _keep_records(self, records: SparkRecords, batch: int) -> None:
        """Keep what Spark says of a micro-batch before its epoch is committed; now and then, forget what Spark has forgotten."""
        new = records.keep(self.lease, batch)
        records.forget(batch, self.lease)
        if self._mirror is not None:
            self._mirror.keep_records(records.files, self.lease, new)
            self._mirror.forget_records(records.forgotten(self._mirror.records, batch), self.lease)

    @cached_property
    def lineage(self) -> Lineage:
        """Which checkpoint it is, and from which others it was made: that does not change during a run."""
        return self.checkpoint.lineage()

    @property
    def published(self) -> Published | None:
        """What sinks have of the last epoch, as far as the checkpoint knows; None: an older version wrote it."""
        return read_published(self.checkpoint.root)

    def remember(self, published: Published, *, durable: bool) -> None:
        """Remember what sinks have; until it is `durable`, it only saves them from getting rows twice."""
        try:
            if self._mirror is None and self.lease.is_lost():
                return  # a newer run knows better
            write_published(self.checkpoint.root, published, durable=durable)
            if durable and self._mirror is not None:
                self._mirror.put(PUBLISHED, self.lease)
        except OSError as error:
            self._note(f"what was published could not be recorded: {error}")

    def _flush_names(self, manifest: Manifest) -> None:
        """Make the names of an epoch's new files durable, in the place where the log is."""
        known = self.manifest.files() | self.manifest.buffers()
        files = manifest.files() if self.tiers.shared_memory is None else set()
        new = (files | manifest.buffers()) - known | {d.file for d in manifest.outbox}
        store = self.lease.log.store
        if store.local == self.checkpoint.root and self.checkpoint.found() is None:
            raise CheckpointError(
                str(self.checkpoint.root),
                "is gone: somebody removed its folder while the query ran",
                "put it back, or start with a new one; a backup (st.Durability(backup=…)) would have kept it",
            )
        store.flush_names(sorted(new))

    def _copy(self, manifest: Manifest, data: bytes) -> None:
        """Copy to the folder what its backup has. That only speeds up the next start: if it fails, the query continues."""
        assert self._mirror is not None
        try:
            again = self._mirror.copy(manifest, self.lease, data)
            if again:
                self.lease.release()
                self.lease.descriptor = self.checkpoint.lock()
                self._note(f"the checkpoint's folder was gone: it was restored from {self._mirror.url}")
        except OSError as error:
            self._note(f"the checkpoint's folder could not be written: {error}")

    def check(self) -> None:
        """Refuse to continue if another run has taken the checkpoint."""
        self.lease.check()

    def settle(self) -> None:
        """Take note that the sinks have the last epoch: make its state durable if it is time, and remove what is no longer used."""
        self.persister.committed(self.manifest)
        self._clean(self.kept[-2] if len(self.kept) > 1 else None)

    def _clean(self, before: Manifest | None) -> None:
        """Remove what no kept manifest names. What an epoch leaves behind is gone some epochs later.

        Records go before their files, and one epoch earlier: nobody must find a manifest without its files, not even after a power cut.
        """
        stay, go = kept_after(self.kept, self._retain, self.persister.whole)
        gone = self.leaving - self.persister.pinned
        self.leaving = (self.leaving - gone) | (_needed(go) - _needed(stay) if go else set())
        gone |= {d.file for d in before.outbox} if before is not None else set()
        gone |= self._left_by_attempts() if self.manifest.epoch % SWEPT == 0 else set()
        if self._mirror is not None and (found := self._mirror.found_segments()):
            gone |= found - _needed(self.kept) - self.persister.pinned - self.leaving  # a recovery may need some by now
        if self._mirror is None:  # else that is looked at where files are removed from the backup
            self.lease.check()
        records: list[str] = []
        with suppress(OSError):  # what cannot be removed now is found by the next start
            records = [slot.path for manifest in go for slot in self.lease.epochs.pop(manifest.epoch, ())]
            for record in records:
                (self.checkpoint.root / record).unlink(missing_ok=True)
            self.kept = stay
            self.persister.whole.intersection_update(m.epoch for m in stay)
            self._remove(gone)
        if before is not None:
            shutil.rmtree(self.checkpoint.root / outbox(before.epoch), ignore_errors=True)
        if self._mirror is not None:
            self._mirror.remove(self.lease, gone, records)

    def drop(self, files: set[str]) -> None:
        """Remove state that no manifest has named, and none will; what is left of it is found by the next start."""
        with suppress(OSError, CheckpointError):
            self.lease.check()
            self._remove(files)
            if self._mirror is not None:
                self._mirror.remove(self.lease, files)

    def _remove(self, files: set[str]) -> None:
        """Remove files from the tiers of this machine."""
        for file in files:
            self.tiers.remove(file)
        for folder in {Path(file).parent for file in files if file.startswith(f"{BUFFER}/")}:
            shutil.rmtree(self.checkpoint.root / folder, ignore_errors=True)

    def _leave(self) -> None:
        """Remove what waited for the next epoch: there will be none."""
        gone, self.leaving = self.leaving, set()
        with suppress(OSError, CheckpointError):  # the next start finds it
            self.lease.check()
            self.lease.log.store.flush_names([self.lease.slot.path])
            self._remove(gone)
            if self._mirror is not None:
                self._mirror.remove(self.lease, gone)

    def _left_by_attempts(self) -> set[str]:
        """Return segments of past epochs that no manifest names: from tasks that failed, or that Spark ran again.

        Those of the last epoch are left: a task that is late may still write one, and it is found next time.
        """
        known = _needed(self.kept) | self.persister.pinned
        if self._mirror is not None and self.tiers.cache is not None:
            self._mirror.look_for_segments(self.manifest.epoch)
        places = [Path(place) for place in (self.tiers.shared_memory, self.tiers.here) if place is not None]
        found = {
            path.relative_to(place).as_posix(): path for place in places for path in (place / STATE).glob(SEGMENTS)
        }
        return {f for f, path in found.items() if f not in known and epoch_of(path.name) < self.manifest.epoch}

    # ── when something is lost ────────────────────────────────────────────────────────────────────────────────────

    def has_lost(self, *, quickly: bool = False) -> bool:
        """Return whether state is lost; `quickly`: whether files are missing, without looking into those that exist."""
        if self.manifest.epoch < 0 or (quickly and self.tiers.cache is not None):
            return False  # files are on other nodes: tasks find out
        return bool(missing(self.tiers, self.manifest) if quickly else lost(self.tiers, self.manifest))

    def replace(self, manifest: Manifest) -> None:
        """Rewrite the last manifest: its state is in other files now."""
        self.persister.forget(manifest.epoch)
        self._flush_names(manifest)
        self.kept[-1] = self.lease.bring(manifest)
        if self._mirror is not None and self.lease.log is self._mirror.log:
            self._copy(self.kept[-1], self.kept[-1].encode())

    def make_durable(self, coming: Manifest | None = None) -> int:
        """Make the state of the last epoch, or of one that is about to be committed, durable before anything else happens; return the epoch."""
        manifest = coming or self.manifest
        if manifest.epoch >= 0:
            self.persister.checkpoint(manifest)
        return manifest.epoch

    def forget(self, epoch: int) -> None:
        """Take note that an epoch whose state may have been made durable does not happen: another one will have its number."""
        self.persister.forget(epoch)

    def close(self, *, stopped: bool = False) -> None:
        """Make the state durable, and release the checkpoint; `stopped`: no run that stands by should continue."""
        try:
            if self.in_background and self.manifest.epoch not in self.persister.whole:
                self.make_durable()
            self.tiers.clear_shared_memory()
        except SpringtideError as error:  # it is in shared memory, where the next start finds it
            self._note(str(error))
        if self.leaving:
            self._leave()
        if self.spark_records is not None:
            self._keep_last_records(self.spark_records)
        if self._relay is not None:
            self._relay.close()
        if self._mirror is not None:
            self._mirror.close(self.lease)
        self.release(stopped=stopped)

    def _keep_last_records(self, records: SparkRecords) -> None:
        """Keep Spark's own commit of the last micro-batch: without it, the next start has Spark begin that one again, and then skips it.

        A start that was refused keeps nothing: what is in the folder may be damaged, and in the backup whole.
        """
        if self._begun and self.manifest.batch is not None:
            with suppress(OSError, CheckpointError):
                self._keep_records(records, self.manifest.batch)
        records.close()

    def release(self, *, stopped: bool = False) -> None:
        """Release the checkpoint for another run."""
        if self._pulse is not None:
            self._pulse.close(stopped=stopped)
        self.lease.release()


def _needed(kept: Sequence[Manifest]) -> set[str]:
    """Return the segments and buffers that some manifest may still need."""
    return set().union(*(m.files() | m.buffers() for m in kept))
