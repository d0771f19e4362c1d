"""User operators as heads: how they are called, what is kept in state, and when it goes (ST-2, ST-4, SM-1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest

import springtide as st
from springtide.exchange import order
from springtide.exchange.routing import Numbering, split_by_instance
from springtide.operators import operator_of
from springtide.runtime.engine import Engine
from springtide.runtime.inprocess import run
from springtide.testing import PAUSE, at, table
from tests.unit.operators.user.operators import ROWS, Counts, Quiet, Sum, Told, run_all, source

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


@pytest.mark.parametrize("many", [1, 3])
def test_a_state_without_columns(many: int, tmp_path: Path) -> None:
    class Echo(Sum):
        state: ClassVar = {}

        def init(self, key: Any) -> Any:
            return {}

        def process(self, key: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
            assert tuples.height <= many
            return [{"k": key[0], "total": x, "ts": ts} for x, ts in tuples.select("x", "ts").iter_rows()]

    run_all(source(ROWS).operator(Echo(), keys="k", name="op"), tmp_path)


def test_keys_may_be_called_as_they_like(tmp_path: Path) -> None:
    """Beside them stand the columns of the state and those of the engine."""
    rows = [row if row is PAUSE else {"ts": row["ts"], "k": row["k"], "x": row["x"]} for row in ROWS]  # type: ignore[index]
    renamed = source(rows).map(due=pl.col("k"), total=pl.col("x"), **{"state.due": pl.col("x") % 2})

    class Named(Quiet):
        def process(self, key: Any, state: Any, tuples: Any, ready_ts: int) -> Any:
            state["due"] = ready_ts + 5_000_000
            state["total"] += tuples["x"].sum()
            return []

    run_all(renamed.operator(Named(), keys=("due", "state.due"), name="op"), tmp_path)


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
    sent = operator_of(plan, "op").send(exchange, frame.with_columns(order.of_source(0, "0", 0)), Numbering()).collect()
    assert sent.height == 2
    parts = dict(split_by_instance(sent, exchange.routing, 0, [b % 3 for b in range(16)], 3))
    heights = {i: 0 if part is None else part.height for i, part in parts.items()}
    assert sorted(heights.values()) == [1, 1, 2]
