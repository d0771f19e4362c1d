"""The six properties that are sufficient for deterministic, elastic, parallel processing (ST-5; STRETCH, section 3, P1–P6).

STRETCH's epoch lies between two event times; ours is a micro-batch. What makes the two agree is the *gate*: a micro-batch
puts tuples into buckets in whatever cut they arrive, but nothing is decided on a time before the merged time has passed it.

    arrival      a1 a2 a3 │ a4 b1 a5 │ b2 b3 …         micro-batches: the map may change at │
    merged time  ─────────┼────t─────┼──────t'──→      windows that end up to t are closed in the second one, under its map
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random

import polars as pl
import pytest

import springtide as st
from springtide.exchange.hashing import BUCKET
from springtide.query.errors import SpringtideError
from springtide.runtime import inprocess
from springtide.runtime.engine import Engine, Options
from springtide.runtime.epoch import Epoch, TaskReport
from springtide.state.bucket_map import BucketMap
from springtide.state.manifest import Manifest
from springtide.state.segment import read_segment
from springtide.testing import END, FAIL, PAUSE, MemorySink, at, compare, streams, table

DEGREES = (1, 2, 3, 5)

INPUT = streams(
    left=table("""
        ts   key  x
        1s   A    1
        2s   B    2
        2s   A    3
        PAUSE
        4s   C    4
        4s   A    5
        PAUSE
        7s   B    6
        9s   D    7
        13s  A    8
    """),
    right=table("""
        ts   key  x
        2s   A    10
        3s   C    20
        PAUSE
        4s   A    30
        PAUSE
        4s   A    40
        7s   B    50
        PAUSE
        11s  E    60
    """),
)
"""Two physical streams with ties between them, also across the places where micro-batches end."""


def ordered(window: str = "4s") -> tuple[st.Query, MemorySink]:
    """Make a query whose result shows the order in which tuples were seen."""
    sink = st.memory_sink()
    events = st.source("events", st.memory(INPUT, schema={"ts": st.TIME, "key": pl.String, "x": pl.Int64}), ts="ts")
    seen = events.aggregate(by="key", window=st.tumbling(window), seen=st.collect("x"), name="seen")
    return st.Query("ordered", seen.to(sink)), sink


def run(
    query: st.Query, folder: Path, instances: int = 2, *, between: Callable[[Engine], object] | None = None
) -> list[Manifest]:
    """Run a query to its end with `between` called before each epoch; give the manifest of every epoch."""
    manifests = []

    def look(engine: Engine) -> bool:
        if engine.manifest.epoch >= 0:
            manifests.append(engine.manifest)
        if between is not None:
            between(engine)
        return True

    engine = inprocess.run(query.plan(buckets=16), folder, Options(instances), between=look)
    return [*manifests, engine.manifest]


def shuffle_owners(random: Random) -> Callable[[Engine], None]:
    """Give the buckets of `seen` to other instances before every epoch."""

    def change(engine: Engine) -> None:
        instances = random.randint(1, 5)
        before = engine.maps["seen"]
        owners = tuple(random.randrange(instances) for _ in before.owners)
        engine.maps["seen"] = BucketMap(before.version + 1, instances, owners)

    return change


def test_p1_all_instances_observe_the_same_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P1: all threads observe all input tuples in the same order.

    Ours see the tuples of their own buckets only, and every control header (SC-6). So this means: what an instance sees is the
    one total order, restricted to its buckets, whichever instances sent it; and all instances see the same merged time in the
    same epoch, and close the same windows.
    """
    reports: list[TaskReport] = []
    execute = inprocess.execute

    def spy(*of_epoch: object) -> list[TaskReport]:
        made = execute(*of_epoch)  # type: ignore[arg-type]
        closed = {r.marks.get("window") for r in made if r.subquery == "seen"}
        assert len(closed) == 1, "instances of one epoch disagree about time"
        reports.extend(made)
        return made

    monkeypatch.setattr(inprocess, "execute", spy)
    query, sink = ordered()
    expected = query.run_reference().rows()
    assert [1, 3, 10] in expected["seen"].to_list(), "ties go to the left stream, then to the position"
    for n in DEGREES:
        run(query, tmp_path / str(n), n)
        compare(sink.rows(), expected)
        sink.epochs.clear()
    assert {r.instance for r in reports if r.subquery == "seen"} == set(range(5))


