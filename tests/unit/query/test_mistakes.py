"""Every mistake in a query is found while it is built, and said in words (SC-1, SC-2, SC-3, ST-2, ST-4, SM-1).

The table is mistakes.txt: a line of Python that is wrong, and under it the step, and what the problem and the hint name.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
import polars.selectors as cs
import pytest

import springtide as st

TABLE = Path(__file__).with_name("mistakes.txt")

COLUMNS = {
    "src": pl.String,
    "dst": pl.String,
    "duration": pl.Int64,
    "rate": pl.Float64,
    "tags": pl.List(pl.String),
    "ts": st.TIME,
}
calls = st.source("calls", st.memory(schema=COLUMNS), ts="ts")
bare = st.source("bare", st.memory(schema={"x": pl.Int64, "word": pl.String}))
events = st.source(
    "events", st.memory(schema={"date_time": st.TIME, "auction": pl.Int64, "channel": pl.String}), ts="date_time"
)
x, src, rate, ts = pl.col("duration"), pl.col("src"), pl.col("rate"), pl.col("ts")
minute = st.tumbling("1m")
short = x < 60


class Seen(st.KeyOperator):
    state: ClassVar = {"n": pl.Int64, "due": pl.Int64}
    output: ClassVar = {"n": pl.Int64, "ts": st.TIME}

    def init(self, key: tuple[Any, ...]) -> dict[str, Any]:
        return {"n": 0, "due": None}

    def process(self, key: Any, state: Any, tuples: pl.DataFrame, ready_ts: int) -> list[Any]:
        return []


class Bucket(st.BucketOperator[dict[str, int]]):
    output: ClassVar = {"n": pl.Int64, "ts": st.TIME}

    def init(self) -> dict[str, int]:
        return {}

    def process(self, state: dict[str, int], tuples: pl.DataFrame, ready_ts: int) -> None:
        return None


def seen(**changes: Any) -> st.KeyOperator:
    """The operator above with something else in its class."""
    made: st.KeyOperator = type("Seen", (Seen,), changes)()
    return made


def total(**changes: Any) -> st.Stream:
    """A user's aggregate that is right but for the changes."""
    parts = {"init": {"n": 0}, "add": {"n": x.sum()}, "merge": {"n": pl.col("n").sum()}, "finish": pl.col("n")}
    return calls.aggregate(window=minute, n=st.user_aggregate(**(parts | changes)))


def cycle() -> st.Query:
    """No method makes a cycle: it takes force."""
    first = calls.filter(short, name="first")
    second = first.map(y=x + 1, name="second")
    object.__setattr__(first.step, "inputs", (second,))
    return st.Query("round", second.to(st.memory_sink()))


def mistakes() -> Iterator[tuple[str, list[str]]]:
    """(what is written, [step, what the problem names, what the hint names]) for each entry of the table."""
    lines = [line for line in TABLE.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    for code, message in zip(lines[::2], lines[1::2], strict=True):
        yield code, message.strip().split(" | ")


@pytest.mark.parametrize(("code", "expected"), [pytest.param(code, parts, id=code) for code, parts in mistakes()])
def test_mistake(code: str, expected: list[str]) -> None:
    with pytest.raises(st.QueryError) as caught:
        eval(code)
    error = caught.value
    step, *named = expected
    assert error.step == step
    for text, names in zip((error.problem, error.hint), named, strict=True):
        assert [name for name in names.split(" … ") if name not in text] == [], text
    assert str(error) == f"step {error.step}: {error.problem}; {error.hint}"
    assert error.__cause__ is None or error.__suppress_context__  # the user sees one error, not Polars' behind it


def test_each_mistake_is_in_the_table_once() -> None:
    codes = [code for code, _ in mistakes()]
    assert len(codes) == len(set(codes)) > 300


def test_what_is_not_there_is_an_attribute_error_too() -> None:
    query = st.Query("calls", calls.to(st.memory_sink()))
    assert not any(hasattr(thing, "sort") for thing in (st, calls, query, st.count()))
    for thing in (calls, st.count("src"), query):
        assert type(copy.copy(thing)) is type(thing)


# What a newcomer might give where something else is wanted. None of it may raise anything but a QueryError.
THINGS: list[Any] = [
    *(None, True, 0, -1, 3.5, float("nan"), 2**70, 1 + 2j, ..., np.int64(3), np.float64(2), np.array([1, 2]), b"src"),
    *("", "src", "nope", "x > 1", "*", "^s.*$", "ts", "1h", [], ["src"], [1], [None], [["src"]], (), ("src",), {}),
    *({"src": "a"}, {"src"}, range(2), iter(["src"]), object(), object, int, print, lambda row: row, Exception("x")),
    *(datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC), timedelta(1), timedelta.max, Path("src")),
    *(pl.col("src"), pl.col("nope"), short, x.sum(), pl.all(), pl.all().is_null(), cs.numeric(), pl.len()),
    *(pl.lit(1), pl.lit(None), pl.lit(pl.Series([1, 2])), pl.when(short), pl.when(short).then(1), pl.element()),
    *(
        pl.field("a"),
        pl.struct("src", "dst").struct.unnest(),
        src.str.to_datetime(),
        rate.alias("ts"),
        rate.alias("__x"),
    ),
    *(pl.Series([1, 2]), pl.DataFrame({"x": [1]}), pl.LazyFrame({"x": [1]}), pl.Int64, pl.Int64(), pl.Schema()),
    *(st.count(), st.count, minute, st.last_n(3), st.session("1m"), st.tumbling, calls, calls.late, calls.rejected),
    *(calls.split(a=short), calls.to(st.memory_sink()), st.memory_sink(), st.memory_sink, type(st.memory_sink())),
    *(st.memory(schema=COLUMNS), st.memory, Seen(), Seen, st.Query("q", calls.to(st.memory_sink()))),
]

