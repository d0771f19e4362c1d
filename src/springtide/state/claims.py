"""Claims: the right of one run to write, and the writes that need it.

take → ( commit | bring | check )* → release
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass, field, replace

from springtide.query.ids import EpochNumber, Generation
from springtide.state.errors import CheckpointError
from springtide.state.log import CLAIMS, FIRST, Claim, Log, Records, Slot, is_claim
from springtide.state.manifest import Manifest


class Overtaken(CheckpointError):
    """Raised when a run that stood by was not the first to take over: another run has the checkpoint now."""


@dataclass(frozen=True)
class Sighting:
    """What a run that stands by has seen of a checkpoint whose run is gone: it takes over only if nothing has happened since."""

    made: bool
    """Whether there was a checkpoint at all."""
    last: Slot | None
    """The last record of its log."""

    def check(self, records: Records) -> None:
        """Refuse to take over if somebody has committed or claimed something meanwhile."""
        if not self.made or (records.last if records else None) != self.last:
            raise Overtaken(records.url, "was taken over by another run", "continue to stand by")


@dataclass
class Lease:
    """The right to write: this run's next slot in a log, for as long as nobody else has it."""

    log: Log
    generation: Generation
    slot: Slot
    token: str
    epochs: dict[int, list[Slot]] = field(default_factory=dict)
    """Where the manifests of the kept epochs are."""
    ends: dict[int, int] = field(default_factory=dict)
    """The last epoch of each earlier generation that has some left."""
    descriptor: int = -1
    """The lock of the folder on this machine."""

    @staticmethod
    def first(log: Log, token: str) -> Lease:
        """Return the lease of the run that created the checkpoint: nobody had it before."""
        return Lease(log, FIRST, Slot(EpochNumber(0), FIRST), token)

    def commit(self, manifest: Manifest) -> bytes:
        """Make the record of an epoch: after this it has happened. Doing so again changes nothing. A run that lost the checkpoint is refused."""
        slot, data = Slot(manifest.epoch, self.generation), manifest.encode()
        if not self.log.make(slot, data):
            raise self._refusal(slot)
        self.slot = Slot(EpochNumber(manifest.epoch + 1), self.generation)
        self._note(slot)
        return data

    def bring(self, manifest: Manifest) -> Manifest:
        """Replace the committed manifest of the last epoch, and return it as it is now.

        The run takes over from itself: that is refused if somebody else has.
        """
        while True:
            newer = Generation(self.generation + 1)
            claim = Claim.of(newer, self.token, replace(manifest, generation=newer))
            slot = self.slot
            made = self.log.make(slot, claim.encode())
            if not made and not self.is_own(slot):
                raise self._refusal(slot)
            self.generation, self.slot = newer, Slot(EpochNumber(manifest.epoch + 1), newer)
            if made:  # otherwise an earlier attempt had succeeded, with another version
                assert claim.manifest is not None
                self.settle(claim.manifest)
                return claim.manifest

    def settle(self, manifest: Manifest) -> None:
        """Give a manifest that came with a claim a record of its own, so that it can be forgotten like any other."""
        slot = Slot(manifest.epoch, manifest.generation)
        self.log.make(slot, manifest.encode())
        self._note(slot)

    def is_lost(self) -> bool:
        """Return whether somebody else has taken the checkpoint."""
        return self.log.has(self.slot)

    def check(self) -> None:
        """Refuse to continue if somebody else has taken the checkpoint."""
        if self.is_lost():
            raise self._refusal(self.slot)

    def release(self) -> None:
        """Let another run of this machine in."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _note(self, slot: Slot) -> None:
        kept = self.epochs.setdefault(slot.epoch, [])
        if slot not in kept:
            kept.append(slot)

    def is_own(self, slot: Slot) -> bool:
        """Return whether a slot has a claim of this run: it was made, though it seemed to have failed."""
        data = self.log.get(slot)
        return data is not None and is_claim(data) and Claim.decode(data).token == self.token

    def _refusal(self, slot: Slot) -> CheckpointError:
        data = self.log.get(slot)
        if data is not None and not is_claim(data):
            return CheckpointError(
                self.log.store.url,
                f"already has a manifest of epoch {slot.epoch}",
                "another run wrote it: start again",
            )
        by = f" ({Claim.decode(data).by})" if data is not None else ""
        return CheckpointError(
            self.log.store.url,
            f"was taken over by a newer run{by}",
            "this run is stale: start it again if it is the one you want",
        )


def new_token() -> str:
    """Make up a token that distinguishes a run from all others."""
    return uuid.uuid4().hex


def take(log: Log, records: Records, token: str) -> Lease | None:
    """Take over a checkpoint whose log was read; None if something has happened since: then it must be read again.

    If that is long ago, the slot may have been taken and forgotten. A claim that was made there says nothing, and stays.
    """
    slot, generation = records.next()
    wanted = [slot, *records.last_claims()]
    if wrong := next((s for s in records.data if any(s.is_beyond(claimed) for claimed in wanted)), None):
        raise CheckpointError(
            records.url,
            f"has a record {wrong.name} of a run that had lost it before",
            "restore the folder of manifests from a copy, or start with a new checkpoint",
        )
    claim = Claim.of(generation, token)
    if log.went_on(wanted) or not log.make(slot, claim.encode()) or log.went_on(wanted):
        return None
    return held(log, records, Lease(log, generation, Slot(slot.epoch, generation), token))


def attach(log: Log, records: Records, lease: Lease, manifest: Manifest | None) -> Lease | None:
    """Let a log continue from a manifest that it does not have; None if something has happened in it since it was read."""
    slot, generation = records.next()
    generation = max(generation, lease.generation)
    brought = replace(manifest, generation=generation) if manifest is not None else None
    taken = Lease(log, generation, slot, lease.token)
    if not log.make(slot, Claim.of(generation, lease.token, brought).encode()) and not taken.is_own(slot):
        return None
    if log.went_on([slot, *records.last_claims()]):
        return None
    epoch = EpochNumber(brought.epoch + 1) if brought is not None else slot.epoch
    taken.slot = Slot(epoch, generation)
    held(log, records, taken)
    if brought is not None:
        taken.settle(brought)
    return taken


def held(log: Log, records: Records, lease: Lease) -> Lease:
    """Note which epochs there are; forget claims that are too old to matter."""
    for slot, data in records.data.items():
        if not is_claim(data):
            lease.epochs.setdefault(slot.epoch, []).append(slot)
            lease.ends[slot.generation] = max(slot.epoch, lease.ends.get(slot.generation, -1))
    brought = records.brought()
    if brought is not None:
        lease.settle(brought)
    claims = records.claims()
    if old := claims[:-CLAIMS]:
        log.forget_claims(old, {slot.generation for slot in claims[-CLAIMS:]})
    return lease
