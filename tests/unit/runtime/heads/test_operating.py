"""User operators as heads: how they are called, what is kept in state, when it goes, and what goes wrong (ST-2, ST-4, SM-1)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest

import springtide as st
from springtide.kernels import order
from springtide.kernels.routing import deal
from springtide.query.errors import UserCodeError
from springtide.runtime.engine import Engine, Options
from springtide.runtime.heads import head_of
from springtide.runtime.inprocess import run
from springtide.state.manifest import Manifest
from springtide.testing import PAUSE, at, compare, table

SCHEMA = {"ts": st.TIME, "k": pl.String, "x": pl.Int64}


def source(rows: Any, name: str = "s") -> st.Stream:
    return st.source(name, st.memory(rows, schema=SCHEMA), ts="ts")


def run_all(
    stream: st.Stream, folder: Path, instances: int = 2, each: int = 1000, **sides: st.Stream
) -> tuple[pl.DataFrame, list[Manifest]]:
    """Run to the end, compare all sinks with the reference; give the rows and all manifests."""
    sinks = {name: st.memory_sink() for name in ("out", *sides)}
    ends = [s.to(sinks[name], name=name) for name, s in {"out": stream, **sides}.items()]
    query = st.Query("q", *ends)
    seen: list[Manifest] = []

    def watch(engine: Engine) -> bool:
        seen.append(engine.manifest)
        return True

    engine = run(query.plan(buckets=16), folder, Options(instances, rows_per_epoch=each), between=watch)
    expected = query.run_reference()
    for name, sink in sinks.items():
        compare(sink.rows(), expected.rows(name))
    return sinks["out"].rows(), [*seen[1:], engine.manifest]


class Sum(st.KeyOperator):
    """The sum of each key so far."""

    state: ClassVar = {"total": pl.Int64}
    output: ClassVar = {"k": pl.String, "total": pl.Int64, "ts": st.TIME}

    def init(self, key: Any) -> Any:
        return {"total": 0}

    def process(self, key: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
        rows = []
        for x, ts in tuples.select("x", "ts").iter_rows():
            state["total"] += x
            rows.append({"k": key[0], "total": state["total"], "ts": ts})
        return rows


class Quiet(Sum):
    """Says when a key has been quiet for 5 s, and forgets it."""

    state: ClassVar = {"total": pl.Int64, "due": pl.Int64}
    timer = "due"

    def init(self, key: Any) -> Any:
        return {"total": 0, "due": None}

    def process(self, key: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
        super().process(key, state, tuples, ready_ts)
        state["due"] = ready_ts + 5_000_000
        return []

    def on_time(self, key: Any, state: Any, ready_ts: int) -> Any:
        state["due"] = None
        return [{"k": key[0], "total": state["total"], "ts": ready_ts}]

    def keep(self, key: Any, state: Any) -> bool:
        return state["due"] is not None


class Counts(st.BucketOperator[Any]):
    """Counts per key, and all that it was asked to do."""

    output: ClassVar = {"k": pl.String, "n": pl.Int64, "ts": st.TIME}

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.live = 0

    def init(self) -> Any:
        self.live += 1
        return {}

    def process(self, state: Any, tuples: pl.DataFrame, ready_ts: int) -> pl.DataFrame:
        self.log.append(("process", tuples["x"].to_list(), ready_ts))
        rows = []
        for k, ts in tuples.select("k", "ts").iter_rows():
            state[k] = state.get(k, 0) + 1
            rows.append({"k": k, "n": state[k], "ts": ts})
        return pl.DataFrame(rows, schema=self.output)

    def deserialize(self, data: pl.DataFrame) -> Any:
        self.live += 1
        return super().deserialize(data)

    def free(self, state: Any) -> None:
        self.live -= 1


class Told(Counts):
    """Is told of the time too, and gives its counts at the end."""

    def process(self, state: Any, tuples: pl.DataFrame, ready_ts: int) -> pl.DataFrame:
        return super().process(state, tuples, ready_ts).clear()

    def on_time(self, state: Any, ready_ts: int) -> pl.DataFrame | None:
        self.log.append(("on_time", ready_ts))
        if ready_ts < st.END_OF_TIME:
            return None
        rows = [{"k": k, "n": n, "ts": at("1h")} for k, n in sorted(state.items())]
        return pl.DataFrame(rows, schema=self.output)


ROWS = table("ts k x\n 1s a 1\n 2s b 2\n 3s a 3\n PAUSE\n 4s a 4\n 9s c 5\n PAUSE\n 20s a 6\n 21s b 7")


# ── state ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("instances", [1, 3])
@pytest.mark.parametrize("keys", ["k", ("k", "x")])
@pytest.mark.parametrize("operator", [Sum, Quiet, Counts, Told])
def test_nothing_is_left_at_the_end(operator: Any, keys: Any, instances: int, tmp_path: Path) -> None:
    _, manifests = run_all(source(ROWS).operator(operator(), keys=keys, name="op"), tmp_path, instances)
    assert any(m.state["op"].segments for m in manifests)
    assert manifests[-1].state["op"].segments == ()


def test_keys_that_are_let_go_leave_nothing_behind(tmp_path: Path) -> None:
    """200 keys, each for a few seconds: state stays as small as the few that live."""
    rows = [{"ts": at(f"{i}s"), "k": f"k{i}", "x": i} for i in range(200)]
    found, manifests = run_all(source(rows).operator(Quiet(), keys="k", name="op"), tmp_path, instances=1, each=1)
    assert found.height == 200
    sizes = [sum(s.rows for s in m.state["op"].segments) for m in manifests]
    assert max(sizes[:60]) > 10
    assert max(sizes[100:]) <= 1.3 * max(sizes[:100])


def test_a_timer_that_is_set_again_and_again_does_not_pile_up(tmp_path: Path) -> None:
    rows = [{"ts": at(f"{i * 10}ms"), "k": "ab"[i % 2], "x": i} for i in range(200)]
    _, manifests = run_all(source(rows).operator(Quiet(), keys="k", name="op"), tmp_path, instances=1, each=1)
    timers = [sum(s.rows for s in m.state["op"].segments if s.kind == "timers") for m in manifests]
    assert max(timers) <= 12


def test_timers_are_found_by_their_time(tmp_path: Path) -> None:
    """They go off in the epoch that brings the time, also at keys without tuples; what has gone off is out of state."""
    rows = table("ts k x\n 1s a 1\n 2s b 1\n PAUSE\n 3s c 1\n PAUSE\n 6s c 1\n PAUSE\n 30s c 1")
    stream = source(rows).operator(Quiet(), keys="k", name="op")
    sink = st.memory_sink()
    seen = []

    def watch(engine: Engine) -> bool:
        seen.append(sink.rows()["k"].to_list() if engine.manifest.epoch >= 0 else [])
        return True

    engine = run(st.Query("q", stream.to(sink)).plan(), tmp_path, between=watch)
    assert seen == [[], [], [], ["a"]]
    assert sorted(sink.rows()["k"]) == ["a", "b", "c", "c"]
    assert engine.manifest.state["op"].segments == ()


def test_a_state_that_time_does_not_change_is_not_written_again(tmp_path: Path) -> None:
    _, manifests = run_all(
        source([*ROWS, PAUSE, *table("ts k x\n 30s z 1")]).operator(Told(), keys="k", name="op"), tmp_path
    )
    newest = [max((s.epoch for s in m.state["op"].segments if s.kind == "states"), default=-1) for m in manifests]
    assert newest[:3] == [0, 1, 2]
    buckets = [sum(s.rows for s in m.state["op"].segments if s.kind == "states" and s.epoch == 2) for m in manifests]
    assert buckets[2] <= 2, "only a and c had tuples that became ready"


# ── calls ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def logged(operator: Any, rows: Any, folder: Path, **options: Any) -> list[Any]:
    """Run and give the calls of `process`: how many tuples, and ready_ts in seconds."""
    calls: list[Any] = []

    class Logged(operator):  # type: ignore[misc]
        def process(self, key: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
            calls.append((key[0], tuples.height, ready_ts // 10**6))
            return super().process(key, state, tuples, ready_ts)

    plan = st.Query("q", source(rows).operator(Logged(), keys="k", **options).to(st.memory_sink())).plan()
    run(plan, folder)
    return sorted(calls)


TIES = table("ts k x\n 1s a 1\n 1s a 2\n 2s a 3\n PAUSE\n 3s b 1\n 3s a 4\n 4s a 5")


def test_once_per_key_and_epoch(tmp_path: Path) -> None:
    """In the first epoch time comes to 2 s: the tuple at that time waits."""
    assert logged(Sum, TIES, tmp_path) == [("a", 2, 1), ("a", 3, 4), ("b", 1, 3)]


def test_with_a_timer_tuples_of_one_time_together(tmp_path: Path) -> None:
    timed = type("Timed", (Quiet,), {"keep": st.KeyOperator.keep})
    assert logged(timed, TIES, tmp_path) == [("a", 1, 2), ("a", 1, 3), ("a", 1, 4), ("a", 2, 1), ("b", 1, 3)]


def test_one_by_one_when_it_is_asked_after_each_whether_to_keep_the_state(tmp_path: Path) -> None:
    class UpTo(Sum):
        def keep(self, key: Any, state: Any) -> bool:
            return bool(state["total"] < 3)

    assert [c[:2] for c in logged(UpTo, TIES, tmp_path)] == [("a", 1)] * 5 + [("b", 1)]
    run_all(source(TIES).operator(UpTo(), keys="k"), tmp_path / "again")


def test_a_bucket_is_called_once_per_epoch_and_every_state_is_freed(tmp_path: Path) -> None:
    """SM-1: init or deserialize, process, serialize, free."""
    counts = Counts()
    sink = st.memory_sink()
    run(st.Query("q", source(ROWS).operator(counts, name="op").to(sink)).plan(), tmp_path)
    calls = [(x, ready // 10**6 if ready != st.END_OF_TIME else None) for _, x, ready in counts.log]
    assert calls == [([1, 2], 3), ([3, 4], 9), ([5, 6, 7], None)]
    assert counts.live == 0


def test_on_time_is_told_to_all_buckets_with_a_state_and_to_the_only_one(tmp_path: Path) -> None:
    told = Told()
    run(st.Query("q", source(ROWS).operator(told, name="op").to(st.memory_sink())).plan(), tmp_path / "one")
    assert [call[1] for call in told.log if call[0] == "on_time"] == [3_000_000, 9_000_000, st.END_OF_TIME]
    assert told.live == 0
    run_all(source([]).operator(Told(), name="op"), tmp_path / "none")


def test_the_end_comes_once_also_when_others_go_on(tmp_path: Path) -> None:
    """The operator's source ends in the first epoch, another one has rows for two more."""
    short = source(table("ts k x\n 1s a 1\n END"), "short")
    other = source(table("ts k x\n 1s a 1\n PAUSE\n 2s a 1\n PAUSE\n 3s a 1"), "long")
    for number, operator in enumerate([Quiet(), Told(), Sum()]):
        told = short.operator(operator, keys="k", name="op")
        run_all(told, tmp_path / str(number), other=other.aggregate(window=st.tumbling("1s"), n=st.count()))
    alone = Told()
    run_all(
        short.operator(alone, name="op"),
        tmp_path / "alone",
        other=other.aggregate(window=st.tumbling("1s"), n=st.count()),
    )


