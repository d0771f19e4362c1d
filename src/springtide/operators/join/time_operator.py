"""Joins by keys over a window of time: earlier tuples meet new ones, each pair once.

    pairs of an epoch:   new left × old right  ·  new left × new right  ·  old left × new right

Both sides are kept as they arrived, by time. A tuple is needed as long as a tuple of the other side that reaches it can still arrive: the merged time of
the *other* side decides. With `how="left"`, that is also when it becomes certain that a left tuple stays alone. Some left tuples are known to have a partner
when they are written; for the others, it is recorded when they meet a partner later, and kept for as long as they are.

A stream that is joined with itself is sent and kept once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from springtide.compiler.plan import Exchange
from springtide.exchange import gate
from springtide.exchange.hashing import BUCKET, HASH, bucket_of_hash, hash_of
from springtide.exchange.routing import Numbering
from springtide.operators.chunks import in_pieces
from springtide.operators.join.matching import Indexed, pairs, within
from springtide.operators.join.pairs import PairShape
from springtide.operators.operator import Clock, Operator, OperatorResult, earlier
from springtide.operators.state_view import StateView
from springtide.operators.tables import FIRST_SLOT, StateTable
from springtide.query import steps
from springtide.query.types import END_OF_TIME, TS
from springtide.state.manifest import Marks

SIDES = ("left", "right")
"""The tables with the tuples of each side, and the marks with the merged time of each side."""
PAIRED = "paired"
"""The table with the names of left tuples that met a partner after they were written."""

_EPOCH, _ROW = "__epoch", "__row"
_NAME = [_EPOCH, _ROW]
"""The name of a left tuple, which is unique."""
_PAIRED = "__paired"


class TimeJoinOperator(Operator):
    """A join of two streams, or of a stream with itself, by keys."""

    def __init__(self, step: steps.Join, buckets: int) -> None:
        """Prepare the shape of a pair."""
        assert isinstance(step.window, steps.Within)
        self._length, self._buckets, self._shape = step.window.length, buckets, PairShape(step)
        self._keys, self._outer = (step.left_on, step.right_on), step.how == "left"
        left, right = step.inputs
        self._columns = tuple([*stream.schema, HASH, BUCKET] for stream in step.inputs)
        self._alike = (left.step, left.port) == (right.step, right.port) and step.left_on == step.right_on
        kept = StateTable(slot=TS)
        self.tables = {SIDES[0]: kept} if self._alike else dict.fromkeys(SIDES, kept)
        if self._outer:
            self.tables |= {PAIRED: StateTable(slot=TS, fold=lambda rows: rows.unique(_NAME))}

    def send(self, exchange: Exchange, tuples: pl.LazyFrame, numbering: Numbering) -> pl.LazyFrame:
        """Send tuples with their hashes; one with a null key finds no partner, and is only sent if it is to be returned alone."""
        side, keys = exchange.side, self._keys[exchange.side]
        if side == 1 and self._alike:
            return pl.LazyFrame()
        if side == 1 or not self._outer:
            tuples = tuples.filter(pl.all_horizontal(pl.col(k).is_not_null() for k in keys))
        hashed = tuples.with_columns(hash_of(keys)).with_columns(bucket_of_hash(pl.col(HASH), self._buckets))
        return hashed.select(self._columns[side])  # not all senders have places

    def run(self, view: StateView, arrived: Sequence[pl.DataFrame | None], clock: Clock) -> OperatorResult:
        """Pair what arrived with what was there before, and new tuples with each other; also return those that stay alone."""
        writes: dict[str, pl.DataFrame] = {}
        marks = dict(zip(SIDES, clock.sides, strict=True))
        return OperatorResult(in_pieces(self._rows(view, arrived, marks, writes), self._shape.none()), marks, writes)

    def expired(self, marks: Marks, arrived: Sequence[pl.DataFrame | None]) -> int:
        """Count the rows of each side that are older than the time that the side had reached."""
        return sum(
            earlier(rows, TS, marks.get(side, gate.BEGINNING)) for side, rows in zip(SIDES, arrived, strict=False)
        )

    def oldest(self, marks: Marks) -> Mapping[str, int]:
        """Return what is still needed: a tuple is, until the time of the other side has passed its reach."""
        first = {side: self._first(marks[other]) for side, other in zip(SIDES, reversed(SIDES), strict=True)}
        return {table: first.get(table, first[SIDES[0]]) for table in self.tables}

    def _first(self, time: int) -> int:
        """Return the first time that a tuple of the other side can still reach, now or later."""
        return time if time == END_OF_TIME else max(time - self._length, FIRST_SLOT)

    def _rows(
        self, view: StateView, arrived: Sequence[pl.DataFrame | None], marks: Marks, writes: dict[str, pl.DataFrame]
    ) -> Iterator[pl.DataFrame]:
        new_left = arrived[0]
        if new_left is not None and self._outer:
            alone = pl.any_horizontal(pl.col(k).is_null() for k in self._keys[0])
            yield self._shape.alone(new_left.filter(alone), pl.col(TS))
            new_left = new_left.filter(~alone)
        left = self._indexed(new_left, 0)
        right = left if self._alike else self._indexed(arrived[1], 1)
        old_right = self._old(view, 1, left)
        old_left = old_right if self._alike else self._old(view, 0, right)
        met, met_now = _none_of(left), _none_of(old_left)
        for one, other, flags in ((left, old_right, met), (left, right, met), (old_left, right, met_now)):
            if one is not None and other is not None:
                for made in pairs(self._shape, within(one, other, self._length)):
                    flags[made.left] = True
                    yield made.rows
        if self._outer:
            known = old_left.rows.filter(pl.Series(met_now) & ~pl.col(_PAIRED)) if old_left is not None else None
            yield from self._alone(view, left, met, known, marks)
            if known is not None:
                writes[PAIRED] = _from(known, self._first(marks[SIDES[1]])).select(BUCKET, TS, *_NAME)
        first = self.oldest(marks)
        for table, one in zip(SIDES, (left,) if self._alike else (left, right), strict=False):
            if one is not None:
                rows = self._named(view, left, met) if self._outer and one is left else one.rows
                writes[table] = _from(rows, first[table])

    def _indexed(self, rows: pl.DataFrame | None, side: int) -> Indexed | None:
        if rows is None or not rows.height:
            return None
        return Indexed(rows.select(self._columns[side]).rechunk(), self._keys[side])

    def _old(self, view: StateView, side: int, new: Indexed | None) -> Indexed | None:
        """Find the kept tuples of a side that may meet a new tuple of the other side: those with the same keys and times within reach."""
        if new is None:
            return None
        low, high = int(new.places[0]) - self._length, int(new.places[-1]) + self._length
        found = view.lookup(SIDES[0] if self._alike else SIDES[side], new.different_hashes, low, high + 1)
        reach = pl.col(TS).to_physical().is_between(max(low, FIRST_SLOT), min(high, END_OF_TIME))
        found = [near for rows in found if (near := rows.filter(reach)).height]
        if not found:
            return None
        return Indexed(pl.concat([rows.select(found[0].columns) for rows in found], rechunk=True), self._keys[side])

    # ── left tuples that stay alone ───────────────────────────────────────────────────────────────────────────────

    def _named(self, view: StateView, left: Indexed, met: np.ndarray) -> pl.DataFrame:
        """Return the new left tuples with their names, and with a flag for those that are already paired."""
        first = view.instance << 40
        return left.rows.with_columns(
            pl.Series(_PAIRED, met),
            pl.lit(view.epoch.number, dtype=pl.Int64).alias(_EPOCH),
            pl.int_range(first, first + pl.len(), dtype=pl.Int64).alias(_ROW),
        )

    def _alone(
        self, view: StateView, left: Indexed | None, met: np.ndarray, known: pl.DataFrame | None, marks: Marks
    ) -> Iterator[pl.DataFrame]:
        """Yield the left tuples without a partner that no partner can reach any more: new ones, and kept ones that are now due."""
        time = pl.col(TS).to_physical()
        due, before = self._first(marks[SIDES[1]]), self._first(view.marks.get(SIDES[1], gate.BEGINNING))
        lone = [left.rows.filter(~pl.Series(met) & (time < due))] if left is not None else []
        if due > before:
            now = time.is_between(before, due, closed="left")
            noted = [rows.filter(now).select(_NAME) for rows in view.read(PAIRED, before, due)]
            noted += [known.select(_NAME)] if known is not None else []
            kept = [rows.filter(now & ~pl.col(_PAIRED)) for rows in view.read(SIDES[0], before, due)]
            lone += [rows.join(pl.concat(noted), on=_NAME, how="anti") if noted else rows for rows in kept]
        yield from (self._shape.alone(rows, time + self._length) for rows in lone if rows.height)


def _none_of(rows: Indexed | None) -> np.ndarray:
    return np.zeros(0 if rows is None else len(rows), dtype=bool)


def _from(rows: pl.DataFrame, first: int) -> pl.DataFrame:
    """Keep the rows whose time is not before `first`."""
    return rows.filter(rows[TS].to_physical() >= first)
