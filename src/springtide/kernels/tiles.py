"""Pairs of a left and a right row for which comparisons hold, without looking at every pair.

Both sides are sorted by the values of one comparison and cut into tiles of some rows. Of each tile the least and the greatest value of
every comparison are known, and most pairs of tiles are ruled out by them. In those that are left, all rows are compared with all.

                 right ─→
            ┌──┬──┬──┬──┬──┬──┐
      left  │▓▓│▓▓│  │  │  │  │         |l - r| ≤ 10, sorted by l and by r:
        │   ├──┼──┼──┼──┼──┼──┤         only tiles near the diagonal can have pairs
        ↓   │  │▓▓│▓▓│▓▓│  │  │
            ├──┼──┼──┼──┼──┼──┤
            │  │  │  │▓▓│▓▓│  │
            └──┴──┴──┴──┴──┴──┘

Which comparison to sort by is tried out on a sample. Where alternatives have nothing in common (`k = j or k = h`) there is one pass for each
of them. Values are 32-bit floats: whoever makes them takes care that order is kept, and asks again of the pairs that are found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

PairsOfRows = tuple[np.ndarray, np.ndarray]
"""Numbers of left rows and of right rows, one by one."""

LEFT_TILE, RIGHT_TILE = 64, 256
"""Rows in a tile."""
CELLS = 1 << 18
"""How many pairs of rows, and of tiles, are looked at in one go."""
FEW = 96
"""With fewer rows than this on one side, sorting the other takes longer than comparing all."""
_SAMPLE = 512
_RARE = 40
"""One pair in so many is few enough to go on with each by itself."""
_USELESS = 0.7
"""If more of the tiles than this are left, sorting is not worth it."""


@dataclass(frozen=True, eq=False)
class Compare:
    """A value of each left row that is at most (or the same as) a value of each right row. What is NaN is in no pair."""

    left: np.ndarray
    right: np.ndarray
    same: bool = False

    def hold(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Compare some left with some right rows, one by one."""
        left, right = self.left[i], self.right[j]
        held: np.ndarray = left == right if self.same else left <= right
        return held


