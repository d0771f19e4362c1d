"""Pairs of a left and a right row for which comparisons hold, without looking at every pair.

Both sides are sorted by the values of one comparison and cut into tiles of several rows. The least and the greatest value of every comparison
are known for each tile, and they rule out most pairs of tiles. In the pairs that are left, all rows are compared with each other.

                 right ─→
            ┌──┬──┬──┬──┬──┬──┐
      left  │▓▓│▓▓│  │  │  │  │         |l - r| ≤ 10, sorted by l and by r:
        │   ├──┼──┼──┼──┼──┼──┤         only tiles near the diagonal can have pairs
        ↓   │  │▓▓│▓▓│▓▓│  │  │
            ├──┼──┼──┼──┼──┼──┤
            │  │  │  │▓▓│▓▓│  │
            └──┴──┴──┴──┴──┴──┘

If the comparison that they are sorted by must hold in any case, and another one falls as it rises (the other end of a band), the tiles that can
have pairs with a given tile are adjacent and are found by bisection; tiles are small then.

A sample decides which comparison to sort by. Where alternatives have nothing in common (`k = j or k = h`), there is one pass for each of them.
Values are 32-bit floats: the caller makes sure that the order is preserved, and checks the pairs that are found once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from springtide.operators.theta.comparisons import (
    AllOf,
    AnyOf,
    Compare,
    Tree,
    compares_of,
    fold,
    together,
    turned,
    within_reach,
)

PairsOfRows = tuple[np.ndarray, np.ndarray]
"""Numbers of left rows and of right rows, pair by pair."""

LEFT_TILE, RIGHT_TILE = 32, 256
"""Rows in a tile."""
BAND_TILE = 64
"""Rows in a right tile where the tiles that can have pairs with a left one are adjacent."""
CELLS = 1 << 19
"""How many pairs of rows, and of tiles, are looked at in one go."""
FEW = 96
"""With fewer rows than this on one side, sorting the other takes longer than comparing all."""
_SAMPLE = 256
_WAITING, _WAITS = 1 << 15, 64
"""How many pairs, or rounds, wait before the remaining conditions are checked."""
_RARE = 40
"""If only one pair in this many is left, pairs are few enough to continue with each on its own."""
_USELESS = 0.7
"""If more than this share of the tiles is left, sorting is not worth it."""


def search(tree: Tree, left: int, right: int) -> Iterator[PairsOfRows]:
    """Yield all pairs of `left` × `right` rows for which a tree holds, each once, some at a time.

    >>> near = AllOf(
    ...     (Compare(np.float32([0, 5]), np.float32([1, 9])), Compare(np.float32([-2, -7]), np.float32([-1, -9])))
    ... )
    >>> [(i.tolist(), j.tolist()) for i, j in search(near, 2, 2)]
    [([0], [0])]
    """
    if left > right:  # tiles are shaped for few left and many right rows
        yield from ((i, j) for j, i in search(turned(tree), right, left))
        return
    rest, i, j = within_reach(tree, left, right)
    if rest is None:
        yield from ((np.repeat(i[a], b.size), np.tile(j[b], a.size)) for a, b in _cut_up(i.size, j.size))
        return
    passes = _passes(rest, i.size, j.size)
    for number, one in enumerate(passes):
        for a, b in _one_pass(one):
            for earlier in passes[:number]:
                new = ~fold(earlier.branch, lambda c: c.hold(a, b))  # noqa: B023
                a, b = a[new], b[new]
            yield i[a], j[b]


def blocks(tree: Tree | None, left: int, right: int) -> Iterator[PairsOfRows]:
    """Yield left rows and right rows such that every pair for which a tree holds is in exactly one of their products."""
    rest, i, j = (None, np.arange(left), np.arange(right)) if tree is None else within_reach(tree, left, right)
    if rest is None:
        yield from ((i[a], j[b]) for a, b in _cut_up(i.size, j.size))
        return
    by = _Sample(compares_of(rest), i.size, j.size).planned(rest, rest).by
    rows, columns, tiles = _tiled(rest, by, LEFT_TILE, CELLS // LEFT_TILE)
    high, wide = next(iter(tiles.values())).size
    for some, others in _pairs_of_tiles(rest, tiles, CELLS):
        for a, b in zip(some.tolist(), others.tolist(), strict=True):
            yield i[rows[a * high : (a + 1) * high]], j[columns[b * wide : (b + 1) * wide]]


def density(tree: Tree, left: int, right: int) -> float:
    """Estimate the share of all pairs for which a tree holds."""
    i, j = _evenly(left), _evenly(right)
    return float(fold(tree, lambda c: c.hold(i[:, None], j)).mean()) if left and right else 0.0


def _cut_up(left: int, right: int) -> Iterator[PairsOfRows]:
    """Cut all pairs into blocks."""
    wide = max(1, min(right, CELLS // min(LEFT_TILE, left or 1)))
    high = max(1, CELLS // wide)
    for i in range(0, left, high):
        for j in range(0, right, wide):
            yield np.arange(i, min(i + high, left)), np.arange(j, min(j + wide, right))


# ── what to sort by ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class _Pass:
    """One search over all rows."""

    tree: Tree
    branch: Tree
    """The part of the tree in which this pass differs from the others."""
    by: Compare | None
    """What to sort by; None to leave the rows as they are."""
    left_over: float = 1.0
    """The share of tiles in a sample that is not ruled out."""


def _passes(tree: Tree, left: int, right: int) -> list[_Pass]:
    """Choose between a single pass and, for some set of alternatives, one pass for each of them."""
    if min(left, right) < FEW:
        return [_Pass(tree, tree, None)]
    sample = _Sample(compares_of(tree), left, right)
    best = [sample.planned(tree, tree)]
    parts = together(tree)
    for number, part in enumerate(parts):
        if isinstance(part, AnyOf):
            rest = (*parts[:number], *parts[number + 1 :])
            each = [sample.planned(AllOf((*rest, *together(branch))), branch) for branch in part.parts]
            best = min(best, each, key=lambda passes: sum(p.left_over for p in passes))
    return best


class _Sample:
    """Some rows of each side, in tiles of two rows, used to find out what sorting is worth."""

    def __init__(self, compares: list[Compare], left: int, right: int) -> None:
        i, j = _evenly(left), _evenly(right)
        sides = np.stack([c.left[i] for c in compares]), np.stack([c.right[j] for c in compares])
        same = np.array([c.same for c in compares])[:, None, None]
        self._may_hold: dict[Compare, dict[Compare, np.ndarray]] = {}
        for n, by in enumerate(compares):
            (low, high), (lowest, highest) = (_ends(values[:, _order(values[n])]) for values in sides)
            may = (low[:, :, None] <= highest[:, None, :]) & (~same | (lowest[:, None, :] <= high[:, :, None]))
            self._may_hold[by] = dict(zip(compares, may, strict=True))

    def planned(self, tree: Tree, branch: Tree) -> _Pass:
        """Find the best comparison to sort by."""
        tried = [(self._left_over(tree, by), by) for by in compares_of(tree)]
        left_over, by = min(tried, key=lambda t: t[0])
        return _Pass(tree, branch, by if left_over < _USELESS else None, left_over)

    def _left_over(self, tree: Tree, by: Compare) -> float:
        return float(fold(tree, lambda c: self._may_hold[by][c].copy()).mean())


def _evenly(size: int) -> np.ndarray:
    return np.linspace(0, size - 1, _SAMPLE).astype(np.int64)


def _ends(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the greatest of every two values."""
    return np.fmin(values[:, ::2], values[:, 1::2]), np.fmax(values[:, ::2], values[:, 1::2])


