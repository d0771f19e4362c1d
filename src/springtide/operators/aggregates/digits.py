"""Exact sums: numbers as a few digits of 32 bits, each an `Int64`, so that adding, merging and subtracting are exact in any order.

    x = … + d₁·2³² + d₀ + d₋₁·2⁻³² + d₋₂·2⁻⁶⁴ + …          d₁ is the digit at place 1

An integer has two digits, a decimal four. A float has those at `PLACES`, which cover any float below 2⁶³ down to multiples of 2⁻⁶⁴. The few other floats, NaN and the
infinities are kept in a list of digits with their places, the *rest*, which is almost always null. A sum has 31 spare bits in every digit; `carry` frees them again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
import polars as pl

BITS: Final = 32
MASK: Final = 2**BITS - 1

PLACES: Final = (1, 0, -1, -2)
"""The places at which floats have digits of their own."""
SQUARE_PLACES: Final = (1, 0, -1, -2, -3, -4)
"""The places at which squares of floats have digits of their own."""

AT, DIGIT = "__at", "__digit"
REST: Final = pl.List(pl.Struct({AT: pl.Int16(), DIGIT: pl.Int64()}))
"""Digits at other places."""

NAN, INFINITY, MINUS_INFINITY = 1001, 1002, 1003
"""Places in the rest where NaN and the infinities are counted."""

_TOP: Final = 2.0**63
_SMALL, _LARGE = 2.0**-200, 2.0**31
"""Squares of numbers between these bounds are computed without looking at exponents."""


@dataclass(frozen=True)
class Digits:
    """The digits of a column of floats; nulls have none."""

    dense: Mapping[int, np.ndarray]
    """Place → the digit of each value; places where no value has a digit may be missing."""
    rest: pl.DataFrame | None
    """`row`, `__at`, `__digit` of values with digits elsewhere; None if there are none."""


def split(values: np.ndarray, places: Sequence[int] = PLACES) -> Digits:
    """Split floats into digits."""
    dense, odd = _dense(values, places)
    if odd is None:
        return Digits(dense, None)
    return Digits({p: np.where(odd, 0, d) for p, d in dense.items()}, _elsewhere(values, odd))


@dataclass(frozen=True)
class FloatScale:
    """Two units for floats such that a whole column can be added up in 64 bits: value = coarse · 2^-first + fine · 2^-second."""

    first: int
    second: int

    @staticmethod
    def of(values: pl.Series) -> FloatScale | None:
        """Find units that hold the greatest float, and as many lower bits as there is room for; None if there are no such units."""
        least, most = values.nan_min(), values.nan_max()
        if not isinstance(least, float) or not isinstance(most, float):
            return None
        greatest = max(most, -least)
        if not greatest < _TOP:  # NaN is not below anything
            return None
        room = 62 - len(values).bit_length()
        first = room - math.frexp(greatest)[1]
        second = min(first + room, -BITS * PLACES[-1])
        return FloatScale(first, second) if first < second else None

    def coarse(self, x: pl.Expr) -> pl.Expr:
        """Return how many whole first units the value has."""
        return (x * 2.0**self.first).cast(pl.Int64)

    def left(self, x: pl.Expr, coarse: pl.Expr) -> pl.Expr:
        """Return the remainder in second units: a whole number, unless the value has still lower bits."""
        return (x * 2.0**self.first - coarse) * 2.0 ** (self.second - self.first)


def placed(sums: np.ndarray, scale: int) -> dict[int, np.ndarray]:
    """Return the digits of whole numbers divided by 2^scale."""
    place, shift = -scale >> 5, -scale & 31
    low, high = (sums & MASK) << shift, (sums >> BITS) << shift
    found = {place: low & MASK, place + 1: (low >> BITS) + (high & MASK), place + 2: high >> BITS}
    top = PLACES[0]
    for above in [p for p in found if p > top]:  # the highest digit takes everything above it
        more = found.pop(above) << BITS * (above - top)
        found[top] = found[top] + more if top in found else more
    return found


def split_squares(values: np.ndarray) -> Digits:
    """Split the squares of floats, which have up to 106 bits, into digits."""
    size = np.abs(values)
    odd = ~((size < _LARGE) & ((size > _SMALL) | (size == 0)))
    high, low = _square(np.where(odd, 0.0, values) if odd.any() else values)
    dense, strange = _dense(high, SQUARE_PLACES)
    more, stranger = _dense(low, SQUARE_PLACES)
    for place, digits in more.items():
        dense[place] = dense[place] + digits if place in dense else digits
    for found in (strange, stranger):
        if found is not None:
            odd = odd | found
    if not odd.any():
        return Digits(dense, None)
    return Digits({p: np.where(odd, 0, d) for p, d in dense.items()}, _elsewhere(values, odd, squared=True))


def _dense(values: np.ndarray, places: Sequence[int]) -> tuple[dict[int, np.ndarray], np.ndarray | None]:
    """Return the digits at some places, from 1 down, and which values have digits elsewhere (None if there are none)."""
    dense: dict[int, np.ndarray] = {}
    if not values.size:
        return dense, None
    size = np.abs(values)
    greatest = size.max()
    odd = None
    if not greatest < _TOP:  # NaN is not below anything
        odd = ~(size < _TOP)
        values = np.where(odd, 0.0, values)
    left = values
    if not greatest < 2.0**BITS:
        digit = (values * 2.0**-BITS).astype(np.int64)
        dense[1] = digit
        left = values - digit * 2.0**BITS
    for place in places[1:]:
        digit = left.astype(np.int64)
        dense[place] = digit
        left = left - digit
        if not left.any():
            return dense, odd
        left *= 2.0**BITS
    odd = left != 0 if odd is None else odd | (left != 0)
    return dense, odd


def _square(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two floats whose sum is the square, exactly (Dekker)."""
    high, low = _halves(values)
    whole = values * values
    return whole, ((high * high - whole) + 2 * high * low) + low * low


