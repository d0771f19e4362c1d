"""What comes in, what is late, what is rejected, and how time moves."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.query.connectors import Marker
from springtide.testing import END, FAIL, PAUSE, at, compare, idle, streams, table

SCHEMA = {"ts": st.TIME, "x": pl.Int64}


def taken(rows: Any, *, schema: Any = None, ts: str | None = "ts", bounded: bool = True, **options: Any) -> Any:
    """Run a source into a sink."""
    events = st.source("events", st.memory(schema=schema or SCHEMA), ts=ts, **options)
    return st.Query("q", events.to(st.memory_sink())).run_reference({"events": rows}, bounded=bounded)


def counts(rows: Any, *, bounded: bool, **options: Any) -> list[tuple[datetime, int]]:
    """Count rows per 10 s: what is given shows where the merged time stands."""
    events = st.source("events", st.memory(schema=SCHEMA), ts="ts", **options)
    windows = events.aggregate(window=st.tumbling("10s"), n=st.count())
    result = st.Query("q", windows.to(st.memory_sink())).run_reference({"events": rows}, bounded=bounded)
    return result.rows().select("window_end", "n").rows()


# ── late ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_late_is_behind_the_stream_time_and_equal_is_not() -> None:
    """Disorder up to 2 s: the stream time is the greatest ts − 2 s so far.

    row          5s     3s     2.9s   7s     5s     4.9s
    stream time  −      3s     3s     3s     5s     5s
                 in     in     late   in     in     late
    """
    rows = table("""
        ts         x
        5s         1
        3s         2
        2s900ms    3
        7s         4
        5s         5
        4s900ms    6
    """)
    result = taken(rows, max_disorder="2s")
    assert result.rows()["x"].to_list() == [2, 1, 5, 4]
    assert result.late["events"]["x"].to_list() == [3, 6]
    assert result.late["events"].schema == pl.Schema(SCHEMA)


def test_without_disorder_equal_times_come_in() -> None:
    result = taken(table("ts x \n 5s 1 \n 5s 2 \n 4s999999us 3"))
    assert result.rows()["x"].to_list() == [1, 2]
    assert result.late["events"]["x"].to_list() == [3]


def test_late_is_a_matter_of_one_physical_stream() -> None:
    """The other stream's being far ahead makes nobody late."""
    result = taken(streams(a=table("ts x \n 100s 1"), b=table("ts x \n 1s 2 \n 2s 3")))
    assert result.rows()["x"].to_list() == [2, 3, 1]
    assert result.late["events"].height == 0


def test_rejected_rows_and_late_rows_do_not_move_time() -> None:
    rows = [{"ts": at("5s"), "x": 1}, {"ts": at("50s"), "x": "no"}, {"ts": at("4s"), "x": 2}, {"ts": at("5s"), "x": 3}]
    result = taken(rows)
    assert result.rows()["x"].to_list() == [1, 3]
    assert (result.late["events"].height, result.rejected["events"].height) == (1, 1)


def test_rows_before_a_dummy_that_come_afterwards_are_late() -> None:
    """SC-6: a dummy moves the stream time; it never moves back."""
    rows = table("""
        ts   x
        1s   1
        idle 10s
        9s   2
        idle 3s
        5s   3
        10s  4
    """)
    result = taken(rows)
    assert result.rows()["x"].to_list() == [1, 4]
    assert result.late["events"]["x"].to_list() == [2, 3]


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_unbounded_input_gives_only_windows_that_the_merged_time_has_reached() -> None:
    """A window [0, 10) is given when the merged time is 10, not before.

    time    0        10        20
    rows      3   8  10   15             stream time 15
    windows |---------|---------|        the first is given, the second is open
    """
    rows = table("ts x \n 3s 0 \n 8s 0 \n 10s 0 \n 15s 0")
    assert counts(rows, bounded=False) == [(at("10s"), 2)]
    assert counts(rows[:3], bounded=False) == [(at("10s"), 2)]
    assert counts(rows[:2], bounded=False) == []
    assert counts(rows, bounded=True) == [(at("10s"), 2), (at("20s"), 2)]


def test_max_disorder_holds_the_time_back() -> None:
    rows = table("ts x \n 3s 0 \n 12s 0")
    assert counts(rows, bounded=False, max_disorder="3s") == []
    assert counts(rows, bounded=False, max_disorder="2s") == [(at("10s"), 1)]


def test_the_slowest_physical_stream_holds_the_others_back() -> None:
    """The merged time is the smallest stream time."""
    fast, slow = table("ts x \n 1s 0 \n 35s 0"), table("ts x \n 2s 0 \n 9s 0")
    assert counts(streams(a=fast, b=slow), bounded=False) == []
    assert counts(streams(a=fast, b=[*slow, idle(to="20s")]), bounded=False) == [(at("10s"), 3)]
    assert counts(streams(a=fast, b=[*slow, END]), bounded=False) == [(at("10s"), 3)]
    assert counts(streams(a=fast, b=[]), bounded=False) == []
    assert counts(streams(a=[*fast, END], b=[*slow, END]), bounded=False) == [(at("10s"), 3), (at("40s"), 1)]


