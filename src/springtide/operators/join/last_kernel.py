"""Joins by keys over the last n tuples: each tuple meets the last n tuples of its key on the other side that come before it.

    order      1   2   3   4   5   6              last 2, one key
    left           a       b       c              a meets x;  b meets x, y;  c meets y, z
    right      x       y       z                  y meets a;  z meets a, b

Here c pushes a out: no later right tuple meets it. The tuples of both sides are put into one total order, after the tuples that were already known;
the index is sorted by their places in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from springtide.exchange import order
from springtide.exchange.hashing import BUCKET, HASH
from springtide.operators.join.matching import Indexed, last, pairs
from springtide.operators.join.pairs import PairShape
from springtide.query.steps import Join
from springtide.query.types import TS
from springtide.query.windows import LastN

AT = "__at"
"""The place of a known tuple among the tuples of its key."""
PAIRED = "__paired"
"""Whether a left tuple has met a partner."""

_BEFORE = 1 << 40
"""How far before the new tuples the known ones are placed."""
_SIDE, _ROW, _UNTIL = "__side", "__row", "__until"
_PLACES = {order.ORIGIN: pl.UInt16, order.STREAM: pl.String, order.POSITION: pl.Int64, order.PLACE: pl.UInt64}


class LastJoin:
    """A join over the last n tuples."""

    def __init__(self, step: Join) -> None:
        """Prepare the shape of a pair."""
        assert isinstance(step.window, LastN)
        self.n, self.shape, self.keys = step.window.size, PairShape(step), (step.left_on, step.right_on)
        self._schemas = [stream.schema for stream in step.inputs]
        self.columns = [[*schema, HASH, BUCKET, AT, PAIRED] for schema in self._schemas]
        """The columns of the known tuples of each side."""

    def advance(self, known: Sequence[pl.DataFrame | None], new: Sequence[pl.DataFrame | None]) -> Advance:
        """Take the new tuples of each side, without null keys and with their places, and everything known about their keys."""
        sides = []
        for side, (old, fresh) in enumerate(zip(known, self._placed(new), strict=True)):
            fresh = fresh.with_columns(pl.lit(False).alias(PAIRED)).select(self.columns[side])
            parts = (
                [fresh] if old is None else [old.select(self.columns[side]).with_columns(pl.col(AT) - _BEFORE), fresh]
            )
            sides.append(_Side(pl.concat(parts, rechunk=True), self.keys[side], 0 if old is None else old.height))
        return Advance(self, *sides)

    def _placed(self, new: Sequence[pl.DataFrame | None]) -> list[pl.DataFrame]:
        """Return the new tuples of each side with their places in the total order of both."""
        sides = []
        for side, rows in enumerate(new):
            if rows is None or not rows.height:
                rows = pl.DataFrame(schema={**self._schemas[side], **_PLACES, HASH: pl.UInt64, BUCKET: pl.UInt16})
            else:
                rows = order.arrange(rows, list(self._schemas[side]))
            sides.append(rows.with_row_index(_ROW).with_columns(pl.lit(side, dtype=pl.UInt8).alias(_SIDE)))
        both = pl.concat([rows.select(TS, *_PLACES, _SIDE, _ROW) for rows in sides])
        if both.height:  # the content of a side is already in the order of its rows
            both = order.arrange(both, [_ROW], _SIDE)
        places = both.select(_SIDE, _ROW, pl.int_range(pl.len(), dtype=pl.Int64).alias(AT)).sort(_SIDE, _ROW)[AT]
        first = sides[0].height
        return [sides[0].with_columns(places[:first]), sides[1].with_columns(places[first:])]


class _Side:
    """The tuples of one side, known ones first, with an index by key and place."""

    def __init__(self, rows: pl.DataFrame, keys: Sequence[str], known: int) -> None:
        self.rows, self.known = rows, known
        self._keys, self._places = keys, rows[AT].to_numpy()
        self.all = Indexed(rows, keys, self._places)
        self.paired = rows[PAIRED].to_numpy().copy()
        """Whether the tuple in each row has met a partner."""
        index = self.all.told_apart()
        self.order = index.order
        self.ends = index.find(index.entries & ~index.mask, len(index))
        """For each tuple, in order, where the tuples of its key end."""

    @property
    def new(self) -> Indexed:
        return Indexed(self.rows[self.known :], self._keys, self._places[self.known :])

    def kept(self, n: int) -> np.ndarray:
        """Mark the last n tuples of each key, in order."""
        return np.arange(self.order.size) >= self.ends - n

    def changed(self) -> np.ndarray:
        """Mark the tuples, in order, of keys that have changed: through a new tuple, or one that has met its first partner."""
        news = np.zeros(self.order.size + 1, dtype=bool)
        news[self.ends[self.order >= self.known]] = True
        flags = self.rows[PAIRED].to_numpy()
        news[self.ends[(self.paired & ~flags)[self.order]]] = True
        changed: np.ndarray = news[self.ends]
        return changed


class Advance:
    """The effects of new tuples: take all pairs first, then what follows from them."""

    def __init__(self, join: LastJoin, left: _Side, right: _Side) -> None:
        """Hold both sides."""
        self._join, self._shape, self._sides = join, join.shape, (left, right)

    def pairs(self) -> Iterator[pl.DataFrame]:
        """Yield the pairs with a new tuple: it meets those before it, new or known."""
        left, right = self._sides
        for made in pairs(self._shape, last(left.new, right.all, self._join.n)):
            left.paired[left.known + made.left] = True
            yield made.rows
        for made in pairs(self._shape, last(right.new, left.all, self._join.n), turned=True):
            left.paired[made.left] = True
            yield made.rows

    def pushed_out(self) -> pl.DataFrame:
        """Return the left tuples that were pushed out before they met a partner, with the time of the tuple that pushed them out."""
        left, n = self._sides[0], self._join.n
        out = np.flatnonzero(~left.kept(n) & ~left.paired[left.order])
        until = left.rows[TS][left.order[out + n]].alias(_UNTIL)
        return self._shape.alone(left.rows[left.order[out]].with_columns(until), pl.col(_UNTIL))

    def left_over(self, time: int) -> pl.DataFrame:
        """Return the left tuples that are still waiting for a partner, with this time or their own if that is later."""
        left = self._sides[0]
        rows = left.rows[left.order[left.kept(self._join.n) & ~left.paired[left.order]]]
        return self._shape.alone(rows, pl.max_horizontal(pl.col(TS).to_physical(), pl.lit(time, dtype=pl.Int64)))

    def known(self, side: int) -> pl.DataFrame:
        """Return what is now known about all keys that have changed."""
        one = self._sides[side]
        places = np.flatnonzero(one.kept(self._join.n) & one.changed())
        at = pl.Series(AT, places - one.ends[places] + self._join.n)
        return one.rows[one.order[places]].with_columns(at, pl.Series(PAIRED, one.paired[one.order[places]]))
