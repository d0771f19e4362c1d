"""Columns of many values: what fits alone fits together, and nothing else does."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as some

import springtide as st
from springtide.values.row_checks import Misfit, column, column_of, frame_of_row, frame_of_rows, micros_of, times_of

TYPES: list[pl.DataType] = [
    *(pl.Int64(), pl.UInt8(), pl.Float64(), pl.Float32(), pl.String(), pl.Boolean(), pl.Binary(), pl.Date(), pl.Time()),
    *(
        pl.Duration("us"),
        pl.Datetime("us"),
        pl.Datetime("ms"),
        st.TIME,
        pl.Datetime("ns", "Europe/Berlin"),
        pl.Decimal(9, 2),
    ),
    *(pl.List(pl.Int8()), pl.Struct({"x": pl.Int64()}), pl.Enum(["a", "b"]), pl.List(st.TIME), pl.Array(pl.Int64(), 2)),
]
VALUES: list[Any] = [
    *(None, 0, 1, -1, 255, 256, 2**63, 2**70, True, 0.5, float("nan"), "a", "b", "zz", b"a", date(2024, 1, 1), time(1)),
    *(
        timedelta(1),
        timedelta.max,
        datetime(2024, 1, 1),
        datetime(2024, 1, 1, tzinfo=UTC),
        Decimal("1.25"),
        Decimal("1.255"),
    ),
    *(
        datetime(2024, 7, 1, tzinfo=timezone(timedelta(hours=5))),
        [1],
        [1, 2],
        [None],
        [300],
        ["a"],
        {"x": 1},
        {"y": 1},
        {},
    ),
    *([datetime(2024, 1, 1, tzinfo=UTC)], (1,), np.int64(1), np.float64(1), object(), pl.Series([1])),
]


def alone(name: str, values: list[Any], dtype: pl.DataType) -> pl.Series | None:
    """The column made value by value; None if one does not fit."""
    try:
        return pl.concat([pl.Series(name, [], dtype=dtype), *(column(name, v, dtype) for v in values)])
    except Misfit:
        return None


@given(some.sampled_from(TYPES), some.lists(some.sampled_from(VALUES), max_size=4))
def test_together_as_alone(dtype: pl.DataType, values: list[Any]) -> None:
    expected = alone("x", values, dtype)
    if expected is None:
        with pytest.raises(Misfit):
            column_of("x", values, dtype)
    else:
        made = column_of("x", values, dtype)
        assert made.dtype == dtype
        assert made.equals(expected.rename("x"), null_equal=True)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_each_value_of_each_type(dtype: pl.DataType) -> None:
    for value in VALUES:
        test_together_as_alone.hypothesis.inner_test(dtype, [value])  # type: ignore[attr-defined]
        test_together_as_alone.hypothesis.inner_test(dtype, [None, value, value])  # type: ignore[attr-defined]


def test_times_as_moments_or_microseconds() -> None:
    east = datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    found = times_of("ts", [5, datetime(1970, 1, 1, 0, 0, 1), east])
    assert found.dtype == st.TIME
    assert found.to_physical().to_list() == [5, 1_000_000, 0]
    assert [micros_of(m) for m in (datetime(1970, 1, 1, 0, 0, 1), east)] == [1_000_000, 0]
    assert times_of("ts", []).dtype == st.TIME


@pytest.mark.parametrize("wrong", [None, True, 0.5, "1970", 2**63, date(1970, 1, 1)])
def test_what_is_no_time(wrong: Any) -> None:
    with pytest.raises(Misfit):
        times_of("ts", [5, wrong])


@pytest.mark.parametrize("ts", [None, "t"])
@pytest.mark.parametrize("dtype", [st.TIME, pl.Datetime("us"), pl.Int64()], ids=str)
def test_rows_together_as_alone(dtype: pl.DataType, ts: str | None) -> None:
    columns = pl.Schema({"t": dtype, "x": pl.Float64()})
    for value in (v for v in VALUES if not isinstance(v, pl.Series)):  # a row of a frame has columns with names
        for odd in ({"t": value, "x": 1}, {"t": value}, {"t": value, "other": 1}, [value], {"t": value, "x": "a"}):
            rows = [{"x": None}, odd]
            try:
                expected = pl.concat([frame_of_row(row, columns, ts) for row in rows])
            except Misfit:
                with pytest.raises(Misfit):
                    frame_of_rows(rows, columns, ts)
            else:
                assert frame_of_rows(rows, columns, ts).equals(expected)
