"""From conditions to numbers: the values of the rows of both sides that a search for pairs compares.

Numbers are 32-bit floats, so some pairs are found that are not pairs; but none is missed:
- rounding preserves order, and sums get as much slack as rounding may have cost;
- a row whose value is not finite, or so large that a sum may have overflowed, meets every row of the other side;
- null compares with nothing: it becomes NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from polars.exceptions import PanicException

from springtide.operators.theta import conditions as c
from springtide.operators.theta.comparisons import AllOf, AnyOf, Compare, Tree

_ZERO, _NAN = np.float32(0), np.float32(np.nan)
_SOME = 1000
"""How many values are used to find the middle."""
_SEED = 7
_BITS = 24
"""Integers with up to this many bits are exact as 32-bit floats."""


@dataclass(frozen=True, eq=False)
class Bound:
    """An integer of each left row that must not be greater than that of the right row: the window of a join."""

    left: np.ndarray
    right: np.ndarray

    def holds(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Return whether it holds for some left and right rows, pair by pair."""
        held: np.ndarray = self.left[i] <= self.right[j]
        return held

    def compare(self) -> Compare:
        """Return it as a comparison for the search."""
        return _compare(self.left.astype(np.float64), self.right.astype(np.float64))


def tree_of(found: c.Conditions, left: pl.DataFrame, right: pl.DataFrame, bounds: Sequence[Bound]) -> Tree | None:
    """Work out what to search for: the bounds, and the conditions of a predicate; both sides have their columns under their names in a pair."""
    parts: list[Tree] = [bound.compare() for bound in bounds]
    if found.tree is not None:
        try:
            values = tuple(_evaluated(frame, exprs) for frame, exprs in zip((left, right), found.exprs, strict=True))
            tree = _Maker(values, (left.height, right.height)).tree(found.tree)
            parts += tree.parts if isinstance(tree, AllOf) else (tree,)
        except (
            Exception,
            PanicException,
        ):  # a value that cannot be computed: the predicate reports it if it is ever needed
            pass
    return parts[0] if len(parts) == 1 else AllOf(tuple(parts)) if parts else None


def _evaluated(frame: pl.DataFrame, exprs: Sequence[pl.Expr]) -> list[pl.Series]:
    names = [f"{i}" for i in range(len(exprs))]
    return frame.with_columns(e.alias(n) for e, n in zip(exprs, names, strict=True)).select(names).get_columns()


class _Maker:
    """Makes comparisons from the values of both sides."""

    def __init__(self, values: Sequence[Sequence[pl.Series]], heights: Sequence[int]) -> None:
        self._values, self._heights = values, heights
        self._numbers: dict[tuple[int, int], np.ndarray] = {}

    def tree(self, condition: c.Condition) -> Tree:
        match condition:
            case c.All(parts):
                return AllOf(tuple(self.tree(p) for p in parts))
            case c.Any(parts):
                return AnyOf(tuple(self.tree(p) for p in parts))
            case c.Own(side, number):
                true = self._values[side][number].fill_null(False).to_numpy()
                own, other = np.where(true, _ZERO, _NAN), np.zeros(self._heights[1 - side], dtype=np.float32)
                return Compare(own, other) if side == 0 else Compare(other, own)
            case c.Same(left, right):
                return Compare(_hashed(self._values[0][left]), _hashed(self._values[1][right]), same=True)
            case c.AtMost():
                return _compare(self._low(0, condition), -self._low(1, condition))

    def _low(self, side: int, condition: c.AtMost) -> np.ndarray:
        """Add up the values of one side, minus the slack; a value that is too large or not finite becomes as low as possible."""
        terms = condition.left if side == 0 else condition.right
        series = [self._values[side][term.number] for term in terms]
        parts = [self._number(side, term.number) for term in terms]
        with np.errstate(over="ignore", invalid="ignore"):
            total = _added([term.sign * part for term, part in zip(terms, parts, strict=True)])
            if condition.slack or condition.limit < np.inf:
                size = _added([np.abs(part) for part in parts])
                total = np.where(size < condition.limit, total - size * condition.slack, -np.inf)
            if any(one.dtype.is_float() for one in series):
                total = np.where(np.isfinite(total), total, -np.inf)
        if any(one.null_count() for one in series):
            total = np.where(np.logical_or.reduce([one.is_null().to_numpy() for one in series]), np.nan, total)
        return total

    def _number(self, side: int, number: int) -> np.ndarray:
        if (side, number) not in self._numbers:
            series = self._values[side][number]
            plain = series if isinstance(series.dtype, pl.Decimal) else series.to_physical()
            self._numbers[side, number] = plain.cast(pl.Float64).fill_null(0.0).to_numpy()
        return self._numbers[side, number]


def _added(parts: Sequence[np.ndarray]) -> np.ndarray:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _compare(low: np.ndarray, high: np.ndarray) -> Compare:
    """Turn numbers into 32-bit floats: into their distances from the middle, so that there are bits left for small differences."""
    some = np.concatenate([side[:: -(-side.size // _SOME) or 1] for side in (low, high)])
    known = some[np.isfinite(some)]
    middle = np.median(known) if known.size else 0.0
    with np.errstate(over="ignore"):
        return Compare((low - middle).astype(np.float32), (high - middle).astype(np.float32))


def _hashed(series: pl.Series) -> np.ndarray:
    numbers = (series.hash(_SEED).to_numpy() >> np.uint64(64 - _BITS)).astype(np.float32)
    return np.where(series.is_null().to_numpy(), _NAN, numbers) if series.null_count() else numbers