@pytest.mark.parametrize("seed", range(5))
def test_p2_an_instance_has_its_buckets_for_itself(tmp_path: Path, seed: int) -> None:
    """P2: for a given mapping, each thread has exclusive read/write access to the buckets mapped to it.

    State that an epoch writes lies in one segment per instance, with the rows of that instance's buckets and no others; so no two
    instances write to one bucket in one epoch. No lock is needed, and there is none (ST-1).
    """
    query, _ = ordered()
    written = 0
    for manifest in run(query, tmp_path, between=shuffle_owners(Random(seed))):
        owners = manifest.maps["seen"].owners
        for segment in manifest.state["seen"].segments:
            if segment.epoch == manifest.epoch:
                assert segment.version == manifest.maps["seen"].version
                buckets = read_segment(tmp_path / segment.file)[BUCKET].unique().to_list()
                assert {owners[b] for b in buckets} == {segment.instance}
                written += 1
    assert written > 3


def test_p3_tuples_of_several_streams_are_processed_merged_and_once_ready(tmp_path: Path) -> None:
    """P3: tuples received from multiple streams are merged into one sequence and processed once ready.

    No window is given before the slower stream has passed its end, however far ahead the other one is; and inside a window the
    tuples of both stand in the order of their times, not of their arrival (SC-7).

        epoch           0           1           2          3          4
        left            30s                                           end
        right           1s          9s          10s        25s        end
        merged time     1s          9s          10s        25s        ∞
        windows given                           [0, 10)    [10, 20)   [20, 30) [30, 40)
    """
    rows = streams(
        left=[*table("ts x\n 2s 1\n 8s 2\n 15s 3\n 30s 4"), PAUSE, PAUSE, PAUSE, PAUSE, END],
        right=table("ts x\n 1s 10\n PAUSE\n 9s 20\n PAUSE\n 10s 30\n PAUSE\n 25s 40\n PAUSE\n END"),
    )
    sink = st.memory_sink()
    events = st.source("events", st.memory(rows, schema={"ts": st.TIME, "x": pl.Int64}), ts="ts")
    seen = events.aggregate(window=st.tumbling("10s"), seen=st.collect("x"), name="seen")
    run(st.Query("merged", seen.to(sink)), tmp_path)
    given = {epoch: frame.sort("ts")["seen"].to_list() for epoch, frame in sink.epochs.items() if frame.height}
    assert given == {2: [[10, 1, 2, 20]], 3: [[30, 3]], 4: [[40], [4]]}


