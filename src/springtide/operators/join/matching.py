"""Pairs of two frames with equal keys: which tuples of the other side does each tuple meet?

Tuples of each side are put into the order of (key, place): then those that one tuple meets stand side by side on the other side, and a pair of
numbers says which they are. Nothing is compared that is no pair.

    right   x1  x4  x9  y2  y5            a left x5 meets, within 4:  x1 x4 x9 → 0 … 3
                                          a left y7:                  y5       → 4 … 5

Keys are told apart by the upper bits of their hash, the place is in the lower bits, so that one sort of one array does it. That different keys
share these bits is seen by looking at the neighbours; then the keys are numbered instead.
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
"""How many pairs are looked at in one go: this bounds memory, whatever a hot key does."""

_FIRST, _LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_NUMBER = "__number"


class Indexed:
    """Tuples of one side without null keys, in the order of key and place."""

    def __init__(
        self,
        rows: pl.DataFrame,
        keys: Sequence[str],
        places: np.ndarray | None = None,
        hashes: np.ndarray | None = None,
    ) -> None:
        """Sort. The place is the time, if no other one is given; the hash is that in the rows."""
        self.rows, self.keys = rows, list(keys)
        self._places = rows[TS].to_physical().to_numpy() if places is None else places
        self.hashes = rows[HASH].to_numpy() if hashes is None else hashes
        # What arrives is in the order of time, or nearly: this sort is quick then.
        by_place = np.argsort(self._places, kind="stable")
        self.places = self._places[by_place]
        """All places, sorted."""
        self.mask = np.uint64((1 << len(self).bit_length()) - 1)
        """The lower bits, where the rank of the place is; the upper ones are the hash's."""
        ranks = np.arange(len(self), dtype=np.uint64)
        self.entries = np.sort(self.hashes[by_place] & ~self.mask | ranks)
        """Upper bits of the hash and rank of the place of each tuple, in order."""
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
        """All hashes, sorted, each once."""
        ordered = self.hashes[self.order]
        first = ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(self) else ordered
        return np.unique(first)  # only the upper bits were in order, but there are few left

    @cached_property
    def distinct(self) -> bool:
        """No two keys share the upper bits of their hashes."""
        upper, keys = self.entries & ~self.mask, self.ordered_keys
        shared = pl.Series(upper[1:] == upper[:-1])
        return not any((shared & (keys[k][1:] != keys[k][:-1])).any() for k in self.keys)

    @cached_property
    def ordered_keys(self) -> pl.DataFrame:
        """The keys of the tuples in order."""
        return self.rows.select(self.keys)[self.order]

    def find(self, upper: np.ndarray, ranks: np.ndarray | int = 0) -> np.ndarray:
        """Find where, in order, tuples with these upper bits begin whose places have these ranks or greater ones."""
        return np.searchsorted(self.entries, upper | np.asarray(ranks).astype(np.uint64))

    def told_apart(self) -> Indexed:
        """Return an index in which the upper bits tell all keys apart."""
        return self if self.distinct else _numbered(self)[0]

    def hashed_by(self, hashes: np.ndarray) -> Indexed:
        """Sort by other hashes."""
        return Indexed(self.rows, self.keys, self._places, hashes)


@dataclass(frozen=True)
class Match:
    """Which right tuples each left tuple meets: of the left ones `rows`, the right ones `low` ≤ … < `high`, all in the order of the index."""

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
        """The keys of all pairs are equal, not only the bits that were compared."""
        left, right = self.left.ordered_keys[self.rows], self.right.ordered_keys[self.low]
        same = (bool((mine == theirs).all()) for mine, theirs in zip(left, right, strict=True))
        return self.right.distinct and all(same)

    def blocks(self, size: int = BLOCK) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Return all pairs, as numbers of left and right tuples in the order of the index; at most `size` at once."""
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
    # What would lie outside of all times is as good as the first or the last one.
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
    """Make the pairs of a match, block by block, with the numbers of their tuples in `rows` of both sides.

    With `turned`, what the match calls right are the left tuples of the pairs.
    """
    dense = 2 * match.total >= len(match.left) + len(match.right)
    left, right = (match.right, match.left) if turned else (match.left, match.right)
    for numbers in match.blocks():
        i, j = reversed(numbers) if turned else numbers
        if dense:  # it pays to bring the tuples into order, because then each is found beside the one before
            made = shape.made(left.arranged, right.arranged, i, j)
            yield Pairs(made.rows, left.order[made.left], right.order[made.right])
        else:
            yield shape.made(left.rows, right.rows, left.order[i], right.order[j])


def _numbered(*sides: Indexed) -> list[Indexed]:
    """Sort sides by numbers of their keys, which no two keys share."""
    names = [f"{i}" for i in range(len(sides[0].keys))]
    keys = [side.rows.select(pl.col(k).alias(n) for k, n in zip(side.keys, names, strict=True)) for side in sides]
    numbers = pl.concat(keys).unique().with_row_index(_NUMBER)
    free = np.uint64(64 - numbers.height.bit_length())
    found = [k.join(numbers, on=names, how="left", maintain_order="left")[_NUMBER].to_numpy() for k in keys]
    return [side.hashed_by(n.astype(np.uint64) << free) for side, n in zip(sides, found, strict=True)]
