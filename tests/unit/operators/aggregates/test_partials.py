"""Aggregate functions as partial results: however tuples are shared out and merged again, the value is the reference's."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import springtide as st
from springtide.exchange import order
from springtide.operators.aggregates.digits import REST
from springtide.operators.aggregates.partials import ROWS, WHY, Partials
from springtide.query.steps import Aggregate
from springtide.testing import compare

NAN = math.nan
HALF = st.user_aggregate(
    init={"n": 0, "s": 0},
    add={"n": pl.col("x").count().cast(pl.Int64), "s": pl.col("x").cast(pl.Int64).sum()},
    merge={"n": pl.col("n").sum(), "s": pl.col("s").sum()},
    finish=pl.col("s") * 10 + pl.col("n"),
)

INTS = [1, 5, None, -3, 5, 0, None]
CASES: list[tuple[str, Any, list[Any], st.Aggregate]] = [
    ("count()", pl.Int64, INTS, st.count()),
    ("count(x)", pl.Int64, INTS, st.count("x")),
    ("count of an expression", pl.Int64, INTS, st.count(pl.col("x") + 1)),
    ("sum", pl.Int64, INTS, st.sum("x")),
    ("sum of nothing", pl.Int64, [None, None], st.sum("x")),
    ("sum that does not fit", pl.Int64, [2**63 - 1, 2], st.sum("x")),
    ("sum that fits in the end", pl.Int64, [2**63 - 1, 2, -2, None], st.sum("x")),
    ("least sum", pl.Int64, [-(2**62), -(2**62)], st.sum("x")),
    ("sum below the least", pl.Int64, [-(2**62), -(2**62), -1], st.sum("x")),
    ("sum of u64 that does not fit", pl.UInt64, [2**64 - 1, 1], st.sum("x")),
    ("sum of u64 that just fits", pl.UInt64, [2**64 - 2, 1], st.sum("x")),
    ("sum of durations that does not fit", pl.Duration("us"), [2**62, 2**62, 1], st.sum("x")),
    ("sum of floats of all sizes", pl.Float64, [1e100, 0.1, -1e100, 5e-324, 0.2, 1e-30, None], st.sum("x")),
    ("sum of floats over the greatest", pl.Float64, [1.7e308, 1.7e308, -1.7e308], st.sum("x")),
    ("sum of floats that is infinite", pl.Float64, [1.7e308, 1.7e308], st.sum("x")),
    ("sum with infinity", pl.Float64, [1.0, math.inf, 2.0], st.sum("x")),
    ("sum with both infinities", pl.Float64, [-math.inf, math.inf, 2.0], st.sum("x")),
    ("sum with NaN", pl.Float64, [NAN, math.inf, 2.0], st.sum("x")),
    ("sum of zeros", pl.Float64, [-0.0, -0.0], st.sum("x")),
    ("sum of long decimals", pl.Decimal(38, 2), [Decimal(f"{i}.25") for i in (10**35, -7, 10**34)], st.sum("x")),
    ("sum of decimals that does not fit", pl.Decimal(38, 2), [Decimal(9 * 10**35)] * 2, st.sum("x")),
    ("mean of large numbers", pl.Int64, [2**63 - 1, 2**63 - 3, 1], st.mean("x")),
    ("mean of large u64", pl.UInt64, [2**64 - 1, 2**64 - 3, 1], st.mean("x")),
    ("mean of long durations", pl.Duration("us"), [-(2**63), -(2**63), 1], st.mean("x")),
    ("mean of floats of all sizes", pl.Float64, [1e100, 0.1, -1e100, 5e-324, 0.2], st.mean("x")),
    ("mean of long decimals", pl.Decimal(38, 10), [Decimal(f"{i}.0000000001") for i in (10**25, -7, 3)], st.mean("x")),
    ("var of floats of all sizes", pl.Float64, [1e100, 0.1, 1e-200, -3e80, None], st.var("x")),
    ("var that is infinite", pl.Float64, [1e200, -1e200], st.var("x")),
    ("var with infinity", pl.Float64, [1.0, math.inf, 2.0], st.var("x")),
    ("std of large integers", pl.Int64, [2**63 - 1, -(2**63), 1], st.std("x")),
    ("std of decimals", pl.Decimal(10, 2), [Decimal("1.25"), None, Decimal("-7.51")], st.std("x")),
    ("sum of i8", pl.Int8, [127, 127, None], st.sum("x")),
    ("sum of u8", pl.UInt8, [255, 255, None], st.sum("x")),
    ("sum of u64", pl.UInt64, [2**63, 5], st.sum("x")),
    ("sum of bools", pl.Boolean, [True, False, None, True], st.sum("x")),
    ("sum of floats", pl.Float64, [0.5, None, -2.25], st.sum("x")),
    ("sum of f32", pl.Float32, [0.5, None, -2.25], st.sum("x")),
    ("sum of decimals", pl.Decimal(10, 2), [Decimal("1.25"), None, Decimal("-7.50")], st.sum("x")),
    ("sum of durations", pl.Duration("ms"), [timedelta(seconds=1), None, timedelta(seconds=-3)], st.sum("x")),
    ("mean", pl.Int64, INTS, st.mean("x")),
    ("mean of nothing", pl.Int64, [None], st.mean("x")),
    ("mean of bools", pl.Boolean, [True, False, None], st.mean("x")),
    ("mean of floats", pl.Float64, [0.5, None, -2.25], st.mean("x")),
    ("mean of decimals", pl.Decimal(10, 2), [Decimal("1.25"), None, Decimal("-7.50")], st.mean("x")),
    ("mean of durations", pl.Duration("us"), [timedelta(microseconds=m) for m in (-3, -4)], st.mean("x")),
    ("mean of no durations", pl.Duration("us"), [None], st.mean("x")),
    ("min", pl.Int64, INTS, st.min("x")),
    ("max", pl.Int64, INTS, st.max("x")),
    ("min of nothing", pl.Int64, [None, None], st.min("x")),
    ("min of texts", pl.String, ["b", None, "a", ""], st.min("x")),
    ("max of texts", pl.String, ["b", None, "ä", ""], st.max("x")),
    ("min with NaN", pl.Float64, [NAN, 2.0, None, 1.0], st.min("x")),
    ("max with NaN", pl.Float64, [NAN, 2.0, None, 1.0], st.max("x")),
    ("max of NaN", pl.Float64, [NAN, None], st.max("x")),
    ("max of bools", pl.Boolean, [False, None, True], st.max("x")),
    ("min of bytes", pl.Binary, [b"b", None, b"a"], st.min("x")),
    ("var", pl.Int64, INTS, st.var("x")),
    ("var of one", pl.Int64, [1, None], st.var("x")),
    ("var of large numbers", pl.Float64, [1e9 + 1, 1e9 + 2, 1e9 + 3, None], st.var("x")),
    ("std", pl.Float64, [1.5, 2.5, None, -4.0], st.std("x")),
    ("std of nothing", pl.Float64, [None], st.std("x")),
    ("first", pl.Int64, [None, *INTS], st.first("x")),
    ("last", pl.Int64, INTS, st.last("x")),
    ("first of lists", pl.List(pl.Int64), [[2, 1], None, [1]], st.first("x")),
    ("count_distinct", pl.Int64, INTS, st.count_distinct("x")),
    ("count_distinct of texts", pl.String, ["a", "b", None, "a"], st.count_distinct("x")),
    ("count_distinct of nothing", pl.String, [None], st.count_distinct("x")),
    ("collect", pl.Int64, INTS, st.collect("x")),
    ("collect of texts", pl.String, ["b", None, "a"], st.collect("x")),
    ("user", pl.Int64, INTS, HALF),
]


def step_of(dtype: Any, **aggregates: st.Aggregate) -> Aggregate:
    columns = {"k": pl.String, "x": dtype, "ts": st.TIME}
    step = (
        st.source("s", st.memory(schema=columns), ts="ts")
        .aggregate(by="k", window=st.tumbling("1h"), **aggregates)
        .step
    )
    assert isinstance(step, Aggregate)
    return step


def rows_of(values: list[Any], dtype: Any) -> pl.DataFrame:
    """All values with one key and times that go up by ones and stand still."""
    times = [i // 2 for i in range(len(values))]
    rows = pl.DataFrame(
        {"k": ["a"] * len(values), "x": values, "ts": times}, schema={"k": pl.String, "x": dtype, "ts": pl.Int64}
    )
    return rows.with_columns(pl.col("ts").cast(st.TIME))


def reference(rows: pl.DataFrame, aggregate: st.Aggregate) -> pl.DataFrame:
    source = st.source("s", st.memory(rows), ts="ts")
    out = source.aggregate(by="k", window=st.tumbling("1h"), v=aggregate).to(st.memory_sink())
    return st.Query("q", out).run_reference().rows().select("k", "v")


def shared_out(step: Aggregate, rows: pl.DataFrame, shares: list[int], rounds: int) -> pl.DataFrame:
    """Let several senders add their shares of the tuples, merge what they send in some rounds, and finish."""
    partials = Partials(step.aggregates)
    tuples = rows.lazy()
    if partials.ordered:
        tuples = tuples.with_columns(*order.of_source(0, "0", 0), order.content(list(rows.columns)))
    numbered = tuples.collect().with_columns(pl.Series("share", shares[: rows.height], dtype=pl.Int64))
    sent = [
        partials.add(part.drop("share").lazy(), ["k"]).collect()
        for part in numbered.partition_by("share", maintain_order=True)
    ]
    for part in sent:
        assert set(partials.columns) <= set(part.columns)
    for _ in range(rounds):
        halves = [pl.concat(sent[i : i + 2]) for i in range(0, len(sent), 2)]
        sent = [partials.merge(half.lazy(), ["k"]).collect() for half in halves]
    merged = partials.merge(pl.concat(sent).lazy(), ["k"]).collect()
    assert merged[ROWS].to_list() == [rows.height]
    done = partials.finish(merged.lazy(), ["k"]).collect()
    return done.filter(pl.col(WHY).is_null()).drop(WHY) if partials.hidden else done


@pytest.mark.parametrize(("name", "dtype", "values", "aggregate"), CASES, ids=[c[0] for c in CASES])
def test_every_function(name: str, dtype: Any, values: list[Any], aggregate: st.Aggregate) -> None:
    rows = rows_of(values, dtype)
    step = step_of(dtype, v=aggregate)
    expected = reference(rows, aggregate)
    for shares, rounds in (([0] * 9, 0), ([0, 1] * 5, 1), ([3, 1, 2, 0, 1, 2, 3, 4, 0], 2)):
        got = shared_out(step, rows, shares, rounds)
        assert got.schema["v"] == step.schema["v"]
        compare(got, expected, float_tolerance=0)


@settings(max_examples=40)
@given(
    some.lists(some.none() | some.integers(-5, 5), min_size=1, max_size=12),
    some.lists(some.integers(0, 3), min_size=12, max_size=12),
    some.integers(0, 2),
)
def test_all_functions_at_once(values: list[int | None], shares: list[int], rounds: int) -> None:
    functions = {
        "n": st.count(),
        "h": HALF,
        "s": st.sum("x"),
        "m": st.mean("x"),
        "low": st.min("x"),
        "v": st.var("x"),
        "f": st.first("x"),
        "l": st.last("x"),
        "d": st.count_distinct("x"),
        "c": st.collect("x"),
        "h2": HALF,
    }
    rows = rows_of(values, pl.Int64)
    source = st.source("s", st.memory(rows), ts="ts").aggregate(by="k", window=st.tumbling("1h"), **functions)
    expected = st.Query("q", source.to(st.memory_sink())).run_reference().rows().select("k", *functions)
    got = shared_out(step_of(pl.Int64, **functions), rows, shares, rounds)
    assert got.columns == ["k", *functions]
    compare(got, expected)


@pytest.mark.parametrize(
    ("dtype", "aggregate", "additive"),
    [
        (pl.Int64, st.count(), True),
        (pl.String, st.count("x"), True),
        (pl.Int8, st.sum("x"), True),
        (pl.UInt64, st.mean("x"), True),
        (pl.Boolean, st.sum("x"), True),
        (pl.Duration("ms"), st.mean("x"), True),
        (pl.Float64, st.sum("x"), True),
        (pl.Float64, st.mean("x"), True),
        (pl.Decimal(10, 2), st.sum("x"), True),
        (pl.Int64, st.var("x"), True),
        (pl.Int64, st.max("x"), False),
        (pl.Int64, st.collect("x"), False),
        (pl.Int64, HALF, False),
    ],
)
def test_what_can_be_taken_out_again(dtype: Any, aggregate: st.Aggregate, additive: bool) -> None:
    partials = Partials(step_of(dtype, v=aggregate).aggregates)
    assert partials.additive is additive
    if additive:
        made = partials.add(pl.LazyFrame(schema={"k": pl.String, "x": dtype}), ["k"]).collect_schema()
        assert all(made[c].is_integer() or made[c] == REST for c in partials.columns)


@pytest.mark.parametrize("aggregate", [st.first("x"), st.last("x"), st.collect("x")])
def test_ties_are_ordered_by_stream_and_position(aggregate: st.Aggregate) -> None:
    step = step_of(pl.Int64, v=aggregate)
    partials = Partials(step.aggregates)
    assert partials.ordered
    #   all at one time: origin 1 before 2, stream a before b, position 0 before 1
    places = [(2, "a", 0), (1, "b", 0), (1, "a", 1), (1, "a", 0)]
    sent = []
    for i, (origin, stream, position) in enumerate(places):
        row = rows_of([i], pl.Int64).lazy()
        row = row.with_columns(*order.of_source(origin, stream, position), order.content(["k", "x", "ts"]))
        sent.append(partials.add(row, ["k"]).collect())
    got = partials.finish(partials.merge(pl.concat(sent).lazy(), ["k"]), ["k"]).collect()["v"].to_list()[0]
    expected = {"first": 3, "last": 0, "collect": [3, 2, 1, 0]}[aggregate.function]
    assert got == expected


def test_groups_stay_apart() -> None:
    step = step_of(pl.Int64, n=st.count(), h=HALF, c=st.max("x"))
    partials = Partials(step.aggregates)
    rows = pl.LazyFrame({"k": ["a", None, "b", "a", None], "x": [1, 2, 3, 4, None]})
    merged = partials.merge(pl.concat([partials.add(rows, ["k"]), partials.add(rows.head(1), ["k"])]), ["k"])
    got = partials.finish(merged, ["k"]).sort("k").collect()
    assert got.rows() == [(None, 2, 21, 2), ("a", 3, 63, 4), ("b", 1, 31, 3)]


LONGEST = st.user_aggregate(
    init={"most": None, "rows": []},
    add={
        "most": pl.col("x").max(),
        "rows": pl.struct("k", "x").filter(pl.col("x") == pl.col("x").max()).implode(),
    },
    merge={
        "most": pl.col("most").max(),
        "rows": pl.col("rows").filter(pl.col("most") == pl.col("most").max()).explode().implode(),
    },
    finish=pl.col("rows"),
)


@settings(max_examples=60)
@given(some.lists(some.tuples(some.integers(0, 5), some.none() | some.integers(-3, 3)), min_size=1, max_size=20))
def test_groups_that_are_runs_are_folded_one_by_one(rows: list[tuple[int, int | None]]) -> None:
    others = {"n": st.count(), "most": st.max("x"), "all": st.collect("x"), "some": st.approx_distinct("x")}
    partials = Partials(step_of(pl.Int64, rows=LONGEST, half=HALF, **others).aggregates)
    window = (pl.col("ts").dt.epoch("us") // 2).alias("window")
    for arranged in (rows, sorted(rows, key=lambda row: row[0])):
        tuples = pl.DataFrame(
            [(f"{i}", x, ts) for i, (ts, x) in enumerate(arranged)],
            {"k": pl.String, "x": pl.Int64, "ts": pl.Int64},
            orient="row",
        ).with_columns(pl.col("ts").cast(st.TIME))
        tuples = tuples.with_columns(*order.of_source(0, "0", 0), order.content(["k", "x", "ts"]))
        found = []
        for long in (1, 10_000):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("springtide.operators.aggregates.partials._LONG", long)
                found.append(partials.add(tuples.lazy(), [window]).collect())
        assert found[0].equals(found[1])
        assert found[0].schema == found[1].schema
