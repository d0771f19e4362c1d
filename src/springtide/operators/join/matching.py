"""Pairs of two frames with equal keys: which tuples of the other side does each tuple meet?

The tuples of each side are sorted by (key, place): then those that a tuple meets are adjacent on the other side, and two numbers say which
they are. Tuples that are not pairs are never compared.

    right   x1  x4  x9  y2  y5            a left x5 meets, within 4:  x1 x4 x9 → 0 … 3
                                          a left y7:                  y5       → 4 … 5

Keys are told apart by the upper bits of their hash and the place is in the lower bits, so that sorting one array is enough. Whether different
keys share these bits is checked by comparing neighbours; if they do, the keys are numbered instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from springtide.exchange.hashing import HASH
from springtide.operators.join.pairs import Pairs, PairShape
from springtide.query.types import TS

BLOCK = 1 << 18
"""How many pairs are processed at once: this bounds memory even for hot keys."""

_FIRST, _LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_NUMBER = "__number"


class Indexed:
    """Tuples of one side without null keys, sorted by key and place."""

    def __init__(
        self,
        rows: pl.DataFrame,
        keys: Sequence[str],
        places: np.ndarray | None = None,
        hashes: np.ndarray | None = None,
    ) -> None:
        """Sort. The place is the time unless another one is given; the hash is the one in the rows."""
        self.rows, self.keys = rows, list(keys)
        self._places = rows[TS].to_physical().to_numpy() if places is None else places
        self.hashes = rows[HASH].to_numpy() if hashes is None else hashes
        # Tuples arrive in order of time, or nearly so: then this sort is quick.
        by_place = np.argsort(self._places, kind="stable")
        self.places = self._places[by_place]
        """All places, sorted."""
        self.mask = np.uint64((1 << len(self).bit_length()) - 1)
        """The lower bits, which hold the rank of the place; the upper bits belong to the hash."""
        ranks = np.arange(len(self), dtype=np.uint64)
        self.entries = np.sort(self.hashes[by_place] & ~self.mask | ranks)
        """The upper bits of the hash and the rank of the place of each tuple, in order."""
        self.ranks = (self.entries & self.mask).astype(np.int64)
        """The rank of the place of each tuple, in order."""
        self.order = by_place[self.ranks]
        """The number in `rows` of each tuple, in order."""

    def __len__(self) -> int:
        """Count the tuples."""
        return self.rows.height

    @cached_property
    def arranged(self) -> pl.DataFrame:
        """The tuples in order."""
        return self.rows[self.order]

    @cached_property
    def different_hashes(self) -> np.ndarray:
        """All hashes, sorted, without duplicates."""
        ordered = self.hashes[self.order]
        first = ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(self) else ordered
        return np.unique(first)  # only the upper bits were sorted, but few hashes are left

    @cached_property
    def distinct(self) -> bool:
        """Whether no two keys share the upper bits of their hashes."""
        upper, keys = self.entries & ~self.mask, self.ordered_keys
        shared = pl.Series(upper[1:] == upper[:-1])
        return not any((shared & (keys[k][1:] != keys[k][:-1])).any() for k in self.keys)

    @cached_property
    def ordered_keys(self) -> pl.DataFrame:
        """The keys of the tuples in order."""
        return self.rows.select(self.keys)[self.order]

    def find(self, upper: np.ndarray, ranks: np.ndarray | int = 0) -> np.ndarray:
        """Find where, in order, the tuples begin that have these upper bits and places of at least these ranks."""
        return np.searchsorted(self.entries, upper | np.asarray(ranks).astype(np.uint64))

    def told_apart(self) -> Indexed:
        """Return an index in which the upper bits distinguish all keys."""
        return self if self.distinct else _numbered(self)[0]

    def hashed_by(self, hashes: np.ndarray) -> Indexed:
        """Return an index sorted by other hashes."""
        return Indexed(self.rows, self.keys, self._places, hashes)


@dataclass(frozen=True)
class Match:
    """Which right tuples each left tuple meets: the left tuples `rows` meet the right tuples `low` ≤ … < `high`, all in the order of the index."""

    left: Indexed
    right: Indexed
    rows: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @cached_property
    def total(self) -> int:
        """Count the pairs."""
        return int((self.high - self.low).sum())

    @cached_property
    def is_true(self) -> bool:
        """Whether the keys of all pairs are equal, and not only the bits that were compared."""
        left, right = self.left.ordered_keys[self.rows], self.right.ordered_keys[self.low]
        same = (bool((mine == theirs).all()) for mine, theirs in zip(left, right, strict=True))
        return self.right.distinct and all(same)

    def blocks(self, size: int = BLOCK) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield all pairs, as numbers of left and right tuples in the order of the index; at most `size` at once."""
        counts = self.high - self.low
        ends = np.cumsum(counts)
        starts = ends - counts
        for first in range(0, self.total, size):
            last = min(first + size, self.total)
            some = slice(int(np.searchsorted(ends, first, side="right")), int(np.searchsorted(ends, last)) + 1)
            lengths = np.minimum(ends[some], last) - np.maximum(starts[some], first)
            yield (
                np.repeat(self.rows[some], lengths),
                np.arange(first, last) - np.repeat(starts[some] - self.low[some], lengths),
            )


