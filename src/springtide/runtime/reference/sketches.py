"""Approximate aggregates: the sketches of Apache DataSketches, fed one value at a time."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import datasketches
import polars as pl

from springtide.runtime.reference.values import order_key


def distinct(values: list[Any], dtype: pl.DataType | None, *, k: int) -> int:
    """Estimate the number of distinct values with a theta sketch.

    >>> distinct(["", "a", "a", "b"], pl.String(), k=32)
    3
    """
    sketch = datasketches.update_theta_sketch(lg_k=_exponent(k))
    for value in values:
        sketch.update(json.dumps([_plain(value, dtype)]))
    sketch.trim()
    estimate: float = sketch.get_estimate()
    return round(estimate)


def quantile(values: list[Any], *, q: float, k: int) -> float | None:
    """Estimate the smallest value such that at least a share `q` of the values is not above it, from at most `k` buckets. NaN is skipped.

    >>> quantile([4, 1, 3, 2], q=0.5, k=8)
    2.0
    >>> quantile(range(1000), q=0.5, k=8)
    499.0
    """
    numbers = sorted(n for n in map(float, values) if not math.isnan(n))
    if not numbers:
        return None
    number, bits = max(math.ceil(q * len(numbers)), 1) - 1, 0
    while len({_rank(n) >> bits for n in numbers}) > k:
        bits += 1
    bucket = [n for n in numbers if _rank(n) >> bits == _rank(numbers[number]) >> bits]
    place, low, high = number - numbers.index(bucket[0]), bucket[0], bucket[-1]
    if place == 0 or not math.isfinite(high - low):
        return low
    return high if place == len(bucket) - 1 else low + (high - low) * (place / (len(bucket) - 1))


def _rank(number: float) -> int:
    """Return the number of a float, such that floats are numbered in order: its bits, read as an integer.

    >>> _rank(0.0), _rank(-0.0), _rank(5e-324), _rank(-5e-324)
    (0, 0, 1, -2)
    """
    size: int = struct.unpack(">q", struct.pack(">d", abs(number)))[0]
    return size if number >= 0 else -1 - size


def frequent(values: list[Any], *, n: int, map_size: int) -> list[dict[str, Any]]:
    """Estimate the `n` most frequent values.

    >>> frequent(["b", "a", "c", "c"], n=2, map_size=8)
    [{'value': 'c', 'count': 2}, {'value': 'a', 'count': 1}]
    """
    heaviest = heavy([(value, 1) for value in values], map_size)
    return [{"value": value, "count": count} for value, count in ranked(heaviest)[:n]]


def heavy(weighted: Iterable[tuple[Any, int]], map_size: int) -> list[tuple[Any, int]]:
    """Estimate the sum of weights of each value that a frequent-items sketch still holds."""
    sketch = datasketches.frequent_strings_sketch(_exponent(map_size))
    values = {}
    for value, weight in weighted:
        values[_text(value)] = value
        sketch.update(_text(value), weight)
    found = sketch.get_frequent_items(datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES, 0)
    return [(values[text], estimate) for text, estimate, _, _ in found]


def ranked(weighted: Iterable[tuple[Any, int]]) -> list[tuple[Any, int]]:
    """Return larger weights first; ties go to the smaller value.

    >>> ranked([("b", 1), ("a", 1), ("c", 2)])
    [('c', 2), ('a', 1), ('b', 1)]
    """
    return sorted(weighted, key=lambda item: (-item[1], order_key(item[0])))


def _plain(value: Any, dtype: pl.DataType | None) -> Any:
    """Return a value in a type that JSON has."""
    if isinstance(value, bytes):
        return value.hex()
    return f"{value:f}" if isinstance(value, Decimal) else pl.Series([value], dtype=dtype).to_physical()[0]


def _text(value: Any) -> str:
    """Return a text that differs for different values: the sketches skip empty texts, and treat large integers as floats."""
    return f"={value + 0.0 if isinstance(value, float) else value!r}"  # zero is zero, whatever its sign


def _exponent(power_of_two: int) -> int:
    return power_of_two.bit_length() - 1
