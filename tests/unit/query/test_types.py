"""Schemas, event time and lengths of time (SC-2)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as some

import springtide as st
from springtide.query.types import check_keys, is_key_type, length_text, schema_from, schema_text, type_text, whole

SECOND, MINUTE, HOUR, DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000


@pytest.mark.parametrize(
    ("length", "micros"),
    [
        ("1us", 1),
        ("250ms", 250_000),
        ("10s", 10 * SECOND),
        ("5m", 5 * MINUTE),
        ("1h", HOUR),
        ("2d", 2 * DAY),
        ("1w", 7 * DAY),
        ("1h30m", HOUR + 30 * MINUTE),
        ("1d 2h 3m 4s 5ms 6us", DAY + 2 * HOUR + 3 * MINUTE + 4 * SECOND + 5_006),
        (" 10 s ", 10 * SECOND),
        ("-2s", -2 * SECOND),
        ("-1h30m", -(HOUR + 30 * MINUTE)),
        ("0s", 0),
        ("90m", 90 * MINUTE),
        (timedelta(hours=1), HOUR),
        (timedelta(microseconds=-1), -1),
        (timedelta(0), 0),
        (np.str_("1m"), MINUTE),
    ],
)
def test_a_length_of_time_is_microseconds(length: Any, micros: int) -> None:
    assert st.micros(length) == micros


@pytest.mark.parametrize(
    "length", ["", " ", "-", "10", "s", "1.5h", "1h-", "--1s", "1 month", "1H", "10s!", "1h,2m", "∞"]
)
def test_what_is_no_length_of_time(length: str) -> None:
    with pytest.raises(ValueError, match=r"not a length of time.*'10s'"):
        st.micros(length)


@pytest.mark.parametrize("length", [5, 1.5, None, b"1s", np.timedelta64(1, "s"), ["1s"]])
def test_a_length_of_time_is_a_text_or_a_timedelta(length: Any) -> None:
    with pytest.raises(ValueError, match="is not a length of time"):
        st.micros(length)


@pytest.mark.parametrize("length", ["99999999999w", timedelta.max, timedelta.min])
def test_a_length_fits_into_time(length: Any) -> None:
    with pytest.raises(ValueError, match="at most 10000 years"):
        st.micros(length)


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "0s"),
        (1, "1us"),
        (250_000, "250ms"),
        (SECOND, "1s"),
        (90 * MINUTE, "1h30m"),
        (14 * DAY, "14d"),
        (-90 * SECOND, "-1m30s"),
    ],
)
def test_a_length_as_a_person_writes_it(micros: int, text: str) -> None:
    assert length_text(micros) == text


@given(some.integers(-(2**58), 2**58))
def test_a_length_that_is_written_is_read_again(micros: int) -> None:
    assert st.micros(length_text(micros)) == micros


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        (pl.Int8(), "i8"),
        (pl.Int16(), "i16"),
        (pl.Int32(), "i32"),
        (pl.Int64(), "i64"),
        (pl.Int128(), "int128"),
        (pl.UInt8(), "u8"),
        (pl.UInt16(), "u16"),
        (pl.UInt32(), "u32"),
        (pl.UInt64(), "u64"),
        (pl.Float32(), "f32"),
        (pl.Float64(), "f64"),
        (pl.String(), "str"),
        (pl.Boolean(), "bool"),
        (pl.Binary(), "bytes"),
        (pl.Date(), "date"),
        (pl.Time(), "time of day"),
        (st.TIME, "time"),
        (pl.Datetime("ms"), "datetime[ms]"),
        (pl.Datetime("us", "Europe/Berlin"), "datetime[us, Europe/Berlin]"),
        (pl.Duration("us"), "duration[us]"),
        (pl.Decimal(10, 2), "decimal[10, 2]"),
        (pl.List(pl.List(pl.Int64)), "list[list[i64]]"),
        (pl.Array(pl.Int64, 2), "array[i64, 2]"),
        (pl.Struct({"a": pl.Int64, "b": pl.List(pl.String)}), "struct[a:i64, b:list[str]]"),
        (pl.Enum(["a"]), "enum"),
        (pl.Categorical(), "categorical"),
        (pl.Null(), "null"),
        (pl.Object(), "object"),
    ],
)
def test_a_type_in_a_few_letters(dtype: pl.DataType, text: str) -> None:
    assert type_text(dtype) == text


def test_a_schema_on_one_line() -> None:
    assert schema_text(pl.Schema({"src": pl.String(), "n": pl.Int64(), "ts": st.TIME})) == "src:str n:i64 ts:time"


KEYS = [
    pl.Int8,
    pl.UInt64,
    pl.String,
    pl.Boolean,
    pl.Binary,
    pl.Date,
    pl.Time,
    st.TIME,
    pl.Duration("us"),
    pl.Decimal(9, 2),
]
NO_KEYS = [pl.Float32, pl.Float64, pl.List(pl.Int64), pl.Struct({"a": pl.Int64}), pl.Object, pl.Null, pl.Categorical()]


@pytest.mark.parametrize("dtype", KEYS)
def test_a_key_has_plain_equality(dtype: Any) -> None:
    schema = pl.Schema({"k": dtype})
    assert is_key_type(schema["k"])
    check_keys("step", ("k",), schema)


@pytest.mark.parametrize("dtype", NO_KEYS)
def test_no_key_without_plain_equality(dtype: Any) -> None:
    schema = pl.Schema({"k": dtype})
    assert not is_key_type(schema["k"])
    with pytest.raises(st.QueryError, match="which cannot be a key"):
        check_keys("step", ("k",), schema)


def test_time_ends_after_every_event() -> None:
    assert st.END_OF_TIME == 2**63 - 1
    assert pl.Series([st.END_OF_TIME]).dtype == pl.Int64
    assert pl.Datetime("us", "UTC") == st.TIME


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3)])
def test_a_whole_number_of_any_kind_is_an_int(value: Any) -> None:
    number = whole("step", "k", value)
    assert number == 3
    assert type(number) is int


def test_a_schema_from_types_of_polars_and_of_python() -> None:
    schema = schema_from("step", "output", {"a": pl.Int64, "b": int, "c": pl.List(str), "ts": st.TIME})
    assert schema == pl.Schema({"a": pl.Int64(), "b": pl.Int64(), "c": pl.List(pl.String()), "ts": st.TIME})