def test_p4_a_bucket_changes_hands_between_two_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P4: p2 processes the first tuple of the next epoch after p1 has processed the last tuple of this one.

    The next epoch is planned from the manifest of this one, which is written when all its tasks are done. p2 finds what p1 wrote:
    a window that spans the change has the tuples of both, once.
    """
    rows = table("ts key\n 1s A\n 2s A\n 3s A\n PAUSE\n 4s A\n 5s A\n PAUSE\n 11s A")
    sink = st.memory_sink()
    events = st.source("events", st.memory(rows, schema={"ts": st.TIME, "key": pl.String}), ts="ts")
    seen = events.aggregate(by="key", window=st.tumbling("10s"), n=st.count(), name="seen")
    log: list[str] = []
    execute = inprocess.execute

    def spy(plan: object, epoch: Epoch) -> list[TaskReport]:
        log.append(f"begin {epoch.number}")
        made = execute(plan, epoch)  # type: ignore[arg-type]
        at_work = {r.instance for r in made if r.subquery == "seen" and r.rows_in}
        log.append(f"end {epoch.number} by {sorted(at_work)}")
        return made

    def hand_over(engine: Engine) -> None:
        owner, version = engine.manifest.epoch + 1, engine.maps["seen"].version + 1
        engine.maps["seen"] = BucketMap(version, 3, (owner,) * 16)

    monkeypatch.setattr(inprocess, "execute", spy)
    manifests = run(st.Query("handed-over", seen.to(sink)), tmp_path, between=hand_over)
    assert log == ["begin 0", "end 0 by [0]", "begin 1", "end 1 by [1]", "begin 2", "end 2 by [2]"]
    owners = [{s.epoch: s.instance for s in m.state["seen"].segments} for m in manifests]
    assert owners[1] == {0: 0, 1: 1}, "the new owner reads what the old one wrote, in its place"
    assert sink.rows()["n"].to_list() == [5, 1]


def test_p5_a_reconfiguration_takes_place_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    """P5: each reconfiguration takes place atomically.

    A manifest has one map per subquery, and everything that its epoch wrote was written under it. An epoch that dies has changed
    no map, for no subquery: the next start begins with the maps of the last manifest.
    """
    rows = [*table("ts key\n 1s A\n 2s B\n PAUSE\n 12s A"), FAIL, *table("ts key\n 23s B\n 24s A")]
    sink = st.memory_sink()
    events = st.source("events", st.memory(rows, schema={"ts": st.TIME, "key": pl.String}), ts="ts")
    first = events.aggregate(by="key", window=st.tumbling("10s"), n=st.count(), name="first")
    second = first.aggregate(by="n", window=st.tumbling("20s"), keys=st.count(), name="second")
    query = st.Query("two", second.to(sink))
    plan = query.plan(buckets=16)

    def scale_both(engine: Engine) -> bool:
        if engine.manifest.epoch == 0:
            engine.scale("first", 4)
            engine.scale("second", 3)
        return True

    with pytest.raises(SpringtideError, match="a test wanted the run to fail here"):
        inprocess.run(plan, tmp_path, Options(2), between=scale_both)

    def look(engine: Engine) -> bool:
        maps = {n: (m.version, m.instances) for n, m in engine.maps.items()}
        if engine.manifest.epoch == 0:
            assert maps == {"events": (0, 2), "first": (0, 2), "second": (0, 2)}
        return scale_both(engine)

    after = inprocess.run(plan, tmp_path, Options({}), between=look).manifest
    assert {n: (m.version, m.instances) for n, m in after.maps.items()} == {
        "events": (0, 2),
        "first": (1, 4),
        "second": (1, 3),
    }
    compare(sink.rows(), query.run_reference().rows())


@pytest.mark.parametrize("seed", range(5))
def test_p6_tuples_of_one_timestamp_belong_to_one_epoch(tmp_path: Path, seed: int) -> None:
    """P6: tuples sharing the same timestamp belong to exactly one epoch.

    They may *arrive* in several micro-batches, and lie in state under several maps until then: adding them up in any order and
    any cut is the same. They become *ready* in exactly one: when the merged time passes their time no further tuple can have it.
    So everything that a step decides on a time, it decides in one epoch, under one map. Here each timestamp is a window of its
    own: all its tuples, of both streams and of all micro-batches, come out in one epoch, at every key; and what
    comes out with one timestamp goes into the next subquery in one epoch, too.
    """
    query, sink = ordered(window="1us")
    run(query, tmp_path, between=shuffle_owners(Random(seed)))
    epochs = defaultdict(set)
    for epoch, frame in sink.epochs.items():
        for ts in frame["ts"]:
            epochs[ts].add(epoch)
    assert {ts: len(found) for ts, found in epochs.items()} == dict.fromkeys(epochs, 1)
    tied = sink.rows().filter(pl.col("ts") == at("4s")).sort("key")
    assert tied.select("key", "seen").rows() == [("A", [5, 30, 40]), ("C", [4])]
    compare(sink.rows(), query.run_reference().rows())
