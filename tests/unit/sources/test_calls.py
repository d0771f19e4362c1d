"""Call records made by a formula."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as some

import springtide as st
from springtide.sources.calls import CALL_RECORD

MAKE = st.call_records(callers=1000, per_second=50)


@given(some.integers(0, 3), some.integers(0, 10**9), some.lists(some.integers(0, 200), min_size=1, max_size=5))
def test_any_cut_gives_the_same_rows(stream: int, first: int, counts: list[int]) -> None:
    whole, parts, at = MAKE(stream, first, sum(counts)), [], first
    for count in counts:
        parts.append(MAKE(stream, at, count))
        at += count
    assert pl.concat(parts).equals(whole)


def test_the_columns_are_those_of_the_paper() -> None:
    for count in (0, 1, 10):
        made = MAKE(0, 0, count)
        assert made.schema == CALL_RECORD
        assert made.height == count


def test_they_look_like_calls() -> None:
    rows = MAKE(0, 0, 200_000)
    assert rows["src"].n_unique() == 1000
    assert rows["src"].str.contains(r"^\d{9}$").all()
    assert rows["dst"].str.contains(r"^\d{9}$").all()
    assert rows["dst"].n_unique() == 1000
    assert (rows["src"] != rows["dst"]).all()
    assert (rows["end"] == rows["ts"]).all()
    assert (rows["start"] < rows["end"]).all()
    assert rows["lat"].is_between(40.3, 40.6).all()
    assert rows["lon"].is_between(-3.8, -3.5).all()
    by_caller = rows["src"].value_counts()["count"]
    assert by_caller.min() > 100  # type: ignore[operator]
    assert by_caller.max() < 300  # type: ignore[operator]
    assert rows.group_by("src").agg(pl.col("district").n_unique())["district"].unique().to_list() == [1]


def test_every_tenth_caller_is_talkative() -> None:
    seconds = (pl.col("end") - pl.col("start")).dt.total_seconds()
    means = MAKE(0, 0, 200_000).group_by("src").agg(seconds.mean().alias("mean"))
    heavy = means.filter(pl.col("mean") > 600)
    assert heavy.height == 100
    assert heavy["src"].str.ends_with("0").all()


def test_event_time_goes_on_with_the_position() -> None:
    rows = MAKE(0, 0, 1001)
    assert rows["ts"].is_sorted()
    assert rows["ts"][0] == datetime(2024, 5, 1, tzinfo=UTC)
    assert (rows["ts"][1000] - rows["ts"][0]).total_seconds() == 20
    other = st.call_records(callers=10, per_second=0.5, begin=datetime(2030, 1, 1))
    assert other(7, 3, 1)["ts"].to_list() == [datetime(2030, 1, 1, 0, 0, 6, tzinfo=UTC)]


def test_streams_and_seeds_differ() -> None:
    one = MAKE(0, 0, 50)
    assert not one["src"].equals(MAKE(1, 0, 50)["src"])
    assert not one["src"].equals(st.call_records(callers=1000, per_second=50, seed=2)(0, 0, 50)["src"])
    assert one.equals(st.call_records(callers=1000, per_second=50)(0, 0, 50))


def test_the_formula_stays() -> None:
    """Results of a benchmark can be compared only while the rows are the same."""
    seconds = (pl.col("end") - pl.col("start")).dt.total_seconds().alias("seconds")
    row = st.call_records()(3, 1_000_000, 1).select("src", "dst", seconds, "district", pl.col("lat", "lon").round(6))
    assert row.row(0) == ("600006118", "600007680", 29, 38, 40.42976, -3.618052)


@pytest.mark.parametrize(
    "options",
    [{"callers": 1}, {"callers": 10**9}, {"callers": "x"}, {"per_second": 0}, {"per_second": "x"}, {"seed": 0.5}],
)
def test_options_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(st.QueryError, match=r"\(call_records\): "):
        st.call_records(**options)
