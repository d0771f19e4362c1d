"""The state of one instance, as its operator sees it: the rows of the buckets that it owns, regardless of who wrote them, and new segments."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import polars as pl

from springtide.exchange.hashing import BUCKET, HASH
from springtide.operators.tables import FIRST_SLOT
from springtide.query.ids import EpochNumber, InstanceId
from springtide.query.types import END_OF_TIME
from springtide.state import names
from springtide.state.bucket_map import BucketMap
from springtide.state.manifest import Marks, SubqueryState
from springtide.state.segment import Segment, read_segment, write_segment
from springtide.state.tiers import Tiers
from springtide.state.traffic import count


class EpochState(Protocol):
    """What an operator needs to know about an epoch to read and write state."""

    @property
    def number(self) -> EpochNumber:
        """The epoch's number."""

    @property
    def tiers(self) -> Tiers:
        """Where the checkpoint's files are."""

    @property
    def maps(self) -> Mapping[str, BucketMap]:
        """Subquery → the bucket map in force."""

    @property
    def state(self) -> Mapping[str, SubqueryState]:
        """Subquery → what the last manifest says."""

    @property
    def compact(self) -> Mapping[str, Mapping[InstanceId, tuple[str, ...]]]:
        """Subquery → instance → segments (files) to rewrite as one."""

    @property
    def windows(self) -> Mapping[str, tuple[int | None, int | None]]:
        """Subquery → the first and the last window that it is responsible for, while another owner has the rest."""

    @property
    def former(self) -> Mapping[str, Mapping[int, BucketMap]]:
        """Subquery → version → an older bucket map under which segments were written."""


@dataclass(frozen=True)
class StateView:
    """The state of one instance: reads what it owns, writes new segments."""

    epoch: EpochState
    subquery: str
    instance: InstanceId
    adapted: Callable[[pl.DataFrame], pl.DataFrame] = lambda rows: rows
    """`Operator.adapted` of the operator that this state belongs to."""

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
        """The last window that this owner is responsible for, if it is an old owner."""
        return self.epoch.windows.get(self.subquery, (None, None))[1]

    @property
    def marks(self) -> Marks:
        """How far the operator had come before this epoch."""
        return self.state.marks

    def read(
        self, table: str, low: int = FIRST_SLOT, high: int = END_OF_TIME + 1, *, buckets: Sequence[int] | None = None
    ) -> list[pl.DataFrame]:
        """Map this instance's rows of a table from the segments that overlap the slots `low` ≤ … < `high`.

        Rows are not filtered by slot. With `buckets`, return the rows of these buckets, regardless of who owns them.
        """
        chosen = [s for s in self.state.segments if s.kind == table and s.low < high and s.high >= low]
        return self._mapped(chosen, buckets)

    def lookup(
        self, table: str, hashes: np.ndarray, low: int = FIRST_SLOT, high: int = END_OF_TIME + 1
    ) -> list[pl.DataFrame]:
        """Return the rows of a table whose `__hash` is among `hashes` (sorted, without duplicates). Segments of such a table are sorted by hash.

        Segments without any slot in `low` ≤ … < `high` are skipped.
        """
        found = []
        for frame in self.read(table, low, high):
            column = frame[HASH].to_numpy()
            if hashes.size * 8 < column.size:
                starts, ends = np.searchsorted(column, hashes), np.searchsorted(column, hashes, side="right")
                found.append(frame[_ranges(starts, ends)])
            else:
                place = np.minimum(np.searchsorted(hashes, column), max(hashes.size - 1, 0))
                found.append(frame.filter(pl.Series(hashes[place] == column)) if hashes.size else frame.clear())
        return [f for f in found if f.height]

    def to_merge(self, table: str) -> list[pl.DataFrame]:
        """Map this instance's rows from the segments that are to be rewritten as one."""
        files = self.epoch.compact.get(self.subquery, {}).get(self.instance, ())
        return self._mapped([s for s in self.state.segments if s.kind == table and s.file in files], None)

    def oldest_elsewhere(self, table: str) -> int:
        """Return the first slot in the segments that may have rows of this instance and are not being rewritten."""
        files, version = self.epoch.compact.get(self.subquery, {}).get(self.instance, ()), self.map.version
        return min(
            (
                s.low
                for s in self.state.segments
                if s.kind == table and s.file not in files and (s.version != version or s.instance == self.instance)
            ),
            default=END_OF_TIME,
        )

    def write(self, table: str, rows: pl.DataFrame, slot: str | None) -> tuple[Segment, ...]:
        """Write rows as a segment; write nothing if there are no rows."""
        if not rows.height:
            return ()
        file = names.segment(self.subquery, self.epoch.number, self.instance, table, uuid.uuid4().hex[:8])
        tiers = self.epoch.tiers
        ordered = rows.sort(HASH) if HASH in rows.columns else rows
        indexed = tiers.cache is not None
        written = tiers.with_room(
            lambda: write_segment(tiers.place(file), ordered, BUCKET, through=tiers.through, indexed=indexed)
        )
        slots = rows[slot].to_physical() if slot else None
        low, high = (slots.min(), slots.max()) if slots is not None else (FIRST_SLOT, END_OF_TIME)
        assert isinstance(low, int)
        assert isinstance(high, int)
        segment = Segment(
            file,
            table,
            epoch=self.epoch.number,
            instance=self.instance,
            version=self.map.version,
            rows=rows.height,
            bytes=written.bytes,
            low=low,
            high=high,
            crc=written.crc,
            index=written.trailer,
        )
        tiers.keep(segment)
        return (segment,)

    def _mapped(self, segments: Sequence[Segment], buckets: Sequence[int] | None) -> list[pl.DataFrame]:
        found, own = [], buckets
        for segment in segments:
            if buckets is None and segment.version == self.map.version:
                if segment.instance == self.instance:
                    found.append(self._rows(segment))
            else:
                own = self.map.buckets_of(self.instance) if own is None else own
                if self._may_have(segment, own):
                    found.append(self._rows(segment, own))
        return [self.adapted(f) for f in found if f.height]

    def _rows(self, segment: Segment, buckets: Sequence[int] | None = None) -> pl.DataFrame:
        """Map the rows of a segment; if only some of its buckets are wanted and it is stored remotely, fetch only those."""
        tiers = self.epoch.tiers
        rows = tiers.pieces(segment, buckets) if buckets is not None else None
        if rows is None:
            how = read_segment if buckets is None else partial(read_segment, buckets=buckets)
            rows = tiers.read(segment, how)
        if tiers.cache is not None:
            count(read=segment.bytes * rows.height // max(segment.rows, 1))
        return rows

    def _may_have(self, segment: Segment, buckets: Sequence[int]) -> bool:
        """Return whether a segment may have rows of some buckets: its writer owned one of them, or it is not known which buckets its writer owned."""
        written_under = self.epoch.former.get(self.subquery, {}).get(segment.version)
        return written_under is None or any(written_under.owners[b] == segment.instance for b in buckets)


def _ranges(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the numbers in all ranges `start ≤ … < end`, one range after another."""
    lengths = ends - starts
    offsets = np.repeat(starts - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths) if lengths.size else lengths
    return offsets + np.arange(lengths.sum())
