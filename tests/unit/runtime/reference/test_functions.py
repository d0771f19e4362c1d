"""Every aggregate, with nulls, NaN and nothing at all."""

from __future__ import annotations

import math
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.query.errors import UserCodeError
from springtide.testing import at

NAN, INF = math.nan, math.inf


def over(rows_of: Any, values: list[Any], dtype: Any, **aggregates: st.Aggregate) -> Any:
    """Compute aggregates of a column x in one window."""
    s = st.source("s", st.memory(schema={"ts": st.TIME, "x": dtype}), ts="ts")
    found = rows_of(
        s.aggregate(window=st.tumbling("1d"), **aggregates),
        {"s": [{"ts": at(f"{i}s"), "x": v} for i, v in enumerate(values)]},
    )
    return found.row(0)[3:] if len(aggregates) > 1 else found.row(0)[3]


def same(a: Any, b: Any) -> bool:
    return (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b)) or (
        type(a) is type(b) and a == b
    )


@pytest.mark.parametrize(
    ("function", "dtype", "values", "expected"),
    [
        # count
        ("count", pl.Int64, [1, None, 2], 2),
        ("count", pl.Float64, [NAN, None], 1),
        # sum: bools are 0 and 1, nothing adds up to 0
        ("sum", pl.Int64, [1, None, 2], 3),
        ("sum", pl.Int8, [127, 127], 254),
        ("sum", pl.UInt8, [255, 255], 510),
        ("sum", pl.Boolean, [True, False, True, None], 2),
        ("sum", pl.Int64, [None], 0),
        ("sum", pl.Float64, [None], 0.0),
        ("sum", pl.Float64, [1e100, 1.0, -1e100], 1.0),
        ("sum", pl.Float64, [0.1] * 10, 1.0),
        ("sum", pl.Float32, [0.5, 0.25], 0.75),
        ("sum", pl.Float64, [1.0, NAN], NAN),
        ("sum", pl.Float64, [INF, 1.0], INF),
        ("sum", pl.Float64, [INF, -INF], NAN),
        ("sum", pl.Float64, [1e308, 1e308, -1e308], 1e308),
        ("sum", pl.Float64, [1e308, 1e308], INF),
        ("sum", pl.Float64, [-1e308, -1e308], -INF),
        ("sum", pl.Decimal(38, 2), [Decimal("9" * 30 + ".25"), Decimal("0.50"), None], Decimal("9" * 30 + ".75")),
        ("sum", pl.Decimal(10, 2), [None], Decimal("0.00")),
        ("sum", pl.Duration("us"), [timedelta(seconds=1), None, timedelta(seconds=2)], timedelta(seconds=3)),
        ("sum", pl.Duration("us"), [None], timedelta(0)),
        # mean
        ("sum", pl.Int64, [2**63 - 1, 1, -1], 2**63 - 1),
        ("sum", pl.UInt64, [2**64 - 2, 1], 2**64 - 1),
        ("mean", pl.Int64, [1, None, 2], 1.5),
        ("mean", pl.Int64, [2**63 - 1, 2**63 - 1], 2.0**63),
        ("mean", pl.Boolean, [True, False, None], 0.5),
        ("mean", pl.Float64, [1.0, NAN], NAN),
        ("mean", pl.Int64, [None], None),
        ("mean", pl.Decimal(10, 2), [Decimal("0.50"), Decimal("1.00")], 0.75),
        ("mean", pl.Duration("us"), [timedelta(microseconds=3), timedelta(microseconds=4)], timedelta(microseconds=3)),
        (
            "mean",
            pl.Duration("us"),
            [timedelta(microseconds=-3), timedelta(microseconds=-4)],
            timedelta(microseconds=-3),
        ),
        ("mean", pl.Duration("us"), [None], None),
        # min and max: NaN only when there is nothing else
        ("min", pl.Int64, [3, None, 1], 1),
        ("max", pl.Int64, [3, None, 1], 3),
        ("min", pl.Int64, [None], None),
        ("max", pl.Int64, [None], None),
        ("min", pl.Float64, [NAN, 2.0, None], 2.0),
        ("max", pl.Float64, [2.0, NAN], 2.0),
        ("max", pl.Float64, [None, NAN], NAN),
        ("min", pl.String, ["b", "", None], ""),
        ("max", pl.String, ["b", "é", "Z"], "é"),
        ("min", pl.Boolean, [True, False], False),
        ("max", pl.Binary, [b"a", b"\xff"], b"\xff"),
        ("max", pl.Date, [date(2024, 1, 2), date(2024, 1, 1)], date(2024, 1, 2)),
        ("min", pl.Decimal(10, 2), [Decimal("1.10"), Decimal("-1.10")], Decimal("-1.10")),
        # var and std: n − 1
        ("var", pl.Int64, [1, None, 2, 3, 4], 5 / 3),
        ("std", pl.Float64, [2.0, 4.0], math.sqrt(2)),
        ("var", pl.Float64, [5.0, None], None),
        ("std", pl.Float64, [None], None),
        ("var", pl.Float64, [1.0, NAN], NAN),
        ("var", pl.Float64, [1.0, INF], NAN),
        ("var", pl.Float64, [1e9 + 1, 1e9 + 2, 1e9 + 3], 1.0),
        ("var", pl.Int64, [2**52, 2**52 + 1, 2**52 + 2], 1.0),
        ("var", pl.Int64, [2**62, 2**62 + 1, 2**62 + 2], 0.0),
        ("var", pl.Decimal(10, 1), [Decimal("0.5"), Decimal("1.5")], 0.5),
        # first, last and collect: null or not
        ("first", pl.Int64, [None, 1], None),
        ("last", pl.Int64, [1, None], None),
        ("first", pl.List(pl.Int64), [[1], [2]], [1]),
        ("collect", pl.Int64, [2, None, 1, 2], [2, None, 1, 2]),
        ("collect", pl.List(pl.String), [["a"], None], [["a"], None]),
        # count_distinct
        ("count_distinct", pl.String, ["a", None, "", "a"], 2),
        ("count_distinct", pl.Boolean, [True, False, True], 2),
        ("count_distinct", pl.Int64, [None], 0),
    ],
)
def test_function(rows_of: Any, function: str, dtype: Any, values: list[Any], expected: Any) -> None:
    found = over(rows_of, values, dtype, it=getattr(st, function)("x"))
    assert same(found, expected), found


