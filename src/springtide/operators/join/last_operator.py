"""Joins by keys over the last n tuples: both inputs in one total order, with the last n tuples of each key and side in state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from springtide.compiler.plan import Exchange
from springtide.exchange.hashing import HASH, bucket_of_hash, hash_of
from springtide.exchange.routing import Numbering
from springtide.operators import holding, versions
from springtide.operators.chunks import in_pieces
from springtide.operators.join.last_kernel import LastJoin
from springtide.operators.operator import Clock, Operator, OperatorResult
from springtide.operators.state_view import StateView
from springtide.query import steps
from springtide.query.types import END_OF_TIME, TS
from springtide.state.manifest import Marks

SIDES = ("left", "right")
"""The tables with the last n tuples of each key."""
HELD = ("held-left", "held-right")
"""The tables with the tuples that are waiting to become ready."""


class LastJoinOperator(Operator):
    """A join by keys over the last n tuples."""

    def __init__(self, step: steps.Join, buckets: int) -> None:
        """Prepare the kernel."""
        self._kernel, self._buckets, self._outer = LastJoin(step), buckets, step.how == "left"
        kept = {table: versions.keyed(keys) for table, keys in zip(SIDES, self._kernel.keys, strict=True)}
        self.tables = {**kept, **dict.fromkeys(HELD, holding.HELD)}

    def send(self, exchange: Exchange, tuples: pl.LazyFrame, numbering: Numbering) -> pl.LazyFrame:
        """Send tuples with their places; one with a null key finds no partner, and is only sent if it is to be returned alone."""
        keys = self._kernel.keys[exchange.side]
        if exchange.side == 1 or not self._outer:
            tuples = tuples.filter(pl.all_horizontal(pl.col(k).is_not_null() for k in keys))
        return tuples.with_columns(hash_of(keys)).with_columns(bucket_of_hash(pl.col(HASH), self._buckets))

    def run(self, view: StateView, arrived: Sequence[pl.DataFrame | None], clock: Clock) -> OperatorResult:
        """Pair the tuples that are ready with earlier ones of their keys; also return those that stay alone."""
        before, writes = holding.ready_before(view), dict[str, pl.DataFrame]()
        marks = {holding.TIME_MARK: max(clock.time, before)}
        ready = []
        for table, rows in zip(HELD, arrived, strict=True):
            now, later = holding.release(view, table, rows, clock)
            ready.append(now)
            if later is not None:
                writes[table] = later
        ends = clock.time == END_OF_TIME and before != END_OF_TIME
        made = self._rows(view, ready, writes, clock.greatest if ends else None)
        return OperatorResult(in_pieces(made, self._kernel.shape.none()), marks, writes)

    def oldest(self, marks: Marks) -> Mapping[str, int]:
        """Return what is still needed: tuples until they are ready, the last n of a key until the end."""
        time = marks[holding.TIME_MARK]
        return {**dict.fromkeys(HELD, time), **(dict.fromkeys(SIDES, END_OF_TIME + 1) if time == END_OF_TIME else {})}

    def _rows(
        self, view: StateView, ready: Sequence[pl.DataFrame | None], writes: dict[str, pl.DataFrame], end: int | None
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
        known = [self._known(view, side, hashes, everything=end is not None) for side in (0, 1)]
        advance = kernel.advance(known, (left, right))
        yield from advance.pairs()
        if self._outer:
            yield advance.pushed_out()
        if end is None:
            writes |= {table: versions.versioned(advance.known(side), view) for side, table in enumerate(SIDES)}
        elif self._outer:
            yield advance.left_over(end)

    def _known(self, view: StateView, side: int, hashes: pl.Series, *, everything: bool) -> pl.DataFrame | None:
        """Find what is known about keys; at the end about all keys, since left tuples that are still waiting for a partner are returned then."""
        table, keys = SIDES[side], self._kernel.keys[side]
        if not (everything and side == 0 and self._outer):
            return versions.find(view, table, hashes, keys)
        found = view.read(table)
        return versions.newest(pl.concat(found), keys) if found else None
