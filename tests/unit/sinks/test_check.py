"""What sinks say before anything runs: what they cannot take, and where rows go (SC-3)."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st

TYPES = [
    *(
        pl.Int8,
        pl.Int128,
        pl.UInt64,
        pl.Float32,
        pl.String,
        pl.Boolean,
        pl.Binary,
        pl.Date,
        pl.Time,
        pl.Null,
        pl.Object,
    ),
    *(
        st.TIME,
        pl.Datetime("ns"),
        pl.Duration("us"),
        pl.Decimal(10, 2),
        pl.Enum(["a"]),
        pl.Categorical(),
        pl.Struct({}),
    ),
    *(pl.List(pl.Int64), pl.Array(pl.Int64, 2), pl.Struct({"a": pl.List(pl.Int64)}), pl.List(pl.Struct({}))),
    *(pl.Struct({"a": pl.Struct({"b": pl.Struct({})})}), pl.Array(pl.Struct({}), 2)),
]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_parquet_refuses_exactly_what_a_file_cannot_hold(dtype: Any) -> None:
    schema = pl.Schema({"x": pl.Int64(), "v": dtype})
    try:
        pl.DataFrame(schema=schema).write_parquet(io.BytesIO())
        holds = True
    except pl.exceptions.PolarsError:
        holds = False
    refusal = st.parquet_sink("out/").check(schema)
    assert (refusal is None) == holds
    assert refusal is None or refusal.startswith("'v' ")


@pytest.mark.parametrize("sink", [st.memory_sink(), st.console(), st.callback(print)])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_the_others_take_anything(sink: Any, dtype: Any) -> None:
    assert sink.check(pl.Schema({"v": dtype})) is None


@pytest.mark.parametrize(
    ("sink", "text"),
    [
        (st.memory_sink(), "memory"),
        (st.console(), "console"),
        (st.callback(print), "function print"),
        (st.callback(lambda rows, epoch: None), "function <lambda>"),
        (st.parquet_sink("out/"), "parquet out/"),
        (st.parquet_sink(Path("out")), "parquet out"),
    ],
)
def test_a_sink_says_where_rows_go(sink: Any, text: str) -> None:
    assert sink.describe() == text


def test_memory_sinks_are_not_one() -> None:
    a, b = st.memory_sink(), st.memory_sink()
    a.epochs[1] = pl.DataFrame({"x": [2]})
    a.epochs[0] = pl.DataFrame({"x": [1]})
    assert a.rows()["x"].to_list() == [1, 2]
    assert b.rows().is_empty()
