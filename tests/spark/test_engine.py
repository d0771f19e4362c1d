"""Queries on Spark give the rows of the sequential reference: at 1, 2 and 5 instances, and when resumed at another number (SC-4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import springtide as st
from springtide.connectors import Publication
from springtide.query import steps
from springtide.runtime.reference import Result
from springtide.state.control import Command, send
from springtide.testing import END, FAIL, PAUSE, MemorySink, at, compare, idle, streams
from tests.machine import LONG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@dataclass(eq=False)
class Rows(MemorySink):
    """Keeps rows, and can ask for a stop after an epoch: commands are taken up between two epochs."""

    stops: dict[int, Path] = field(default_factory=dict, repr=False)
    """Epoch → the checkpoint of the run to stop."""

    def publish(self, publication: Publication) -> None:
        super().publish(publication)
        if publication.epoch in self.stops:
            send(self.stops.pop(publication.epoch), Command("stop"))

    def __reduce__(self) -> tuple[type[MemorySink], tuple[()]]:
        """Go to the tasks as a plain sink: workers need not import this file."""
        return MemorySink, ()


# ── the queries ───────────────────────────────────────────────────────────────────────────────────────────────────

CALL = {
    "ts": st.TIME,
    "src": pl.String,
    "dst": pl.String,
    "seconds": pl.Int64,
    "price": pl.Decimal(8, 2),
    "rate": pl.Float64,
    "lag": pl.Duration("us"),
    "urgent": pl.Boolean,
}


def calls(seed: int = 1, rows: int = 60, first: int = 0) -> list[Any]:
    """Make call records: ties, nulls, NaN, a few out of order by up to 4 s; three epochs."""
    r, now = Random(seed), first
    made: list[Any] = []
    for i in range(rows):
        now += r.choice([0, 0, 1, 2, 5])
        made.append(
            {
                "ts": at(f"{max(0, now - r.choice([0, 0, 0, 4]))}s"),
                "src": r.choice(["ann", "bob", "cy", "dee", None]),
                "dst": r.choice(["x", "y", "x-y", ""]),
                "seconds": r.choice([None, r.randint(0, 900)]),
                "price": Decimal(r.randint(-999, 999)).scaleb(-2),
                "rate": r.choice([float("nan"), None, r.randint(-8, 8) / 4]),
                "lag": timedelta(milliseconds=r.randint(-50, 50)),
                "urgent": r.choice([True, False, None]),
            }
        )
        if i in (rows // 3, 2 * rows // 3):
            made.append(PAUSE)
    return made


def source(rows: Any = None, name: str = "calls") -> st.Stream:
    return st.source(name, st.memory(calls() if rows is None else rows, schema=CALL), ts="ts", max_disorder="4s")


def two_streams() -> dict[str, Any]:
    return streams(east=calls(2, 30), west=calls(3, 30))


def heavy_callers(_: Path) -> list[steps.Sink]:
    """Mean and count over sliding windows, then a filter."""
    busy = (
        source()
        .map(minutes=pl.col("seconds") / 60)
        .aggregate(
            by="src", window=st.sliding("1m", every="10s"), avg=st.mean("minutes"), calls=st.count(), name="busy"
        )
        .filter(pl.col("calls") > 2)
    )
    return [busy.to(Rows())]


def stateless(_: Path) -> list[steps.Sink]:
    """No stateful step at all: one stage."""
    calls = source()
    short = calls.filter(pl.col("seconds") < 300).select("src", cost=pl.col("price").cast(pl.Float64) * 2)
    return [short.rename({"src": "caller"}).drop("cost").to(Rows(), name="short"), calls.to(Rows(), name="all")]


def words(_: Path) -> list[steps.Sink]:
    """Explode, then count."""
    each = source().map(word=pl.col("dst").str.split("-")).explode("word")
    return [each.aggregate(by="word", window=st.tumbling("30s"), n=st.count(), heard=st.collect("src")).to(Rows())]


def diamond(_: Path) -> list[steps.Sink]:
    """A stream is split, one branch is changed, both are one again; and the stream is used twice."""
    calls = source()
    urgent, other = calls.split(urgent=pl.col("urgent"), rest="other")
    again = urgent.map(pl.col("seconds") * 2).union(other, calls)
    totals = again.aggregate(by="src", window=st.tumbling("20s"), total=st.sum("seconds"), n=st.count())
    return [totals.to(Rows(), name="totals"), other.to(Rows(), name="other")]


def numbers(_: Path) -> list[steps.Sink]:
    """Every function of numbers, without keys: one bucket, whatever the number of instances."""
    numbers = source().aggregate(
        window=st.sliding("25s", every="10s"),
        n=st.count(),
        some=st.count("seconds"),
        total=st.sum("seconds"),
        mean=st.mean("seconds"),
        var=st.var("seconds"),
        std=st.std("seconds"),
        low=st.min("rate"),
        high=st.max("rate"),
        rates=st.sum("rate"),
        yes=st.sum("urgent"),
    )
    return [numbers.to(Rows())]


def order(_: Path) -> list[steps.Sink]:
    """First, last and all in the total order, over two physical streams with ties (SC-7)."""
    seen = source(two_streams()).aggregate(
        by="src",
        window=st.sliding("20s", every="5s"),
        first=st.first("seconds"),
        last=st.last("dst"),
        all=st.collect("rate"),
    )
    return [seen.to(Rows())]


def types(_: Path) -> list[steps.Sink]:
    """Texts, times, lengths of time, decimals."""
    values = source().aggregate(
        by="urgent",
        window=st.tumbling("15s"),
        places=st.count_distinct("dst"),
        price=st.sum("price"),
        cheap=st.min("price"),
        lag=st.mean("lag"),
        lags=st.sum("lag"),
        late=st.max("ts"),
        word=st.max("dst"),
        prices=st.count_distinct("price"),
    )
    return [values.to(Rows())]


def two_keys(_: Path) -> list[steps.Sink]:
    """Two keys, nulls among them; the window is no multiple of its advance."""
    pairs = source(two_streams()).aggregate(
        by=["src", "urgent"], window=st.sliding("7s", every="3s"), n=st.count(), total=st.sum("seconds")
    )
    return [pairs.to(Rows())]


def chained(_: Path) -> list[steps.Sink]:
    """An aggregate of aggregates of aggregates, each level with its own instances."""
    small = source().aggregate(by=["src", "dst"], window=st.tumbling("5s"), n=st.count(), name="small")
    medium = small.aggregate(by="src", window=st.sliding("20s", every="10s"), n=st.sum("n"), top=st.max("n"))
    large = medium.filter(pl.col("n") > 1).aggregate(window=st.tumbling("40s"), n=st.sum("n"), who=st.collect("src"))
    return [large.to(Rows(), name="large"), medium.to(Rows(), name="medium")]


def union_of_aggregates(_: Path) -> list[steps.Sink]:
    """Two sources, aggregated apart, then together with a stateless stream."""
    one, other = source(name="one"), source(calls(5, 40), name="other")
    a = one.aggregate(by="src", window=st.tumbling("10s"), seconds=st.sum("seconds"), name="a")
    b = other.aggregate(by="src", window=st.tumbling("15s"), seconds=st.max("seconds"), name="b")
    columns = ["src", "seconds"]
    everything = st.union(a.select(*columns), b.select(*columns), other.select(*columns))
    last = everything.aggregate(by="src", window=st.tumbling("30s"), n=st.count(), last=st.last("seconds"))
    return [last.to(Rows())]


def sides(_: Path) -> list[steps.Sink]:
    """What does not come in: late by more than the disorder, and what does not fit."""
    rows = calls()
    rows[5:5] = [{"ts": at("0s"), "seconds": 1}, {"ts": None}, {"ts": at("9s"), "seconds": "long"}, {"color": "red"}]
    rows[40:40] = [{"ts": at("1s"), "src": "eve"}, {"ts": "tomorrow"}]
    calls_ = source(rows)
    late = calls_.late.filter(pl.col("src").is_not_null() | (pl.col("seconds") == 1))
    rejected = calls_.rejected.select("stream", "position", "reason")
    return [late.to(Rows(), name="late"), rejected.to(Rows(), name="rejected"), calls_.to(Rows(), name="in-time")]


def own_aggregate(_: Path) -> list[steps.Sink]:
    """A user's own aggregate, beside another one."""
    spread = st.user_aggregate(
        init={"low": None, "high": None},
        add={"low": pl.col("seconds").min(), "high": pl.col("seconds").max()},
        merge={"low": pl.col("low").min(), "high": pl.col("high").max()},
        finish=pl.col("high") - pl.col("low"),
    )
    return [source().aggregate(by="src", window=st.sliding("30s", every="12s"), spread=spread, n=st.count()).to(Rows())]


