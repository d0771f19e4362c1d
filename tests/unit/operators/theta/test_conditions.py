"""What is understood of a predicate over pairs."""

from __future__ import annotations

import math
from datetime import timedelta

import polars as pl
import pytest

from springtide.operators.theta.conditions import (
    All,
    Any,
    AtMost,
    Condition,
    Conditions,
    Own,
    Same,
    Term,
    conditions_of,
)
from springtide.operators.theta.numeric_types import comparable, limit_of_sums, slack_of_sums, summable

LEFT = pl.Schema(
    {
        "x": pl.Int32(),
        "y": pl.Float32(),
        "k": pl.String(),
        "u": pl.UInt8(),
        "t": pl.Datetime("us"),
        "ts": pl.Datetime("us", "UTC"),
    }
)
RIGHT = pl.Schema(
    {
        "a": pl.Int32(),
        "b": pl.Float32(),
        "j": pl.String(),
        "v": pl.UInt8(),
        "w": pl.Datetime("us"),
        "ts": pl.Datetime("us", "UTC"),
    }
)
X, Y, K, A, B, J, U, V = (pl.col(n) for n in ("x", "y", "k", "a", "b", "j", "u", "v"))


def read(predicate: pl.Expr) -> Conditions:
    return conditions_of(predicate, LEFT, RIGHT)


def text(predicate: pl.Expr) -> str | None:
    """Write what was understood as a formula."""
    found = read(predicate)

    def written(condition: Condition) -> str:
        match condition:
            case All(parts):
                return "(" + " & ".join(map(written, parts)) + ")"
            case Any(parts):
                return "(" + " | ".join(map(written, parts)) + ")"
            case Same(left, right):
                return f"{named(0, left)} = {named(1, right)}"
            case Own(side, number):
                return f"own {named(side, number)}"
            case AtMost(left_terms, right_terms):
                return " ".join(term(0, t) for t in left_terms) + " " + " ".join(term(1, t) for t in right_terms)

    def named(side: int, number: int) -> str:
        return str(found.exprs[side][number]).replace('col("', "").replace('")', "").replace("dyn int: ", "")

    def term(side: int, one: Term) -> str:
        return ("+" if one.sign > 0 else "-") + named(side, one.number)

    return None if found.tree is None else written(found.tree)


def test_a_comparison_is_a_difference_of_at_most_0() -> None:
    assert text(X <= A) == text(X < A) == "+x -a"
    assert text(X >= A) == text(A < X) == "-x +a"
    assert text(X + A <= 7) == "+x -7 +a"
    assert text(X - 1 <= A * 2) == "+[(x) - (1)] -[(a) * (2)]"


def test_a_band_is_two_comparisons() -> None:
    band = "(+x -10 -a & -x -10 +a)"
    assert text((X - A).abs() <= 10) == text(pl.lit(10) >= (X - A).abs()) == band
    assert text((X - A).abs() > 10) == "(-x +10 +a | +x +10 -a)"
    assert text(X.is_between(A - 10, A + 10)) == "(-x +[(a) - (10)] & +x -[(a) + (10)])"
    assert text(-(X - A) < 10) == "-x -10 +a"


def test_equality_of_one_type_is_by_hash_and_of_two_by_order() -> None:
    assert text(K == J) == text(J == K) == "k = j"
    assert text(X == B) == "(+x -b & -x +b)"
    assert text(X - A == 5) == "(+x -5 -a & -x +5 +a)"


def test_and_or_not() -> None:
    assert text((X <= A) & (K == J) & (Y > B)) == "(+x -a & k = j & -y +b)"
    assert text((X <= A) | (K == J)) == "(+x -a | k = j)"
    assert text(~((X <= A) | (Y <= B))) == "(-x +a & -y +b)"
    assert text(~((X <= A) & (Y <= B))) == "(-x +a | -y +b)"
    assert text(pl.all_horizontal(X <= A, Y <= B)) == "(+x -a & +y -b)"
    assert text(pl.any_horizontal(X <= A, Y <= B)) == "(+x -a | +y -b)"
    assert text(~X.is_between(A, B)) == "(+x -a | -x +b)"


def test_what_one_side_says_alone() -> None:
    assert text((X > 3) & (X <= A)) == "(own [(x) > (3)] & +x -a)"
    assert text((A > 3) | (X <= A)) == "(own [(a) > (3)] | +x -a)"


@pytest.mark.parametrize(
    "predicate",
    [
        X * A > 3,
        K < J,
        X != A,
        ~(K == J),
        pl.col("ts") > pl.col("t"),
        (U - V).abs() <= 3,
        pl.when(X > A).then(Y > B).otherwise(False),
        X.eq_missing(A),
        (X > A) ^ (Y > B),
        pl.lit(True),
        (X <= A) | (X * A > 3),
        pl.struct("x", "a").map_elements(lambda _: True, return_dtype=pl.Boolean),
    ],
)
def test_what_is_not_understood_can_be_anything(predicate: pl.Expr) -> None:
    assert read(predicate).tree is None


def test_beside_what_is_not_understood_the_rest_is() -> None:
    assert text((X <= A) & (X * A > 3)) == "+x -a"


def test_sums_may_round_and_overflow_and_values_may_not() -> None:
    plain, ints, floats = (read(p).tree for p in (X <= A, X + A <= 1, Y + B <= 1))
    assert isinstance(plain, AtMost)
    assert isinstance(ints, AtMost)
    assert isinstance(floats, AtMost)
    assert (plain.slack, plain.limit) == (0.0, math.inf)
    assert (ints.slack, ints.limit) == (2**-46, 2.0**30)
    assert (floats.slack, floats.limit) == (2**-18, 1e37)


def test_times_have_to_be_counted_in_one_unit() -> None:
    assert text((pl.col("t") - pl.col("w")).abs() <= timedelta(seconds=1)) is not None
    fine, coarse, length = pl.Datetime("us"), pl.Datetime("ms"), pl.Duration("us")
    assert summable([fine, fine, length])
    assert not summable([fine, coarse, length])
    assert not summable([pl.Date(), pl.Date(), length])
    assert comparable([pl.Date(), pl.Date()])
    assert not comparable([fine, coarse])


def test_the_narrowest_type_sets_the_limit() -> None:
    assert limit_of_sums([pl.Int16(), pl.Float64()]) == 2**14
    assert limit_of_sums([pl.Duration("us")]) == 2**62
    assert slack_of_sums([pl.Int64(), pl.Float32()]) > slack_of_sums([pl.Int64(), pl.Float64()])
