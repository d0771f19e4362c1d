"""Quantiles in bounded memory that depend neither on order nor on partitioning: values are counted in at most k buckets with fixed bounds.

The bits of a float, read as an integer, have the same order as the floats. A bucket of level L has all floats whose integers agree in all but the
last L bits: buckets of level 0 are single floats, and two neighbours of a level form one bucket of the next. A sketch uses the lowest level at which
its values fall into at most k buckets, and keeps the least value, the greatest value and the count of each bucket. The level of two sets combined,
and what is in their buckets, can be computed from their sketches, since neither has a higher level than the combination: merging loses nothing
that the sketch of all values would have.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import polars as pl

_MAGIC = b"Q1"
_SIGN = np.int64(-(2**63))
_MANY = 1 << 13
"""If there are more values than this, about this many of them are used first to find a lower bound for the level."""
_OF_KLL = 1000
"""How many quantiles are taken from a sketch that an older version wrote."""


class _Buckets(NamedTuple):
    """Some buckets of a level, in order: the least value of each, the greatest, and the count."""

    level: int
    least: np.ndarray
    most: np.ndarray
    counts: np.ndarray


def quantile_add(k: int) -> Callable[[pl.Series], bytes]:
    """Make a sketch of numbers; nulls and NaN are skipped."""

    def add(values: pl.Series) -> bytes:
        if values.dtype != pl.Float64:
            values = values.cast(pl.Float64)
        numbers = (
            values.drop_nulls() if values.null_count() else values
        ).to_numpy() + 0.0  # zero is zero, regardless of its sign
        numbers.sort()
        if numbers.size and np.isnan(numbers[-1]):  # NaN comes last
            numbers = numbers[: np.searchsorted(numbers, np.nan)]
        level = 0
        if numbers.size > _MANY:  # the level of all values is at least that of some of them
            level = _coarser(_counted(numbers[:: numbers.size // _MANY + 1], 0), k).level
        return _written(_coarser(_counted(numbers, level), k))

    return add


def quantile_merge(k: int) -> Callable[[pl.Series], bytes]:
    """Merge sketches."""

    def merge(sketches: pl.Series) -> bytes:
        parts = [s if s[:2] == _MAGIC else _of_kll(s) for s in sketches]
        if not parts:  # no groups at all: Polars asks for the type
            return quantile_add(k)(pl.Series([], dtype=pl.Float64))
        if len(parts) == 1:
            return parts[0]
        read = _read(max(s[:3] for s in parts) + b"".join([s[3:] for s in parts]))
        order = read.least.argsort()
        return _written(_coarser(_joined(read.level, *(column[order] for column in read[1:])), k))

    return merge


def quantile_finish(q: float) -> Callable[[bytes], float | None]:
    """Return the smallest value such that at least the share `q` of values is not above it, as far as its bucket can tell."""

    def finish(sketch: bytes) -> float | None:
        buckets = _read(sketch if sketch[:2] == _MAGIC else _of_kll(sketch))
        if not buckets.counts.size:
            return None
        upto = np.cumsum(buckets.counts)
        number = max(math.ceil(q * int(upto[-1])), 1)
        at = int(np.searchsorted(upto, number))
        low, high, count = float(buckets.least[at]), float(buckets.most[at]), int(buckets.counts[at])
        place = number - 1 - int(upto[at] - count)
        if place == 0 or not math.isfinite(high - low):
            return low
        return high if place == count - 1 else low + (high - low) * (place / (count - 1))

    return finish


def _counted(numbers: np.ndarray, level: int) -> _Buckets:
    """Count sorted numbers in the buckets of a level."""
    starts = _starts(_buckets(numbers, level))
    counts = np.diff(starts, append=numbers.size)
    return _Buckets(level, numbers[starts], numbers[starts + counts - 1], counts)


def _coarser(buckets: _Buckets, k: int) -> _Buckets:
    """Go up to the lowest level with at most k buckets."""
    if buckets.counts.size <= k:
        return buckets
    places = _places(buckets.least)
    apart = places[1:] ^ places[:-1]  # neighbours are separate while this, without its last bits, is not zero
    level, high = buckets.level, 64
    while level < high:
        middle = (level + high) // 2
        if np.count_nonzero(apart >> np.uint64(middle)) < k:
            high = middle
        else:
            level = middle + 1
    return _joined(level, *buckets[1:])


def _joined(level: int, least: np.ndarray, most: np.ndarray, counts: np.ndarray) -> _Buckets:
    """Combine entries that fall into the same bucket of a level; they are ordered by their least values."""
    if not counts.size:
        return _Buckets(level, least, most, counts)
    starts = _starts(_buckets(least, level))
    return _Buckets(level, least[starts], np.maximum.reduceat(most, starts), np.add.reduceat(counts, starts))


def _starts(ordered: np.ndarray) -> np.ndarray:
    """Return the positions at which a new value begins."""
    new = np.empty(ordered.size, dtype=bool)
    new[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return new.nonzero()[0]


def _buckets(values: np.ndarray, level: int) -> np.ndarray:
    """Return the buckets of values on a level."""
    if level == 0:
        return values
    places = _places(values)
    places >>= np.uint64(level)
    return places


def _places(values: np.ndarray) -> np.ndarray:
    """Return integers that have the same order as the values and are as far apart as there are floats between them."""
    bits = np.ascontiguousarray(values).view(np.int64)
    places = bits >> 63
    places |= _SIGN
    places ^= bits
    return places.view(np.uint64)


def _written(buckets: _Buckets) -> bytes:
    rows = np.empty((buckets.counts.size, 3))
    rows[:, 0], rows[:, 1], rows.view(np.int64)[:, 2] = buckets[1:]
    return _MAGIC + buckets.level.to_bytes(1) + rows.tobytes()


def _read(sketch: bytes) -> _Buckets:
    rows = np.frombuffer(sketch, np.float64, offset=3).reshape(-1, 3)
    return _Buckets(sketch[2], rows[:, 0], rows[:, 1], rows.view(np.int64)[:, 2])


def _of_kll(sketch: bytes) -> bytes:
    """Read what older versions wrote: a KLL sketch, from which evenly spaced quantiles stand for all values."""
    import datasketches

    kll = datasketches.kll_doubles_sketch.deserialize(sketch)
    size = min(kll.n, _OF_KLL)
    values = np.array([kll.get_quantile((i + 1) / size, True) for i in range(size)], dtype=np.float64) + 0.0
    counts = np.diff(np.arange(size + 1) * kll.n // max(size, 1))
    return _written(_joined(0, values, values, counts))
