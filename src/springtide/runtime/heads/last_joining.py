"""Joins by keys over the last n tuples: both inputs in one total order, the last n of each key and side in state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from springtide.compiler.plan import Exchange
from springtide.kernels.hashing import HASH, bucket_of_hash, hash_of
from springtide.kernels.last_joins import LastJoin
from springtide.kernels.routing import Turn
from springtide.query import steps
from springtide.query.types import END_OF_TIME, TS
from springtide.runtime.heads import keyed, ordered
from springtide.runtime.heads.head import Clock, Head, HeadResult, Shelf
from springtide.runtime.heads.pieces import in_pieces
from springtide.state.manifest import Marks

SIDES = ("left", "right")
"""The kinds of state with the last n tuples of each key."""
HELD = ("held-left", "held-right")
"""The kinds with the tuples that wait until they are ready."""


class LastJoinHead(Head):
    """A join by keys over the last n."""

    def __init__(self, step: steps.Join, buckets: int) -> None:
        """Prepare the kernel."""
        self._kernel, self._buckets, self._outer = LastJoin(step), buckets, step.how == "left"
        kept = {kind: keyed.keyed(keys) for kind, keys in zip(SIDES, self._kernel.keys, strict=True)}
        self.kinds = {**kept, **dict.fromkeys(HELD, ordered.HELD)}

    def send(self, exchange: Exchange, tuples: pl.LazyFrame, turn: Turn) -> pl.LazyFrame:
        """Send tuples with their places; one with a null key finds no partner, and only goes where it is given alone."""
        keys = self._kernel.keys[exchange.side]
        if exchange.side == 1 or not self._outer:
            tuples = tuples.filter(pl.all_horizontal(pl.col(k).is_not_null() for k in keys))
        return tuples.with_columns(hash_of(keys)).with_columns(bucket_of_hash(pl.col(HASH), self._buckets))

    def run(self, shelf: Shelf, arrived: Sequence[pl.DataFrame | None], clock: Clock) -> HeadResult:
        """Pair the tuples that are ready with those of their keys before them; give what stays alone."""
        before, writes = ordered.ready_before(shelf), dict[str, pl.DataFrame]()
        marks = {ordered.TIME_MARK: max(clock.time, before)}
        ready = []
        for kind, rows in zip(HELD, arrived, strict=True):
            now, later = ordered.release(shelf, kind, rows, clock)
            ready.append(now)
            if later is not None:
                writes[kind] = later
        ends = clock.time == END_OF_TIME and before != END_OF_TIME
        made = self._rows(shelf, ready, writes, clock.greatest if ends else None)
        return HeadResult(in_pieces(made, self._kernel.shape.none()), marks, writes)

    def oldest(self, marks: Marks) -> Mapping[str, int]:
        """Tuples are held until they are ready; the last n of a key are needed until the end."""
        time = marks[ordered.TIME_MARK]
        return {**dict.fromkeys(HELD, time), **(dict.fromkeys(SIDES, END_OF_TIME + 1) if time == END_OF_TIME else {})}

    def _rows(
        self, shelf: Shelf, ready: Sequence[pl.DataFrame | None], writes: dict[str, pl.DataFrame], end: int | None
    ) -> Iterator[pl.DataFrame]:
        kernel, (left, right) = self._kernel, ready
        if left is not None and self._outer:
            null = pl.any_horizontal(pl.col(k).is_null() for k in kernel.keys[0])
            yield kernel.shape.alone(left.filter(null), pl.col(TS))
            left = left.filter(~null)
        if left is None and right is None and end is None:
            return
        hashes = pl.concat(
            [rows[HASH] for rows in (left, right) if rows is not None] or [pl.Series(HASH, [], pl.UInt64)]
        )
        known = [self._known(shelf, side, hashes, everything=end is not None) for side in (0, 1)]
        advance = kernel.advance(known, (left, right))
        yield from advance.pairs()
        if self._outer:
            yield advance.pushed_out()
        if end is None:
            writes |= {kind: keyed.versioned(advance.known(side), shelf) for side, kind in enumerate(SIDES)}
        elif self._outer:
            yield advance.left_over(end)

    def _known(self, shelf: Shelf, side: int, hashes: pl.Series, *, everything: bool) -> pl.DataFrame | None:
        """Find what is known of keys; at the end of all, since left tuples are given then that wait for a partner."""
        kind, keys = SIDES[side], self._kernel.keys[side]
        if not (everything and side == 0 and self._outer):
            return keyed.find(shelf, kind, hashes, keys)
        found = shelf.read(kind)
        return keyed.newest(pl.concat(found), keys) if found else None
