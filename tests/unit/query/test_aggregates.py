"""Aggregates: what they take, what they give, and what the compiler may do with them (SC-1, SC-2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
import pytest

import springtide as st
from springtide.query.aggregates import BoundAggregate, Traits

I8, I64, U8, U64, F32, F64 = pl.Int8(), pl.Int64(), pl.UInt8(), pl.UInt64(), pl.Float32(), pl.Float64()
BOOL, TEXT, BYTES, DATE, DAYTIME = pl.Boolean(), pl.String(), pl.Binary(), pl.Date(), pl.Time()
SPAN, MONEY, NAMES, PAIR = pl.Duration("us"), pl.Decimal(9, 2), pl.List(TEXT), pl.Struct({"a": I64})
NOTHING, THING, SORT = pl.Null(), pl.Object(), pl.Enum(["a", "b"])

NUMBERS = [I8, I64, U8, U64, pl.Int128(), F32, F64, MONEY]
KEYS = [I8, I64, U8, U64, pl.Int128(), MONEY, BOOL, TEXT, BYTES, DATE, DAYTIME, SPAN, st.TIME]
EVERYTHING = [*KEYS, F32, F64, NAMES, PAIR, NOTHING, THING, SORT]


def bind(aggregate: st.Aggregate, dtype: pl.DataType) -> BoundAggregate:
    return aggregate.bind("step", "out", pl.Schema({"x": dtype, "ts": st.TIME}))


FUNCTIONS = {
    "count": st.count("x"),
    "sum": st.sum("x"),
    "mean": st.mean("x"),
    "min": st.min("x"),
    "max": st.max("x"),
    "var": st.var("x"),
    "std": st.std("x"),
    "first": st.first("x"),
    "last": st.last("x"),
    "count_distinct": st.count_distinct("x"),
    "collect": st.collect("x"),
    "approx_distinct": st.approx_distinct("x"),
    "approx_quantile": st.approx_quantile("x", 0.5),
    "approx_frequent": st.approx_frequent("x", 3),
}
SUMMABLE, ORDERED = [*NUMBERS, BOOL, SPAN], [*KEYS, F32, F64]
TAKES = {
    **dict.fromkeys(["count", "first", "last", "collect"], EVERYTHING),
    **dict.fromkeys(["sum", "mean"], SUMMABLE),
    **dict.fromkeys(["min", "max"], ORDERED),
    **dict.fromkeys(["var", "std", "approx_quantile"], NUMBERS),
    **dict.fromkeys(["count_distinct", "approx_distinct", "approx_frequent"], KEYS),
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_which_types_it_takes(function: str) -> None:
    refused = []
    for dtype in EVERYTHING:
        try:
            bound = bind(FUNCTIONS[function], dtype)
            assert bound.input_type == dtype
        except st.QueryError as error:
            refused.append((dtype, error.problem))
    expected = [dtype for dtype in EVERYTHING if dtype not in TAKES[function]]
    assert [dtype for dtype, _ in refused] == expected
    assert all(problem.startswith(f"{function} cannot take ") for _, problem in refused)


@pytest.mark.parametrize(
    ("function", "types"),
    [
        ("count", dict.fromkeys(EVERYTHING, I64)),
        (
            "sum",
            {I8: I64, I64: I64, U8: U64, U64: U64, F32: F64, F64: F64, BOOL: I64, SPAN: SPAN, MONEY: pl.Decimal(38, 2)},
        ),
        ("mean", {I8: F64, U64: F64, F32: F64, BOOL: F64, MONEY: F64, SPAN: SPAN}),
        ("min", {dtype: dtype for dtype in [*KEYS, F32, F64]}),
        ("max", {dtype: dtype for dtype in [*KEYS, F32, F64]}),
        ("var", dict.fromkeys(NUMBERS, F64)),
        ("std", dict.fromkeys(NUMBERS, F64)),
        ("first", {dtype: dtype for dtype in EVERYTHING}),
        ("last", {dtype: dtype for dtype in EVERYTHING}),
        ("count_distinct", dict.fromkeys(KEYS, I64)),
        ("collect", {dtype: pl.List(dtype) for dtype in EVERYTHING}),
        ("approx_distinct", dict.fromkeys(KEYS, I64)),
        ("approx_quantile", dict.fromkeys(NUMBERS, F64)),
        ("approx_frequent", {dtype: pl.List(pl.Struct({"value": dtype, "count": I64})) for dtype in KEYS}),
    ],
)
def test_which_type_it_gives(function: str, types: dict[pl.DataType, pl.DataType]) -> None:
    assert {dtype: bind(FUNCTIONS[function], dtype).output_type for dtype in types} == types


def test_what_depends_on_the_order_of_tuples() -> None:
    for function, takes in TAKES.items():
        ordered = function in ("first", "last", "collect")
        assert {bind(FUNCTIONS[function], dtype).traits for dtype in takes} == {Traits(ordered)}


def test_counting_tuples_needs_no_column() -> None:
    bound = bind(st.count(), TEXT)
    assert (bound.input_type, bound.output_type, bound.traits) == (None, I64, Traits(ordered=False))


@pytest.mark.parametrize(
    ("aggregate", "text"),
    [
        (st.count(), "count()"),
        (st.count("x"), "count(x)"),
        (st.sum(pl.col("x") * 2), "sum(x * 2)"),
        (st.sum((pl.col("x") * 2).alias("y")), "sum(x * 2)"),
        (st.mean("x"), "mean(x)"),
        (st.max(pl.col("x").abs()), "max(x.abs())"),
        (st.approx_distinct("x", k=64), "approx_distinct(x, k=64)"),
        (st.approx_quantile("x", 0.99), "approx_quantile(x, q=0.99, k=200)"),
        (st.approx_frequent("x", np.int64(3), map_size=64), "approx_frequent(x, n=3, map_size=64)"),
        (st.sum(1), "sum(1)"),
    ],
)
def test_an_aggregate_is_said_as_it_was_written(aggregate: st.Aggregate, text: str) -> None:
    assert str(aggregate) == text
    assert str(bind(aggregate, I64)) == f"out={text}"


@pytest.mark.parametrize(
    ("make", "value"),
    [
        (lambda k: st.approx_distinct("x", k=k), 32),
        (lambda k: st.approx_distinct("x", k=k), 2**26),
        (lambda q: st.approx_quantile("x", q), 0),
        (lambda q: st.approx_quantile("x", q), 1),
        (lambda k: st.approx_quantile("x", 0.5, k=k), 8),
        (lambda k: st.approx_quantile("x", 0.5, k=k), 65535),
        (lambda n: st.approx_frequent("x", n), 1),
        (lambda n: st.approx_frequent("x", n), 1024),
        (lambda m: st.approx_frequent("x", 1, map_size=m), 8),
    ],
)
def test_options_at_their_bounds(make: Any, value: Any) -> None:
    assert value in make(value).options.values()


def test_the_input_is_an_expression_that_names_its_columns() -> None:
    schema = pl.Schema({"x": I64, "y": I64, "s": TEXT, "ts": st.TIME})
    bound = st.sum(pl.sum_horizontal(cs.integer())).bind("step", "out", schema)
    assert bound.aggregate.input is not None
    assert bound.aggregate.input.meta.root_names() == ["x", "y"]


def geometric_mean(**changes: Any) -> st.Aggregate:
    parts: dict[str, Any] = {
        "init": {"n": 0, "logs": 0.0},
        "add": {"n": pl.len().cast(pl.Int64), "logs": pl.col("x").log().sum()},
        "merge": {"n": pl.col("n").sum(), "logs": pl.col("logs").sum()},
        "finish": (pl.col("logs") / pl.col("n")).exp(),
    }
    return st.user_aggregate(**(parts | changes))


def test_a_users_aggregate_has_a_partial_result() -> None:
    bound = bind(geometric_mean(), I64)
    assert bound.partial == pl.Schema({"n": I64, "logs": F64})
    assert bound.output_type == F64
    assert bound.traits == Traits(ordered=False)
    assert str(bound) == "out=user_aggregate()"


def test_the_parts_of_a_users_aggregate_may_be_in_any_order() -> None:
    merge = {"logs": pl.col("logs").sum(), "n": pl.col("n").sum()}
    bound = bind(geometric_mean(merge=merge, init={"logs": 0.0, "n": 0}), I64)
    assert list(bound.partial) == ["n", "logs"]


@pytest.mark.parametrize("init", [{"n": 0, "logs": None}, {"n": np.int64(0), "logs": 0.0}, {"n": 0, "logs": 0}])
def test_a_partial_result_may_begin_with_null_or_with_another_kind_of_number(init: dict[str, Any]) -> None:
    bind(geometric_mean(init=init), F64)


def test_a_users_aggregate_may_fold_into_lists_and_structs() -> None:
    longest = st.user_aggregate(
        init={"best": None},
        add={"best": pl.col("x").sort_by(pl.col("x").str.len_bytes()).last()},
        merge={"best": pl.col("best").sort_by(pl.col("best").str.len_bytes()).last()},
        finish=pl.struct("best", length=pl.col("best").str.len_bytes()),
    )
    assert bind(longest, TEXT).output_type == pl.Struct({"best": TEXT, "length": pl.UInt32()})
