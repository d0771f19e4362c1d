"""The in-process runner: epochs, restarts, and what is left when the process dies at the worst moment."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import polars as pl
import pytest

import springtide as st
from springtide.runtime.engine import Engine, Options
from springtide.runtime.failpoints import PLACES
from springtide.runtime.inprocess import run
from springtide.state.checkpoint import KEEP
from springtide.testing import FAIL, PAUSE, at, compare, idle, streams, table
from tests.unit.runtime import crashing
from tests.unit.runtime.crashing import SCHEMA, numbers


def stop_after(epoch: int) -> Callable[[Engine], bool]:
    """Say stop once an epoch is done."""
    return lambda engine: engine.manifest.epoch < epoch


# ── epochs and restarts ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_is_checkpointed_at_one_degree_and_resumed_at_another(tmp_path: Path) -> None:
    """SC-4, ST-1: 2 → 5 → 1 → 3, one epoch each, and the same rows."""
    source = st.source("numbers", st.memory(numbers(40), schema=SCHEMA), ts="ts")
    sink = st.memory_sink()
    per_key = source.aggregate(by="key", window=st.sliding("9s", every="2s"), total=st.sum("x"), all=st.collect("x"))
    query = st.Query("resumed", per_key.to(sink))
    for epoch, instances in enumerate([2, 5, 1, 3]):
        engine = run(query.plan(), tmp_path, Options(instances, rows_per_epoch=10), between=stop_after(epoch))
    assert engine.manifest.ended
    assert engine.storage.lease.generation == 4
    compare(sink.rows(), query.run_reference().rows())


def test_a_start_publishes_nothing_again_after_a_clean_stop(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    source = st.source("numbers", st.memory(numbers(30), schema=SCHEMA), ts="ts")
    query = st.Query("again", source.to(st.callback(lambda rows, epoch: seen.append((epoch, rows.height)))))
    run(query.plan(), tmp_path, Options(rows_per_epoch=10), between=stop_after(1))
    run(query.plan(), tmp_path, Options(rows_per_epoch=10))
    run(query.plan(), tmp_path, Options(rows_per_epoch=10))
    assert seen == [(0, 10), (1, 10), (2, 10)]


def test_counts_of_late_and_rejected_rows_go_on_over_restarts(tmp_path: Path) -> None:
    rows = [
        *table("ts key x\n 5s A 1\n 1s A 2\n PAUSE\n 6s A 3"),
        {"ts": at("7s"), "x": "text"},
        PAUSE,
        *table("ts key x\n 2s B 4\n null B 5\n 9s A 6"),
    ]
    source = st.source("numbers", st.memory(rows, schema=SCHEMA), ts="ts")
    late, rejected = st.memory_sink(), st.memory_sink()
    query = st.Query("sides", source.late.to(late), source.rejected.to(rejected), source.to(st.memory_sink()))
    for epoch in range(3):
        engine = run(query.plan(), tmp_path, between=stop_after(epoch))
    state = engine.manifest.sources["numbers"]
    assert (state.accepted, state.late, state.rejected) == (3, 2, 2)
    assert late.rows()["x"].to_list() == [2, 4]
    assert rejected.rows()["position"].to_list() == [3, 5]
    assert rejected.rows()["reason"].to_list() == ["column 'x': 'text' is not i64", "the time 'ts' is null"]


def test_files_do_not_pile_up(tmp_path: Path) -> None:
    """SE-1: what no manifest that is kept speaks of is removed, and small segments are merged."""
    source = st.source("numbers", st.memory(numbers(120), schema=SCHEMA), ts="ts")
    per_key = source.aggregate(by="key", window=st.sliding("1m", every="1s"), total=st.sum("x"), low=st.min("x"))
    sink = st.memory_sink()
    query = st.Query("tidy", per_key.to(sink))
    counts = []

    def count(engine: Engine) -> bool:
        counts.append(sum(1 for f in tmp_path.rglob("*") if f.is_file()))
        assert len(list((tmp_path / "manifests").glob("*"))) <= KEEP
        return True

    run(query.plan(), tmp_path, Options(2, rows_per_epoch=2), between=count)
    assert max(counts[30:]) <= 1.5 * max(counts[15:30])
    compare(sink.rows(), query.run_reference().rows())


def test_an_idle_stream_holds_the_others_back_until_idle_after(tmp_path: Path) -> None:
    """SC-6: the decision is in the manifest; a restart goes on with it, and it is what a dummy in the input would have been.

    clock        0s      10s     20s     30s            idle_after 15s
    busy         1s,12s  │ 15s   │ 25s   │ …
    quiet        2s      │       │       │ 3s: late, the stream's time is 15s by now
    """
    quiet, busy = (
        table("ts key x\n 2s A 1"),
        table("ts key x\n 1s B 2\n 12s B 3\n PAUSE\n 15s B 4\n PAUSE\n 25s B 5\n PAUSE"),
    )
    rows = streams(
        busy=[*busy, *table("ts key x\n 31s B 7")],
        quiet=[*quiet, PAUSE, PAUSE, PAUSE, *table("ts key x\n 3s A 6\n 32s A 8")],
    )
    source = st.source("numbers", st.memory(rows, schema=SCHEMA), ts="ts", idle_after="15s")
    sink, late = st.memory_sink(), st.memory_sink()
    counted = source.aggregate(window=st.tumbling("10s"), n=st.count())
    query = st.Query("idle", counted.to(sink, name="counted"), source.late.to(late, name="late"))
    now = [0.0]

    def tick(engine: Engine) -> bool:
        now[0] = 10.0 * (engine.manifest.epoch + 1)
        return True

    options = Options(2, timer=lambda: now[0])
    half = run(query.plan(), tmp_path, options, between=lambda e: tick(e) and stop_after(2)(e))
    assert half.manifest.sources["numbers"].times == {"busy": 25_000_000, "quiet": 15_000_000}
    assert sink.rows()["n"].to_list() == [2], (
        "the window [0, 10) was given though nothing more came of the quiet stream"
    )
    run(query.plan(), tmp_path, options, between=tick)
    rows["quiet"] = [*quiet, PAUSE, PAUSE, idle(to="15s"), *table("ts key x\n 3s A 6\n 32s A 8")]
    expected = query.run_reference({"numbers": rows})
    compare(sink.rows(), expected.rows("counted"))
    compare(late.rows(), expected.rows("late"))
    assert late.rows()["x"].to_list() == [6]


def test_a_failure_in_the_input_happens_once(tmp_path: Path) -> None:
    rows = [*table("ts key x\n 1s A 1"), FAIL, *table("ts key x\n 12s A 2")]
    sink = st.memory_sink()
    source = st.source("numbers", st.memory(rows, schema=SCHEMA), ts="ts")
    query = st.Query("fails", source.aggregate(window=st.tumbling("10s"), n=st.count()).to(sink))
    with pytest.raises(st.SpringtideError, match="a test wanted the run to fail here"):
        run(query.plan(), tmp_path)
    assert not list((tmp_path / "manifests").glob("*")), "the epoch is not committed"
    run(query.plan(), tmp_path)
    compare(sink.rows(), query.run_reference().rows())


def test_mistakes_of_scaling_are_named(tmp_path: Path) -> None:
    source = st.source("numbers", st.memory(numbers(4), schema=SCHEMA), ts="ts")
    query = st.Query(
        "scaled", source.aggregate(window=st.tumbling("10s"), n=st.count(), name="sums").to(st.memory_sink())
    )
    with pytest.raises(st.QueryError, match=r"step sum \(unknown\): .*; did you mean 'sums'"):
        run(query.plan(), tmp_path, Options({"sum": 2}))
    with pytest.raises(st.QueryError, match=r"sums \(subquery\): .*0 instances.*; give at least 1"):
        run(query.plan(), tmp_path, Options({"sums": 0}))
    assert run(query.plan(), tmp_path, Options({"sums": 3})).manifest.ended, "the checkpoint is still good"


# ── dying ─────────────────────────────────────────────────────────────────────────────────────────────────────────
#
# The child is forked from a clean process that has imported Springtide and run nothing: that takes 20 ms, and no thread is lost.

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["pytest", "pandas", crashing.__name__])  # PyArrow imports pandas to tell a time


def in_child(folder: Path, instances: int = 2, fail: str | None = None, kill_after: float | None = None) -> int | None:
    """Run the query in a process of its own; give its exit code."""
    child = PROCESSES.Process(target=crashing.run_files, args=(folder, instances, fail))
    child.start()
    child.join(kill_after)
    if child.exitcode is None:
        child.kill()
    child.join()
    return child.exitcode


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    crashing.write_input(tmp_path)
    return tmp_path


@pytest.mark.parametrize("epoch", [1, 2, 4, 6])
@pytest.mark.parametrize("place", PLACES)
def test_a_process_killed_at_any_step_of_a_commit_leaves_every_row_once(folder: Path, place: str, epoch: int) -> None:
    """SE-1: segments and outbox → manifest → sinks → clean-up, dead at each of them, in the first, a later and the last epoch."""
    visit = 3 * (epoch - 1) + 2 if place == "during-publish" else epoch  # between the second and the third sink
    assert in_child(folder, fail=f"{place}:{visit}") == -signal.SIGKILL
    assert in_child(folder, instances=5) == 0
    crashing.every_row_is_there_once(folder)


def test_a_process_that_dies_again_and_again_comes_to_the_end(folder: Path) -> None:
    """Every start dies at another place; each gets a little further, the last ones with nothing left to do."""
    codes = [in_child(folder, 1 + i % 4, f"{PLACES[i % len(PLACES)]}:{1 + i % 2}") for i in range(18)]
    assert codes.count(-signal.SIGKILL) >= len(PLACES)
    assert in_child(folder) == 0
    crashing.every_row_is_there_once(folder)


def kill_at_random(folder: Path, random: Random, starts: int, share: float = 1.0) -> int:
    """Kill the process at random moments in a share of its time; give how many starts did not come to their end."""
    begin = time.perf_counter()
    (folder / "trial").mkdir()
    (folder / "trial" / "in").symlink_to(folder / "in")
    assert in_child(folder / "trial") == 0
    whole = time.perf_counter() - begin
    killed = sum(
        in_child(folder, random.randint(1, 5), None, random.uniform(0, whole * share)) != 0 for _ in range(starts)
    )
    assert in_child(folder) == 0
    crashing.every_row_is_there_once(folder)
    return killed


def test_a_process_killed_at_random_moments_leaves_every_row_once(folder: Path) -> None:
    for halvings in range(6):  # on a machine that is suddenly faster than in the trial, the moments come too late
        again = folder / str(halvings)
        again.mkdir()
        (again / "in").symlink_to(folder / "in")
        if kill_at_random(again, Random(1), starts=6, share=0.5**halvings) > 0:
            return
    raise AssertionError("no start was killed")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
def test_a_process_killed_at_many_random_moments_leaves_every_row_once(folder: Path, seed: int) -> None:
    kill_at_random(folder, Random(seed), starts=6)


def test_a_users_aggregate_begins_with_its_init(tmp_path: Path) -> None:
    """The reference merged it in, the engine did not."""
    rows = [{"ts": at(f"{i}s"), "x": i} for i in range(8)]
    source = st.source("s", st.memory(rows, schema={"ts": st.TIME, "x": pl.Int64}), ts="ts")
    own = st.user_aggregate(
        init={"n": 100, "text": "none"},
        add={"n": pl.col("x").sum(), "text": pl.col("x").max().cast(pl.String)},
        merge={"n": pl.col("n").sum(), "text": pl.col("text").max()},
        finish=pl.format("{} {}", "n", "text"),
    )
    for window in (st.sliding("4s", every="2s"), st.session("5s"), st.last_n(3)):
        sink = st.memory_sink()
        query = st.Query("q", source.aggregate(window=window, own=own, n=st.count()).to(sink, name="out"))
        run(query.plan(), tmp_path / str(window), Options(2, 3))
        assert sink.rows()["own"].str.starts_with("1").all()
        compare(sink.rows(), query.run_reference().rows("out"))