def idle_and_ended(_: Path) -> list[steps.Sink]:
    """Three physical streams: one ends early, one says only that it has nothing."""
    rows = streams(
        busy=calls(6, 40), short=[*calls(7, 6), END], quiet=[PAUSE, idle(to="1m"), PAUSE, idle(to="2m"), END]
    )
    return [source(rows).aggregate(by="dst", window=st.tumbling("10s"), n=st.count(), all=st.collect("src")).to(Rows())]


def failing(_: Path) -> list[steps.Sink]:
    """The process is told to fail, once in each of two epochs, after its tasks and before its commit."""
    rows = calls()
    rows[10:10], rows[35:35] = [FAIL], [FAIL]
    return [source(rows).aggregate(by="src", window=st.sliding("30s", every="5s"), total=st.sum("seconds")).to(Rows())]


def nothing(_: Path) -> list[steps.Sink]:
    """No rows."""
    return [source([]).aggregate(by="src", window=st.tumbling("10s"), n=st.count()).to(Rows())]


def files(folder: Path) -> list[steps.Sink]:
    """Parquet files in, Parquet files out."""
    (folder / "in").mkdir(parents=True, exist_ok=True)
    rows = [row for row in calls(8, 90) if row is not PAUSE]
    for i in range(3):
        pl.DataFrame(rows[30 * i : 30 * i + 30], schema=CALL).write_parquet(
            folder / "in" / f"{i}.parquet", row_group_size=8
        )
    calls_ = st.source("calls", st.parquet(folder / "in"), ts="ts", max_disorder="4s")
    sums = calls_.aggregate(by="src", window=st.sliding("30s", every="10s"), total=st.sum("seconds"), n=st.count())
    return [
        sums.to(st.parquet_sink(folder / "sums"), name="sums"),
        calls_.filter(pl.col("urgent")).to(st.parquet_sink(folder / "urgent"), name="urgent"),
        calls_.late.to(Rows(), name="late"),
    ]