def test_time_of_a_source_without_physical_streams() -> None:
    assert counts({}, bounded=True) == []
    assert counts({}, bounded=False) == []


def test_a_join_waits_for_the_sources_of_both_sides(rows_of: Any) -> None:
    left = st.source("left", st.memory(schema=SCHEMA), ts="ts")
    right = st.source("right", st.memory(schema=SCHEMA), ts="ts")
    windows = left.union(right).aggregate(window=st.tumbling("10s"), n=st.count())
    inputs = {"left": table("ts x \n 1s 0 \n 25s 0"), "right": table("ts x \n 2s 0 \n 12s 0")}
    assert rows_of(windows, inputs, bounded=False)["n"].to_list() == [2]


def test_pause_and_fail_change_nothing_and_rows_after_end_are_an_error() -> None:
    rows = table("ts x \n 1s 1 \n 2s 2")
    marked = taken([PAUSE, rows[0], FAIL, PAUSE, rows[1], END, PAUSE])
    compare(marked.rows(), taken(rows).rows())
    with pytest.raises(st.QueryError, match=r"step events \(source\): .*'0' .* after END"):
        taken([END, *rows])
    with pytest.raises(st.QueryError, match="STOP"):
        taken([Marker("STOP")])


# ── event times ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        (pl.Datetime("us"), datetime(1970, 1, 1, 0, 0, 1), "1s"),
        (pl.Datetime("us", "UTC"), datetime(1970, 1, 1, 0, 0, 1), "1s"),
        (pl.Datetime("us"), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "1s"),
        (pl.Datetime("us", "UTC"), datetime(1970, 1, 1, 1, 0, 1, tzinfo=timezone(timedelta(hours=1))), "1s"),
        (pl.Datetime("us", "Europe/Berlin"), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "1s"),
        (pl.Datetime("ms"), datetime(1970, 1, 1, 0, 0, 1, 5000), "1s5ms"),
        (pl.Datetime("ns"), datetime(1970, 1, 1, 0, 0, 1, 5), "1s5us"),
        (pl.Date(), date(1970, 1, 2), "1d"),
        (pl.Int64(), -5, "-5us"),
        (pl.String(), "1970-01-01T00:00:01", "1s"),
        (pl.String(), "1970-01-01T00:00:01.5Z", "1s500ms"),
        (pl.String(), "1970-01-01T00:00:00+01:00", "-1h"),
        (pl.String(), "1970-01-02", "1d"),
    ],
)
def test_event_time(dtype: pl.DataType, value: Any, expected: str) -> None:
    """A time without a zone is UTC, an integer is microseconds since 1970, a text is ISO 8601."""
    rows = taken([{"when": value}], schema={"when": dtype}, ts="when").rows()
    compare(rows, pl.DataFrame({"ts": [at(expected)]}, schema={"ts": st.TIME}))


def test_event_time_of_a_frame_is_exact() -> None:
    """Nanoseconds are cut towards the past; the other columns keep theirs."""
    frame = pl.DataFrame({"when": [-1, 1999], "d": [1, 2]}, schema={"when": pl.Datetime("ns"), "d": pl.Duration("ns")})
    rows = taken(frame, schema=frame.schema, ts="when").rows()
    assert rows["ts"].cast(pl.Int64).to_list() == [-1, 1]
    assert rows["d"].cast(pl.Int64).to_list() == [1, 2]


# ── rejected ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"ts": at("1s"), "y": 1}, "there is no column 'y'; there are: ts, x"),
        ({"ts": at("1s"), "xx": 1, "x": "no"}, "there is no column 'xx'; did you mean 'x'?"),
        ({"ts": at("1s"), "x": "5"}, "column 'x': '5' is not i64"),
        ({"ts": at("1s"), "x": 5.0}, "column 'x': 5.0 is not i64"),
        ({"ts": at("1s"), "x": True}, "column 'x': True is not i64"),
        ({"ts": at("1s"), "x": 2**63}, "column 'x': 9223372036854775808 is out of range for i64"),
        ({"ts": None, "x": 1}, "the time 'ts' is null"),
        ({"x": 1}, "the time 'ts' is null"),
        ({"ts": 5, "x": 1}, "column 'ts': 5 is not time"),
        ("x", "'x' is not a row of named columns"),
    ],
)
def test_rejected_with_the_reason(row: Any, reason: str) -> None:
    result = taken([{"ts": at("1s"), "x": 0}, row])
    assert result.rows()["x"].to_list() == [0]
    (rejected,) = result.rejected["events"].rows(named=True)
    assert rejected["reason"] == reason
    assert (rejected["source"], rejected["stream"], rejected["position"]) == ("events", "0", 1)
    read = json.loads(rejected["row"])
    assert read == row if not isinstance(row, dict) else set(read) == set(row)


