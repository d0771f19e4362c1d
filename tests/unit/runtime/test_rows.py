"""Rows that Spark reads, through the real tasks and without a JVM: new streams, silent ones, split ones, repeated micro-batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import springtide as st
from springtide.exchange import gate
from springtide.runtime import inprocess
from springtide.runtime.engine import Batch, Engine, Options
from springtide.runtime.epoch import Epoch, TaskReport
from springtide.runtime.spark import records
from springtide.runtime.spark.rows import row_task, split
from springtide.runtime.spark.session import named
from springtide.runtime.task_reports import read_task_reports
from springtide.runtime.tasks import REPORT
from springtide.sources.spark import SparkSource
from springtide.state.checkpoint import Checkpoint
from springtide.state.manifest import Manifest
from springtide.testing import at, compare, idle

SCHEMA = pl.Schema({"topic": pl.String(), "partition": pl.Int64(), "offset": pl.Int64(), "ts": st.TIME})
Rows = Sequence[tuple[Any, ...]]


def rows(partition: int, *seconds: int, topic: str = "x", first: int = 0) -> list[tuple[Any, ...]]:
    return [(topic, partition, first + i, at(f"{s}s")) for i, s in enumerate(seconds)]


def given(made: Rows) -> list[dict[str, Any]]:
    return [dict(zip(SCHEMA, row, strict=True)) for row in made]


class Machine:
    """An engine whose micro-batches come from a test: each is a list of tasks, each with its rows."""

    def __init__(
        self, folder: Path, *, stream: Sequence[str] = ("partition",), position: str | None = "offset", **more: Any
    ) -> None:
        connector = SparkSource(None, SCHEMA, tuple(stream), position)
        source = st.source("rows", connector, ts="ts", **more)
        counts = source.aggregate(by="partition", window=st.tumbling("10s"), n=st.count(), name="counts")
        late = source.late.to(st.memory_sink(), name="late")
        self.query = st.Query("rows", counts.to(st.memory_sink(), name="out"), late)
        self.plan, self.now, self.number, self.tasks = self.query.plan(buckets=4), 0.0, -1, list[Rows]()
        self.reports: list[TaskReport] = []
        options = Options(2, timer=lambda: self.now, clock=lambda: 0.0)
        self.engine = Engine(self.plan, Checkpoint(folder), self._execute, options)
        self.engine.begin()

    def batch(self, *tasks: Rows) -> Manifest:
        self.tasks, self.number = list(tasks), self.number + 1
        self.engine.has_work()
        return self.engine.run(Batch(self.number))

    def quiet(self, seconds: float) -> bool:
        """Let time pass in which Spark finds nothing; run an epoch if there is anything to do."""
        self.now += seconds
        self.engine.intake.nothing_new()
        self.tasks = []
        due = self.engine.has_work()
        if due:
            self.engine.run()
        return due

    def sink(self, name: str) -> pl.DataFrame:
        found: pl.DataFrame = self.query.step(name).connector.rows()  # type: ignore[attr-defined]
        return found

    def _execute(self, epoch: Epoch) -> list[TaskReport]:
        tasks = [_batches(task) for task in self.tasks]
        items = [i for number, task in enumerate(tasks) for i in row_task(self.plan, epoch, number, task)]
        self.reports, self.epoch = inprocess.execute(self.plan, epoch, items), epoch
        return self.reports


def _batches(task: Rows) -> Iterator[pa.RecordBatch]:
    if task:
        struct = pl.DataFrame(task, schema=SCHEMA, orient="row").to_struct("s0").to_arrow()
        yield pa.RecordBatch.from_arrays([struct], names=["s0"])


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Callable[..., Machine]]:
    made: list[Machine] = []

    def make(**more: Any) -> Machine:
        made.append(Machine(tmp_path / f"ckpt{len(made)}", **more))
        return made[-1]

    yield make
    for one in made:
        one.engine.close()


# ── streams that come later ───────────────────────────────────────────────────────────────────────────────────────


def test_a_stream_first_seen_later_begins_at_the_time_of_its_source(machine: Callable[..., Machine]) -> None:
    """Time does not go back, and what comes too late says so.

    micro-batch    0        1              2
    partition 0    1  12    25
    partition 1             3 (late) 14    40
                            ↑ begins at 12, the time of the source before this micro-batch
    """
    one = machine()
    one.batch(rows(0, 1, 12))
    assert one.sink("out")["n"].to_list() == [1], "the first window is closed"
    manifest = one.batch(rows(0, 25, first=2), rows(1, 3, 14))
    assert manifest.sources["rows"].times == {"0": at_(25), "1": at_(14)}
    assert (manifest.sources["rows"].accepted, manifest.sources["rows"].late) == (4, 1)
    one.batch(rows(0, 60, first=3), rows(1, 60, first=2))
    expected = one.query.run_reference(
        {"rows": {"0": given(rows(0, 1, 12, 25, 60)), "1": [idle(to="12s"), *given(rows(1, 3, 14, 60))]}}, bounded=False
    )
    compare(one.sink("out"), expected.rows("out"))
    compare(one.sink("late"), expected.rows("late"))
    assert expected.rows("late").height == 1
    assert one.sink("out")["n"].sum() + 2 == one.engine.manifest.sources["rows"].accepted, "two are in open windows"


def test_a_stream_that_an_input_shows_later_does_not_take_time_back() -> None:
    """The same for sources that are read in Python, and in one place for all: the gate."""
    assert gate.later({"a": {"0": 12}}, [{"a": {"1": 3}}]) == {"a": {"0": 12, "1": 12}}
    assert gate.later({"a": {"0": 12, "1": 9}}, [{"a": {"2": 10}}, {"a": {"3": 1}}])["a"] == {
        "0": 12,
        "1": 9,
        "2": 10,
        "3": 9,
    }
    assert gate.later({}, [{"a": {"1": 3}}]) == {"a": {"1": 3}}


def at_(seconds: int) -> int:
    return int(at(f"{seconds}s").timestamp()) * 1_000_000


# ── streams that fall silent ──────────────────────────────────────────────────────────────────────────────────────


def test_a_silent_stream_is_idle_and_holds_nothing_back(machine: Callable[..., Machine]) -> None:
    """`idle_after`, measured from micro-batches: between them, and in the next one."""
    one = machine(idle_after="5s")
    one.batch(rows(0, 1), rows(1, 2))
    one.now = 4.0
    one.batch(rows(0, 35, first=1))
    assert not one.quiet(0.5), "partition 1 is silent for 4.5 s"
    assert one.sink("out").height == 0
    assert one.quiet(1), "now for 5.5 s: an epoch without a micro-batch moves it on"
    assert one.engine.manifest.sources["rows"].times == {"0": at_(35), "1": at_(35)}
    assert one.sink("out")["n"].to_list() == [1, 1]
    assert (one.engine.manifest.batch, one.engine.manifest.epoch) == (1, 2)
    late = one.batch(rows(1, 34, 36, first=1)).sources["rows"].late
    assert late == 1


def test_where_all_are_idle_none_holds_another_back(machine: Callable[..., Machine]) -> None:
    one = machine(idle_after="5s")
    one.batch(rows(0, 1, 35), rows(1, 2))
    assert one.quiet(6)
    assert one.engine.manifest.sources["rows"].times == {"0": at_(35), "1": at_(35)}
    assert not one.quiet(6)


def test_a_long_epoch_is_nobodys_silence(machine: Callable[..., Machine]) -> None:
    """What came while a micro-batch was at work is in the next one: nobody knows better before."""
    one = machine(idle_after="5s")
    one.batch(rows(0, 1), rows(1, 2))
    one.batch(rows(0, 35, first=1))
    one.now = 60.0  # that one took a minute
    manifest = one.batch(rows(1, 3, 4, first=1))
    assert manifest.sources["rows"].late == 0


def test_a_source_that_never_had_rows_can_be_idle(tmp_path: Path) -> None:
    """Nobody knows its physical streams yet; its time moves on all the same, and the first stream begins there."""
    connector = SparkSource(None, SCHEMA, ("partition",), None)
    silent = st.source("silent", connector, ts="ts", idle_after="5s")
    native = st.source("native", st.memory(given(rows(0, 1, 12, 25)), schema=dict(SCHEMA)), ts="ts")
    counts = st.union(silent, native).aggregate(by="partition", window=st.tumbling("10s"), n=st.count(), name="counts")
    query = st.Query("rows", counts.to(st.memory_sink(), name="out"))
    plan, now = query.plan(buckets=4), [0.0]
    options = Options(2, rows_per_epoch=2, timer=lambda: now[0], clock=lambda: 0.0)
    engine = Engine(plan, Checkpoint(tmp_path), lambda epoch: inprocess.execute(plan, epoch), options)
    engine.begin()
    sink = query.step("out").connector
    assert engine.has_work()
    engine.run()
    now[0] = 6.0
    engine.intake.nothing_new()
    assert engine.has_work()
    assert engine.run().sources["silent"].times == {gate.UNSEEN: at_(12)}
    assert sink.rows()["n"].to_list() == [1]  # type: ignore[attr-defined]
    engine.close()


# ── which micro-batch it is ───────────────────────────────────────────────────────────────────────────────────────


def written(root: Path, number: int, text: str) -> str:
    path = root / "spark" / "offsets" / str(number)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    found = records.digest(root / "spark", number)
    assert found is not None
    return found


def test_only_the_last_micro_batch_may_be_repeated(tmp_path: Path) -> None:
    ours = written(tmp_path, 5, "v1 …")
    manifest = Manifest(epoch=9, generation=1, batch=5, offsets=ours)
    records.check(tmp_path, tmp_path / "spark", manifest)
    assert records.is_taken(tmp_path, manifest, 5, ours), "a crash came before Spark's own commit"
    assert not records.is_taken(tmp_path, manifest, 6, "another")
    for number, offsets in ((4, ours), (0, "new"), (5, "another"), (7, "new")):
        with pytest.raises(st.CheckpointError, match=r"up to 5, .*; .*folder spark"):
            records.is_taken(tmp_path, manifest, number, offsets)
    empty = Manifest(epoch=-1, generation=1)
    assert not records.is_taken(tmp_path, empty, 0, "new")
    with pytest.raises(st.CheckpointError, match=r"has taken none of Spark's micro-batches, .* 3"):
        records.is_taken(tmp_path, empty, 3, "new")
    old = Manifest(epoch=9, generation=1, batch=5)  # of a version that wrote no digests
    assert records.is_taken(tmp_path, old, 5, ours)
    records.check(tmp_path, tmp_path / "spark", old)


def test_records_of_spark_that_are_gone_or_of_another_are_refused_at_the_start(tmp_path: Path) -> None:
    manifest = Manifest(epoch=9, generation=1, batch=0, offsets="of before")
    with pytest.raises(st.CheckpointError, match=r"up to 0, .*Spark's records .* gone; .*folder spark"):
        records.check(tmp_path, tmp_path / "spark", manifest)
    written(tmp_path, 0, "v1 of a new beginning")
    with pytest.raises(st.CheckpointError, match="are of another one; put the folder spark back"):
        records.check(tmp_path, tmp_path / "spark", manifest)
    records.check(tmp_path, tmp_path / "spark", Manifest(epoch=3, generation=1))


def test_an_epoch_without_a_micro_batch_keeps_the_number(machine: Callable[..., Machine]) -> None:
    one = machine(idle_after="5s")
    one.tasks = [rows(0, 1), rows(1, 2)]
    one.engine.has_work()
    one.engine.run(Batch(0, "digest"))
    one.number = 0
    one.batch(rows(0, 9, first=1))
    assert one.quiet(6)
    found = Manifest.decode(one.engine.manifest.encode())
    assert (found.batch, found.epoch) == (1, 2)


# ── what a physical stream is ─────────────────────────────────────────────────────────────────────────────────────


def test_two_topics_are_not_taken_for_one_stream(machine: Callable[..., Machine]) -> None:
    """Found in one task, and from micro-batch to micro-batch; told apart by both columns they are two streams."""
    together = machine()
    with pytest.raises(
        st.QueryError,
        match=r"rows \(source\): .* '0' .*topics 'x' and 'y'.*; .*stream=\[\"topic\", \"partition\"\]",
    ):
        together.batch(rows(0, 1) + rows(0, 2, topic="y"))
    later = machine()
    later.batch(rows(0, 1))
    with pytest.raises(st.QueryError, match="the topics 'x' and 'y'"):
        later.batch(rows(0, 2, topic="y"))
    assert later.engine.manifest.epoch == 0, "nothing of it is committed"
    apart = machine(stream=("topic", "partition"))
    assert apart.batch(rows(0, 9) + rows(0, 2, topic="y")).sources["rows"].times == {"x:0": at_(9), "y:0": at_(2)}


def test_a_stream_that_is_split_over_tasks_is_found(machine: Callable[..., Machine]) -> None:
    one, unordered = machine(), machine(position=None)
    one.batch(rows(0, 1, 2), rows(1, 5))
    assert split(one.plan, one.epoch, one.reports) == []
    one.batch(rows(0, 9, first=2), rows(0, 3, first=3))
    assert split(one.plan, one.epoch, one.reports) == ["rows"]
    unordered.batch(rows(0, 9), rows(0, 3))
    assert split(unordered.plan, unordered.epoch, unordered.reports) == [], "a set may be in parts"


# ── what is measured ──────────────────────────────────────────────────────────────────────────────────────────────


def test_reading_is_work(machine: Callable[..., Machine]) -> None:
    """Spark reads and parses while the task waits for the next batch."""
    one = machine()
    one.batch(rows(0, 1))

    def slow() -> Iterator[pa.RecordBatch]:
        time.sleep(0.2)
        yield from _batches(rows(0, 2, first=1))

    items = list(row_task(one.plan, one.epoch, 0, slow()))
    (report,) = read_task_reports([item for item in items if item[0] == REPORT])
    assert report.busy >= 0.2
    assert report.wait < 0.2
    assert report.instance == 2, "behind the two instances of the prefix"


def test_tasks_of_spark_count_as_work_of_the_instances(machine: Callable[..., Machine]) -> None:
    """However many there are in an epoch, and also when there are none: several epochs can be summed up."""
    from springtide.elastic.summaries import merged

    one, snapshots = machine(idle_after="5s"), []
    for tasks in ([rows(0, 1), rows(1, 2), rows(2, 3)], [rows(0, 9, first=1)]):
        one.now += 1
        one.batch(*tasks)
        snapshots.append(one.engine.snapshot)
    assert one.quiet(6)
    snapshots.append(one.engine.snapshot)
    loads = [s.subqueries["rows"].rows_in for s in snapshots if s is not None]
    assert loads == [(2, 1), (1, 0), (0, 0)]
    assert sum(merged([s for s in snapshots if s is not None]).subqueries["rows"].rows_in) == 4


def test_rows_that_wait_at_spark_are_a_backlog(machine: Callable[..., Machine]) -> None:
    """With rows waiting nothing is taken away, however little was done: 2 → 1 instances at 1 % was the mistake."""
    one = machine()
    told = {"sources": [{"endOffset": '{"x":{"0":5}}', "latestOffset": '{"x":{"0":3000005}}'}]}
    one.engine.intake.waiting = records.waiting(["rows"], told)
    one.now = 10.0
    one.batch(rows(0, 1, 2))
    snapshot = one.engine.snapshot
    assert snapshot is not None
    assert snapshot.backlog == 3_000_000 == one.engine.manifest.metrics.backlog
    assert not [p for p in st.Threshold().decide(snapshot, ()) if p.instances == 1]


def test_what_spark_says_of_several_sources() -> None:
    kafka = {"endOffset": {"x": {"0": 1}}, "latestOffset": {"x": {"0": 4}}}
    files = {"endOffset": '{"logOffset":3}', "latestOffset": None, "metrics": {}}
    assert records.waiting(["a", "b"], {"sources": [files, kafka]}) == {"a": 0, "b": 3}
    assert records.waiting(["a"], {"sources": [kafka, kafka]}) == {"a": 6}
    assert records.waiting(["a", "b"], None) == {}


# ── settings ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_names_of_settings_are_taken_as_they_are_written() -> None:
    assert named("spark_executor_memory") == "spark.executor.memory"
    assert named("spark.sql.catalog.spark_catalog") == "spark.sql.catalog.spark_catalog"


def test_rows_per_epoch_cannot_bound_what_spark_reads(machine: Callable[..., Machine], tmp_path: Path) -> None:
    session = SimpleNamespace(version="4.3.0", sparkContext=SimpleNamespace(defaultParallelism=2))
    with pytest.raises(st.QueryError, match=r"does not bound what Spark reads.*maxOffsetsPerTrigger"):
        machine().query.start(session, checkpoint=tmp_path / "new", rows_per_epoch=1000)
    assert not (tmp_path / "new").exists()
