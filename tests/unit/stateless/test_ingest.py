"""What comes in: rejected, late or accepted, judged in position order. Times are microseconds."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as some

import springtide as st
from springtide.connectors import MISFIT, POSITION, Read, Slice
from springtide.exchange import order
from springtide.exchange.gate import BEGINNING
from springtide.query.steps import Source
from springtide.query.types import FIRST_TIME, LAST_TIME
from springtide.runtime.reference.ingest import arrive
from springtide.stateless.ingest import Ingested, ingest
from springtide.values.row_checks import Misfit, event_time


def source(dtype: Any = pl.Int64, ts: str | None = "t", *, positions: bool = True, disorder: str = "0s") -> Source:
    connector = st.memory(schema={"t": dtype, "x": pl.Int64}, positions=positions)
    step = st.source("s", connector, ts=ts, max_disorder=disorder).step
    assert isinstance(step, Source)
    return step


def judge(
    step: Source,
    times: list[Any] | pl.Series,
    *,
    before: int = BEGINNING,
    first: int = 0,
    ordered: bool = False,
    read: Read | None = None,
) -> Ingested:
    rows = pl.LazyFrame({"t": times, "x": range(len(times))}, schema=step.columns)
    part, read = Slice("0", first, len(times), None), read or Read(rows)
    ways = [
        ingest(step, "s", part, read, before, ordered=ordered, origin=3, filtered=filtered)
        for filtered in (True, False)
    ]
    assert ways[0].accepted.collect().equals(ways[1].accepted.collect())
    assert ways[0].accepted.collect_schema() == ways[1].accepted.collect_schema()
    return ways[1]


def xs(frame: pl.DataFrame | pl.LazyFrame | None) -> list[int]:
    return [] if frame is None else frame.lazy().collect()["x"].to_list()


def test_rows_in_order_come_in() -> None:
    got = judge(source(), [1, 2, 2, 5])
    assert xs(got.accepted) == [0, 1, 2, 3]
    assert (got.late, got.rejected, got.count, got.time) == (None, None, 4, 5)
    assert got.accepted.collect_schema() == pl.Schema({"ts": st.TIME, "x": pl.Int64()})


def test_a_row_before_the_stream_time_is_late() -> None:
    #   t      5   3   5   9   8   9
    #   time     5   5   5   9   9
    got = judge(source(), [5, 3, 5, 9, 8, 9])
    assert xs(got.accepted) == [0, 2, 3, 5]
    assert xs(got.late) == [1, 4]
    assert (got.count, got.time) == (4, 9)


def test_the_time_before_the_slice_counts() -> None:
    got = judge(source(), [1, 4, 5], before=4)
    assert (xs(got.late), xs(got.accepted), got.time) == ([0], [1, 2], 5)


def test_disorder_is_allowed_for() -> None:
    #   t      10   8   7   13   10   9        disorder 3
    #   time       7   7   7   10   10
    got = judge(source(disorder="3us"), [10, 8, 7, 13, 10, 9])
    assert xs(got.late) == [5]
    assert (xs(got.accepted), got.time) == ([0, 1, 2, 3, 4], 10)


def test_rows_in_order_with_disorder_leave_the_time_behind() -> None:
    assert judge(source(disorder="3us"), [10, 11]).time == 8
    assert judge(source(disorder="3us"), [10, 11], before=9).time == 9


def test_a_late_row_does_not_move_time() -> None:
    got = judge(source(disorder="3us"), [10, 2, 4, 6], before=5)
    assert (xs(got.late), got.time) == ([1, 2, 3], 7)


def test_no_rows() -> None:
    assert judge(source(), [], before=7).time == 7
    assert judge(source(), []).time == BEGINNING


def test_a_null_time_is_rejected_and_moves_nothing() -> None:
    got = judge(source(), [None, 5, None, 4, 5], first=100)
    assert xs(got.accepted) == [1, 4]
    assert xs(got.late) == [3]
    assert got.rejected is not None
    assert got.rejected.rows() == [
        ("s", "0", 100, "the time 't' is null", '{"t":null,"x":0}'),
        ("s", "0", 102, "the time 't' is null", '{"t":null,"x":2}'),
    ]
    assert (got.count, got.time) == (2, 5)


def test_only_null_times() -> None:
    got = judge(source(), [None, None], before=3)
    assert (got.count, got.time, got.late) == (0, 3, None)
    assert got.rejected is not None
    assert got.rejected["position"].to_list() == [0, 1]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (pl.Datetime("us", "UTC"), datetime(1970, 1, 1, 1, tzinfo=UTC)),
        (pl.Datetime("us"), datetime(1970, 1, 1, 1)),
        (pl.Datetime("ms"), datetime(1970, 1, 1, 1)),
        (pl.Datetime("ns", "Europe/Madrid"), datetime(1970, 1, 1, 1, tzinfo=UTC)),
        (pl.Int64, 3_600_000_000),
        (pl.String, "1970-01-01T01:00:00"),
        (pl.String, "1970-01-01 02:00:00+01:00"),
    ],
)
def test_times_of_every_type(dtype: Any, value: Any) -> None:
    got = judge(source(dtype), [value])
    frame = got.accepted.collect()
    assert frame.schema["ts"] == st.TIME
    assert frame["ts"].cast(pl.Int64).to_list() == [3_600_000_000]
    assert got.time == 3_600_000_000


def test_a_date_is_its_beginning() -> None:
    assert judge(source(pl.Date), [datetime(1970, 1, 2).date()]).time == 86_400_000_000


def test_a_text_that_is_no_time_is_rejected() -> None:
    got = judge(source(pl.String), ["1970-01-01T00:00:00.000005", "soon", None, "19700101T00"])
    assert got.rejected is not None
    assert got.rejected["reason"].to_list() == [
        "the time 't' cannot be read: 'soon' is not ISO 8601",
        "the time 't' is null",
    ]
    assert xs(got.late) == [3]
    assert xs(got.accepted) == [0]


@pytest.mark.parametrize("text", ["2024-2-9", "2024-02-29T12", "20240229", "2024-W09-4", "2024-02-29T12:34:60"])
def test_the_engine_and_the_reference_agree_on_texts(text: str) -> None:
    step = source(pl.String)
    rows = [{"t": text, "x": 0}]
    expected = arrive(step, "s", {"0": rows}, bounded=False)
    got = judge(step, [text])
    assert got.count == len(expected.tuples)
    assert [got.time] == expected.times


def test_without_time_everything_comes_in() -> None:
    got = judge(source(ts=None), [5, None, 3])
    assert xs(got.accepted) == [0, 1, 2]
    assert (got.count, got.time, got.late, got.rejected) == (3, None, None, None)


def test_what_the_connector_rejected_is_passed_on_in_position_order() -> None:
    rows = pl.LazyFrame({"t": [1, None], "x": [0, 2], POSITION: [10, 12]})
    wrong = ({"position": 13, "reason": "b", "row": "{}"}, {"position": 11, "reason": "a", "row": "{}"})
    got = judge(source(), [0, 0, 0, 0], first=10, read=Read(rows, wrong))
    assert got.rejected is not None
    assert got.rejected["position"].to_list() == [11, 12, 13]
    assert got.rejected["reason"].to_list() == ["a", "the time 't' is null", "b"]
    assert got.accepted.collect().columns == ["ts", "x"]


@pytest.mark.parametrize("given_positions", [False, True])
def test_places_in_the_total_order(given_positions: bool) -> None:
    rows = pl.LazyFrame({"t": [1, 2], "x": [7, 8]})
    if given_positions:
        rows = rows.with_columns(pl.Series(POSITION, [5, 6]))
    got = judge(source(), [0, 0], first=5, ordered=True, read=Read(rows)).accepted.collect()
    assert got.columns == ["ts", "x", *order.PLACES]
    assert got.select(order.PLACES).rows() == [(3, "0", 5, 0), (3, "0", 6, 0)]


def test_places_stay_with_their_rows_when_others_fall_out() -> None:
    got = judge(source(), [5, 3, None, 6], first=5, ordered=True)
    assert got.accepted.collect()[order.POSITION].to_list() == [5, 8]
    assert got.late is not None
    assert got.late.columns == ["ts", "x"]


def test_without_positions_a_slice_is_a_set() -> None:
    """Rows of one slice do not make each other late, only earlier slices do."""
    got = judge(source(positions=False), [5, 3, 9, 1], before=2, ordered=True)
    assert xs(got.late) == [3]
    assert got.time == 9
    assert got.accepted.collect()[order.POSITION].to_list() == [None, None, None]


@given(
    some.lists(some.one_of(some.none(), some.integers(-50, 50)), max_size=30),
    some.integers(0, 20),
    some.sets(some.integers(0, 30)),
)
def test_any_cut_gives_what_the_reference_says(times: list[int | None], disorder: int, cuts: set[int]) -> None:
    step = source(disorder=f"{disorder}us")
    rows = [{"t": t, "x": i} for i, t in enumerate(times)]
    expected = arrive(step, "s", {"0": rows}, bounded=False)
    accepted, late, rejected, now = [], [], [], BEGINNING
    edges = [0, *sorted(c for c in cuts if 0 < c < len(times)), len(times)]
    for low, high in pairwise(edges):
        part = pl.LazyFrame(rows[low:high], schema=step.columns)
        got = ingest(
            step, "s", Slice("0", low, high - low, None), Read(part), now, ordered=False, origin=0, filtered=False
        )
        accepted += xs(got.accepted)
        late += xs(got.late)
        rejected += [] if got.rejected is None else got.rejected["position"].to_list()
        assert got.time is not None
        now = got.time
    assert accepted == [t.values["x"] for t in expected.tuples]
    assert late == [t.values["x"] for t in expected.late]
    assert rejected == [t.values["position"] for t in expected.rejected]
    assert [now] == expected.times


@pytest.mark.parametrize(
    ("dtype", "factor"),
    [(pl.Int64(), 1), (pl.Datetime("us"), 1), (st.TIME, 1), (pl.Datetime("ms", "Europe/Berlin"), 1000)],
)
def test_times_that_no_calendar_has_are_rejected_and_move_nothing(dtype: pl.DataType, factor: int) -> None:
    """Near the ends of 64 bits sums of times and lengths would wrap; in milliseconds the time itself would."""
    first, last = FIRST_TIME // factor, LAST_TIME // factor
    times = [-(2**63), 2**63 - 1, first - 1, first, 5, last, last + 1, 2**62, None]
    made = source(dtype, disorder="10000w")
    got = judge(made, pl.Series(times, dtype=pl.Int64).cast(dtype))
    assert got.rejected is not None
    assert got.rejected["position"].to_list() == [0, 1, 2, 6, 7, 8]
    reasons = ["the time 't' is not in the years 1 to 9999"] * 5 + ["the time 't' is null"]
    assert got.rejected["reason"].to_list() == reasons
    assert got.count == 3
    assert got.greatest == last * factor
    assert got.time == last * factor - made.max_disorder
    for sorted_times in ([first - 1, 5], [5, last + 1]):
        assert judge(made, pl.Series(sorted_times, dtype=pl.Int64).cast(dtype)).count == 1


@pytest.mark.parametrize("days", [2**31 - 1, -(2**31), 2_932_897, -719_163])
def test_days_that_no_calendar_has(days: int) -> None:
    got = judge(source(pl.Date()), pl.Series([days, 0], dtype=pl.Int32).cast(pl.Date))
    assert got.rejected is not None
    assert got.rejected["reason"].to_list() == ["the time 't' is not in the years 1 to 9999"]
    assert got.count == 1


def test_nanoseconds_are_cut_downwards_by_both() -> None:
    times = pl.Series([-1, -1999, 1999], dtype=pl.Int64).cast(pl.Datetime("ns"))
    got = judge(source(pl.Datetime("ns"), disorder="1s"), times)
    micros = got.accepted.collect()["ts"].cast(pl.Int64).to_list()
    assert micros == [event_time(times[i : i + 1]) for i in range(3)] == [-1, -2, 1]


def test_texts_beyond_the_calendar_in_utc() -> None:
    texts = ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00", "soon" * 50, "9999-12-31T23:59:59"]
    got = judge(source(pl.String()), pl.Series(texts))
    assert got.rejected is not None
    expected = []
    for text in texts[:3]:
        with pytest.raises(Misfit) as caught:
            event_time(pl.Series("t", [text]))
        expected.append(str(caught.value))
    assert got.rejected["reason"].to_list() == expected


def test_rows_that_a_connector_finds_wrong_are_rejected() -> None:
    rows = pl.DataFrame({"t": [1, 2, 3], "x": [1, 2, 3], MISFIT: [None, "it is odd", None]})
    for read, place in ((Read(rows.lazy()), 11), (Read(rows.with_columns(pl.Series(POSITION, [5, 7, 9])).lazy()), 7)):
        got = ingest(source(), "s", Slice("0", 10, 3, None), read, BEGINNING, ordered=False, origin=0)
        assert got.rejected is not None
        assert got.rejected.select("position", "reason", "row").rows() == [(place, "it is odd", '{"t":2,"x":2}')]
        assert got.accepted.collect()["ts"].cast(pl.Int64).to_list() == [1, 3]
