"""Joins by any predicate: earlier tuples meet new ones, each pair once and in one instance (SC-6, ST-6).

    grid        an instance has some cells:        rows of left tuples × columns of right tuples
    broadcast   an instance has some buckets:      all new left × its right tuples   ·   its left × all new right tuples

A tuple is kept once, in a bucket that it was assigned in turn, so no value can make one instance heavier than another. In a grid that bucket is a
cell; a left tuple is read by every instance that has a cell in the same row, a right tuple by every instance that has one in the same column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from springtide.compiler.plan import Exchange, Grid, Routing
from springtide.exchange import gate, order
from springtide.exchange.hashing import BUCKET
from springtide.exchange.routing import Numbering, in_turn, rectangles
from springtide.operators import holding
from springtide.operators.chunks import in_pieces
from springtide.operators.operator import Clock, Operator, OperatorResult, earlier
from springtide.operators.state_view import StateView
from springtide.operators.tables import FIRST_SLOT, StateTable
from springtide.operators.theta.kernel import NUMBER, ThetaKernel, last, numbered, within
from springtide.query import steps
from springtide.query.ids import InstanceId
from springtide.query.types import END_OF_TIME, TS
from springtide.query.windows import LastN
from springtide.state.bucket_map import BucketMap
from springtide.state.manifest import Marks

SIDES = ("left", "right")
"""The tables with the tuples of each side, and the marks that say how far each side has come."""
GATHERED = 2_000_000
"""How many old tuples are loaded at a time."""


@dataclass(frozen=True)
class Share:
    """What an instance pairs: new left tuples with right ones, and earlier left tuples with new right ones.

    Tuples are given by their buckets; None means all tuples.
    """

    new_left: Sequence[int] | None
    right: Sequence[int]
    left: Sequence[int]
    new_right: Sequence[int] | None


def shares(routing: Routing | None, bucket_map: BucketMap, instance: InstanceId) -> list[Share]:
    """Work out what an instance pairs; all instances together pair everything exactly once."""
    if isinstance(routing, Grid):
        return [Share(r, c, r, c) for r, c in rectangles(routing, bucket_map.owners, instance)]
    own = bucket_map.buckets_of(instance)
    return [Share(None, own, own, None)] if own else []


class _ThetaOperator(Operator):
    """What theta joins over windows of time and of tuples have in common."""

    def __init__(self, step: steps.ThetaJoin, buckets: int, routing: Routing | None) -> None:
        """Prepare the kernel."""
        self._kernel, self._buckets, self._routing = ThetaKernel(step), buckets, routing
        self._content = [list(stream.schema) for stream in step.inputs]
        left, right = ((stream.step, stream.port) for stream in step.inputs)
        self._alike = left == right and not isinstance(routing, Grid)  # then it is sent and kept only once
        self._kept = SIDES[:1] if self._alike else SIDES
        self._columns = [[*content, BUCKET] for content in self._content]

    def send(self, exchange: Exchange, tuples: pl.LazyFrame, numbering: Numbering) -> pl.LazyFrame:
        """Send tuples with the buckets in which they will be kept."""
        if exchange.side == 1 and self._alike:
            return pl.LazyFrame()
        columns = [*self._content[exchange.side], *(order.PLACES if exchange.ordered else ())]
        bucket = in_turn(self._routing, exchange.side, self._buckets, numbering.numbers(columns))
        return tuples.select(columns).with_columns(bucket)

    def _arrived(self, arrived: Sequence[pl.DataFrame | None]) -> Sequence[pl.DataFrame | None]:
        return [arrived[0]] * 2 if self._alike else arrived

    def _table(self, side: int) -> str:
        return SIDES[0] if self._alike else SIDES[side]

    def _own(
        self, view: StateView, new: Sequence[pl.DataFrame | None], oldest: Mapping[str, int]
    ) -> dict[str, pl.DataFrame]:
        """Select what this instance keeps of the new tuples."""
        writes, own = {}, view.map.buckets_of(view.instance)
        for table, columns, rows in zip(self._kept, self._columns, new, strict=False):
            if (mine := _of(rows, own)) is not None:
                slots = mine[self.tables[table].slot or TS].to_physical()
                writes[table] = mine.filter(slots >= oldest[table]).select(columns)
        return writes

    def _gathered(self, side: int, frames: Sequence[pl.DataFrame | None]) -> Iterator[pl.DataFrame]:
        """Put tuples of a side together, as many as can be loaded at a time."""
        parts: list[pl.DataFrame] = []
        for frame in [f for f in frames if f is not None and f.height]:
            parts.append(frame.select(self._columns[side]))
            if sum(p.height for p in parts) >= GATHERED:
                yield pl.concat(parts, rechunk=True)
                parts = []
        if parts:
            yield pl.concat(parts, rechunk=True)


class TimeThetaOperator(_ThetaOperator):
    """A theta join over a window of time. A tuple is needed until the merged time of the other side has passed its reach."""

    def __init__(self, step: steps.ThetaJoin, buckets: int, routing: Routing | None) -> None:
        """Prepare the kernel."""
        super().__init__(step, buckets, routing)
        assert isinstance(step.window, steps.Within)
        self._length = step.window.length
        self.tables = dict.fromkeys(self._kept, StateTable(slot=TS))

    def run(self, view: StateView, arrived: Sequence[pl.DataFrame | None], clock: Clock) -> OperatorResult:
        """Pair what arrived with what was there before, and new tuples with each other."""
        marks = dict(zip(SIDES, clock.sides, strict=True))
        rows = in_pieces(self._rows(view, self._arrived(arrived)), self._kernel.shape.none())
        return OperatorResult(rows, marks, self._own(view, arrived, self.oldest(marks)))

    def expired(self, marks: Marks, arrived: Sequence[pl.DataFrame | None]) -> int:
        """Count the rows of each side that are older than the time that the side had reached."""
        return sum(
            earlier(rows, TS, marks.get(side, gate.BEGINNING)) for side, rows in zip(SIDES, arrived, strict=False)
        )

    def oldest(self, marks: Marks) -> Mapping[str, int]:
        """Return the first time that a tuple of the other side can still reach, now or later."""
        times = [marks[other] for other in reversed(SIDES)]
        reached = [t if t == END_OF_TIME else max(t - self._length, FIRST_SLOT) for t in times]
        return dict(zip(self._kept, reached, strict=False))

    def _rows(self, view: StateView, new: Sequence[pl.DataFrame | None]) -> Iterator[pl.DataFrame]:
        for share in shares(self._routing, view.map, view.instance):
            new_left, new_right = _of(new[0], share.new_left), _of(new[1], share.new_right)
            if new_left is not None:
                old = self._old(view, 1, new_left, share.right)
                for right in self._gathered(1, [*old, _of(new[1], share.right)]):
                    yield from self._kernel.pairs(new_left, right, within(new_left, right, self._length))
            if new_right is not None:
                for left in self._gathered(0, self._old(view, 0, new_right, share.left)):
                    yield from self._kernel.pairs(left, new_right, within(left, new_right, self._length))

    def _old(self, view: StateView, side: int, new: pl.DataFrame, buckets: Sequence[int]) -> list[pl.DataFrame]:
        """Read the kept tuples of a side that may be within reach of a new tuple of the other side."""
        times = new[TS].to_physical()
        low, high = times.min(), times.max()
        assert isinstance(low, int)
        assert isinstance(high, int)
        grid_buckets = buckets if isinstance(self._routing, Grid) else None
        return view.read(self._table(side), low - self._length, high + self._length + 1, buckets=grid_buckets)


class LastThetaOperator(_ThetaOperator):
    """A theta join over the last n tuples. Every instance sees every tuple, so all instances give the tuples the same numbers."""

    def __init__(self, step: steps.ThetaJoin, buckets: int, routing: Routing | None) -> None:
        """Prepare the kernel."""
        super().__init__(step, buckets, routing)
        assert isinstance(step.window, LastN)
        self._n = step.window.size
        self._columns = [[*columns, NUMBER] for columns in self._columns]
        held = {_held(table): holding.HELD for table in self._kept}
        self.tables = dict.fromkeys(self._kept, StateTable(slot=NUMBER)) | held

    def run(self, view: StateView, arrived: Sequence[pl.DataFrame | None], clock: Clock) -> OperatorResult:
        """Number the tuples that have become ready; the older tuple of a pair decides which instance returns it."""
        everybody, own = range(self._buckets), view.map.buckets_of(view.instance)
        ready: list[pl.DataFrame | None] = []
        held: dict[str, pl.DataFrame] = {}
        for table, rows in zip(self._kept, arrived, strict=False):
            now, waits = holding.release(view, _held(table), rows, clock, buckets=everybody)
            ready.append(now)
            if (mine := _of(waits, own)) is not None:
                held[_held(table)] = mine
        counts = [view.marks.get(side, 0) for side in SIDES]
        # Equal tuples in two buckets: all instances must see the same one first.
        new = numbered(self._arrived(ready), [[*names, BUCKET] for names in self._content], counts)
        totals = [count + (rows.height if rows is not None else 0) for count, rows in zip(counts, new, strict=True)]
        time = max(clock.time, holding.ready_before(view))
        marks = {holding.TIME_MARK: time, **dict(zip(SIDES, totals, strict=True))}
        pairs = in_pieces(self._rows(view, new, counts), self._kernel.shape.none())
        return OperatorResult(pairs, marks, held | self._own(view, new, self.oldest(marks)))

    def oldest(self, marks: Marks) -> Mapping[str, int]:
        """Return what is still needed: the last n of each side, and the tuples that are not ready."""
        time = marks[holding.TIME_MARK]
        first = {table: END_OF_TIME if time == END_OF_TIME else marks[table] - self._n for table in self._kept}
        return first | {_held(table): time for table in self._kept}

    def _rows(
        self, view: StateView, new: Sequence[pl.DataFrame | None], counts: Sequence[int]
    ) -> Iterator[pl.DataFrame]:
        own = view.map.buckets_of(view.instance)
        for side, newer in enumerate(new):
            if newer is None:
                continue
            other = 1 - side
            old = view.read(self._table(other), counts[other] - self._n)
            for older in self._gathered(other, [*old, _of(new[other], own)]):
                bounds = last(older, newer, self._n, newer_is_left=side == 0)
                left, right = (newer, older) if side == 0 else (older, newer)
                yield from self._kernel.pairs(left, right, bounds)


def _held(table: str) -> str:
    return f"held_{table}"


def _of(rows: pl.DataFrame | None, buckets: Sequence[int] | None) -> pl.DataFrame | None:
    """Select the rows of some buckets; None if there are none."""
    if rows is not None and buckets is not None:
        rows = rows.filter(pl.col(BUCKET).is_in(buckets))
    return rows if rows is not None and rows.height else None
