"""Generated rows: the same every time, at the pace of a clock that the tests set."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as some
from pyspark import cloudpickle

import springtide as st
from springtide.query.errors import UserCodeError
from springtide.query.types import END_OF_TIME
from springtide.runtime.engine import Engine, Options
from springtide.runtime.inprocess import execute, run
from springtide.sources.generate import Generator
from springtide.state.checkpoint import Checkpoint
from tests.unit.sources.conftest import Drain


def numbers(stream: int, first: int, count: int) -> pl.DataFrame:
    return pl.select(x=pl.int_range(first, first + count), s=pl.repeat(stream, count, dtype=pl.Int64))


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def paced(clock: Clock, **options: Any) -> Generator:
    return replace(st.generate(numbers, **({"rate": 10} | options)), clock=clock)


def rows(take: Any) -> int:
    return sum(part.rows for part in take.slices)


# ── how many, when ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rows_come_as_they_are_due() -> None:
    #   clock     1000   1000.5   1002.5        10 rows/s
    #   due       0      5        25
    clock = Clock()
    source = paced(clock)
    first = source.take(None, 1000, None)
    assert (rows(first), first.position, first.ended) == (0, {"rows": 0, "origin": 1000.0}, False)
    clock.now = 1000.5
    second = source.take(first.position, 1000, None)
    assert (rows(second), second.position) == (5, {"rows": 5, "origin": 1000.0})
    clock.now = 1002.5
    third = source.take(second.position, 1000, None)
    assert [(p.stream, p.position, p.rows) for p in third.slices] == [("0", 5, 20)]
    assert third.times == {}


def test_nothing_is_due_and_nothing_has_changed() -> None:
    clock = Clock()
    source = paced(clock)
    position = source.take(None, 1000, None).position
    clock.now += 0.05
    take = source.take(position, 1000, None)
    assert (take.slices, take.position) == ((), position)


def test_asking_again_gives_the_same_or_more() -> None:
    clock = Clock()
    source = paced(clock)
    position = source.take(None, 1000, None).position
    clock.now += 1
    assert rows(source.take(position, 1000, None)) == 10
    clock.now += 1
    assert rows(source.take(position, 1000, None)) == 20


def test_the_limit_leaves_a_backlog() -> None:
    clock = Clock()
    source = paced(clock)
    position = source.take(None, 8, None).position
    clock.now += 3
    take = source.take(position, 8, None)
    assert (rows(take), take.backlog) == (8, 22)
    assert take.position == {"rows": 8, "origin": 1000.0}


def test_a_restart_goes_on_by_the_same_clock() -> None:
    clock = Clock()
    position = paced(clock).take(None, 1000, None).position
    clock.now += 2
    position = json.loads(json.dumps(paced(clock).take(position, 1000, None).position))
    clock.now += 60  # the query was down
    take = paced(clock).take(position, 1000, None)
    assert [(p.position, p.rows) for p in take.slices] == [(20, 600)]


def test_a_clock_that_goes_back_does_no_harm() -> None:
    clock = Clock()
    source = paced(clock)
    clock.now += 10
    position = {"rows": 100, "origin": 1000.0}
    clock.now = 1005
    take = source.take(position, 1000, None)
    assert (take.slices, take.position, take.backlog) == ((), position, 0)


def test_the_clock_may_begin_before_or_later() -> None:
    clock = Clock()
    before = paced(clock, start=datetime.fromtimestamp(990, UTC))
    assert rows(before.take(None, 1000, None)) == 100
    later = paced(clock, start=datetime.fromtimestamp(1010, UTC).replace(tzinfo=None))
    assert later.take(None, 1000, None).position == {"rows": 0, "origin": 1010.0}
    clock.now = 1011
    assert rows(later.take(None, 1000, None)) == 10


def test_a_profile_sets_the_pace() -> None:
    clock = Clock()
    source = paced(clock, rate=st.steps([(1, 100), (1, 5)]))
    position = source.take(None, 1000, None).position
    clock.now += 3
    assert rows(source.take(position, 1000, None)) == 110


def test_the_total_ends_it() -> None:
    clock = Clock()
    source = paced(clock, total=15, streams=2)
    position = source.take(None, 1000, None).position
    clock.now += 1
    first = source.take(position, 1000, None)
    assert (rows(first), first.ended, first.times) == (10, False, {})
    clock.now += 100
    last = source.take(first.position, 1000, None)
    assert (rows(last), last.ended, last.backlog) == (5, True, 0)
    assert last.times == {"0": END_OF_TIME, "1": END_OF_TIME}


def test_without_a_rate_as_fast_as_they_are_taken(drain: Drain) -> None:
    got = drain(st.generate(numbers, rate=None, total=10), 4)
    assert [rows(t) for t in got.takes] == [4, 4, 2]
    assert [t.backlog for t in got.takes] == [6, 2, 0]
    assert got.takes[0].position == {"rows": 4, "origin": None}
    assert got.values("x") == list(range(10))


def test_no_rows_at_all() -> None:
    take = st.generate(numbers, rate=None, total=0).take(None, 10, None)
    assert (take.slices, take.ended) == ((), True)


# ── a full backlog ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_clock_stands_still_while_the_backlog_is_full() -> None:
    #   10 rows/s, at most 50 waiting, 20 taken at a time
    #   clock   1000  1010              1011
    #   due     0     50 (not 100)      60: the clock has gone on by one second from where it stood
    clock = Clock()
    source = paced(clock, max_backlog=50)
    position = source.take(None, 20, None).position
    clock.now = 1010
    first = source.take(position, 20, None)
    assert (rows(first), first.backlog) == (20, 30)
    assert first.position["origin"] == pytest.approx(1005, abs=0.11)
    clock.now = 1011
    second = source.take(first.position, 20, None)
    assert (rows(second), second.backlog) == (20, pytest.approx(20, abs=1))


def test_a_burst_takes_longer_and_loses_nothing() -> None:
    clock = Clock()
    source = paced(clock, rate=st.steps([(10, 1000), (10, 10)]), max_backlog=500)
    position, got, waiting = None, 0, []
    for _ in range(60):  # one epoch per second, which can do 300 rows
        take = source.take(position, 300, None)
        assert [p.position for p in take.slices] in ([], [got])
        got += rows(take)
        waiting.append(take.backlog)
        position = take.position
        clock.now += 1
    assert max(waiting) <= 500
    assert 10_000 <= got <= 10_000 + 10 * 60


@given(
    some.lists(some.tuples(some.floats(0, 30), some.integers(1, 200)), min_size=1, max_size=20),
    some.none() | some.integers(1, 100),
    some.integers(1, 4),
    some.none() | some.integers(0, 500),
)
def test_any_schedule_gives_every_row_once(
    schedule: list[tuple[float, int]], bound: int | None, streams: int, total: int | None
) -> None:
    clock = Clock()
    source = paced(clock, rate=st.sine(20, 15, 7), max_backlog=bound, streams=streams, total=total)
    position, seen = None, dict.fromkeys(range(streams), 0)
    for pause, limit in schedule:
        clock.now += pause
        take = source.take(position, limit, None)
        for part in take.slices:
            assert part.position == seen[part.data]
            seen[part.data] += part.rows
        assert rows(take) <= limit
        assert take.backlog >= 0
        assert bound is None or take.backlog <= bound
        assert max(seen.values()) - min(seen.values()) <= 1
        position = json.loads(json.dumps(take.position))
        assert position["rows"] == sum(seen.values())
        if take.ended:
            assert sum(seen.values()) == total
            break


# ── physical streams and rows ─────────────────────────────────────────────────────────────────────────────────────────


def test_rows_go_to_the_physical_streams_in_turn(frame_of: Any) -> None:
    source = st.generate(numbers, rate=None, total=7, streams=3)
    everything = source.read_all()
    assert {s: f["x"].to_list() for s, f in everything.items()} == {"0": [0, 1, 2], "1": [0, 1], "2": [0, 1]}  # type: ignore[call-overload]
    take = source.take({"rows": 4, "origin": None}, 2, None)
    assert [(p.stream, p.position, p.rows) for p in take.slices] == [("1", 1, 1), ("2", 1, 1)]
    assert take.streams == ("0", "1", "2")
    (frame,) = (source.read(p).rows.collect() for p in take.slices[:1])
    assert frame.rows() == [(1, 1)]


def test_the_schema_is_found_or_given() -> None:
    assert st.generate(numbers, rate=1).schema() == pl.Schema({"x": pl.Int64(), "s": pl.Int64()})
    given_schema = st.generate(lambda *_: pl.DataFrame(), rate=1, schema={"x": pl.Int8}).schema()
    assert given_schema == pl.Schema({"x": pl.Int8()})


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (pl.DataFrame({"y": [1]}), r"wrong\(0, 0, 1\) gave {'y': Int64}; give a frame with {'x': Int64}"),
        (pl.DataFrame({"x": ["1"]}), "gave {'x': String}"),
        (pl.DataFrame({"x": [1, 2]}), "gave 2 rows; give as many as were asked for"),
        ([{"x": 1}], r"gave \[{'x': 1}\]"),
    ],
)
def test_a_function_that_gives_something_else(made: Any, problem: str) -> None:
    def wrong(stream: int, first: int, count: int) -> Any:
        return made

    source = st.generate(wrong, rate=None, total=1, schema={"x": pl.Int64})
    (part,) = source.take(None, 10, None).slices
    with pytest.raises(UserCodeError, match=problem):
        source.read(part)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"rate": None}, "neither rate nor total is given"),
        ({"rate": 1, "streams": 0}, "streams=0 is too small"),
        ({"rate": 1, "total": -1}, "total=-1 is too small"),
        ({"rate": 1, "max_backlog": 0}, "max_backlog=0 is too small"),
        ({"rate": 1, "streams": "two"}, "streams='two' is not a whole number"),
        ({"rate": -1}, "-1 is not a rate"),
        ({"rate": "fast"}, "'fast' is not a rate"),
        ({"rate": 1, "start": "now"}, "start='now' is not a time"),
        ({"rate": 1, "schema": 5}, "schema=5 is not a schema"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(st.QueryError, match=problem):
        st.generate(numbers, **options)


@pytest.mark.parametrize("function", [5, None, lambda *_: 5])
def test_what_makes_no_rows(function: Any) -> None:
    with pytest.raises(st.QueryError, match=r"\(generate\): "):
        st.generate(function, rate=1)


def test_without_an_end_it_cannot_be_read_at_once() -> None:
    with pytest.raises(st.QueryError, match="has no end; give a total"):
        st.generate(numbers, rate=1).read_all()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rate": 10}, "generated, 10 rows/s"),
        ({"rate": None, "total": 5}, "generated, 5 rows"),
        ({"rate": st.trace([1, 2]), "streams": 3}, "generated in 3 physical streams, 1 → 2 rows/s"),
    ],
)
def test_it_says_what_it_makes(options: dict[str, Any], text: str) -> None:
    assert st.generate(numbers, **options).describe() == text


def test_it_survives_the_trip_to_a_task() -> None:
    source = cloudpickle.loads(cloudpickle.dumps(st.generate(lambda s, f, n: numbers(s, f, n), rate=5)))
    (part,) = replace(source, rate=None, total=3).take(None, 10, None).slices
    assert source.read(part).rows.collect()["x"].to_list() == [0, 1, 2]


def test_the_engine_writes_the_beginning_down_and_goes_on_from_it(tmp_path: Any) -> None:
    clock, sink = Clock(), st.memory_sink()
    query = st.Query("q", st.source("numbers", paced(clock)).to(sink))

    def start() -> Engine:
        plan = query.plan()
        return Engine(plan, Checkpoint(tmp_path), lambda epoch: execute(plan, epoch), Options(clock=clock))

    engine = start()
    assert engine.has_work()
    engine.run()
    assert engine.manifest.sources["numbers"].position == {"rows": 0, "origin": 1000.0}
    assert not engine.has_work()
    clock.now += 0.5
    engine.close()
    engine = start()
    assert engine.has_work()
    engine.run()
    assert sink.rows()["x"].to_list() == [0, 1, 2, 3, 4]
    assert not engine.has_work()
    engine.close()


def test_in_a_query(tmp_path: Any) -> None:
    make = st.call_records(callers=5, per_second=10)
    source = st.source("calls", st.generate(make, rate=None, total=300, streams=2), ts="ts")
    sink = st.memory_sink()
    query = st.Query("q", source.aggregate(by="src", window=st.tumbling("4s"), n=st.count()).to(sink))
    run(query.plan(), tmp_path, Options(3, rows_per_epoch=70))
    expected = query.run_reference().rows()
    order = ["src", "window_start"]
    assert sink.rows().sort(order).equals(expected.sort(order))
    assert sink.rows()["n"].sum() == 300
