"""The theta join of two sets of tuples: every pair within the window for which the predicate is true (SC-6, ST-6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from springtide.exchange import order
from springtide.operators.join.pairs import PairShape
from springtide.operators.theta.comparisons import Tree
from springtide.operators.theta.conditions import conditions_of
from springtide.operators.theta.numbers import Bound, tree_of
from springtide.operators.theta.tiles import blocks, density, search
from springtide.query.steps import ThetaJoin
from springtide.query.types import TS

NUMBER = "__number"
"""The number of a tuple within its side."""
BEFORE = "__before"
"""How many tuples of the other side come before it."""
AT_ONCE = 1 << 17
"""The predicate is asked about at least this many candidate pairs at once, if there are as many."""

_MANY = 0.2
"""If more than this share of the pairs are candidates, the predicate is asked about all pairs."""
_LAST = 2**63 - 1
_SIDE, _ROW = "__side", "__row"


class ThetaKernel:
    """One theta join."""

    def __init__(self, step: ThetaJoin) -> None:
        """Find out what the predicate says."""
        self.shape = PairShape(step)
        left, right = (stream.schema for stream in step.inputs)
        renamed = pl.Schema({here: right[there] for there, here in step.right_columns})
        self._conditions = conditions_of(step.predicate, left, renamed)
        asked = [{n for e in exprs for n in e.meta.root_names()} for exprs in self._conditions.exprs]
        self._asked = (
            [pl.col(n) for n in sorted(asked[0])],
            [pl.col(there).alias(here) for there, here in step.right_columns if here in asked[1]],
        )

    def pairs(self, left: pl.DataFrame, right: pl.DataFrame, bounds: Sequence[Bound]) -> Iterator[pl.DataFrame]:
        """Yield the pairs of left and right tuples for which all bounds and the predicate hold, some at a time."""
        if not left.height or not right.height:
            return
        read = [side.select(asked) if asked else side for side, asked in zip((left, right), self._asked, strict=True)]
        tree = tree_of(self._conditions, read[0], read[1], bounds)
        if tree is None or self._conditions.tree is None or density(tree, left.height, right.height) > _MANY:
            yield from self._in_blocks(left, right, bounds, tree)
        else:
            yield from self._found(left, right, bounds, tree)

    def _found(
        self, left: pl.DataFrame, right: pl.DataFrame, bounds: Sequence[Bound], tree: Tree
    ) -> Iterator[pl.DataFrame]:
        """Search for candidate pairs, and ask the predicate about those."""
        waiting: list[tuple[np.ndarray, np.ndarray]] = []
        count = 0
        for i, j in search(tree, left.height, right.height):
            for bound in bounds:
                held = bound.holds(i, j)
                i, j = i[held], j[held]
            waiting.append((i, j))
            count += i.size
            if count >= AT_ONCE:
                yield self._made(left, right, waiting)
                waiting, count = [], 0
        if waiting:
            yield self._made(left, right, waiting)

    def _made(
        self, left: pl.DataFrame, right: pl.DataFrame, found: Sequence[tuple[np.ndarray, np.ndarray]]
    ) -> pl.DataFrame:
        i, j = (np.concatenate(numbers) for numbers in zip(*found, strict=True))
        return self.shape.made(left, right, i, j).rows

    def _in_blocks(
        self, left: pl.DataFrame, right: pl.DataFrame, bounds: Sequence[Bound], tree: Tree | None
    ) -> Iterator[pl.DataFrame]:
        """Ask the predicate about all pairs of some left and some right tuples."""
        for rows, columns in blocks(tree, left.height, right.height):
            i = np.repeat(np.arange(rows.size, dtype=np.uint32), columns.size)
            j = np.tile(np.arange(columns.size, dtype=np.uint32), rows.size)
            held = np.ones((rows.size, columns.size), dtype=bool)
            for bound in bounds:
                held &= bound.holds(rows[:, None], columns)
            if not held.all():
                i, j = i[held.ravel()], j[held.ravel()]
            if i.size:
                yield self.shape.made(left[rows], right[columns], i, j).rows


def within(left: pl.DataFrame, right: pl.DataFrame, length: int) -> list[Bound]:
    """Return bounds that keep the times of a pair at most `length` apart."""
    one, other = (side[TS].to_physical().to_numpy() for side in (left, right))
    return [Bound(_less(one, length), other), Bound(-one, -_less(other, length))]


def _less(times: np.ndarray, length: int) -> np.ndarray:
    """Subtract a length from times, but go no further back than the beginning."""
    reach = min(length, 1 << 62)
    return np.where(times < reach - _LAST, -_LAST, times - reach)


# ── the last n tuples ─────────────────────────────────────────────────────────────────────────────────────────────


def numbered(
    sides: Sequence[pl.DataFrame | None], content: Sequence[Sequence[str]], counts: Sequence[int]
) -> list[pl.DataFrame | None]:
    """Number the tuples of each side, starting at `counts`, and say how many tuples of the other side precede each in the total order of both."""
    arranged = [
        None if rows is None else order.arrange(rows, names) for rows, names in zip(sides, content, strict=True)
    ]
    places = [
        rows.select(TS, *order.PLACES, pl.lit(i).alias(_SIDE)).with_row_index(_ROW)
        for i, rows in enumerate(arranged)
        if rows is not None
    ]
    if not places:
        return arranged
    side = order.arrange(pl.concat(places), [_ROW], _SIDE)[_SIDE].to_numpy()
    result: list[pl.DataFrame | None] = []
    for i, rows in enumerate(arranged):
        at = np.flatnonzero(side == i)
        own = np.arange(at.size)
        numbers = pl.Series(NUMBER, counts[i] + own), pl.Series(BEFORE, counts[1 - i] + at - own)
        result.append(None if rows is None else rows.with_columns(numbers))
    return result


def last(older: pl.DataFrame, newer: pl.DataFrame, n: int, *, newer_is_left: bool) -> list[Bound]:
    """Return bounds that require the older tuple of a pair to be one of the last n of its side before the newer one."""
    number, before = older[NUMBER].to_numpy(), newer[BEFORE].to_numpy()
    if newer_is_left:
        return [Bound(before - n, number), Bound(-before, -number - 1)]
    return [Bound(number + 1, before), Bound(-number, n - before)]