@dataclass(frozen=True, eq=False)
class AllOf:
    """All of these hold."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True, eq=False)
class AnyOf:
    """At least one of these holds."""

    parts: tuple[Tree, ...]


Tree = Compare | AllOf | AnyOf


def search(tree: Tree | None, left: int, right: int) -> Iterator[PairsOfRows]:
    """Give all pairs of `left` × `right` rows for which a tree holds, each once, some at a time. Without a tree these are all pairs.

    >>> near = AllOf(
    ...     (Compare(np.float32([0, 5]), np.float32([1, 9])), Compare(np.float32([-2, -7]), np.float32([-1, -9])))
    ... )
    >>> [(i.tolist(), j.tolist()) for i, j in search(near, 2, 2)]
    [([0], [0])]
    """
    if not left or not right:
        return
    if tree is None:
        yield from _all_pairs(left, right)
        return
    tree, i, j = _within_reach(tree, left, right)
    if tree is None:
        yield from ((i[a], j[b]) for a, b in _all_pairs(i.size, j.size))
        return
    passes = _passes(tree, i.size, j.size)
    for number, one in enumerate(passes):
        for a, b in _one_pass(one):
            new = np.ones(a.size, dtype=bool)
            for earlier in passes[:number]:
                new &= ~_fold(earlier.branch, lambda c: c.hold(a, b))  # noqa: B023
            yield i[a[new]], j[b[new]]


def _all_pairs(left: int, right: int) -> Iterator[PairsOfRows]:
    wide = max(1, min(right, CELLS))
    high = max(1, CELLS // wide)
    for i in range(0, left, high):
        for j in range(0, right, wide):
            rows, columns = np.arange(i, min(i + high, left)), np.arange(j, min(j + wide, right))
            yield np.repeat(rows, columns.size), np.tile(columns, rows.size)


def _fold(tree: Tree, ask: Callable[[Compare], np.ndarray]) -> np.ndarray:
    """Put the truth values of the comparisons together; what `ask` gives is its own to change."""
    if isinstance(tree, Compare):
        return ask(tree)
    result, *others = (_fold(part, ask) for part in tree.parts)
    for other in others:
        (np.logical_and if isinstance(tree, AllOf) else np.logical_or)(result, other, out=result)
    return result


def _compares(tree: Tree) -> list[Compare]:
    return [tree] if isinstance(tree, Compare) else [c for part in tree.parts for c in _compares(part)]


def _together(tree: Tree) -> tuple[Tree, ...]:
    return tree.parts if isinstance(tree, AllOf) else (tree,)


# ── which rows can be in a pair at all ────────────────────────────────────────────────────────────────────────────


def _within_reach(tree: Tree, left: int, right: int) -> tuple[Tree | None, np.ndarray, np.ndarray]:
    """Leave out rows that cannot be in a pair, and comparisons that hold for all that are left."""
    near_left, near_right = np.ones(left, dtype=bool), np.ones(right, dtype=bool)
    for compare in _together(tree):
        if isinstance(compare, Compare):
            lowest, highest = np.fmin.reduce(compare.left), np.fmax.reduce(compare.right)
            near_left &= compare.left <= (compare.left if compare.same else highest)  # NaN is not
            near_right &= compare.right >= (compare.right if compare.same else lowest)
    i, j = np.flatnonzero(near_left), np.flatnonzero(near_right)
    if not i.size or not j.size:
        return None, i, j
    parts = _together(tree if i.size == left and j.size == right else _taken(tree, i, j))
    rest = tuple(p for p in parts if not (isinstance(p, Compare) and not p.same and p.left.max() <= p.right.min()))
    return (AllOf(rest) if len(rest) > 1 else rest[0] if rest else None), i, j


def _taken(tree: Tree, i: np.ndarray, j: np.ndarray) -> Tree:
    if isinstance(tree, Compare):
        return Compare(tree.left[i], tree.right[j], tree.same)
    return type(tree)(tuple(_taken(part, i, j) for part in tree.parts))


# ── what to sort by ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class _Pass:
    """One search over all rows."""

    tree: Tree
    branch: Tree
    """The part of the tree in which it differs from those of the other passes."""
    by: Compare | None
    """What to sort by; None to leave the rows as they are."""
    left_over: float = 1.0
    """The part of the tiles that is not ruled out, in a sample."""


def _passes(tree: Tree, left: int, right: int) -> list[_Pass]:
    """Choose between one pass for all and, for some set of alternatives, one pass for each of them."""
    if min(left, right) < FEW:
        return [_Pass(tree, tree, None)]
    i, j = (np.linspace(0, size - 1, min(size, _SAMPLE)).astype(np.int64) for size in (left, right))
    best = [_planned(tree, tree, i, j)]
    parts = _together(tree)
    for number, part in enumerate(parts):
        if isinstance(part, AnyOf):
            rest = (*parts[:number], *parts[number + 1 :])
            each = [_planned(AllOf((*rest, *_together(branch))), branch, i, j) for branch in part.parts]
            best = min(best, each, key=lambda passes: sum(p.left_over for p in passes))
    return best


def _planned(tree: Tree, branch: Tree, i: np.ndarray, j: np.ndarray) -> _Pass:
    """Try every comparison on a sample, with tiles of two rows."""
    tried: list[tuple[float, Compare]] = []
    for by in _compares(tree):
        rows, columns = i[_order(by.left[i])], j[_order(by.right[j])]
        tiles = {c: _Tiles(_cut(c.left[rows], 2), _cut(c.right[columns], 2), c.same) for c in _compares(tree)}
        tried.append((float(_fold(tree, lambda c: tiles[c].may_hold(slice(None))).mean()), by))  # noqa: B023
    left_over, by = min(tried, key=lambda t: t[0])
    return _Pass(tree, branch, by if left_over < _USELESS else None, left_over)


# ── tiles ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Tiles:
    """A comparison over rows that are cut into tiles."""

    def __init__(self, left: np.ndarray, right: np.ndarray, same: bool) -> None:
        self._left, self._right, self._same = left, right, same
        self._ends = [
            (np.fmin.reduce(side, axis=1), np.fmax.reduce(side, axis=1)) for side in (left, right)
        ]  # NaN only for a tile without values

    def may_hold(self, rows: slice) -> np.ndarray:
        """Tell for some left tiles × all right tiles whether the comparison holds for some of their rows."""
        (left_low, left_high), (right_low, right_high) = self._ends
        may: np.ndarray = left_low[rows, None] <= right_high
        return may & (right_low <= left_high[rows, None]) if self._same else may

    def hold(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Compare all rows of each left tile `i` with all rows of the right tile `j`."""
        compare = np.equal if self._same else np.less_equal
        held: np.ndarray = compare(self._left[i][:, :, None], self._right[j][:, None, :])
        return held


