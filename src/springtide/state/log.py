"""The log of a checkpoint: what happened, in order. A record is made once, by whichever run is first.

    000000006      epoch 6, committed by the first run
    000000007      the claim of run 2: the first run can neither commit epoch 7 nor anything else
    000000007.2    epoch 7, committed by run 2
    000000008.2    the claim of run 3

A run has one next slot: the next epoch under its own generation. Its commit and the claim of a run that takes over are both made there, each only
if the slot is empty. So one of them comes first, and the other finds out: a run that lost the checkpoint cannot commit, however late it wakes
up, and a run that takes over knows every epoch that was committed before. (`docs/decisions/0007-claims.md`)

A run forgets old records, and leaves their slots empty. Whoever read the log long ago may make a claim in such a slot, which fences nobody off: so whoever has made
one looks whether records have come after it. In an object store, whose listings may be out of date, a note says so: it is made before a record is removed.

    forgotten.2    the run of generation 2 has forgotten records of its own, up to this epoch
    ended.1        the last epoch of generation 1: a later run forgets its records

A claim may bring the last epoch's manifest in a new version: the run rebuilt lost state, or came with epochs that the store did not have.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from springtide.query.ids import NO_EPOCH, EpochNumber, Generation
from springtide.state.errors import CheckpointError
from springtide.state.manifest import Manifest
from springtide.state.names import MANIFESTS, ended, forgotten, manifest
from springtide.state.parsing import NewerFormat, content, is_for_good, parsed
from springtide.state.stores import Store

FIRST = Generation(1)
"""The generation of a checkpoint's first run: the one that made `springtide.json`."""
CLAIMS = 1000
"""How many claims are kept: a run that slept while more runs than that had its checkpoint would not be refused."""
NEWER = "use a newer version of Springtide"
_FORMAT = 1
_CLAIM = b'{"claim":'
"""How a claim begins; no manifest does."""
_AT_ONCE = 8


class Slot(NamedTuple):
    """The place of a record: what the run of a generation did about an epoch, or who took over instead."""

    epoch: EpochNumber
    generation: Generation

    @property
    def name(self) -> str:
        """Its name in the folder of manifests."""
        return self.path.rpartition("/")[2]

    @property
    def path(self) -> str:
        """Its path in the checkpoint.

        >>> Slot(7, 2).path
        'manifests/000000007.2'
        """
        return manifest(self.epoch, self.generation)

    def is_beyond(self, claimed: Slot) -> bool:
        """Return whether a run must have passed a slot to make a record here: nobody could, once the slot had been claimed."""
        return self.epoch > claimed.epoch and self.generation <= claimed.generation

    @staticmethod
    def of(name: str) -> Slot | None:
        """Parse a name; None if it is not that of a slot."""
        found = re.fullmatch(r"([0-9]{9,18})(?:\.([1-9][0-9]{0,17}))?", name)
        return Slot(EpochNumber(int(found[1])), Generation(int(found[2] or FIRST))) if found else None


@dataclass(frozen=True)
class Claim:
    """A run took the checkpoint."""

    generation: Generation
    token: str
    """Distinguishes the run from all others."""
    by: str
    at: float
    manifest: Manifest | None = None
    """The last epoch as the run left it, if that is not what was committed."""

    @staticmethod
    def of(generation: Generation, token: str, manifest: Manifest | None = None) -> Claim:
        """Claim for this process."""
        return Claim(generation, token, f"process {os.getpid()} on {socket.gethostname()}", time.time(), manifest)

    def encode(self) -> bytes:
        """Write it as JSON."""
        claim = {"generation": self.generation, "token": self.token, "by": self.by, "at": self.at}
        manifest = self.manifest.encode().decode() if self.manifest is not None else None
        body = {"claim": claim, "format": _FORMAT, "manifest": manifest}
        return json.dumps(body, separators=(",", ":"), sort_keys=True).encode()

    @staticmethod
    def decode(data: bytes) -> Claim:
        """Read what `encode` wrote."""
        body = parsed(data)
        if body["format"] != _FORMAT:
            raise NewerFormat(f"has format {body['format']}, but this version of Springtide reads {_FORMAT}")
        manifest = body["manifest"]
        return Claim(**body["claim"], manifest=None if manifest is None else Manifest.decode(manifest.encode()))


Record = Manifest | Claim


def is_claim(data: bytes) -> bool:
    """Return whether a record is a claim, and not a manifest."""
    return data.startswith(_CLAIM)