def last_calls(_: Path) -> list[steps.Sink]:
    """Windows of n tuples, of panes of one tuple and of several, one after the other (SC-2)."""
    last = source(two_streams()).aggregate(
        by="src",
        window=st.last_n(3),
        to=st.collect("dst"),
        first=st.first("seconds"),
        total=st.sum("seconds"),
        name="last",
    )
    again = last.aggregate(window=st.last_n(6, every=4), n=st.sum("total"), who=st.collect("src"), low=st.min("total"))
    return [last.to(Rows(), name="last-out"), again.to(Rows(), name="again")]


def rankings(_: Path) -> list[steps.Sink]:
    """Rankings of all, of groups, by weight, and a ranking of rankings; each counted by value and merged."""
    calls = source(two_streams())
    top = calls.top_k(2, "dst", window=st.tumbling("30s"), name="top")
    each = calls.top_k(2, ["dst", "urgent"], per="src", weight="seconds", window=st.sliding("40s", every="15s"))
    again = each.rename({"rank": "r", "count": "c"}).top_k(3, "dst", weight="c", window=st.tumbling("1m"))
    return [top.to(Rows(), name="top-out"), each.to(Rows(), name="each"), again.to(Rows(), name="again")]


def joins_by_time(_: Path) -> list[steps.Sink]:
    """Calls of the same caller, joined with themselves, and calls with answers: inner and left, two keys, a predicate (SC-13)."""
    calls_, answers = source(two_streams()), source(calls(9, 40), name="answers").select("src", "dst", "rate")
    twice = calls_.join(calls_, on="src", within="10s", where=pl.col("seconds") < pl.col("seconds_right"), name="twice")
    answered = calls_.join(answers, on=["src", "dst"], within="5s", how="left", name="answered")
    lone = twice.join(answers, left_on="dst_right", right_on="dst", within="3s", how="left", suffix="_2", name="lone")
    return [answered.to(Rows(), name="answered-out"), lone.to(Rows(), name="lone-out")]


def joins_by_count(_: Path) -> list[steps.Sink]:
    """The last n calls of the same caller: with themselves, with others, left, and pairs in their order again (SC-2)."""
    calls_, answers = source(two_streams()), source(calls(9, 40), name="answers").select("src", "rate")
    twice = calls_.select("src", "dst", "seconds").join(calls_.select("src", "urgent"), on="src", within=st.last_n(2))
    answered = twice.join(answers, on="src", within=st.last_n(3), how="left", where=pl.col("rate") > 0, name="answered")
    return [twice.to(Rows(), name="twice"), answered.to(Rows(), name="answered-out")]


