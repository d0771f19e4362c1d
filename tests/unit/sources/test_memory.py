"""Rows from memory: their schema and their physical streams (SC-3)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.query.connectors import Marker

FAIL = Marker("FAIL")


@pytest.mark.parametrize(
    ("rows", "schema"),
    [
        ([{"x": 1}, {"x": 2}], {"x": pl.Int64()}),
        ([{"x": 1}, {"x": 2.5}], {"x": pl.Float64()}),
        ([{"x": None}, {"x": "late"}], {"x": pl.String()}),
        ([{"x": 1}, {"x": 2, "y": "b"}], {"x": pl.Int64(), "y": pl.String()}),
        (({"x": 1},), {"x": pl.Int64()}),
        ([FAIL, {"x": 1}, Marker("TIME", 5)], {"x": pl.Int64()}),
        ([{"ts": datetime(2024, 1, 1, tzinfo=UTC)}], {"ts": pl.Datetime("us", "UTC")}),
        (pl.DataFrame({"x": [1]}, schema={"x": pl.Int8}), {"x": pl.Int8()}),
        (pl.DataFrame(schema={"x": pl.Int8}), {"x": pl.Int8()}),
        ({"a": [], "b": [{"x": 1}]}, {"x": pl.Int64()}),
        ({"a": [FAIL], "b": pl.DataFrame({"x": ["b"]})}, {"x": pl.String()}),
    ],
)
def test_the_schema_is_found_in_the_rows(rows: Any, schema: dict[str, pl.DataType]) -> None:
    assert dict(st.memory(rows).schema()) == schema


def test_a_schema_that_is_given_is_taken() -> None:
    source = st.memory([{"x": 1}], schema={"x": pl.Float64, "y": str})
    assert dict(source.schema()) == {"x": pl.Float64(), "y": pl.String()}
    assert dict(st.memory(schema={"x": pl.Int64}).schema()) == {"x": pl.Int64()}


def test_one_physical_stream_if_nothing_is_said() -> None:
    rows = [{"x": 1}, {"x": 2}]
    assert st.memory(rows).read_all() == {"0": rows}


def test_several_physical_streams_by_name() -> None:
    streams = {"a": [{"x": 1}], "b": [{"x": 2}, {"x": 3}]}
    assert st.memory(streams).read_all() == streams


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([{"x": 1}, {"x": 2}], "memory, 2 rows"),
        (pl.DataFrame({"x": [1, 2, 3]}), "memory, 3 rows"),
        ({"a": [{"x": 1}], "b": [{"x": 2}, {"x": 3}]}, "memory, 3 rows in 2 physical streams"),
    ],
)
def test_it_says_how_much_there_is(rows: Any, text: str) -> None:
    assert st.memory(rows).describe() == text


def test_rows_may_have_no_order_of_their_own() -> None:
    assert st.memory([{"x": 1}]).positions
    assert not st.memory([{"x": 1}], positions=False).positions