def product(a: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
    """Return two floats whose sum is the product, exactly unless it is very large or small."""
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    whole = a * b
    return [whole, ((a_high * b_high - whole) + a_high * b_low + a_low * b_high) + a_low * b_low]


def _halves(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scaled = values * 134217729.0
    high = scaled - (scaled - values)
    return high, values - high


def _elsewhere(values: np.ndarray, odd: np.ndarray, *, squared: bool = False) -> pl.DataFrame:
    rows = np.flatnonzero(odd)
    chosen = values[rows]
    finite = np.isfinite(chosen)
    special = np.where(np.isnan(chosen), NAN, np.where(chosen > 0, INFINITY, MINUS_INFINITY))[~finite]
    parts = [(rows[~finite], special, np.ones(special.size, dtype=np.int64))]
    rows, chosen = rows[finite], chosen[finite]
    mantissa, exponent = np.frexp(chosen)
    if squared:
        for part in _square(mantissa):
            parts += _universal(rows, part, 2 * exponent)
    else:
        parts += _universal(rows, mantissa, exponent)
    row, at, digit = (np.concatenate(column) for column in zip(*parts, strict=True))
    frame = pl.DataFrame({"row": row, AT: at.astype(np.int16), DIGIT: digit})
    return frame.filter(pl.col(DIGIT) != 0)


def _universal(
    rows: np.ndarray, values: np.ndarray, exponents: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return the three digits of any finite floats times powers of two: rows, places, digits."""
    mantissa, exponent = np.frexp(values)
    whole = (mantissa * 2.0**53).astype(np.int64)
    power = exponent.astype(np.int64) + exponents - 53
    place, shift = power >> 5, power & 31
    low, high = (whole & MASK) << shift, (whole >> BITS) << shift
    return [
        (rows, place, low & MASK),
        (rows, place + 1, (low >> BITS) + (high & MASK)),
        (rows, place + 2, high >> BITS),
    ]


def carry(columns: Mapping[int, str]) -> list[pl.Expr]:
    """Bring every digit but the highest back to 32 bits."""
    exprs: list[pl.Expr] = []
    over: pl.Expr | None = None
    for place in sorted(columns):
        digit = pl.col(columns[place]) if over is None else pl.col(columns[place]) + over
        over = digit // 2**BITS
        exprs.append((digit & MASK if place != max(columns) else digit).alias(columns[place]))
    return exprs


def rounded(digits: Mapping[int, np.ndarray], height: int) -> np.ndarray:
    """Return the floats nearest to the numbers with these digits, ties to even."""
    digits = {p: d for p, d in digits.items() if d.any()}
    if not digits:
        return np.zeros(height)
    places = range(min(digits), max(digits) + 1)
    given = np.stack([digits.get(p, np.zeros(height, dtype=np.int64)) for p in places])
    negative = carried(given)[-1] < 0
    parts = carried(np.where(negative, -given, given))[::-1].astype(np.uint64)  # the highest first
    parts = np.concatenate([parts, np.zeros((2, height), dtype=np.uint64)])
    some = parts != 0
    lead = np.argmax(some, axis=0)
    below = np.logical_or.accumulate(some[::-1], axis=0)[::-1]  # at this place or below
    below = np.concatenate([below, np.zeros((1, height), dtype=bool)])

    def taken(of: np.ndarray, at: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.take_along_axis(of, np.minimum(at, of.shape[0] - 1)[None], axis=0)[0]
        return found

    first, second, third = (taken(parts, lead + i) for i in range(3))
    shift = (BITS - np.frexp(first.astype(np.float64))[1]).astype(np.uint64)
    bits, mask = np.uint64(BITS), np.uint64(MASK)
    top = ((first << bits | second) << shift) | (third >> (bits - shift))
    lost = ((third << shift) & mask != 0) | taken(below, lead + 3)
    # 64 bits, the last of them set if anything was cut off: rounding these rounds the number correctly.
    size = np.ldexp(
        (top | lost).astype(np.float64), BITS * (max(places) - lead.astype(np.int64)) - shift.astype(np.int64)
    )
    size[~some.any(axis=0)] = 0.0
    result: np.ndarray = np.where(negative, -size, size)
    return result


def carried(digits: np.ndarray) -> np.ndarray:
    """Bring digits (the lowest first) to 32 bits; one more row holds what is left over, with the sign."""
    result = np.empty((digits.shape[0] + 1, digits.shape[1]), dtype=np.int64)
    over = np.zeros(digits.shape[1], dtype=np.int64)
    for i, row in enumerate(digits):
        total = row + over
        result[i], over = total & MASK, total >> BITS
    result[-1] = over
    return result


def whole_numbers(digits: Mapping[int, np.ndarray], lowest: int, height: int) -> list[int]:
    """Return the numbers divided by 2^(32·lowest), as integers of any length."""
    totals = [0] * height
    for place, column in digits.items():
        if column.any():
            shift = BITS * (place - lowest)
            totals = [t + (d << shift) for t, d in zip(totals, column.tolist(), strict=True)]
    return totals


def with_rest(digits: Fraction, rest: Sequence[Mapping[str, int]]) -> Fraction | float:
    """Add the rest, treating NaN and infinities as IEEE 754 does."""
    counts = {d[AT]: d[DIGIT] for d in rest}
    nan, plus, minus = (counts.pop(at, 0) for at in (NAN, INFINITY, MINUS_INFINITY))
    if nan or (plus and minus):
        return math.nan
    if plus or minus:
        return math.inf if plus else -math.inf
    return digits + sum(d * Fraction(2) ** (BITS * at) for at, d in counts.items())


def as_float(exact: Fraction | int | float) -> float:
    """Round once; a number that is too large becomes infinite."""
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