def test_count_of_tuples_counts_nulls_too(rows_of: Any) -> None:
    assert over(rows_of, [None, 1], pl.Int64, n=st.count(), some=st.count("x")) == (2, 1)


def test_times_keep_their_nanoseconds(rows_of: Any) -> None:
    frame = pl.DataFrame({"ts": [0, 1], "d": [5, 7]}, schema={"ts": pl.Int64, "d": pl.Datetime("ns")})
    s = st.source("s", st.memory(frame), ts="ts")
    found = rows_of(s.aggregate(window=st.tumbling("1d"), low=st.min("d"), all=st.collect("d")))
    assert found["low"].cast(pl.Int64).to_list() == [5]
    assert found["all"].cast(pl.List(pl.Int64)).to_list() == [[5, 7]]


def test_an_expression_as_input(rows_of: Any) -> None:
    assert over(rows_of, [1, 2, 3], pl.Int64, odd=st.sum(pl.col("x") % 2), ones=st.sum(pl.lit(1))) == (2, 3)


def test_aggregates_have_the_types_of_the_schema(rows_of: Any) -> None:
    s = st.source("s", st.memory(schema={"ts": st.TIME, "x": pl.UInt16, "f": pl.Float32}), ts="ts")
    stream = s.aggregate(
        window=st.tumbling("1d"), n=st.count(), u=st.sum("x"), low=st.min("x"), f=st.sum("f"), g=st.max("f")
    )
    assert rows_of(stream, {"s": [{"ts": at("0s"), "x": 5, "f": 0.1}]}).schema == stream.schema


# ── sketches: exact while they are small ──────────────────────────────────────────────────────────────────────────