PLACES = [
    "calls.map(thing)",
    "calls.map(y=thing)",
    "calls.map(y=1, name=thing)",
    "calls.select(thing)",
    "calls.select(y=thing)",
    "bare.select(thing)",
    "calls.drop(thing)",
    "calls.rename(thing)",
    "calls.rename({'src': thing})",
    "calls.filter(thing)",
    "calls.explode(thing)",
    "calls.split(a=thing)",
    "calls.split(a=short, rest=thing)",
    "calls.split(a=short)[thing]",
    "calls.union(thing)",
    "st.union(thing, calls)",
    "calls.aggregate(thing, window=minute, n=st.count())",
    "calls.aggregate(['src', thing], window=minute, n=st.count())",
    "calls.aggregate(window=thing, n=st.count())",
    "calls.aggregate(window=minute, n=thing)",
    "calls.aggregate(window=minute, n=st.count(thing))",
    "calls.aggregate(window=minute, n=st.sum(thing))",
    "calls.aggregate(window=minute, n=st.last(thing))",
    "calls.aggregate(window=minute, n=st.count_distinct(thing))",
    "calls.aggregate(window=minute, n=st.approx_quantile(thing, 0.5))",
    "st.approx_quantile('rate', thing)",
    "st.approx_quantile('rate', 0.5, k=thing)",
    "st.approx_distinct('src', k=thing)",
    "st.approx_frequent('src', thing)",
    "st.approx_frequent('src', 3, map_size=thing)",
    "total(init=thing)",
    "total(init={'n': thing})",
    "total(add={'n': thing})",
    "total(merge={'n': thing})",
    "total(finish=thing)",
    "calls.top_k(thing, 'dst', window=minute)",
    "calls.top_k(3, thing, window=minute)",
    "calls.top_k(3, 'dst', window=thing)",
    "calls.top_k(3, 'dst', window=minute, per=thing)",
    "calls.top_k(3, 'dst', window=minute, weight=thing)",
    "calls.top_k(3, 'dst', window=minute, sketch=thing)",
    "calls.join(thing, 'src', within='1m')",
    "calls.join(calls, thing, within='1m')",
    "calls.join(calls, left_on=thing, right_on='dst', within='1m')",
    "calls.join(calls, left_on='src', right_on=thing, within='1m')",
    "calls.join(calls, 'src', within=thing)",
    "calls.join(calls, 'src', within='1m', how=thing)",
    "calls.join(calls, 'src', within='1m', where=thing)",
    "calls.join(calls, 'src', within='1m', suffix=thing)",
    "calls.theta_join(thing, short, within='1m')",
    "calls.theta_join(calls, thing, within='1m')",
    "calls.theta_join(calls, short, within='1m', routing=thing)",
    "calls.operator(thing, keys='src')",
    "calls.operator(Seen(), keys=thing)",
    "calls.operator(Seen(), keys='src', on_error=thing)",
    "calls.operator(seen(output=thing), keys='src')",
    "calls.operator(seen(output={'y': thing, 'ts': st.TIME}), keys='src')",
    "calls.operator(seen(state=thing), keys='src')",
    "calls.operator(seen(timer=thing), keys='src')",
    "calls.to(thing)",
    "calls.to(st.console(), name=thing)",
    "st.source(thing, st.memory(schema=COLUMNS))",
    "st.source('a', thing)",
    "st.source('a', st.memory(schema=COLUMNS), ts=thing)",
    "st.source('a', st.memory(schema=COLUMNS), ts='ts', max_disorder=thing)",
    "st.source('a', st.memory(schema=COLUMNS), ts='ts', idle_after=thing)",
    "st.memory(thing)",
    "st.memory([thing])",
    "st.memory(schema=thing)",
    "st.memory(schema={'x': thing})",
    "st.parquet(thing)",
    "st.parquet('cdr/', schema=thing)",
    "st.parquet_sink(thing)",
    "st.callback(thing)",
    "st.console(rows=thing)",
    "st.tumbling(thing)",
    "st.sliding('1h', every=thing)",
    "st.session(thing)",
    "st.last_n(thing)",
    "st.Query(thing, calls.to(st.memory_sink()))",
    "st.Query('q', thing)",
    "st.Query('q', calls.to(st.memory_sink())).step(thing)",
]


@pytest.mark.parametrize("place", PLACES)
def test_nothing_else_ever_comes_out(place: str) -> None:
    """A wrong thing never raises an AttributeError or TypeError from inside."""
    messages = []
    for thing in THINGS:
        try:
            eval(place, globals(), {"thing": thing})
        except st.QueryError as error:
            messages.append(str(error))
    assert messages
    assert [message for message in messages if "\n" in message or len(message) > 400] == []