def within(left: Indexed, right: Indexed, length: int) -> Match:
    """Match tuples with equal keys whose places (times) are at most `length` apart."""
    # Anything outside the range of times is treated as the first or the last time.
    earliest = np.maximum(left.places, _FIRST + length) - length
    latest = np.minimum(left.places, _LAST - length) + length
    low = np.searchsorted(right.places, earliest)[left.ranks]
    high = np.searchsorted(right.places, latest, side="right")[left.ranks]
    rows = np.flatnonzero(low < high)
    upper = left.hashes[left.order[rows]] & ~right.mask
    match = _match(left, right, rows, right.find(upper, low[rows]), right.find(upper, high[rows]))
    if match.is_true:
        return match
    left, right = _numbered(left, right)
    return within(left, right, length)


def last(left: Indexed, right: Indexed, n: int) -> Match:
    """Match each left tuple with the last `n` right tuples of its key that have smaller places."""
    before = np.searchsorted(right.places, left.places)[left.ranks]
    rows = np.flatnonzero(before > 0)
    upper = left.hashes[left.order[rows]] & ~right.mask
    high = right.find(upper, before[rows])
    match = _match(left, right, rows, np.maximum(right.find(upper), high - n), high)
    if match.is_true:
        return match
    left, right = _numbered(left, right)
    return last(left, right, n)


def _match(left: Indexed, right: Indexed, rows: np.ndarray, low: np.ndarray, high: np.ndarray) -> Match:
    some = np.flatnonzero(low < high)
    return Match(left, right, rows[some], low[some], high[some])


def pairs(shape: PairShape, match: Match, *, turned: bool = False) -> Iterator[Pairs]:
    """Make the pairs of a match, block by block, with the numbers of their tuples in the `rows` of both sides.

    With `turned`, the right tuples of the match are the left tuples of the pairs.
    """
    dense = 2 * match.total >= len(match.left) + len(match.right)
    left, right = (match.right, match.left) if turned else (match.left, match.right)
    for numbers in match.blocks():
        i, j = reversed(numbers) if turned else numbers
        if dense:  # it pays to sort the tuples first, because then neighbours are found next to each other
            made = shape.made(left.arranged, right.arranged, i, j)
            yield Pairs(made.rows, left.order[made.left], right.order[made.right])
        else:
            yield shape.made(left.rows, right.rows, left.order[i], right.order[j])


def _numbered(*sides: Indexed) -> list[Indexed]:
    """Index sides by numbers for their keys, which no two keys share."""
    names = [f"{i}" for i in range(len(sides[0].keys))]
    keys = [side.rows.select(pl.col(k).alias(n) for k, n in zip(side.keys, names, strict=True)) for side in sides]
    numbers = pl.concat(keys).unique().with_row_index(_NUMBER)
    free = np.uint64(64 - numbers.height.bit_length())
    found = [k.join(numbers, on=names, how="left", maintain_order="left")[_NUMBER].to_numpy() for k in keys]
    return [side.hashed_by(n.astype(np.uint64) << free) for side, n in zip(sides, found, strict=True)]
