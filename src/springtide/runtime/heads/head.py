"""What all stateful heads have in common: what they are sent, what they are given, what they give, and how their state is kept.

    sender:    tuples ── send ──→ rows with buckets ──→ blobs
    receiver:  blobs ──→ arrived, a frame per side ──┐
               segments ── shelf ──→ old state ──────┴─ run ──→ rows out · new state by kind · marks

State is a log: an epoch adds segments and changes none. What is in them falls out of use in one of three ways (`Kind`): its slot has
passed, a newer version of its key was written, or the whole kind was written anew.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from springtide.compiler.plan import Exchange
from springtide.kernels.hashing import BUCKET, HASH
from springtide.kernels.routing import Turn
from springtide.query.types import END_OF_TIME, TS
from springtide.runtime.epoch import Epoch
from springtide.state.manifest import BucketMap, Marks, SubqueryState
from springtide.state.segment import Segment, file_of, read_segment, write_segment

FIRST_SLOT = -(2**63)

TIME_MARK = "time"
"""The mark of most heads: the time up to which they have come."""

VERSION = "__version"
"""The epoch that wrote a row, where the newest version of a key counts."""
ALIVE = "__alive"
"""Whether there is anything of the key in this version; a column of kinds whose keys can be gone."""


@dataclass(frozen=True)
class Clock:
    """Where time stands at a head in an epoch. All instances see the same."""

    time: int
    """The merged time of all that it takes."""
    sides: tuple[int, ...]
    """The merged time of each input."""
    greatest: int
    """The greatest time that a tuple or a dummy had at any source behind it."""


@dataclass(frozen=True)
class Kind:
    """A kind of state rows of a head."""

    slot: str | None = None
    """The column with the time slot (an integer or a time): a segment goes when all its slots are older than `Head.oldest` says."""
    fold: Callable[[pl.DataFrame], pl.DataFrame] | None = None
    """Makes fewer rows of those of several segments when these are merged."""
    whole: bool = False
    """What is written replaces all that there was."""
    versions: bool = False
    """Rows are versions of keys (`heads/keyed.py`). Segments of any size are merged; rows that are not alive go when nothing older is left."""


@dataclass(frozen=True)
class HeadResult:
    """What a head gives, and what it puts into state."""

    rows: pl.DataFrame | Iterable[pl.DataFrame]
    """In one piece, or in several (at least one) when all might be too much for memory: then `writes` may be filled up to the last piece."""
    marks: Marks = field(default_factory=dict)
    """How far it has come; the same in all instances."""
    writes: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    """Kind → new state rows, with `__bucket`. A `whole` kind that is named is replaced, also by nothing."""
    rejected: pl.DataFrame | None = None
    """Rows for the head's side output."""

    @property
    def pieces(self) -> Iterable[pl.DataFrame]:
        """The rows, piece by piece."""
        return [self.rows] if isinstance(self.rows, pl.DataFrame) else self.rows


