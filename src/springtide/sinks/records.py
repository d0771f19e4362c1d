"""The ledger of a sink in an object store: a log of small files next to the rows, each made by a conditional create.

    _springtide/000000017.json    whose the place is, the last epoch, the files that came with this record, those that are held back

One record comes after the other: a run has one next number, and a run that takes over takes that number first, so that the older one can no longer record anything.
Old records are removed, except those that a run began with: each of them keeps the run before it out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from springtide.connectors import Entry, LostError, Owner, Store
from springtide.query.errors import SinkError

FOLDER = "_springtide"
_KEPT = 100
"""How many records are kept: a listing may lag by this many."""
_CLAIMS = 1000


@dataclass(frozen=True)
class Record(Entry):
    """What one record says."""

    files: tuple[str, ...] = ()
    """Files that readers see from this record on. All files that older records name were there before it was made; some of these may still be on their way."""
    held: tuple[str, ...] = ()
    """Files that were published and are held back."""
    held_bytes: int = 0
    since: float = 0.0
    """When the first of them came."""
    made_of: tuple[str, ...] = ()
    """Files that were held back, and from which `files` were made."""
    claims: tuple[int, ...] = ()
    """The records that runs began with."""
    free: bool = False
    """Whether the place belongs to nobody: a run ended without having written a row."""

    @staticmethod
    def begun(owner: Owner, before: Record | None, number: int) -> Record:
        """Return the record of a run that claims a place: what is there stays."""
        claims = (*(before.claims if before is not None else ()), number)[-_CLAIMS:]
        own = Record(owner.query, owner.name, owner.lineage.id, owner.generation, claims=claims)
        if before is None:
            return replace(own, epoch=owner.last[0], commit=owner.last[1])  # somebody removed what was published
        if before.free:
            return own
        kept = {k: getattr(before, k) for k in ("epoch", "commit", "files", "held", "held_bytes", "since", "made_of")}
        return replace(own, **kept)

    def is_told(self, owner: Owner) -> bool:
        """Tell whether it counts for a run: a record that frees the place still tells its own run that nothing was written."""
        return not self.free or (self.checkpoint == owner.lineage.id and self.sink == owner.name)

    def encode(self) -> bytes:
        """Return it as JSON."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @staticmethod
    def decode(data: bytes) -> Record:
        """Read what `encode` returned; a ValueError if it is something else."""
        try:
            said: Mapping[str, Any] = json.loads(data)
            lists = {k: tuple(said.get(k, ())) for k in ("files", "held", "made_of", "claims")}
            known = {k: v for k, v in said.items() if k in Record.__dataclass_fields__}
            return Record(**(known | lists))
        except (TypeError, AttributeError) as error:
            raise ValueError(f"it is not a record: {error}") from None

    def __str__(self) -> str:
        """Say whose it is."""
        return super().__str__()


class Records:
    """The ledger of a place, as one run has it open."""

    def __init__(self, store: Store, step: str) -> None:
        """Name it; nothing is touched yet."""
        self._store, self._step = store, step
        self.number, self.newest = -1, self._read(-1)
        self._there: set[int] = set()

    def look(self) -> Record | None:
        """Find the newest record; None if there is none."""
        self._there = self._numbers()
        self.number = max(self._there, default=-1)
        while self._read(self.number + 1) is not None:  # the listing was stale
            self.number += 1
        self.newest = self._read(self.number)
        return self.newest

    def claim(self, owner: Owner) -> bool:
        """Take the place for a run, after the record that was found; False: another run was faster, perhaps so long ago that its record there was removed."""
        if (
            not self._create(Record.begun(owner, self.newest, self.number + 1))
            or max(self._numbers(), default=-1) > self.number
        ):
            return False
        self._forget(self._there)
        return True

    def add(self, record: Record) -> None:
        """Make the next record; a run that lost the place to another is refused."""
        if not self._create(record):
            raise self._taken_over()
        if self.number % 10 == 0:
            self._forget(set(range(self.number - _KEPT - 10, self.number - _KEPT)))

    def is_taken(self) -> bool:
        """Tell whether another run has taken the place."""
        return self._store.exists(_path(self.number + 1))

    def check(self) -> None:
        """Refuse a run that has lost the place to another."""
        if self.is_taken():
            raise self._taken_over()

    def _taken_over(self) -> SinkError:
        other = self._read(self.number + 1)
        return SinkError(
            self._step,
            f"{self._store.url} was taken over by {other if other is not None else 'another run'}",
            "this run is stale; the rows of its last epoch were not written",
        )

    @property
    def current(self) -> Record:
        """The record that counts: a run has one as soon as it has claimed the place."""
        assert self.newest is not None
        return self.newest

    def _numbers(self) -> set[int]:
        return {n for n in map(_number, self._store.list(FOLDER)) if n is not None}

    def _create(self, record: Record) -> bool:
        if not self._store.create(_path(self.number + 1), record.encode()):
            return False
        self.number, self.newest = self.number + 1, record
        return True

    def _read(self, number: int) -> Record | None:
        if number < 0:
            return None
        try:
            return Record.decode(self._store.read(_path(number)))
        except FileNotFoundError:
            return None
        except ValueError as error:
            hint = "restore it from a copy, or give this sink another place"
            raise LostError(self._store.url, f"has a damaged record {_path(number)}: {error}", hint) from None

    def _forget(self, numbers: set[int]) -> None:
        old = sorted(n for n in numbers - set(self.current.claims) if 0 <= n < self.number - _KEPT)
        self._store.delete(*map(_path, old))


def _path(number: int) -> str:
    return f"{FOLDER}/{number:09d}.json"


def _number(path: str) -> int | None:
    name = path.removeprefix(f"{FOLDER}/").removesuffix(".json")
    return int(name) if name.isdigit() else None