def test_approx_distinct(rows_of: Any) -> None:
    """Also of empty texts and of the largest integers, which sketches do not take as they are."""
    assert over(rows_of, ["", "a", None, "a"], pl.String, n=st.approx_distinct("x")) == 2
    assert over(rows_of, [2**64 - 1, 2**64 - 2, 2**64 - 1], pl.UInt64, n=st.approx_distinct("x")) == 2
    assert over(rows_of, [b"", b"a"], pl.Binary, n=st.approx_distinct("x")) == 2
    assert over(rows_of, [Decimal("1.5"), Decimal("1.50")], pl.Decimal(5, 2), n=st.approx_distinct("x")) == 1
    assert over(rows_of, [None], pl.Int64, n=st.approx_distinct("x")) == 0
    assert over(rows_of, list(range(32)), pl.Int64, n=st.approx_distinct("x", k=32)) == 32


def test_approx_distinct_beyond_its_size_is_near(rows_of: Any) -> None:
    found = over(rows_of, list(range(1000)), pl.Int64, n=st.approx_distinct("x", k=64))
    assert abs(found - 1000) < 4 * 1000 * 2 / math.sqrt(64)


@pytest.mark.parametrize(
    ("q", "expected"), [(0, 1.0), (0.1, 1.0), (0.1000001, 2.0), (0.5, 5.0), (0.51, 6.0), (0.95, 10.0), (1, 10.0)]
)
def test_approx_quantile(rows_of: Any, q: float, expected: float) -> None:
    """The smallest value with at least the share q of values not above it."""
    values = [7, 3, None, 1, 10, 2, 8, 4, 6, 9, 5]
    assert over(rows_of, values, pl.Int64, q=st.approx_quantile("x", q)) == expected


def test_approx_quantile_of_nothing_and_of_nan(rows_of: Any) -> None:
    assert over(rows_of, [None], pl.Float64, q=st.approx_quantile("x", 0.5)) is None
    assert over(rows_of, [NAN], pl.Float64, q=st.approx_quantile("x", 0.5)) is None
    assert over(rows_of, [NAN, 2.0], pl.Float64, q=st.approx_quantile("x", 0.5)) == 2.0


def test_approx_frequent(rows_of: Any) -> None:
    """Larger counts first, ties to the smaller value, nulls skipped."""
    values = ["c", "b", "a", "b", None, "c", "", "d"]
    expected = [{"value": "b", "count": 2}, {"value": "c", "count": 2}, {"value": "", "count": 1}]
    assert over(rows_of, values, pl.String, top=st.approx_frequent("x", 3, map_size=8)) == expected
    dates = [date(2024, 1, 2), date(2024, 1, 1)]
    found = over(rows_of, dates, pl.Date, top=st.approx_frequent("x", 1))
    assert found == [{"value": date(2024, 1, 1), "count": 1}]
    assert over(rows_of, [None], pl.Int64, top=st.approx_frequent("x", 1)) == []


# ── a user's own ──────────────────────────────────────────────────────────────────────────────────────────────────

GEOMETRIC_MEAN = st.user_aggregate(
    init={"n": 0, "logs": 0.0},
    add={"n": pl.col("x").count().cast(pl.Int64), "logs": pl.col("x").log().sum()},
    merge={"n": pl.col("n").sum(), "logs": pl.col("logs").sum()},
    finish=(pl.col("logs") / pl.col("n")).exp(),
)


def test_user_aggregate(rows_of: Any) -> None:
    assert over(rows_of, [1.0, 10.0, None, 100.0], pl.Float64, g=GEOMETRIC_MEAN) == pytest.approx(10.0)
    assert math.isnan(over(rows_of, [None], pl.Float64, g=GEOMETRIC_MEAN))


def test_user_aggregate_begins_with_init(rows_of: Any) -> None:
    """`init` is merged in once, whatever it is."""
    from_100 = st.user_aggregate(
        init={"t": 100}, add={"t": pl.col("x").sum()}, merge={"t": pl.col("t").sum()}, finish=pl.col("t") * 2
    )
    assert over(rows_of, [1, 2], pl.Int64, t=from_100) == 206


def test_user_aggregate_that_fails(rows_of: Any) -> None:
    strict = st.user_aggregate(
        init={"t": 0},
        add={"t": pl.col("x").cast(pl.Int64).sum()},
        merge={"t": pl.col("t").sum()},
        finish=pl.col("t"),
    )
    with pytest.raises(UserCodeError, match=r"aggregate \(aggregate\), aggregate 't', add: .*'x': 'no'"):
        over(rows_of, ["1", "no"], pl.String, t=strict)