# ── several keys ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_tuple_with_several_keys_goes_once_to_each_instance() -> None:
    """ST-2: however many of its keys are there."""
    tweets = st.source("tweets", st.memory(schema={"ts": st.TIME, "k": pl.List(pl.String)}), ts="ts")
    plan = st.Query("q", tweets.operator(Sum(), keys="k", name="op").to(st.memory_sink())).plan(buckets=16)
    (exchange,) = plan.exchanges
    tags = [[f"t{i}" for i in range(50)], ["t1", "t1"], [], None]
    frame = pl.LazyFrame({"ts": [at("1s")] * 4, "k": tags}, schema={"ts": st.TIME, "k": pl.List(pl.String)})
    sent = head_of(plan, "op").send(exchange, frame.with_columns(order.of_source(0, "0", 0)), 0).collect()
    assert sent.height == 2
    parts = dict(deal(sent, exchange.routing, 0, [b % 3 for b in range(16)], 3))
    heights = {i: 0 if part is None else part.height for i, part in parts.items()}
    assert sorted(heights.values()) == [1, 1, 2]


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────────


def wrong_key(result: Any = (), **changes: Any) -> st.KeyOperator:
    """An operator whose `process` gives this for numbers above 3."""

    def process(self: Any, key: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
        given = Sum.process(self, key, state, tuples, ready_ts)
        return result if (tuples["x"] > 3).any() else given

    made: st.KeyOperator = type("Wrong", (Quiet if "timer" in changes else Sum,), {"process": process} | changes)()
    return made


def wrong_bucket(result: Any = None, **changes: Any) -> st.BucketOperator[Any]:
    def process(self: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
        given = Counts.process(self, state, tuples, ready_ts)
        return result if (tuples["x"] > 3).any() else given

    made: st.BucketOperator[Any] = type(
        "Wrong", (Told if "on_time" in changes else Counts,), {"process": process} | changes
    )()
    return made


def fails(self: Any, *_: Any) -> Any:
    raise ZeroDivisionError("division by zero")


def too_large(self: Any, *args: Any) -> Any:
    """Is `process` of either kind of operator: the tuples come before the time."""
    if (args[-2]["x"] > 3).any():
        raise ValueError("too large")
    return [] if isinstance(self, st.KeyOperator) else None


def spoils(self: Any, key: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
    state["total"] = "much" if (tuples["x"] > 3).any() else 1
    return []


ROW = {"k": "a", "total": 1, "ts": at("1h")}
OUT = {"k": ["a"], "n": [1], "ts": [at("1h")]}
MISTAKES: list[Callable[[], Any]] = [
    lambda: wrong_key(None),
    lambda: wrong_key(5),
    lambda: wrong_key("rows"),
    lambda: wrong_key([5]),
    lambda: wrong_key([{"k": "a", "ts": 5}]),
    lambda: wrong_key([ROW | {"more": 1}]),
    lambda: wrong_key([ROW, ROW | {"total": 1.5}]),
    lambda: wrong_key([ROW, ROW | {"ts": None}]),
    lambda: wrong_key([ROW | {"ts": 2**70}]),
    lambda: wrong_key([ROW, ROW | {"ts": at("1s")}]),
    lambda: wrong_key(process=too_large),
    lambda: wrong_key(process=spoils),
    lambda: wrong_key(init=fails),
    lambda: wrong_key(init=lambda self, key: {"n": 0}),
    lambda: wrong_key(init=lambda self, key: 5),
    lambda: wrong_key(keep=fails),
    lambda: wrong_key([], timer="due", process=Quiet.process, on_time=fails),
    lambda: wrong_key([], timer="due", process=Quiet.process, on_time=lambda self, key, state, ready_ts: []),
    lambda: wrong_key(
        [], timer="due", process=Quiet.process, on_time=lambda self, key, state, ready_ts: [ROW | {"ts": 0}]
    ),
    lambda: wrong_bucket(5),
    lambda: wrong_bucket(pl.DataFrame(OUT).drop("n")),
    lambda: wrong_bucket(pl.DataFrame(OUT).with_columns(more=1)),
    lambda: wrong_bucket(pl.DataFrame(OUT).cast({"n": pl.Float64})),
    lambda: wrong_bucket(pl.DataFrame(OUT | {"ts": [None]}, schema=Counts.output)),
    lambda: wrong_bucket(pl.DataFrame(OUT | {"ts": [at("1s")]}, schema=Counts.output)),
    lambda: wrong_bucket(process=too_large),
    lambda: wrong_bucket(init=fails),
    lambda: wrong_bucket(pl.DataFrame(OUT), on_time=fails),
]
STILL_FAIL = [12, 13, 14, 16, 17, 18, 26, 27]
"""Those that no row is to blame for: in `init`, `on_time` and timers."""


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_an_error_names_the_step_the_bucket_and_the_first_offending_row(number: int, tmp_path: Path) -> None:
    """In the words of the reference. The row is one of several of its key and its epoch."""
    rows = table("ts k x\n 1s a 1\n 2s a 2\n PAUSE\n 3s a 3\n 4s a 4\n 5s a 5\n 6s a 6\n PAUSE\n 30s a 1")
    query = st.Query("q", source(rows).operator(MISTAKES[number](), keys="k", name="mine").to(st.memory_sink()))
    with pytest.raises(UserCodeError) as expected:
        query.run_reference()
    with pytest.raises(UserCodeError) as raised:
        run(query.plan(), tmp_path, Options(2))
    label = re.fullmatch(r"mine \(operator\), bucket \d+", raised.value.step)
    assert label
    found = (raised.value.problem, raised.value.hint, str(raised.value.row))
    assert found == (expected.value.problem, expected.value.hint, str(expected.value.row))


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_rows_are_rejected_one_by_one(number: int, tmp_path: Path) -> None:
    """What `process` does wrong costs the row and nothing else; everything else fails all the same."""
    rows = table("ts k x\n 1s a 1\n 2s b 9\n PAUSE\n 3s a 3\n 4s a 4\n 4s b 1\n 5s a 5\n PAUSE\n 30s a 1")
    stream = source(rows).operator(MISTAKES[number](), keys="k", on_error="reject")
    if number in STILL_FAIL:
        with pytest.raises(UserCodeError, match=r"Wrong.(init|on_time) |on_time left"):
            run_all(stream, tmp_path)
        return
    run_all(stream, tmp_path, rejected=stream.rejected)
    rejected = st.Query("q", stream.rejected.to(st.memory_sink())).run_reference().rows()
    assert set(rejected["k"]) == {"a", "b"}


def test_an_exception_keeps_its_cause_and_the_epoch_can_be_run_again(tmp_path: Path) -> None:
    class Fragile(Sum):
        broken = True

        def process(self, key: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
            if self.broken and (tuples["x"] == 4).any():
                raise RuntimeError("out of order")
            return super().process(key, state, tuples, ready_ts)

    fragile, sink = Fragile(), st.memory_sink()
    query = st.Query("q", source(ROWS).operator(fragile, keys="k").to(sink))
    with pytest.raises(UserCodeError, match=r"Fragile.process raised RuntimeError: out of order") as raised:
        run(query.plan(), tmp_path, Options(2))
    assert isinstance(raised.value.__cause__, RuntimeError)
    assert raised.value.row is not None
    fragile.broken = False
    run(query.plan(), tmp_path, Options(3))
    compare(sink.rows(), query.run_reference().rows())


def test_code_that_only_fails_with_many_tuples_gets_them_one_by_one(tmp_path: Path) -> None:
    class Small(Sum):
        def process(self, key: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
            assert tuples.height < 2
            return super().process(key, state, tuples, ready_ts)

    class SmallBucket(Counts):
        def process(self, state: Any, tuples: Any, ready_ts: int) -> Any:
            assert tuples.height < 2
            return super().process(state, tuples, ready_ts)

    run_all(source(ROWS).operator(Small(), keys="k"), tmp_path / "keys")
    counts = SmallBucket()
    run_all(source(ROWS).operator(counts), tmp_path / "buckets")
    assert counts.live == 0


@pytest.mark.parametrize("method", ["serialize", "deserialize", "free"])
def test_errors_of_the_other_methods_name_the_bucket(method: str, tmp_path: Path) -> None:
    operator = type("Wrong", (Counts,), {method: fails})()
    query = st.Query("q", source(ROWS).operator(operator, name="mine").to(st.memory_sink()))
    message = rf"step mine \(operator\), bucket 0: Wrong.{method} raised ZeroDivisionError"
    with pytest.raises(UserCodeError, match=message):
        run(query.plan(), tmp_path)


def test_serialize_must_give_a_frame(tmp_path: Path) -> None:
    operator = type("Wrong", (Counts,), {"serialize": lambda self, state: state})()
    query = st.Query("q", source(ROWS).operator(operator, name="mine").to(st.memory_sink()))
    with pytest.raises(UserCodeError, match=r"Wrong.serialize returned a dict; return a frame"):
        run(query.plan(), tmp_path)