@dataclass(frozen=True)
class Records:
    """A log as it was read."""

    data: Mapping[Slot, bytes]
    """In order."""
    url: str

    def __bool__(self) -> bool:
        return bool(self.data)

    @property
    def last(self) -> Slot:
        """The slot of the last record."""
        return max(self.data)

    def record(self, slot: Slot) -> Record:
        """Parse a record."""
        data = self.data[slot]
        what = "claim" if is_claim(data) else "manifest"
        try:
            if is_claim(data):
                return Claim.decode(data)
            manifest = Manifest.decode(data)
            if manifest.epoch != slot.epoch:
                raise ValueError(f"it is of epoch {manifest.epoch}")
            return manifest
        except NewerFormat as error:
            raise CheckpointError(
                self.url, f"cannot be read: the {what} of epoch {slot.epoch} {error}", NEWER
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                self.url,
                f"cannot be read: the {what} of epoch {slot.epoch} is damaged ({error})",
                "restore that file, or start with a new checkpoint",
            ) from None

    def whole(self) -> Records:
        """Leave out incomplete records."""
        return Records({slot: data for slot, data in self.data.items() if not _is_torn(data)}, self.url)

    def with_more(self, others: Records) -> Records:
        """Return the records of both: the listing that found the others may be stale."""
        return Records(dict(sorted({**self.data, **others.data}.items())), self.url)

    def claims(self) -> list[Slot]:
        """Return the slots with claims, oldest first."""
        return [slot for slot, data in self.data.items() if is_claim(data)]

    def last_claims(self) -> list[Slot]:
        """Return the slots of the claims that no epoch has followed."""
        last = max((slot for slot, data in self.data.items() if not is_claim(data)), default=Slot(NO_EPOCH, FIRST))
        return [slot for slot in self.claims() if slot > last]

    def tokens(self) -> list[str]:
        """Return the tokens of the runs that took over, oldest first."""
        found = (self.record(slot) for slot in self.claims())
        return [claim.token for claim in found if isinstance(claim, Claim)]

    def epochs(self) -> list[int]:
        """Return the epochs that are kept."""
        brought = self.brought()
        found = {slot.epoch for slot, data in self.data.items() if not is_claim(data)}
        return sorted(found | {brought.epoch} if brought is not None else found)

    def manifests(self) -> list[Manifest]:
        """Return the epochs that are kept, oldest first, each in its last version."""
        found = {slot.epoch: slot for slot, data in self.data.items() if not is_claim(data)}
        manifests = {epoch: self.record(slot) for epoch, slot in found.items()}
        brought = self.brought()
        if brought is not None:
            manifests[brought.epoch] = brought
        return [m for _, m in sorted(manifests.items()) if isinstance(m, Manifest)]

    def brought(self) -> Manifest | None:
        """Return the manifest that came with a claim, if no epoch was committed since."""
        for slot in sorted(self.data, reverse=True):
            if not is_claim(self.data[slot]):
                return None
            record = self.record(slot)
            if isinstance(record, Claim) and record.manifest is not None:
                return record.manifest
        return None

    def next(self) -> tuple[Slot, Generation]:
        """Return the slot for the claim of a run that takes over now, and its generation."""
        if not self.data:
            return Slot(EpochNumber(0), FIRST), Generation(FIRST + 1)
        slot, record = self.last, self.record(self.last)
        if isinstance(record, Manifest):
            newer = Generation(max(slot.generation, record.generation) + 1)
            return Slot(EpochNumber(slot.epoch + 1), slot.generation), newer
        epoch = slot.epoch if record.manifest is None else EpochNumber(record.manifest.epoch + 1)
        return Slot(epoch, record.generation), Generation(record.generation + 1)


def _is_torn(data: bytes) -> bool:
    try:
        parsed(data)
    except ValueError:
        return True
    return False