def _one_pass(one: _Pass) -> Iterator[PairsOfRows]:
    """Find the pairs of tiles that may have pairs of rows, and the pairs of rows in them."""
    compares = _compares(one.tree)
    left, right = compares[0].left.size, compares[0].right.size
    rows = np.arange(left) if one.by is None else _order(one.by.left)
    columns = np.arange(right) if one.by is None else _order(one.by.right)
    high, wide = min(LEFT_TILE, left), min(RIGHT_TILE, right)
    tiles = {c: _Tiles(_cut(c.left[rows], high), _cut(c.right[columns], wide), c.same) for c in compares}
    down, across = -(-left // high), -(-right // wide)
    step, at_once = max(1, CELLS // across), max(1, CELLS // (high * wide))
    first: list[Tree] = []
    for start in range(0, down, step):
        part = slice(start, min(start + step, down))
        i, j = np.nonzero(_fold(one.tree, lambda c: tiles[c].may_hold(part)))  # noqa: B023
        i += start
        for k in range(0, i.size, at_once):
            some_i, some_j = i[k : k + at_once], j[k : k + at_once]

            def held(tree: Tree) -> np.ndarray:
                return _fold(tree, lambda c: tiles[c].hold(some_i, some_j))  # noqa: B023

            first = first or _most_telling(_together(one.tree), held)
            found = np.flatnonzero(held(AllOf(tuple(first))))
            pair, cell = np.divmod(found, high * wide)
            a, b = rows[some_i[pair] * high + cell // wide], columns[some_j[pair] * wide + cell % wide]
            for then in (t for t in _together(one.tree) if t not in first):
                true = _fold(then, lambda c: c.hold(a, b))  # noqa: B023
                a, b = a[true], b[true]
            yield a, b


def _most_telling(parts: tuple[Tree, ...], held: Callable[[Tree], np.ndarray]) -> list[Tree]:
    """Choose the parts that leave few pairs of rows, so that the others need not be asked of many."""
    masks = {part: held(part) for part in parts}
    chosen: list[Tree] = []
    so_far = np.ones_like(masks[parts[0]])
    while len(chosen) < len(parts) and np.count_nonzero(so_far) > so_far.size // _RARE:
        best = min((p for p in parts if p not in chosen), key=lambda p: np.count_nonzero(masks[p] & so_far))
        so_far &= masks[best]
        chosen.append(best)
    return chosen


def _order(values: np.ndarray) -> np.ndarray:
    return pl.Series(values).arg_sort().to_numpy()


def _cut(values: np.ndarray, size: int) -> np.ndarray:
    """Cut values into tiles; the last one is filled up with NaN, which is in no pair."""
    short = -values.size % size
    filled = np.concatenate((values, np.full(short, np.nan, dtype=np.float32))) if short else values
    return filled.reshape(-1, size)
