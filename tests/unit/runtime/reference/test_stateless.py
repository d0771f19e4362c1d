"""Map, select, drop, rename, filter, explode, split, union (SC-1)."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.query.errors import UserCodeError
from springtide.testing import at, compare, table

S = st.source("s", st.memory(schema={"ts": st.TIME, "x": pl.Int64, "w": pl.String}), ts="ts")
ROWS = {"s": table("ts x w \n 1s 1 a-b \n 2s 2 null \n 3s null c \n 4s 4 a")}


def test_map_adds_and_replaces(rows_of: Any) -> None:
    found = rows_of(S.map(pl.col("x") * 10, y=pl.col("x") + 1, one=pl.lit(1)), ROWS)
    assert found.columns == ["ts", "x", "w", "y", "one"]
    assert found.select("x", "y", "one").rows() == [(10, 2, 1), (20, 3, 1), (None, None, 1), (40, 5, 1)]


def test_select_drop_rename_keep_ts(rows_of: Any) -> None:
    assert rows_of(S.select("w", z=pl.col("x")), ROWS).columns == ["w", "z", "ts"]
    assert rows_of(S.drop("w"), ROWS).columns == ["ts", "x"]
    renamed = rows_of(S.rename({"x": "w", "w": "x"}), ROWS)
    assert renamed["w"].to_list() == [1, 2, None, 4]
    assert renamed["x"].to_list() == ["a-b", None, "c", "a"]


def test_filter_keeps_what_is_true_and_null_is_not(rows_of: Any) -> None:
    assert rows_of(S.filter(pl.col("x") != 2), ROWS)["x"].to_list() == [1, 4]
    assert rows_of(S.filter(~(pl.col("x") != 2)), ROWS)["x"].to_list() == [2]


def test_explode_gives_nothing_for_an_empty_or_null_list(rows_of: Any) -> None:
    lists = st.source("l", st.memory(schema={"ts": st.TIME, "v": pl.List(pl.Int64), "k": pl.String}), ts="ts")
    inputs = {"l": table("ts v k \n 1s [2,1] a \n 2s [] b \n 3s null c \n 4s [None] d")}
    compare(rows_of(lists.explode("v"), inputs), table("ts v k \n 1s 2 a \n 1s 1 a \n 4s null d"))


def test_split_goes_to_the_first_that_is_true(rows_of: Any) -> None:
    """2 fits both predicates and goes to the first; null fits none and goes to the rest."""
    low, even, rest = S.split(low=pl.col("x") <= 2, even=pl.col("x") % 2 == 0, rest="rest")
    query = st.Query("q", *(b.to(st.memory_sink(), name=n) for b, n in ((low, "low"), (even, "even"), (rest, "rest"))))
    result = query.run_reference(ROWS)
    assert [result.rows(name)["x"].to_list() for name in ("low", "even", "rest")] == [[1, 2], [4], [None]]


def test_split_without_rest_drops_what_fits_nowhere(rows_of: Any) -> None:
    (one,) = S.split(one=pl.col("x") == 1)
    assert rows_of(one, ROWS)["x"].to_list() == [1]


def test_union_keeps_duplicates_and_takes_columns_by_name(rows_of: Any) -> None:
    turned = S.select("w", "x")
    assert rows_of(S.union(turned, S), ROWS)["x"].to_list() == [1, 1, 1, 2, 2, 2, None, None, None, 4, 4, 4]


def test_a_stream_used_twice(rows_of: Any) -> None:
    """Both branches get every tuple."""
    counts = S.aggregate(window=st.tumbling("1m"), n=st.count())
    query = st.Query(
        "q", S.filter(pl.col("x") > 1).to(st.memory_sink(), name="a"), counts.to(st.memory_sink(), name="b")
    )
    result = query.run_reference(ROWS)
    assert result.rows("a")["x"].to_list() == [2, 4]
    assert result.rows("b")["n"].to_list() == [4]


def test_an_expression_that_fails_on_a_row_names_step_and_row(rows_of: Any) -> None:
    numbers = S.map(n=pl.col("w").cast(pl.Int64), name="numbers")
    with pytest.raises(UserCodeError, match=r"step numbers \(map\): InvalidOperationError: conversion.*'w': 'a-b'"):
        rows_of(numbers, ROWS)


def test_a_function_that_does_not_keep_its_type_is_told(rows_of: Any) -> None:
    """Found when it happens: while the query was built the function did what it promised."""

    def at_times(column: pl.Series) -> pl.Series:
        return column.cast(pl.String) if 12345 in column else column

    strange = S.map(y=pl.col("x").map_batches(at_times, return_dtype=pl.Int64), name="strange")
    with pytest.raises(UserCodeError, match=r"step strange \(map\): .*'x': 12345"):
        rows_of(strange, {"s": [{"ts": at("1s"), "x": 12345}]})


def test_a_function_that_looks_at_other_rows_sees_one(rows_of: Any) -> None:
    """Python functions cannot be checked when the query is built; the reference never shows them a second row."""
    seen: list[int] = []

    def look(column: pl.Series) -> pl.Series:
        seen.append(column.len())
        return column

    rows_of(S.map(y=pl.col("x").map_batches(look, return_dtype=pl.Int64, is_elementwise=True)), ROWS)
    assert set(seen[-4:]) == {1}
