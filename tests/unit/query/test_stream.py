"""Streams: what each step gives, seen from outside (SC-1, SC-2, SC-3, ST-2)."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
import pytest

import springtide as st
from springtide.query import steps
from springtide.query.windows import LastN, Sliding

COLUMNS = {"src": pl.String, "dst": pl.String, "duration": pl.Int64, "tags": pl.List(pl.String), "ts": st.TIME}
calls = st.source("calls", st.memory(schema=COLUMNS), ts="ts")
bare = st.source("bare", st.memory(schema={"x": pl.Int64, "word": pl.String}))
x, src, dst, ts = pl.col("duration"), pl.col("src"), pl.col("dst"), pl.col("ts")
I64, TEXT = pl.Int64(), pl.String()
minute = st.tumbling("1m")


def columns(stream: st.Stream) -> dict[str, pl.DataType]:
    return dict(stream.schema)


# ── sources ──


@pytest.mark.parametrize(
    "dtype",
    [
        *(
            pl.Datetime("ms"),
            pl.Datetime("us"),
            pl.Datetime("ns"),
            pl.Datetime("us", "UTC"),
            pl.Datetime("us", "Asia/Tokyo"),
        ),
        *(pl.Date(), pl.Int64(), pl.String()),
    ],
)
def test_the_event_time_is_called_ts_and_is_microseconds_utc(dtype: pl.DataType) -> None:
    stream = st.source("events", st.memory(schema={"a": pl.Int64, "when": dtype, "b": pl.Int64}), ts="when")
    assert columns(stream) == {"a": I64, "ts": st.TIME, "b": I64}
    assert stream.timed
    assert isinstance(stream.step, steps.Source)
    assert stream.step.ts == "when"
    assert stream.step.columns["when"] == dtype


def test_a_source_without_ts_has_no_time() -> None:
    assert not bare.timed
    assert columns(bare) == {"x": I64, "word": TEXT}


@pytest.mark.parametrize(
    ("given", "disorder", "idle"),
    [
        ({}, 0, None),
        ({"max_disorder": "10s"}, 10_000_000, None),
        ({"max_disorder": timedelta(seconds=1), "idle_after": "1m"}, 1_000_000, 60_000_000),
        ({"max_disorder": "0s", "idle_after": "0s"}, 0, 0),
    ],
)
def test_disorder_and_idleness(given: dict[str, Any], disorder: int, idle: int | None) -> None:
    step = st.source("calls", st.memory(schema=COLUMNS), ts="ts", **given).step
    assert isinstance(step, steps.Source)
    assert (step.max_disorder, step.idle_after) == (disorder, idle)


def test_sides_of_a_source() -> None:
    assert (calls.late.step, calls.late.port, calls.late.timed) == (calls.step, "late", False)
    assert calls.late.schema == calls.schema
    assert (calls.rejected.step, calls.rejected.port, calls.rejected.timed) == (calls.step, "rejected", False)
    assert columns(calls.rejected) == {"source": TEXT, "stream": TEXT, "position": I64, "reason": TEXT, "row": TEXT}
    assert list(bare.rejected.schema) == list(calls.rejected.schema)


def test_streams_without_time_take_stateless_steps_and_sinks() -> None:
    late = calls.late.filter(x > 1).map(y=x + 1).select("src", "y").rename({"y": "z"}).drop("src")
    assert columns(late) == {"z": pl.Int64()}
    assert not late.timed
    short, rest = calls.late.split(short=x < 60, rest="rest")
    assert not short.union(rest).timed
    assert calls.late.explode("tags").to(st.memory_sink()).kind == "sink"
    assert columns(bare.map(ts="x")) == {"x": I64, "word": TEXT, "ts": I64}


# ── stateless steps ──


def test_map_adds_and_replaces_in_place() -> None:
    stream = calls.map(dst.str.to_uppercase(), duration=x / 60, n=1)
    assert list(stream.schema) == [*COLUMNS, "n"]
    assert columns(stream)["duration"] == pl.Float64()


def test_map_may_repeat_ts_as_it_is() -> None:
    assert calls.map(pl.all()).schema == calls.schema
    assert calls.map("ts").schema == calls.map(ts).schema == calls.map(ts="ts").schema == calls.schema
    assert columns(calls.map(when="ts"))["when"] == st.TIME


def test_map_over_several_columns() -> None:
    stream = calls.map(cs.string().str.len_chars().name.suffix("_length"))
    assert list(stream.schema) == [*COLUMNS, "src_length", "dst_length"]
    assert isinstance(stream.step, steps.Map)
    assert [e.meta.root_names() for e in stream.step.exprs] == [["src"], ["dst"]]


@pytest.mark.parametrize(
    ("stream", "names"),
    [
        (calls.select("src"), ["src", "ts"]),
        (calls.select("ts", "src"), ["ts", "src"]),
        (calls.select(pl.col("ts"), n=x + 1), ["ts", "n"]),
        (calls.select(pl.all()), list(COLUMNS)),
        (calls.select("*"), list(COLUMNS)),
        (calls.select(pl.exclude("tags")), ["src", "dst", "duration", "ts"]),
        (calls.select(cs.string()), ["src", "dst", "ts"]),
        (calls.select(cs.temporal(), cs.numeric()), ["ts", "duration"]),
        (calls.select(one=1), ["one", "ts"]),
        (calls.drop("src", "dst"), ["duration", "tags", "ts"]),
        (calls.drop("src", "dst", "duration", "tags"), ["ts"]),
        (calls.rename({"src": "caller"}), ["caller", "dst", "duration", "tags", "ts"]),
        (calls.rename({"src": "dst", "dst": "src"}), ["dst", "src", "duration", "tags", "ts"]),
        (bare.select("word"), ["word"]),
        (bare.select("x", one=1), ["x", "one"]),
        (bare.rename({"x": "ts"}), ["ts", "word"]),
    ],
)
def test_select_drop_and_rename(stream: st.Stream, names: list[str]) -> None:
    assert list(stream.schema) == names
    step = stream.step
    assert isinstance(step, steps.Select)
    assert [e.meta.output_name() for e in step.exprs] == names
    assert pl.LazyFrame(schema=step.inputs[0].schema).select(step.exprs).collect_schema() == step.schema


def test_filter_keeps_the_columns() -> None:
    stream = calls.filter(x > 600)
    assert stream.schema == calls.schema
    assert stream.step.inputs == (calls,)


def test_a_predicate_over_all_columns_names_them() -> None:
    step = calls.filter(pl.all_horizontal(pl.all().is_not_null())).step
    assert isinstance(step, steps.Filter)
    assert step.predicate.meta.root_names() == list(COLUMNS)


def test_explode_gives_the_elements() -> None:
    assert columns(calls.explode("tags")) == columns(calls) | {"tags": TEXT}
    nested = st.source("n", st.memory(schema={"l": pl.List(pl.List(pl.Int64))}))
    assert columns(nested.explode("l")) == {"l": pl.List(I64)}


# ── split ──


def test_sc1_a_split_is_unpacked_in_order() -> None:
    short, medium, long = calls.split(short=x < 60, medium=x < 600, rest="long")
    assert [short.port, medium.port, long.port] == ["short", "medium", "long"]
    assert short.step is medium.step is long.step
    assert short.schema == medium.schema == long.schema == calls.schema


def test_the_outputs_of_a_split_by_name() -> None:
    parts = calls.split(short=x < 60, rest="other", name="lengths")
    assert parts.names == ("short", "other")
    assert parts["short"] is parts.short
    assert parts.other.step.name == "lengths"
    assert list(parts) == [parts.short, parts.other]
    assert [s.port for s in calls.split(names=x < 60)] == ["names"]


def test_a_split_without_rest_drops_what_fits_nowhere() -> None:
    step = calls.split(short=x < 60)["short"].step
    assert isinstance(step, steps.Split)
    assert (step.rest, [port for port, _ in step.predicates]) == (None, ["short"])


def test_an_output_that_is_not_there() -> None:
    parts = calls.split(short=x < 60, rest="other")
    with pytest.raises(AttributeError, match="the split has no output 'shot'; did you mean 'short'"):
        parts.shot  # noqa: B018
    with pytest.raises(st.QueryError, match="there is no output 'shot'; did you mean 'short'"):
        parts["shot"]
    assert not hasattr(parts, "long")
    assert copy.copy(parts).names == parts.names


# ── union ──


def test_union_takes_the_columns_of_the_first() -> None:
    other = st.source("other", st.memory(schema=dict(reversed(COLUMNS.items()))), ts="ts")
    stream = calls.union(other, calls)
    assert stream.schema == calls.schema
    assert [i.step.kind for i in stream.step.inputs] == ["source", "select", "source"]
    assert all(list(i.schema) == list(COLUMNS) for i in stream.step.inputs)


def test_st_union_is_the_same() -> None:
    stream = st.union(calls, calls, name="both")
    assert (stream.step.kind, stream.step.name, len(stream.step.inputs)) == ("union", "both", 2)


# ── stateful steps ──


def test_sc2_aggregate() -> None:
    stream = calls.aggregate(["dst", "src"], window=st.sliding("1h", every="1m"), n=st.count(), avg=st.mean("duration"))
    assert columns(stream) == {
        "ts": st.TIME,
        "dst": TEXT,
        "src": TEXT,
        "window_start": st.TIME,
        "window_end": st.TIME,
        "n": I64,
        "avg": pl.Float64(),
    }
    assert isinstance(stream.step, steps.Aggregate)
    assert stream.step.by == ("dst", "src")
    assert stream.step.window == Sliding(3_600_000_000, 60_000_000)
    assert [b.name for b in stream.step.aggregates] == ["n", "avg"]


@pytest.mark.parametrize("by", [(), []])
def test_aggregate_without_groups(by: Any) -> None:
    stream = calls.aggregate(by, window=st.last_n(10), n=st.count())
    assert list(stream.schema) == ["ts", "window_start", "window_end", "n"]


def test_a_window_over_windows() -> None:
    """What an aggregate gives is a stream with time like any other."""
    busy = calls.aggregate("src", window=minute, n=st.count()).aggregate(window=st.tumbling("1h"), most=st.max("n"))
    assert list(busy.schema) == ["ts", "window_start", "window_end", "most"]
    assert busy.timed


def test_top_k() -> None:
    stream = calls.top_k(np.int64(3), "dst", per=["src"], window=minute, weight="duration", sketch=64)
    assert list(stream.schema) == ["ts", "src", "window_start", "window_end", "rank", "dst", "count"]
    assert columns(stream)["rank"] == columns(stream)["count"] == I64
    step = stream.step
    assert isinstance(step, steps.TopK)
    assert (step.k, step.by, step.per, step.weight, step.sketch) == (3, ("dst",), ("src",), "duration", 64)
    assert type(step.k) is int


def test_join_renames_what_is_taken_and_keeps_shared_keys_once() -> None:
    stream = calls.join(calls.select("src", "dst", extra=x), on="src", within="1m")
    assert list(stream.schema) == [*COLUMNS, "dst_right", "extra"]
    step = stream.step
    assert isinstance(step, steps.Join)
    assert step.right_columns == (("dst", "dst_right"), ("extra", "extra"))
    assert (step.left_on, step.right_on, step.how, step.where) == (("src",), ("src",), "inner", None)
    assert step.window == steps.Within(60_000_000)


def test_join_on_keys_of_different_names() -> None:
    stream = calls.join(
        calls.select("dst", "duration"), left_on=["src"], right_on="dst", within="0s", how="left", suffix="_2"
    )
    assert list(stream.schema) == [*COLUMNS, "dst_2", "duration_2"]
    assert isinstance(stream.step, steps.Join)
    assert (stream.step.left_on, stream.step.right_on, stream.step.how) == (("src",), ("dst",), "left")


def test_a_join_may_look_at_more_than_keys() -> None:
    step = calls.join(calls, on="src", within=st.last_n(5), where=dst < pl.col("dst_right")).step
    assert isinstance(step, steps.Join)
    assert step.where is not None
    assert step.window == LastN(5, 1)


def test_a_copy_of_the_right_sides_time_can_be_looked_at() -> None:
    right = calls.select("src", when="ts")
    assert "when" in calls.join(right, "src", within="1m", where=ts > pl.col("when")).schema


@pytest.mark.parametrize("routing", [None, "grid", "broadcast"])
def test_sc1_theta_join_is_the_cartesian_product(routing: Any) -> None:
    stream = calls.theta_join(calls, pl.lit(True), within="1m", routing=routing)
    renamed = [f"{n}_right" for n in COLUMNS if n != "ts"]
    assert list(stream.schema) == [*COLUMNS, *renamed]
    assert isinstance(stream.step, steps.ThetaJoin)
    assert stream.step.routing == routing


# ── the end, and all of them ──


def test_a_sink_has_the_columns_of_what_comes_in() -> None:
    sink = calls.to(st.memory_sink(), name="out")
    assert (sink.name, sink.schema, sink.inputs) == ("out", calls.schema, (calls,))


class Keep(st.BucketOperator[dict[str, int]]):
    output = pl.Schema({"ts": st.TIME})

    def init(self) -> dict[str, int]:
        return {}

    def process(self, state: dict[str, int], tuples: pl.DataFrame, ready_ts: int) -> None:
        return None


EVERY = {
    "map": calls.map(y=x + 1, name="step"),
    "select": calls.select("src", name="step"),
    "filter": calls.filter(x > 1, name="step"),
    "explode": calls.explode("tags", name="step"),
    "split": calls.split(a=x > 1, name="step").a,
    "union": calls.union(calls, name="step"),
    "aggregate": calls.aggregate("src", window=minute, n=st.count(), name="step"),
    "top_k": calls.top_k(3, "src", window=minute, name="step"),
    "join": calls.join(calls, "src", within="1m", name="step"),
    "theta_join": calls.theta_join(calls, x > 1, within="1m", name="step"),
    "operator": calls.operator(Keep(), name="step"),
}


@pytest.mark.parametrize("kind", EVERY)
def test_every_step(kind: str) -> None:
    stream = EVERY[kind]
    step = stream.step
    assert (step.kind, step.name) == (kind, "step")
    assert step.schema == stream.schema
    assert stream.timed
    assert stream.schema["ts"] == st.TIME
    assert all(isinstance(dtype, pl.DataType) for dtype in stream.schema.values())
    assert step.stateful == (kind in ("aggregate", "top_k", "join", "theta_join", "operator"))
    assert step.inputs[0] is calls


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        (calls, "memory, 0 rows → src:str dst:str duration:i64 tags:list[str] ts:time"),
        (calls.map(y=x + 1), "y = duration + 1"),
        (calls.select("src", y=x + 1), "src, y = duration + 1, ts"),
        (calls.drop("tags", "dst"), "src, duration, ts"),
        (calls.rename({"src": "from"}), "from = src, dst, duration, tags, ts"),
        (calls.filter(x > 600), "duration > 600"),
        (calls.explode("tags"), "tags"),
        (calls.split(a=x > 1, b=x > 0, rest="c").a, "a: duration > 1; b: duration > 0; c: rest"),
        (calls.union(calls), ""),
        (calls.aggregate(window=minute, n=st.count()), "tumbling 1m: n=count()"),
        (
            calls.aggregate(["src", "dst"], window=st.last_n(5), n=st.count(), s=st.sum(x * 2)),
            "last 5 every 1 by src, dst: n=count(), s=sum(duration * 2)",
        ),
        (calls.top_k(3, "dst", window=minute), "3 × dst, tumbling 1m"),
        (
            calls.top_k(3, "dst", per="src", weight="duration", sketch=64, window=minute),
            "3 × dst by duration per src, tumbling 1m, sketch of 64",
        ),
        (calls.join(calls, "src", within="1m"), "inner on src, within 1m"),
        (
            calls.join(calls, left_on="src", right_on="dst", within=st.last_n(5), how="left", where=x > 1),
            "left on src = dst, last 5 of the other side where duration > 1",
        ),
        (calls.theta_join(calls, x > pl.col("duration_right"), within="5m"), "duration > duration_right, within 5m"),
    ],
)
def test_every_step_in_words(stream: st.Stream, text: str) -> None:
    assert stream.step.describe() == text


def test_a_source_says_how_much_disorder_it_stands() -> None:
    stream = st.source("s", st.memory(schema={"x": pl.Int64, "ts": st.TIME}), ts="ts", max_disorder="90s")
    assert stream.step.describe() == "memory, 0 rows, disorder up to 1m30s → x:i64 ts:time"


def test_steps_are_frozen() -> None:
    with pytest.raises(AttributeError):
        calls.step.name = "other"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        calls.port = "other"  # type: ignore[misc]


def test_a_stream_can_be_used_many_times() -> None:
    before = calls.schema
    calls.map(y=x + 1)
    calls.drop("src")
    assert calls.schema == before