# ── tiles ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Tiles:
    """A comparison over rows that have been cut into tiles."""

    def __init__(self, left: np.ndarray, right: np.ndarray, same: bool) -> None:
        self._left, self._right, self._same = left, right, same
        self.down, self.across, self.size = len(left), len(right), (left.shape[1], right.shape[1])
        self._ends = [
            (np.fmin.reduce(side, axis=1), np.fmax.reduce(side, axis=1)) for side in (left, right)
        ]  # NaN only for a tile without values

    def may_hold(self, rows: slice) -> np.ndarray:
        """Return for some left tiles × all right tiles whether the comparison may hold for any of their rows."""
        (left_low, left_high), (right_low, right_high) = self._ends
        may: np.ndarray = left_low[rows, None] <= right_high
        return may & (right_low <= left_high[rows, None]) if self._same else may

    def may_hold_in(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Return the same for pairs of tiles."""
        (left_low, left_high), (right_low, right_high) = self._ends
        may: np.ndarray = left_low[i] <= right_high[j]
        return may & (right_low[j] <= left_high[i]) if self._same else may

    def first(self) -> np.ndarray:
        """Return for each left tile the first right one for which it may hold, provided that the greatest values of the right tiles rise."""
        return np.asarray(np.searchsorted(self._ends[1][1], self._ends[0][0]))

    def end(self) -> np.ndarray:
        """Return for each left tile the number of right ones for which it may hold, provided that the greatest values of the right tiles fall."""
        greatest = self._ends[1][1]
        return np.asarray(greatest.size - np.searchsorted(greatest[::-1], self._ends[0][0]))

    def hold(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Compare all rows of each left tile `i` with all rows of the right tile `j`."""
        compare = np.equal if self._same else np.less_equal
        held: np.ndarray = compare(self._left[i][:, :, None], self._right[j][:, None, :])
        return held


def _tiled(
    tree: Tree, by: Compare | None, high: int, wide: int
) -> tuple[np.ndarray, np.ndarray, dict[Compare, _Tiles]]:
    """Sort the rows of both sides and cut them into tiles; also return the order of each side."""
    compares = compares_of(tree)
    left, right = compares[0].left.size, compares[0].right.size
    rows = np.arange(left) if by is None else _order(by.left)
    columns = np.arange(right) if by is None else _order(by.right)
    high, wide = min(high, left), min(wide, right)
    tiles = {c: _Tiles(_cut(c.left.take(rows), high), _cut(c.right.take(columns), wide), c.same) for c in compares}
    return rows, columns, tiles


def _one_pass(one: _Pass) -> Iterator[PairsOfRows]:
    """Find the pairs of rows in the tiles that are left; parts of the tree that rule out little are checked last."""
    band = _band(one)
    rows, columns, tiles = _tiled(one.tree, one.by, LEFT_TILE, RIGHT_TILE if band is None else BAND_TILE)
    high, wide = next(iter(tiles.values())).size
    first: list[Tree] = []
    found: list[PairsOfRows] = []
    if band is None:
        pairs = _pairs_of_tiles(one.tree, tiles, high * wide)
    else:
        pairs = _pairs_in_band(one.tree, tiles, high * wide, *band)
    for i, j in pairs:

        def held(tree: Tree) -> np.ndarray:
            return fold(tree, lambda c: tiles[c].hold(i, j))  # noqa: B023

        first = first or _most_telling(together(one.tree), held)
        pair, cell = np.divmod(np.flatnonzero(held(AllOf(tuple(first)))), high * wide)
        found.append((rows[i[pair] * high + cell // wide], columns[j[pair] * wide + cell % wide]))
        if sum(a.size for a, _ in found) >= _WAITING or len(found) >= _WAITS:
            yield _asked(found, [t for t in together(one.tree) if t not in first])
            found = []
    if found:
        yield _asked(found, [t for t in together(one.tree) if t not in first])


def _pairs_of_tiles(tree: Tree, tiles: dict[Compare, _Tiles], cells: int) -> Iterator[PairsOfRows]:
    """Yield the pairs of tiles that are not ruled out, at most as many at a time as fill the cells looked at in one go."""
    some = next(iter(tiles.values()))
    step, at_once = max(1, CELLS // some.across), max(1, CELLS // cells)
    for start in range(0, some.down, step):
        part = slice(start, start + step)
        i, j = np.nonzero(fold(tree, lambda c: tiles[c].may_hold(part)))  # noqa: B023
        yield from ((i[k : k + at_once] + start, j[k : k + at_once]) for k in range(0, i.size, at_once))


def _band(one: _Pass) -> tuple[Compare, Compare] | None:
    """Find the two ends of a band: the comparison that rows are sorted by, and one whose right values fall as the first one's rise. Both must hold."""
    parts = together(one.tree)
    if one.by is None or one.by.same or not any(part is one.by for part in parts) or np.isnan(one.by.right).any():
        return None
    columns = _order(one.by.right)
    for other in parts:
        if isinstance(other, Compare) and not other.same and other is not one.by:
            values = other.right.take(columns)
            if (values[1:] <= values[:-1]).all() and not np.isnan(values).any():
                return one.by, other
    return None


def _pairs_in_band(
    tree: Tree, tiles: dict[Compare, _Tiles], cells: int, by: Compare, other: Compare
) -> Iterator[PairsOfRows]:
    """Yield the same for a band, where the right tiles for a left one are given by their two ends."""
    start = tiles[by].first()
    counts = np.maximum(tiles[other].end() - start, 0)
    at_once = max(1, CELLS // cells)
    ends = np.cumsum(counts)
    for low in range(0, int(ends[-1]), CELLS):
        places = np.arange(low, min(low + CELLS, int(ends[-1])))
        i = np.searchsorted(ends, places, side="right")
        j = start[i] + places - (ends[i] - counts[i])
        may = fold(tree, lambda c: tiles[c].may_hold_in(i, j))  # noqa: B023
        i, j = i[may], j[may]
        yield from ((i[k : k + at_once], j[k : k + at_once]) for k in range(0, i.size, at_once))


def _asked(found: list[PairsOfRows], parts: list[Tree]) -> PairsOfRows:
    """Keep the pairs of rows for which all parts hold."""
    a, b = (np.concatenate(numbers) for numbers in zip(*found, strict=True))
    for part in parts:
        held = fold(part, lambda c: c.hold(a, b))  # noqa: B023
        a, b = a[held], b[held]
    return a, b


def _most_telling(parts: tuple[Tree, ...], held: Callable[[Tree], np.ndarray]) -> list[Tree]:
    """Choose the parts that leave few pairs of rows, so that the others need not be checked for many."""
    masks = {part: held(part) for part in parts}
    chosen: list[Tree] = []
    so_far = np.ones_like(masks[parts[0]])
    while len(chosen) < len(parts) and np.count_nonzero(so_far) > so_far.size // _RARE:
        best = min((p for p in parts if p not in chosen), key=lambda p: np.count_nonzero(masks[p] & so_far))
        so_far &= masks[best]
        chosen.append(best)
    return chosen


def _order(values: np.ndarray) -> np.ndarray:
    return pl.Series(values).arg_sort().to_numpy().astype(np.int64)  # NumPy indexes with 64-bit integers


def _cut(values: np.ndarray, size: int) -> np.ndarray:
    """Cut values into tiles; the last one is filled up with NaN, which matches nothing."""
    short = -values.size % size
    filled = np.concatenate((values, np.full(short, np.nan, dtype=np.float32))) if short else values
    return filled.reshape(-1, size)
