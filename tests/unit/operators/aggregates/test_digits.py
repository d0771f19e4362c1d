"""Numbers as digits: no bit of a float is lost, and what is put together again is rounded once."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from springtide.operators.aggregates import digits
from springtide.operators.aggregates.digits import AT, DIGIT, Digits

EDGES = [
    0.0,
    -0.0,
    5e-324,
    -5e-324,
    2.0**-64,
    2.0**-65,
    2.0**31,
    2.0**32,
    2.0**63,
    -(2.0**63),
    1.7976931348623157e308,
    0.1,
]
FLOATS = some.floats(allow_nan=False, allow_infinity=False) | some.floats(-1e9, 1e9) | some.sampled_from(EDGES)


def put_together(found: Digits, height: int) -> list[Fraction]:
    """Add the digits of each value up, without rounding."""
    totals = [Fraction(0)] * height
    for place, column in found.dense.items():
        totals = [t + int(d) * Fraction(2) ** (32 * place) for t, d in zip(totals, column, strict=True)]
    for row, at, digit in [] if found.rest is None else found.rest.select("row", AT, DIGIT).iter_rows():
        totals[row] += digit * Fraction(2) ** (32 * at)
    return totals


@settings(max_examples=100)
@given(some.lists(FLOATS, min_size=1, max_size=20))
def test_no_bit_is_lost(values: list[float]) -> None:
    column = np.array(values)
    assert put_together(digits.split(column), len(values)) == [Fraction(v) for v in values]
    assert put_together(digits.split_squares(column), len(values)) == [Fraction(v) ** 2 for v in values]


@pytest.mark.parametrize("places", [(0,), (1, 0), (1, 0, -1, -2), (3, 2, 1, 0)])
@settings(max_examples=60)
@given(some.data())
def test_numbers_are_rounded_once(places: tuple[int, ...], data: some.DataObject) -> None:
    digit = some.integers(-(2**62), 2**62) | some.integers(-3, 3) | some.sampled_from([2**31, 2**32 - 1, 2**20])
    rows = data.draw(some.lists(some.tuples(*(digit for _ in places)), min_size=1, max_size=10))
    columns = {p: np.array([row[i] for row in rows], dtype=np.int64) for i, p in enumerate(places)}
    exact = [sum((d * Fraction(2) ** (32 * p) for p, d in zip(places, row, strict=True)), Fraction(0)) for row in rows]
    assert digits.rounded(columns, len(rows)).tolist() == [float(x) for x in exact]


def test_ties_go_to_even_and_the_last_bit_decides() -> None:
    #            2⁵³ + 1: a tie       and a little more     and a little less
    columns = {1: [2**21, 2**21, 2**21], 0: [1, 1, 1], -1: [0, 0, 0], -2: [0, 1, -1]}
    rounded = digits.rounded({p: np.array(c, dtype=np.int64) for p, c in columns.items()}, 3)
    assert rounded.tolist() == [2.0**53, 2.0**53 + 2, 2.0**53]


def test_what_is_no_number_is_counted() -> None:
    found = digits.split(np.array([math.nan, math.inf, 1.0, -math.inf]))
    assert found.rest is not None
    assert found.rest.rows() == [(0, digits.NAN, 1), (1, digits.INFINITY, 1), (3, digits.MINUS_INFINITY, 1)]


@given(some.lists(some.integers(-(2**62), 2**62), min_size=1, max_size=8))
def test_carrying_changes_no_number(values: list[int]) -> None:
    names = {1: "high", 0: "low"}
    frame = pl.DataFrame(
        {"high": [v >> 40 for v in values], "low": values}, schema=dict.fromkeys(["high", "low"], pl.Int64)
    )
    carried = frame.with_columns(digits.carry(names))
    assert [h * 2**32 + low for h, low in carried.rows()] == [h * 2**32 + low for h, low in frame.rows()]
    assert all(0 <= low < 2**32 for low in carried["low"])


@settings(max_examples=200)
@given(some.lists(some.floats(-1e9, 1e9) | some.sampled_from(EDGES), min_size=1, max_size=20), some.integers(1, 10**6))
def test_sums_of_two_units_are_exact(values: list[float], repeated: int) -> None:
    """Where units are found and nothing is left, the sum of the whole numbers, as digits, is the sum of the floats."""
    column = pl.Series("x", values * repeated if len(values) * repeated < 1_000 else values)
    scale = digits.FloatScale.of(column)
    if scale is None:
        assert max(map(abs, values)) >= 2.0**63 or max(map(abs, values)) < 2.0**-2
        return
    frame = column.to_frame().with_columns(a=scale.coarse(pl.col("x")))
    frame = frame.with_columns(left=scale.left(pl.col("x"), pl.col("a")))
    frame = frame.with_columns(b=pl.col("left").cast(pl.Int64))
    if (frame["left"] != frame["b"]).any():
        return
    found: dict[int, int] = {}
    for name, power in (("a", scale.first), ("b", scale.second)):
        for place, digit in digits.placed(np.array([frame[name].sum()]), power).items():
            assert place in digits.PLACES
            found[place] = found.get(place, 0) + int(digit[0])
    total = sum((d * Fraction(2) ** (32 * place) for place, d in found.items()), Fraction(0))
    assert total == sum(map(Fraction, column.to_list()), Fraction(0))


def test_whole_numbers_of_any_length_are_added_up_without_a_wrap() -> None:
    column = pl.Series("x", [2.0**62 + 2.0**30] * 1_000)
    scale = digits.FloatScale.of(column)
    assert scale is not None
    found = digits.placed(
        np.array([column.to_frame().select(scale.coarse(pl.col("x"))).to_series().sum()]), scale.first
    )
    assert sum(int(d[0]) * 2 ** (32 * p) for p, d in found.items()) == 1_000 * int(column[0])
