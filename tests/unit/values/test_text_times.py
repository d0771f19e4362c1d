"""Times written as text: the columns say what `datetime.fromisoformat` says, text by text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as some

import springtide as st
from springtide.values.text_times import read_times

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read(*texts: str | None) -> list[int | None]:
    return read_times(pl.Series("t", texts, dtype=pl.String)).cast(pl.Int64).to_list()


def expected(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH) // timedelta(microseconds=1)


SHAPES = [
    *("2024-02-29T12:34:56", "2024-02-29 12:34:56", "2024-02-29T12:34:56.1", "2024-02-29 12:34:56.123456"),
    *("2024-02-29T12:34:56Z", "2024-02-29 12:34:56+05:30", "2024-02-29T12:34:56.5-11:00", "1969-12-31T23:59:59.999999"),
    *("2024-02-29", "2024-02-29T12:34", "2024-02-29 12:34", "2024-02-29T12:34Z", "2024-02-29T12"),
    *("20240229", "20240229T123456", "2024-W09-4", "2024-02-29T12:34:56,5", "2024-02-29T12:34:56.123456789"),
    *("2024-02-29T12:34:56+0530", "2024-02-29T12:34:56+05", "2024-02-29x12:34:56", "0001-01-01T00:00:00+01:00"),
    *("9999-12-31T23:59:59-01:00", "1600-01-01T00:00:00.000001+23:59"),
]
NONE = [
    *("", " ", "soon", "2024-02-30", "2024-02-30T00:00:00", "2023-02-29T00:00:00Z", "2024-13-01T00:00:00"),
    *("2024-02-29T24:00:00", "2024-02-29T12:60:00", "2024-02-29T12:34:60", "2024-02-29T12:34:56+24:00"),
    *("2024-2-9", "2024-2-9T01:02:03", "24-02-09T01:02:03", "0000-01-01T00:00:00", " 2024-02-29T12:34:56"),
    *("2024-02-29T12:34:56 ", "2024-02-29T1:2:3", "+2024-02-29T12:34:56"),
]


@pytest.mark.parametrize("text", SHAPES)
def test_a_time(text: str) -> None:
    assert expected(text) is not None
    assert read(text) == [expected(text)]


@pytest.mark.parametrize("text", NONE)
def test_no_time(text: str) -> None:
    assert expected(text) is None
    assert read(text) == [None]


def test_all_at_once_are_what_each_is_alone() -> None:
    texts = [*SHAPES, None, *NONE, None, *SHAPES]
    assert read(*texts) == [None if t is None else expected(t) for t in texts]


def test_no_texts() -> None:
    times = read_times(pl.Series("t", [], dtype=pl.String))
    assert times.dtype == st.TIME
    assert times.name == "t"
    assert times.is_empty()
    assert read(None, None) == [None, None]


@given(some.lists(some.one_of(some.datetimes(), some.datetimes(timezones=some.timezones()))), some.sampled_from("T x"))
def test_what_python_writes_is_read(moments: list[datetime], between: str) -> None:
    texts = [m.isoformat(between) for m in moments]
    assert read(*texts) == [expected(t) for t in texts]


@given(some.text("0123456789-:T Z+.W", max_size=24))
def test_whatever_looks_like_a_time(text: str) -> None:
    assert read(text) == [expected(text)]