@pytest.mark.parametrize("text", ["", "yesterday", "2024-13-01", "1704067200"])
def test_a_text_that_is_no_time_is_rejected(text: str) -> None:
    result = taken([{"when": text}], schema={"when": pl.String}, ts="when")
    assert result.rejected["events"]["reason"].to_list() == [
        f"the time 'when' cannot be read: {text!r} is not ISO 8601"
    ]


@pytest.mark.parametrize(
    ("dtype", "good", "bad"),
    [
        (pl.Float64, [1.5, 7, float("nan"), None], ["1.5", True]),
        (pl.Float32, [0.1, 7], ["x"]),
        (pl.UInt8, [0, 255], [-1, 256, 1.0]),
        (pl.Boolean, [True, None], [1, "true"]),
        (pl.String, ["", "x"], [b"x", 5]),
        (pl.Binary, [b""], ["x"]),
        (pl.Date, [date(2024, 1, 1)], [datetime(2024, 1, 1), "2024-01-01", 5]),
        (pl.Time, [time(1)], ["01:00"]),
        (pl.Duration("us"), [timedelta(seconds=1)], [1]),
        (pl.Datetime("us"), [datetime(2024, 1, 1)], [datetime(2024, 1, 1, tzinfo=UTC), date(2024, 1, 1)]),
        (st.TIME, [datetime(2024, 1, 1, tzinfo=UTC)], [datetime(2024, 1, 1)]),
        (
            pl.Decimal(5, 2),
            [Decimal("1.25"), Decimal("1.250"), Decimal(7)],
            [Decimal("1.255"), Decimal(10**6), 1, 1.25],
        ),
        (pl.List(pl.Float64), [[], [1, None, 2.5]], [[1, "x"], 5, "ab"]),
        (pl.Array(pl.Int64, 2), [[1, 2]], [[1, 2, 3], [1.5, 2.5]]),
        (pl.Struct({"a": pl.Int64}), [{"a": 1}, {}], [{"b": 1}, {"a": "x"}, 5]),
        (pl.Enum(["a"]), ["a"], ["b", 1]),
        (pl.Null, [None], [1]),
    ],
)
def test_which_values_fit_a_type(dtype: Any, good: list[Any], bad: list[Any]) -> None:
    """An integer fits a float column; nothing else is converted."""
    result = taken([{"v": v} for v in [*good, *bad]], schema={"v": dtype}, ts=None)
    assert result.rejected["events"]["position"].to_list() == list(range(len(good), len(good) + len(bad)))
    assert result.rows().height == len(good)
    assert result.rows().schema == pl.Schema({"v": dtype})


def test_a_missing_column_is_null() -> None:
    assert taken([{"ts": at("1s")}]).rows()["x"].to_list() == [None]


def test_frames_are_judged_row_by_row() -> None:
    """A column of another type is no reason to reject its nulls, and integers of any size fit where they are in range."""
    frame = pl.DataFrame({"ts": [at("1s"), at("2s"), None], "x": [1, None, 3]}, schema={"ts": st.TIME, "x": pl.Int8})
    result = taken(frame)
    assert result.rows()["x"].to_list() == [1, None]
    assert result.rejected["events"]["position"].to_list() == [2]
    texts = taken(frame.with_columns(x=pl.col("x").cast(pl.String)))
    assert texts.rows()["x"].to_list() == [None]
    assert texts.rejected["events"]["reason"].to_list() == ["column 'x': '1' is not i64", "column 'x': '3' is not i64"]
    extra = taken(frame.with_columns(y=1))
    assert extra.rejected["events"].height == 3
    assert json.loads(extra.rejected["events"]["row"][0]) == {"ts": "1970-01-01T00:00:01+00:00", "x": 1, "y": 1}


def test_a_source_without_time_takes_everything_that_fits() -> None:
    result = taken([{"x": 2}, {"x": 1}], schema={"x": pl.Int64}, ts=None)
    assert result.rows()["x"].to_list() == [1, 2]
    assert result.late["events"].height == 0


def test_late_and_rejected_rows_take_stateless_steps(rows_of: Any) -> None:
    events = st.source("events", st.memory(schema=SCHEMA), ts="ts")
    inputs = {"events": [*table("ts x \n 5s 1 \n 1s 2 \n 2s 3"), {"ts": None}]}
    late = events.late.filter(pl.col("x") > 2).map(double=pl.col("x") * 2)
    assert rows_of(late, inputs)["double"].to_list() == [6]
    rejected = events.rejected.select("position", source=pl.col("source").str.to_uppercase())
    assert rows_of(rejected, inputs).rows() == [(3, "EVENTS")]