def theta_joins(_: Path) -> list[steps.Sink]:
    """Calls that overlap, in a grid and broadcast, with themselves and with others; a band; the last n of all (SC-6, SC-13, ST-6)."""
    calls_, answers = source(two_streams()), source(calls(9, 40), name="answers").select("dst", "seconds", "rate")
    longer, shorter = pl.col("seconds"), pl.col("seconds_right")
    overlap = (pl.col("src") == pl.col("src_right")) | (pl.col("dst") == pl.col("src_right")) | (longer < shorter)
    twice = calls_.theta_join(calls_, overlap & (longer > 300), within="4s", name="twice")
    near = calls_.theta_join(
        answers, ((longer - shorter).abs() <= 60) | (pl.col("rate") < -1), within="9s", routing="grid", name="near"
    )
    last = near.select("src", "seconds", "rate_right").theta_join(
        answers, (longer <= shorter) & (pl.col("rate_right") <= pl.col("rate")), within=st.last_n(5), name="last"
    )
    return [twice.to(Rows(), name="twice-out"), last.to(Rows(), name="last-out")]


def own_code(_: Path) -> list[steps.Sink]:
    """ST-4, SM-1: a user's operators: by key with a timer, some rows rejected; and one state for all, told of the time."""

    class Silence(
        st.KeyOperator
    ):  # classes in a function go to the tasks as they are: workers need not import this file
        state = {"calls": pl.Int64, "due": pl.Int64}  # noqa: RUF012
        output = {"src": pl.String, "calls": pl.Int64, "ts": st.TIME}  # noqa: RUF012
        timer = "due"

        def init(self, key: Any) -> Any:
            return {"calls": 0, "due": None}

        def process(self, key: Any, state: Any, tuples: pl.DataFrame, ready_ts: int) -> Any:
            if any(seconds is None for (seconds,) in tuples.select("seconds").iter_rows()):
                raise ValueError("how long?")
            state["calls"] += tuples.height
            state["due"] = ready_ts + 5_000_000
            return []

        def on_time(self, key: Any, state: Any, ready_ts: int) -> Any:
            state["due"] = None
            return [{"src": key[0], "calls": state["calls"], "ts": ready_ts}]

        def keep(self, key: Any, state: Any) -> bool:
            return state["due"] is not None

    class Minutes(st.BucketOperator[Any]):
        output = {"n": pl.Int64, "ts": st.TIME}  # noqa: RUF012

        def init(self) -> Any:
            return {}

        def process(self, state: Any, tuples: pl.DataFrame, ready_ts: int) -> None:
            for end, n in tuples.group_by(pl.col("ts").dt.epoch("us") // 10**7 + 1).len().iter_rows():
                state[str(end)] = state.get(str(end), 0) + n

        def on_time(self, state: Any, ready_ts: int) -> pl.DataFrame:
            over = [end for end in sorted(state, key=int) if int(end) * 10**7 <= ready_ts]
            rows = {"n": [state.pop(end) for end in over], "ts": [int(end) * 10**7 - 1 for end in over]}
            return pl.DataFrame(rows, schema=self.output)

    calls = source(two_streams())
    quiet = calls.operator(Silence(), keys="src", on_error="reject", name="quiet")
    minutes = quiet.operator(Minutes(), name="minutes")
    return [quiet.to(Rows(), name="out"), quiet.rejected.to(Rows(), name="rejected"), minutes.to(Rows(), name="all")]


def several_keys(_: Path) -> list[steps.Sink]:
    """ST-2: a tuple with several keys reaches the state of each."""

    class Longest(st.BucketOperator[Any]):
        output = {"place": pl.String, "seconds": pl.Int64, "ts": st.TIME}  # noqa: RUF012

        def init(self) -> Any:
            return {}

        def process(self, state: Any, tuples: pl.DataFrame, ready_ts: int) -> pl.DataFrame:
            rows = []
            for own, seconds, ts in tuples.select("own_keys", "seconds", "ts").iter_rows():
                for place in own:
                    if (seconds or 0) > state.get(place, 0):
                        state[place] = seconds
                        rows.append({"place": place, "seconds": seconds, "ts": ts})
            return pl.DataFrame(rows, schema=self.output)

    places = source().map(places=pl.col("dst").str.split("-"))
    return [places.operator(Longest(), keys="places", name="longest").to(Rows())]


def sessions(_: Path) -> list[steps.Sink]:
    """Sessions of sessions, with functions of every kind."""
    calls = source(two_streams()).aggregate(
        by="src", window=st.session("6s"), n=st.count(), total=st.sum("seconds"), to=st.collect("dst"), name="sessions"
    )
    pauses = calls.aggregate(by="n", window=st.session("20s"), last=st.last("src"), low=st.min("total"))
    return [calls.to(Rows(), name="sessions-out"), pauses.to(Rows(), name="pauses")]


def sketches(_: Path) -> list[steps.Sink]:
    """Estimates, exact as long as there are few values; beside them a ranking by sketch."""
    calls = source(two_streams())
    some = calls.aggregate(
        by="src",
        window=st.sliding("30s", every="10s"),
        places=st.approx_distinct("dst"),
        middle=st.approx_quantile("seconds", 0.5),
        often=st.approx_frequent("dst", 2),
    )
    top = calls.top_k(2, ["dst", "src"], per="urgent", weight="seconds", window=st.tumbling("20s"), sketch=64)
    return [some.to(Rows(), name="some"), top.to(Rows(), name="top")]


QUERIES: list[Callable[[Path], list[steps.Sink]]] = [
    heavy_callers,
    stateless,
    words,
    diamond,
    numbers,
    order,
    types,
    two_keys,
    chained,
    union_of_aggregates,
    sides,
    own_aggregate,
    idle_and_ended,
    failing,
    nothing,
    files,
    last_calls,
    own_code,
    several_keys,
    rankings,
    sessions,
    sketches,
    joins_by_time,
    joins_by_count,
    theta_joins,
]


# ── the tests ─────────────────────────────────────────────────────────────────────────────────────────────────────


def run(query: st.Query, spark: SparkSession, checkpoint: Path, instances: int) -> dict[str, Any]:
    """Run to the end, or until somebody asks for a stop; start again after the failures that the input asks for."""
    while True:
        running = query.start(spark, checkpoint=checkpoint, instances=instances, buckets=16, rows_per_epoch=40)
        try:
            assert running.wait(LONG), f"the run did not end in {LONG:g} s"
        except st.SpringtideError as error:
            if "a test wanted the run to fail here" not in str(error):
                raise
        else:
            return running.status()


def check(query: st.Query, expected: Result, status: dict[str, Any]) -> None:
    """Compare every sink and every count."""
    for name, sink in query.of_kind(steps.Sink).items():
        if isinstance(sink.connector, MemorySink):
            given = sink.connector.rows()
        else:
            given = pl.read_parquet(f"{sink.connector.path}/*.parquet")  # type: ignore[attr-defined]
        compare(given, expected.rows(name))
    for name, counts in status["sources"].items():
        assert (counts["late"], counts["rejected"]) == (expected.late[name].height, expected.rejected[name].height)


@pytest.mark.parametrize("instances", [1, 2, 5])
@pytest.mark.parametrize("made", QUERIES, ids=lambda made: made.__name__)
def test_a_query_gives_the_rows_of_the_reference(
    made: Callable[[Path], list[steps.Sink]], instances: int, spark: SparkSession, tmp_path: Path
) -> None:
    """SC-4, SC-6, SC-7: one Spark job per epoch, whatever the number of instances."""
    query = st.Query("query", *made(tmp_path))
    status = run(query, spark, tmp_path / "checkpoint", instances)
    assert status["ended"]
    check(query, query.run_reference(), status)


@pytest.mark.parametrize("made", QUERIES, ids=lambda made: made.__name__)
def test_a_query_checkpointed_at_two_instances_is_resumed_at_five(
    made: Callable[[Path], list[steps.Sink]], spark: SparkSession, tmp_path: Path
) -> None:
    """ST-1, SE-1: the new owners read the segments of the old ones."""
    query = st.Query("query", *made(tmp_path))
    sink = next(s.connector for s in query.of_kind(steps.Sink).values() if isinstance(s.connector, Rows))
    sink.stops[0] = tmp_path / "checkpoint"
    first = run(query, spark, tmp_path / "checkpoint", 2)
    assert first["epoch"] == 0
    assert first["ended"] == (made is nothing)
    second = run(query, spark, tmp_path / "checkpoint", 5)
    assert second["ended"]
    check(query, query.run_reference(), second)


def test_a_run_is_scaled_while_it_runs(spark: SparkSession, tmp_path: Path) -> None:
    """SC-6: a command goes through the control folder and takes effect with the next epoch."""
    checkpoint = tmp_path / "checkpoint"
    sink = st.memory_sink()
    sums = source().aggregate(by="src", window=st.sliding("30s", every="5s"), total=st.sum("seconds"), name="sums")
    query = st.Query(
        "scaled",
        sums.to(sink, name="sums-out"),
        sums.to(
            st.callback(lambda _, epoch: send(checkpoint, Command("scale", {"step": "sums", "instances": epoch + 2}))),
            name="scaler",
        ),
    )
    running = query.start(spark, checkpoint=checkpoint, instances=1, buckets=16)
    assert running.wait(LONG)
    assert [m.maps["sums"].instances for m in running.epochs()] == [1, 2, 3]
    compare(sink.rows(), query.run_reference().rows("sums-out"))
