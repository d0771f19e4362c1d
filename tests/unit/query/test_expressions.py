"""Expressions meet a schema while the query is built: names, types, one row at a time (SC-1, SC-3)."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
import pytest

import springtide as st
from springtide.query.expressions import check_columns, named, predicate_of, resolve, resolve_scalars

SCHEMA = pl.Schema(
    {
        "x": pl.Int64(),
        "f": pl.Float64(),
        "s": pl.String(),
        "b": pl.Boolean(),
        "l": pl.List(pl.Int64()),
        "r": pl.Struct({"a": pl.Int64(), "b": pl.String()}),
        "ts": st.TIME,
    }
)
x, f, s, b, items, r, ts = (pl.col(name) for name in SCHEMA)


def type_of(expr: pl.Expr) -> pl.DataType:
    return resolve("step", SCHEMA, [expr.alias("_")])["_"]


@pytest.mark.parametrize(
    ("expr", "dtype"),
    [
        (x + 1, pl.Int64()),
        (x / 2, pl.Float64()),
        (x > 1, pl.Boolean()),
        (s.str.split("-"), pl.List(pl.String())),
        (items.list.sum(), pl.Int64()),
        (items.list.eval(pl.element().rank()), pl.List(pl.Float64())),
        (items.list.eval(pl.element().sort()).list.first(), pl.Int64()),
        (r.struct.field("b"), pl.String()),
        (pl.when(x > 1).then(s).otherwise(pl.lit("none")), pl.String()),
        (pl.struct("x", "s"), pl.Struct({"x": pl.Int64(), "s": pl.String()})),
        (pl.sum_horizontal("x", "f"), pl.Float64()),
        (pl.sum_horizontal(cs.integer()), pl.Int64()),
        (pl.concat_str("s", pl.lit("!")), pl.String()),
        (x.is_in([1, 2, 3]), pl.Boolean()),
        (x.is_in("l"), pl.Boolean()),
        (x.replace_strict({1: "one"}, default="many"), pl.String()),
        (ts.dt.truncate("1h"), st.TIME),
        (ts - datetime(2024, 1, 1, tzinfo=UTC), pl.Duration("us")),
        (s.str.to_datetime("%Y-%m-%d"), pl.Datetime("us")),
        (pl.lit(1), pl.Int32()),
        (pl.lit(None), pl.Null()),
        (pl.lit("2024-01-01").str.to_date(), pl.Date()),
        (pl.lit("5").cast(pl.Int64), pl.Int64()),
        (pl.sql_expr("x > 1 AND s = 'a'"), pl.Boolean()),
        (pl.fold(pl.lit(0, dtype=pl.Int64), lambda a, c: a + c, [x, x]), pl.Int64()),
        (pl.business_day_count(ts.dt.date(), ts.dt.date()), pl.Int32()),
        (x.reinterpret(signed=False), pl.UInt64()),
    ],
)
def test_a_row_wise_expression_has_a_type(expr: pl.Expr, dtype: pl.DataType) -> None:
    assert type_of(expr) == dtype


@pytest.mark.parametrize(
    "expr",
    [
        s.cast(pl.Int64),
        s.str.to_integer(),
        s.str.to_datetime("%Y-%m-%d"),
        x.cast(pl.UInt8) - 255,
        s.cast(pl.Enum(["red", "green"])),
        s.replace_strict({"red": 1}),
        items.list.get(5),
        x // 0,
        x % 0,
        x / 0,
        (x * 0).log(),
        (-f).sqrt(),
        s.str.json_decode(pl.Struct({"a": pl.Int64})),
        s.str.decode("hex", strict=True),
        pl.date(x, x, x),
    ],
)
def test_what_fails_only_on_some_values_is_accepted(expr: pl.Expr) -> None:
    type_of(expr)


def fails(value: Any) -> Any:
    raise KeyError(value)


@pytest.mark.parametrize(
    ("expr", "dtype"),
    [
        (x.map_elements(lambda v: f"<{v}>", return_dtype=pl.String), pl.String()),
        (x.map_elements(fails, return_dtype=pl.Int64), pl.Int64()),
        (s.map_elements(lambda v: {"cat": 1}[v], return_dtype=pl.Int64), pl.Int64()),
        (x.map_batches(lambda v: v * 2, return_dtype=pl.Int64), pl.Int64()),
        (x.map_batches(lambda v: v * 2, return_dtype=pl.Int64, is_elementwise=True), pl.Int64()),
        (x.map_batches(fails, return_dtype=pl.String), pl.String()),
        (pl.struct("x", "f").map_elements(lambda v: v["x"] * v["f"], return_dtype=pl.Float64) + 1, pl.Float64()),
    ],
)
def test_python_functions_are_accepted(expr: pl.Expr, dtype: pl.DataType) -> None:
    """Also those that cannot take the made-up rows they are tried on."""
    assert type_of(expr) == dtype


def test_a_name_is_a_column_and_other_constants_are_themselves() -> None:
    schema = resolve("step", SCHEMA, named(["x"], {"y": "f", "n": 1, "t": True}))
    assert schema == pl.Schema({"x": pl.Int64(), "y": pl.Float64(), "n": pl.Int32(), "t": pl.Boolean()})


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1, pl.Int32()),
        (1.5, pl.Float64()),
        (True, pl.Boolean()),
        (None, pl.Null()),
        (b"x", pl.Binary()),
        (Decimal("1.50"), pl.Decimal(38, 2)),
        (date(2024, 1, 1), pl.Date()),
        (time(12), pl.Time()),
        (datetime(2024, 1, 1), pl.Datetime("us")),
        (timedelta(seconds=1), pl.Duration("us")),
        (np.int64(3), pl.Int64()),
        (np.float32(3), pl.Float32()),
    ],
)
def test_constants(value: Any, dtype: pl.DataType) -> None:
    assert resolve("step", SCHEMA, named([], {"y": value})) == pl.Schema({"y": dtype})


def test_names_and_order_of_what_comes_out() -> None:
    schema = resolve("step", SCHEMA, named(["s", x + 1], {"z": "x", "a": f}))
    assert list(schema) == ["s", "x", "z", "a"]


def test_scalars_fold_a_group() -> None:
    exprs = {
        "n": pl.len(),
        "sum": x.sum(),
        "mean": x.sum() / pl.len(),
        "best": pl.struct(x.max(), f.min()),
        "all": s.implode(),
        "one": pl.lit(1),
        "own": x.map_batches(lambda v: v.sum(), return_dtype=pl.Int64, returns_scalar=True),
    }
    schema = resolve_scalars("step", SCHEMA, [e.alias(n) for n, e in exprs.items()])
    assert schema["mean"] == pl.Float64()
    assert schema["all"] == pl.List(pl.String())


@pytest.mark.parametrize("expr", [x, x + 1, x.head(1), x.unique(), x + x.sum(), x.sum().over("s"), x.cum_sum()])
def test_what_is_no_scalar(expr: pl.Expr) -> None:
    with pytest.raises(st.QueryError, match="gives more than one value for a group"):
        resolve_scalars("step", SCHEMA, [expr])


def test_a_predicate_names_every_column_it_reads() -> None:
    assert predicate_of("step", SCHEMA, x > 1).meta.eq(x > 1)
    every = predicate_of("step", SCHEMA, pl.all_horizontal(pl.all().is_not_null()))
    assert sorted(every.meta.root_names()) == sorted(SCHEMA)


def test_a_predicate_may_be_constant() -> None:
    """The Cartesian product is a theta_join with it (SC-1)."""
    assert predicate_of("step", SCHEMA, pl.lit(True)).meta.eq(pl.lit(True))


def test_columns_that_are_there() -> None:
    check_columns("step", SCHEMA, ["x", "ts"])
    check_columns("step", SCHEMA, [])