class Log:
    """The log in a store."""

    def __init__(self, store: Store) -> None:
        """Name the store; nothing is touched yet."""
        self.store = store
        self._noted: dict[str, int] = {}
        """Notes that were made, with the epoch in each."""

    def slots(self) -> list[Slot]:
        """Return the slots that are taken, in order."""
        if self.store.local is not None:  # a folder is not a file, but it takes the name
            folder = self.store.local / MANIFESTS
            names = os.listdir(folder) if folder.is_dir() else []
        else:
            names = [path.rpartition("/")[2] for path in self.store.list(MANIFESTS)]
        return sorted(slot for name in names if (slot := Slot.of(name)) is not None)

    def read(self, known: Mapping[Slot, bytes] | None = None) -> Records:
        """Read all records except those that disappear meanwhile; slots that are `known` to be the same are not fetched."""
        slots = self.slots()
        known = known or {}
        wanted = [slot for slot in slots if slot not in known]
        if self.store.local is not None or len(wanted) < 2:
            found = {slot: self.get(slot) for slot in wanted}
        else:
            with ThreadPoolExecutor(_AT_ONCE, "springtide-log") as pool:
                found = dict(zip(wanted, pool.map(self.get, wanted), strict=True))
        found |= {slot: known[slot] for slot in slots if slot in known}
        return Records({slot: data for slot in slots if (data := found[slot]) is not None}, self.store.url)

    def tail(self) -> Records:
        """Read the last records, as many as tell the newest epoch."""
        found: dict[Slot, bytes] = {}
        for slot in reversed(self.slots()):
            data = self.get(slot)
            if data is not None:
                found[slot] = data
                if not is_claim(data) or Claim.decode(data).manifest is not None:
                    break
        return Records(dict(sorted(found.items())), self.store.url)

    def of_epoch(self, epoch: int) -> Records:
        """Read the record of one epoch, and who claimed it."""
        read = {slot: self.get(slot) for slot in self.slots() if slot.epoch == epoch}
        return Records({slot: data for slot, data in read.items() if data is not None}, self.store.url)

    def get(self, slot: Slot) -> bytes | None:
        """Read one record; None if there is none."""
        try:
            return self.store.read(slot.path) if self.store.local is None else content(self.store.local / slot.path)
        except FileNotFoundError:
            return None
        except (ValueError, OSError) as error:
            if isinstance(error, OSError) and not is_for_good(error):
                raise
            return b""  # anything that is not our file counts as damaged

    def make(self, slot: Slot, data: bytes) -> bool:
        """Make a record; False if the slot has another."""
        return self.store.create(slot.path, data)

    def has(self, slot: Slot) -> bool:
        """Return whether a slot is taken."""
        return self.store.exists(slot.path)

    def went_on(self, slots: Sequence[Slot]) -> bool:
        """Return whether the run that one of these slots was the next of has made a record in it, and later ones: it was empty because that was forgotten."""
        if any(s.is_beyond(slot) for s in self.slots() for slot in slots):
            return True
        if self.store.local is not None:
            return False
        names = {name(slot.generation): slot.epoch for slot in slots for name in (forgotten, ended)}
        with ThreadPoolExecutor(_AT_ONCE, "springtide-log") as pool:
            return any(noted >= epoch for noted, epoch in zip(pool.map(self._note, names), names.values(), strict=True))

    def note_forgotten(self, slots: Iterable[Slot], ends: Mapping[int, int]) -> None:
        """Note that records will be forgotten. `ends` has the last epoch of each generation before this run's own.

        Only the run of a generation makes the one note, and only later runs the other: so nobody who wakes up late replaces a note by an older one.
        """
        if self.store.local is not None:
            return  # its listings are up to date
        last: dict[str, int] = {}
        for slot in slots:
            name = ended(slot.generation) if slot.generation in ends else forgotten(slot.generation)
            last[name] = max(last.get(name, -1), slot.epoch, ends.get(slot.generation, -1))
        for name, epoch in last.items():
            if name not in self._noted:
                self._noted[name] = self._note(name)
            if self._noted[name] < epoch:
                self.store.write(name, b"%d" % epoch)
                self._noted[name] = epoch

    def _note(self, name: str) -> int:
        try:
            return int(self.store.read(name))
        except (FileNotFoundError, ValueError):
            return -1

    def forget_epoch(self, epoch: int) -> None:
        """Remove the manifest of an old epoch; claims stay."""
        records = self.of_epoch(epoch)
        slots = [slot for slot, data in records.data.items() if not is_claim(data)]
        self.note_forgotten(slots, {})
        self.forget(slots)

    def forget_claims(self, slots: Sequence[Slot], needed: Container[int]) -> None:
        """Remove old claims, and what was noted of their generations, except of those that are still `needed`."""
        self.forget(slots)
        if self.store.local is None:
            gone = [slot.generation for slot in slots if slot.generation not in needed]
            self.store.delete(*(name(generation) for generation in gone for name in (forgotten, ended)))

    def forget(self, slots: Iterable[Slot]) -> None:
        """Remove old records."""
        for slot in slots:
            self.store.delete(slot.path)
