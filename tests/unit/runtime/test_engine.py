"""The driver's part: idle streams, commands, maps, and what is kept on disk. Time is a number that the test sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.connectors import Read, Slice, Source, Take
from springtide.elastic.snapshot import Snapshot
from springtide.query.connectors import Rows
from springtide.query.types import END_OF_TIME
from springtide.runtime.engine import Engine, Options
from springtide.runtime.identity import identity
from springtide.runtime.inprocess import execute
from springtide.state.checkpoint import KEEP, Checkpoint
from springtide.state.control import Command, send

COLUMNS = pl.Schema({"k": pl.String(), "t": pl.Int64()})


@dataclass(eq=False)
class Feed(Source):
    """A source with physical streams to which the test adds rows as it goes."""

    rows: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    closed: bool = False
    positions: bool = True

    def schema(self) -> pl.Schema:
        return COLUMNS

    def describe(self) -> str:
        return "feed"

    def read_all(self) -> Mapping[str, Rows]:
        return {s: pl.DataFrame(rows, schema=COLUMNS, orient="row") for s, rows in self.rows.items()}

    def add(self, stream: str, *rows: tuple[str, int]) -> None:
        self.rows.setdefault(stream, []).extend(rows)

    def take(self, position: Any, limit: int, ts: str | None) -> Take:
        done = dict(position or {})
        slices = []
        for stream, rows in self.rows.items():
            first = done.get(stream, 0)
            if new := rows[first : first + limit]:
                slices.append(Slice(stream, first, len(new), new))
                done[stream] = first + len(new)
        backlog = sum(len(rows) - done.get(s, 0) for s, rows in self.rows.items())
        ended = self.closed and not backlog
        times = dict.fromkeys(self.rows, END_OF_TIME) if ended else {}
        return Take(tuple(slices), done or position, times, tuple(self.rows), ended, backlog)

    def upto(self, position: Any) -> Feed:
        return replace(self, rows={s: rows[: position.get(s, 0)] for s, rows in self.rows.items()}, closed=True)

    def read(self, part: Slice) -> Read:
        return Read(pl.LazyFrame(part.data, schema=COLUMNS, orient="row"))


class Clock:
    """A clock that stands where it is put."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """An engine on a feed, with a clock; `bench.out` is what came out so far."""

    def __init__(self, root: Path, *, idle_after: str | None = None, instances: Any = 1, limit: int = 1000) -> None:
        self.feed, self.clock, self.sink = Feed(), Clock(), st.memory_sink()
        source = st.source("feed", self.feed, ts="t", idle_after=idle_after)
        counts = source.aggregate(by="k", window=st.tumbling("10us"), n=st.count(), name="counts")
        self.query = st.Query("bench", counts.to(self.sink, name="out"))
        self.root, self.options = root, Options(instances, limit, clock=self.clock, timer=self.clock)
        self.engine = self.start()

    def start(self) -> Engine:
        plan = self.query.plan(buckets=16)
        return Engine(plan, Checkpoint(self.root), lambda epoch: execute(plan, epoch), self.options)

    def restart(self) -> None:
        self.engine.close()
        self.engine = self.start()

    def run(self) -> list[tuple[int, str, int]]:
        """Run epochs while there is work; give the windows that came."""
        before = self.sink.rows().height
        while not self.engine.manifest.ended and self.engine.has_work():
            self.engine.run()
        new = self.sink.rows()[before:]
        if not new.height:
            return []
        return sorted(new.select(pl.col("window_start").cast(pl.Int64), "k", "n").rows())

    @property
    def times(self) -> dict[str, int]:
        return self.engine.manifest.sources["feed"].times

    @property
    def notes(self) -> list[str]:
        return [text for _, text in self.engine.events]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "ckpt")
    yield made
    made.engine.close()


@pytest.fixture
def idling(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "ckpt", idle_after="5s")
    yield made
    made.engine.close()


# ── idle streams ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_quiet_stream_holds_the_others_back_until_it_is_idle(idling: Bench) -> None:
    #   clock   0        4         5
    #   a       1  25              ·
    #   b       3                  idle: moved to 25
    idling.feed.add("a", ("x", 1), ("x", 25))
    idling.feed.add("b", ("y", 3))
    assert idling.run() == []
    assert idling.times == {"a": 25, "b": 3}
    idling.clock.now = 4
    idling.feed.add("a", ("x", 26))
    assert idling.run() == []
    idling.clock.now = 5
    assert idling.run() == [(0, "x", 1), (0, "y", 1)]
    assert idling.times == {"a": 26, "b": 26}
    assert not idling.engine.has_work()


def test_rows_that_come_after_all_are_late(idling: Bench) -> None:
    idling.feed.add("a", ("x", 25))
    idling.feed.add("b", ("y", 3))
    idling.run()
    idling.clock.now = 4
    idling.feed.add("a", ("x", 26))
    idling.run()
    idling.clock.now = 6
    idling.run()
    idling.feed.add("b", ("y", 4), ("y", 26))
    idling.run()
    assert idling.engine.manifest.sources["feed"].late == 1
    idling.feed.closed = True
    assert idling.run() == [(20, "x", 2), (20, "y", 1)]


def test_a_stream_with_rows_is_awake_again(idling: Bench) -> None:
    idling.feed.add("a", ("x", 25))
    idling.feed.add("b", ("y", 3))
    idling.run()
    for now in (4, 8, 12):
        idling.clock.now = now
        idling.feed.add("a", ("x", 25 + now))
        idling.feed.add("b", ("y", 3 + now))
        idling.run()
    assert idling.times == {"a": 37, "b": 15}


def test_when_all_are_idle_none_holds_another_back(idling: Bench) -> None:
    """Whoever fell silent first, all go to the greatest time: else it would depend on who looked when. No window closes that nobody has passed."""
    idling.feed.add("a", ("x", 25))
    idling.feed.add("b", ("y", 3))
    idling.run()
    idling.clock.now = 100
    assert idling.engine.has_work()
    assert idling.run() == [(0, "y", 1)]
    assert idling.times == {"a": 25, "b": 25}
    assert not idling.engine.has_work()


def test_without_idle_after_everybody_is_waited_for(bench: Bench) -> None:
    bench.feed.add("a", ("x", 25))
    bench.feed.add("b", ("y", 3))
    bench.run()
    bench.clock.now = 1e9
    bench.feed.add("a", ("x", 99))
    assert bench.run() == []
    assert bench.times == {"a": 99, "b": 3}


def test_after_a_restart_idleness_is_counted_anew(idling: Bench) -> None:
    idling.feed.add("a", ("x", 25))
    idling.feed.add("b", ("y", 3))
    idling.run()
    idling.clock.now = 100
    idling.restart()
    idling.feed.add("a", ("x", 26))
    assert idling.run() == []
    idling.clock.now = 104
    idling.feed.add("a", ("x", 27))
    assert idling.run() == []
    idling.clock.now = 106
    assert idling.run() == [(0, "y", 1)]


# ── commands ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_scaling_takes_effect_with_the_next_epoch_and_changes_no_row(bench: Bench) -> None:
    bench.feed.add("a", *((f"k{i}", i % 7) for i in range(7)))
    bench.run()
    send(bench.root, Command("scale", {"step": "counts", "instances": 3}))
    assert not bench.engine.take_commands()
    assert bench.engine.manifest.maps["counts"].instances == 1
    bench.feed.closed = True
    assert bench.run() == [(0, f"k{i}", 1) for i in range(7)]
    assert (bench.engine.manifest.maps["counts"].instances, bench.engine.manifest.maps["counts"].version) == (3, 1)
    assert bench.notes == ["scaled counts: 1 → 3 instances"]


def test_a_command_outlives_a_crash_before_its_epoch(bench: Bench) -> None:
    """SC-9: a change that was asked for and did not take effect yet is found again by the next run."""
    bench.feed.add("a", ("x", 1))
    bench.run()
    send(bench.root, Command("scale", {"step": "counts", "instances": 3}))
    bench.engine.take_commands()
    bench.restart()
    assert bench.engine.maps["counts"].instances == 1
    bench.engine.take_commands()
    bench.feed.add("a", ("x", 2))
    bench.run()
    assert bench.engine.manifest.maps["counts"].instances == 3
    assert list((bench.root / "control").glob("*.json")) == []


def test_buckets_are_moved_by_hand(bench: Bench) -> None:
    bench.engine.scale("counts", 4)
    send(bench.root, Command("move", {"step": "counts", "buckets": [0, 1, 5], "to": 3}))
    bench.engine.take_commands()
    assert [bench.engine.maps["counts"].owners[b] for b in (0, 1, 5)] == [3, 3, 3]
    assert bench.notes[-1] == "moved counts: 3 of 16 buckets"
    for wrong, why in (
        ((0, 4), "there is no instance 4"),
        ((16, 0), "there is no bucket 16"),
        ((-1, 0), "no bucket -1"),
    ):
        with pytest.raises(st.QueryError, match=why):
            bench.engine.reconfiguring.move("counts", [wrong[0]], wrong[1])
    with pytest.raises(st.QueryError, match="no bucket is named"):
        bench.engine.reconfiguring.move("counts", [], 0)


def test_the_load_is_evened_out_by_hand(bench: Bench) -> None:
    """The rows of the last epoch say what is heavy; a stateless prefix has no buckets to move."""
    bench.feed.add("a", *((f"k{i % 5}", i) for i in range(50)))
    bench.engine.scale("counts", 2)
    bench.engine.reconfiguring.move("counts", list(range(16)), 0)
    bench.run()
    assert bench.engine.manifest.metrics.subqueries["counts"].rows_in[1] == 0
    send(bench.root, Command("rebalance", {"step": "counts"}))
    bench.engine.take_commands()
    assert set(bench.engine.maps["counts"].owners) == {0, 1}
    bench.feed.add("a", *((f"k{i % 5}", 50 + i) for i in range(50)))
    bench.run()
    assert min(bench.engine.manifest.metrics.subqueries["counts"].rows_in) > 0
    with pytest.raises(st.QueryError, match="a stateless prefix has no buckets"):
        bench.engine.reconfiguring.rebalance("feed")


def test_a_change_is_remembered_with_what_it_cost(bench: Bench) -> None:
    bench.feed.add("a", ("x", 1))
    bench.run()
    bench.engine.scale("counts", 2)
    bench.feed.add("a", ("y", 2))
    bench.run()
    decided, done = bench.engine.history.read("decisions")
    assert (decided["kind"], decided["subquery"], decided["reason"]) == ("scale", "counts", "asked for by hand")
    assert done["id"] == decided["id"]
    assert done["in_epoch"] == bench.engine.manifest.epoch
    assert done["bytes_moved"] >= 0


def test_every_epoch_leaves_a_snapshot(bench: Bench) -> None:
    bench.feed.add("a", *((f"k{i}", i) for i in range(20)))
    bench.run()
    (record,) = bench.engine.history.read("snapshots")
    snapshot = Snapshot.from_json(record)
    assert snapshot == bench.engine.snapshot
    counts = snapshot.subqueries["counts"]
    assert sum(counts.bucket_rows) == sum(counts.rows_in) == 20
    assert sum(counts.bucket_bytes) == pytest.approx(counts.state_bytes, rel=0.01)
    assert snapshot.sources["feed"].rows == 20
    assert snapshot.latency is not None


def test_a_stateless_prefix_is_scaled_too(bench: Bench) -> None:
    send(bench.root, Command("scale", {"step": "feed", "instances": 2}))
    bench.engine.take_commands()
    bench.feed.add("a", ("x", 1))
    bench.run()
    assert bench.engine.manifest.maps["feed"].instances == 2


def test_scaling_to_what_it_is_changes_nothing(bench: Bench) -> None:
    before = bench.engine.maps["counts"]
    bench.engine.scale("counts", 1)
    assert bench.engine.maps["counts"] is before
    assert bench.notes == []


def test_there_are_no_more_instances_than_buckets(bench: Bench) -> None:
    bench.engine.scale("counts", 1000)
    assert bench.engine.maps["counts"].instances == 16


def test_the_sinks_name_means_its_subquery(bench: Bench) -> None:
    bench.engine.scale("out", 2)
    assert bench.engine.maps["counts"].instances == 2


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"step": "cuonts", "instances": 2}, "did you mean 'counts'?"),
        ({"step": "counts", "instances": 0}, "0 instances"),
        ({"step": "counts", "instances": -1}, "-1 instances"),
        ({"step": "counts", "instances": "many"}, "many"),
        ({"step": "counts"}, "instances"),
        ({"step": "counts", "instances": None}, ""),
        ({"step": "counts", "instances": [2]}, ""),
        ({}, "step"),
    ],
)
def test_a_command_that_makes_no_sense_is_refused_and_noted(bench: Bench, options: dict[str, Any], reason: str) -> None:
    send(bench.root, Command("scale", options))
    assert not bench.engine.take_commands()
    (note,) = bench.notes
    assert note.startswith("the command 'scale' was refused: ")
    assert reason in note
    assert bench.engine.maps["counts"].instances == 1


def test_an_unknown_command_is_noted(bench: Bench) -> None:
    bench.clock.now = 7.5
    send(bench.root, Command("explode"))
    assert not bench.engine.take_commands()
    assert [(at, note.split(" was ")[0]) for at, note in bench.engine.events] == [(7.5, "the command 'explode'")]


def test_stop_is_heard_among_others(bench: Bench) -> None:
    send(bench.root, Command("scale", {"step": "counts", "instances": 2}))
    send(bench.root, Command("stop"))
    send(bench.root, Command("scale", {"step": "counts", "instances": 4}))
    assert bench.engine.take_commands()
    assert bench.engine.maps["counts"].instances == 4
    assert not bench.engine.take_commands()


def test_only_the_last_notes_are_kept(bench: Bench) -> None:
    for i in range(150):
        bench.engine.note(str(i))
    assert bench.notes == [str(i) for i in range(50, 150)]


# ── starting ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_instances_by_step_and_those_of_before(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "ckpt", instances={"counts": 3})
    bench.feed.add("a", ("x", 1))
    bench.run()
    assert {n: m.instances for n, m in bench.engine.manifest.maps.items()} == {"feed": 1, "counts": 3}
    bench.options = Options({"feed": 2}, clock=bench.clock, timer=bench.clock)
    bench.restart()
    assert {n: m.instances for n, m in bench.engine.maps.items()} == {"feed": 2, "counts": 3}
    bench.engine.close()


def test_an_unknown_step_leaves_the_checkpoint_free(tmp_path: Path) -> None:
    with pytest.raises(st.QueryError, match="did you mean 'counts'"):
        Bench(tmp_path / "ckpt", instances={"cuonts": 3})
    Bench(tmp_path / "ckpt").engine.close()


def test_a_changed_query_is_refused(bench: Bench) -> None:
    bench.feed.add("a", ("x", 1))
    bench.run()
    bench.engine.close()
    source = st.source("feed", bench.feed, ts="t")
    other = source.aggregate(by="k", window=st.tumbling("20us"), n=st.count(), name="counts")
    bench.query = st.Query("bench", other.to(bench.sink, name="out"))
    with pytest.raises(st.CheckpointError, match="another form of this query: step counts"):
        bench.start()


def test_where_rows_come_from_and_go_to_is_not_part_of_the_identity() -> None:
    def query(path: str) -> st.Query:
        source = st.source("s", st.csv(path, schema={"x": pl.Int64}))
        return st.Query("q", source.to(st.parquet_sink(path), name="out"))

    assert identity(query("a").plan()) == identity(query("b").plan())


# ── what an epoch leaves behind ───────────────────────────────────────────────────────────────────────────────────────


def test_admission_a_burst_makes_more_epochs(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "ckpt", limit=10)
    bench.feed.add("a", *(("x", i) for i in range(35)))
    bench.feed.closed = True
    backlogs = []
    while not bench.engine.manifest.ended:
        assert bench.engine.has_work()
        backlogs.append(bench.engine.run().metrics.backlog)
    assert backlogs == [25, 15, 5, 0]
    bench.engine.close()


def test_files_stay_few(bench: Bench) -> None:
    """Manifests, segments and outbox do not grow with the number of epochs."""
    counts = []
    for i in range(60):
        bench.feed.add("a", *((f"k{n}", 10 * i + n) for n in range(5)))
        bench.run()
        files = [f for f in bench.root.rglob("*") if f.is_file()]
        counts.append(len(files))
    assert len(bench.engine.checkpoint.epochs()) == KEEP
    assert max(counts[30:]) <= max(counts[15:30])
    named = set().union(*(m.files() for m in bench.engine.checkpoint.history()))
    assert {
        str(f.relative_to(bench.root)) for f in (bench.root / "state").rglob("*.arrow")
    } == named | bench.engine.storage.leaving


def test_what_a_dead_run_left_is_swept(bench: Bench) -> None:
    bench.feed.add("a", ("x", 1))
    bench.run()
    stray = bench.root / "state" / "counts" / "stray.arrow"
    stray.touch()
    bench.restart()
    bench.engine.begin()
    assert not stray.exists()
    bench.feed.closed = True
    assert bench.run() == [(0, "x", 1)]


def test_counts_and_metrics(bench: Bench) -> None:
    bench.feed.add("a", ("x", 5), ("x", 3), ("y", 6))
    assert bench.engine.has_work()
    manifest = bench.engine.run()
    state = manifest.sources["feed"]
    assert (state.accepted, state.late, state.rejected) == (2, 1, 0)
    assert manifest.metrics.rows == 3
    assert set(manifest.metrics.subqueries) == {"feed", "counts"}
    assert not manifest.ended