class Head(ABC):
    """One stateful step at work. It keeps nothing between epochs: what it remembers is in its state."""

    kinds: Mapping[str, Kind]

    windowed: bool = False
    """Its windows can be shared out between two owners: see `within`, `last_begun` and `beginning` (window recreation, SC-9)."""

    def within(self, windows: tuple[int | None, int | None]) -> pl.Expr:
        """Say which of the rows that are sent are needed for windows from the first to the last; None is without bound."""
        raise NotImplementedError

    def beginning(self, first: int) -> Marks:
        """Give the marks of a new owner whose first window this is."""
        raise NotImplementedError

    def last_begun(self, state: SubqueryState) -> int | None:
        """Give the last window that has anything in state."""
        raise NotImplementedError

    def adapted(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Give rows of state as they are written now; an older version may have written them otherwise."""
        return rows

    @abstractmethod
    def send(self, exchange: Exchange, tuples: pl.LazyFrame, turn: Turn) -> pl.LazyFrame:
        """Make the rows that go over an exchange to this head, with their buckets; `turn` numbers them, where they are dealt out in turn."""

    @abstractmethod
    def run(self, shelf: Shelf, arrived: Sequence[pl.DataFrame | None], clock: Clock) -> HeadResult:
        """Take what arrived at each side in this epoch, and the time it brought."""

    def expired(self, marks: Marks, arrived: Sequence[pl.DataFrame | None]) -> int:
        """Count the rows that came after their time: the head had come past it, as its marks from before say. There must be none."""
        time = marks.get(TIME_MARK)
        return 0 if time is None else sum(earlier(frame, TS, time) for frame in arrived)

    @abstractmethod
    def oldest(self, marks: Marks) -> Mapping[str, int]:
        """Give the first slot of each kind that is still needed once the head has come so far; kinds not named are needed."""


def earlier(rows: pl.DataFrame | None, column: str, than: int) -> int:
    """Count the rows with a value below another one, in a column of times or integers."""
    if rows is None or column not in rows.columns:
        return 0
    values = rows[column].to_physical()
    least = values.min()
    return int((values < than).sum()) if isinstance(least, int) and least < than else 0


@dataclass(frozen=True)
class Shelf:
    """The state of one instance: reads what it owns, writes new segments."""

    epoch: Epoch
    subquery: str
    instance: int
    adapted: Callable[[pl.DataFrame], pl.DataFrame] = lambda rows: rows
    """`Head.adapted` of the head whose state it is."""

    @property
    def map(self) -> BucketMap:
        """The bucket map in force."""
        return self.epoch.maps[self.subquery]

    @property
    def state(self) -> SubqueryState:
        """What the last manifest says."""
        return self.epoch.state.get(self.subquery, SubqueryState())

    @property
    def last_window(self) -> int | None:
        """The last window that is this owner's business, if it is an old owner."""
        return self.epoch.windows.get(self.subquery, (None, None))[1]

    @property
    def marks(self) -> Marks:
        """How far the head had come before this epoch."""
        return self.state.marks

    def read(
        self, kind: str, low: int = FIRST_SLOT, high: int = END_OF_TIME + 1, *, buckets: Sequence[int] | None = None
    ) -> list[pl.DataFrame]:
        """Map this instance's rows of a kind from the segments that reach into slots `low` ≤ … < `high`.

        Slots are not filtered by row. With `buckets`, rows of these buckets whoever owns them.
        """
        chosen = [s for s in self.state.segments if s.kind == kind and s.low < high and s.high >= low]
        return self._mapped(chosen, buckets)

    def lookup(
        self, kind: str, hashes: np.ndarray, low: int = FIRST_SLOT, high: int = END_OF_TIME + 1
    ) -> list[pl.DataFrame]:
        """Give the rows of a kind whose `__hash` is among `hashes` (sorted, each once). Segments of such a kind are sorted by it.

        Segments without slots `low` ≤ … < `high` are passed over.
        """
        found = []
        for frame in self.read(kind, low, high):
            column = frame[HASH].to_numpy()
            if hashes.size * 8 < column.size:
                starts, ends = np.searchsorted(column, hashes), np.searchsorted(column, hashes, side="right")
                found.append(frame[_ranges(starts, ends)])
            else:
                place = np.minimum(np.searchsorted(hashes, column), max(hashes.size - 1, 0))
                found.append(frame.filter(pl.Series(hashes[place] == column)) if hashes.size else frame.clear())
        return [f for f in found if f.height]

    def to_merge(self, kind: str) -> list[pl.DataFrame]:
        """Map this instance's rows of the segments that are to be written anew as one."""
        files = self.epoch.compact.get(self.subquery, {}).get(self.instance, ())
        return self._mapped([s for s in self.state.segments if s.kind == kind and s.file in files], None)

    def oldest_elsewhere(self, kind: str) -> int:
        """Give the first slot in segments that can have rows of this instance and are not written anew."""
        files, version = self.epoch.compact.get(self.subquery, {}).get(self.instance, ()), self.map.version
        return min(
            (
                s.low
                for s in self.state.segments
                if s.kind == kind and s.file not in files and (s.version != version or s.instance == self.instance)
            ),
            default=END_OF_TIME,
        )

    def write(self, kind: str, rows: pl.DataFrame, slot: str | None) -> tuple[Segment, ...]:
        """Write rows as a segment; nothing for no rows."""
        if not rows.height:
            return ()
        file = file_of(self.subquery, self.epoch.number, self.instance, kind, uuid.uuid4().hex[:8])
        tiers = self.epoch.tiers
        ordered = rows.sort(HASH) if HASH in rows.columns else rows
        written = write_segment(tiers.place(file), ordered, BUCKET, through=tiers.memory is None)
        slots = rows[slot].to_physical() if slot else None
        low, high = (slots.min(), slots.max()) if slots is not None else (FIRST_SLOT, END_OF_TIME)
        assert isinstance(low, int)
        assert isinstance(high, int)
        number, version = self.epoch.number, self.map.version
        size, crc = written
        segment = Segment(file, kind, number, self.instance, version, rows.height, size, low, high, crc)
        tiers.keep(segment)
        return (segment,)

    def _mapped(self, segments: Sequence[Segment], buckets: Sequence[int] | None) -> list[pl.DataFrame]:
        found, own = [], buckets
        for segment in segments:
            if buckets is None and segment.version == self.map.version:
                if segment.instance == self.instance:
                    found.append(read_segment(self.epoch.tiers.find(segment)))
            else:
                own = self.map.buckets_of(self.instance) if own is None else own
                if self._may_have(segment, own):
                    found.append(read_segment(self.epoch.tiers.find(segment), own))
        return [self.adapted(f) for f in found if f.height]

    def _may_have(self, segment: Segment, buckets: Sequence[int]) -> bool:
        """Tell whether there can be rows of some buckets in a segment: whoever wrote it owned one of them, if anybody knows."""
        written_under = self.epoch.former.get(self.subquery, {}).get(segment.version)
        return written_under is None or any(written_under.owners[b] == segment.instance for b in buckets)


def keep(head: Head, shelf: Shelf, result: HeadResult) -> tuple[Segment, ...]:
    """Write the new state of an instance; segments that are to be merged are written with it."""
    oldest = head.oldest(result.marks)
    segments: tuple[Segment, ...] = ()
    for name, kind in head.kinds.items():
        parts = [result.writes[name]] if name in result.writes else []
        first = oldest.get(name, FIRST_SLOT)
        replaced = kind.whole and name in result.writes
        if not replaced and first <= END_OF_TIME and (old := shelf.to_merge(name)):
            if kind.slot is not None and first != FIRST_SLOT:
                slot = kind.slot
                old = [f.filter(f[slot].to_physical() >= first) for f in old]
            parts = [p for p in (*old, *parts) if p.height]
            if parts:
                merged = pl.concat([p.select(parts[0].columns) for p in parts])
                merged = merged if kind.fold is None else kind.fold(merged)
                if kind.versions and ALIVE in merged.columns:
                    merged = merged.filter(pl.col(ALIVE) | (pl.col(VERSION) > shelf.oldest_elsewhere(name)))
                parts = [merged]
        for part in parts:
            segments += shelf.write(name, part, kind.slot)
    return segments


def _ranges(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Give the numbers of all ranges `start ≤ … < end`, one range after the other."""
    lengths = ends - starts
    offsets = np.repeat(starts - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths) if lengths.size else lengths
    return offsets + np.arange(lengths.sum())
