"""Savepoints: kept under a name, untouched by clean-up, and the start of a changed query where the state still fits."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import springtide as st
from springtide import state
from springtide.runtime import inprocess
from springtide.runtime.engine import Engine, Options
from springtide.runtime.identity import begin_from, identity
from springtide.sinks.memory import MemorySink
from springtide.state.checkpoint import Checkpoint
from springtide.state.errors import CheckpointError
from springtide.testing import compare
from tests.unit.runtime.crashing import SCHEMA, numbers

Change = Callable[[st.Stream], st.Stream]


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder in memory where there is one: manifests are written through to the disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def same(stream: st.Stream) -> st.Stream:
    return stream


def query(sink: MemorySink, before: Change = same, after: Change = same, name: str = "q") -> st.Query:
    """Numbers, per key and window; with other steps before and behind the aggregate."""
    source = st.source("numbers", st.memory(numbers(60), schema=SCHEMA), ts="ts")
    sums = before(source).aggregate(by="key", window=st.sliding("9s", every="3s"), total=st.sum("x"), name="sums")
    return st.Query(name, after(sums).to(sink))


def stopped(root: Path, epochs: int, sink: MemorySink | None = None) -> Path:
    plan = query(sink or st.memory_sink()).plan()
    options = Options(2, rows_per_epoch=10)
    inprocess.run(plan, root, options, between=lambda engine: engine.manifest.epoch < epochs - 1)
    return root


def test_a_savepoint_survives_the_clean_up(tmp_path: Path) -> None:
    root = stopped(tmp_path / "ckpt", 2)
    place = state.save(root, "before-lunch")
    assert place == root / "savepoints" / "before-lunch"
    before = state.checkpoint(place)
    segment = next(iter(Checkpoint(root).manifest(1).segments())).file
    assert os.stat(root / segment).st_ino == os.stat(place / segment).st_ino  # a second name, no copy
    options = replace(Options(3, rows_per_epoch=10), durability=st.Durability(retain=1))
    inprocess.run(query(st.memory_sink()).plan(), root, options)
    assert not (root / segment).exists()
    after = state.checkpoint(place)
    assert (after.epoch, after.processing) == (1, before.processing)
    assert {name: m.epoch for name, m in state.savepoints(root).items()} == {"before-lunch": 1}


@pytest.mark.parametrize("every", ["epoch", "never"])
def test_a_savepoint_of_a_query_at_work(tmp_path: Path, every: str) -> None:
    """Made from outside between any two steps of the run; what was in shared memory only is copied."""
    sink = st.memory_sink()

    def between(engine: Engine) -> bool:
        if engine.manifest.epoch >= 0:
            state.save(tmp_path / "ckpt", f"e{engine.manifest.epoch}")
        return True

    durability = st.Durability(every, retain=1, shared_memory=tmp_path / "memory")
    options = replace(Options(2, rows_per_epoch=10), durability=durability)
    inprocess.run(query(sink).plan(), tmp_path / "ckpt", options, between=between)
    assert [m.epoch for m in state.savepoints(tmp_path / "ckpt").values()] == [0, 1, 2, 3, 4]
    assert not [f for f in (tmp_path / "ckpt" / "savepoints").iterdir() if f.name.startswith(".")]
    given, whose = dict(sink.epochs), sink.checkpoint
    for epoch in (0, 3):
        sink.epochs, sink.checkpoint = dict(given), whose
        started_from(tmp_path / "ckpt" / "savepoints" / f"e{epoch}", tmp_path / f"new-{epoch}", query(sink), sink)
        compare(sink.rows(), query(sink).run_reference().rows())


def started_from(savepoint: Path | str, root: Path, changed: st.Query, sink: MemorySink) -> Engine:
    """Start a query from a savepoint; the sink has what the old run gave up to it."""
    epoch = begin_from(savepoint, changed.plan(), root)
    for later in [e for e in sink.epochs if e > epoch]:
        del sink.epochs[later]
    return inprocess.run(changed.plan(), root, Options(5, rows_per_epoch=7))


def test_what_a_copy_left_behind_goes_after_a_day(tmp_path: Path) -> None:
    root = stopped(tmp_path / "ckpt", 2)
    state.save(root, "one")
    for name in (".pin-old", ".pin-new"):
        (root / "savepoints" / name / "state").mkdir(parents=True)
    os.utime(root / "savepoints" / ".pin-old", (0, 0))
    stopped(root, 3)
    assert sorted(f.name for f in (root / "savepoints").iterdir()) == [".pin-new", "one"]


def test_names_that_are_refused(tmp_path: Path) -> None:
    root = stopped(tmp_path / "ckpt", 2)
    for name in ("", ".hidden", "a/b", "../up", "with space"):
        with pytest.raises(CheckpointError, match="use letters, digits, - and _"):
            state.save(root, name)
    state.save(root, "one")
    with pytest.raises(CheckpointError, match=r"savepoint one already; .*another name"):
        state.save(root, "one")
    with pytest.raises(CheckpointError, match="not a Springtide checkpoint"):
        state.save(tmp_path / "nothing", "one")
    assert not (tmp_path / "nothing").exists()


# ── a changed query ───────────────────────────────────────────────────────────────────────────────────────────────

FITS: dict[str, tuple[Change, Change]] = {
    "the same": (same, same),
    "a filter that all pass": (lambda s: s.filter(pl.col("x") >= 0, name="all"), same),
    "another column": (lambda s: s.map(z=pl.col("x") * 2), same),
    "behind it": (same, lambda s: s.map(double=pl.col("total") * 2).filter(pl.col("total") > -1)),
}


@pytest.mark.parametrize("change", FITS)
@pytest.mark.parametrize("place", ["folder", "s3"])
def test_stateless_steps_come_and_go(tmp_path: Path, change: str, place: str, request: pytest.FixtureRequest) -> None:
    sink = st.memory_sink()
    savepoint: Path | str = state.save(stopped(tmp_path / "ckpt", 3, sink), "one")
    if place == "s3":
        address = request.getfixturevalue("s3")
        state.backup(savepoint, address)
        savepoint = address
        shutil.rmtree(tmp_path / "ckpt")
    before, after = FITS[change]
    changed = query(sink, before, after, name="renamed")
    epochs = list(sink.epochs)
    started_from(savepoint, tmp_path / "new", changed, sink)
    assert min(set(sink.epochs) - set(epochs)) == 3
    rows = pl.concat([sink.epochs[e].select("key", "total", "ts") for e in sorted(sink.epochs)])
    expected = query(sink).run_reference().rows().select("key", "total", "ts")
    assert rows.sort(pl.all()).equals(expected.sort(pl.all()))
    again = begin_from(savepoint, changed.plan(), tmp_path / "new")  # a start that is repeated goes on
    assert again == 2
    assert Checkpoint(tmp_path / "new").latest().ended  # type: ignore[union-attr]


def renamed_source() -> st.Query:
    source = st.source("others", st.memory(numbers(60), schema=SCHEMA), ts="ts")
    sums = source.aggregate(by="key", window=st.sliding("9s", every="3s"), total=st.sum("x"), name="sums")
    return st.Query("q", sums.to(st.memory_sink()))


def wider_source() -> st.Query:
    schema = {**SCHEMA, "y": pl.Int64}
    source = st.source("numbers", st.memory(numbers(60).with_columns(y="x"), schema=schema), ts="ts")
    sums = source.aggregate(by="key", window=st.sliding("9s", every="3s"), total=st.sum("x"), name="sums")
    return st.Query("q", sums.to(st.memory_sink()))


def window_of(every: str) -> st.Query:
    source = st.source("numbers", st.memory(numbers(60), schema=SCHEMA), ts="ts")
    sums = source.aggregate(by="key", window=st.sliding("9s", every=every), total=st.sum("x"), name="sums")
    return st.Query("q", sums.to(st.memory_sink()))


def counted(stream: st.Stream) -> st.Stream:
    return stream.aggregate(window=st.tumbling("9s"), n=st.count(), name="more")


REFUSED: dict[str, tuple[Callable[[], st.Query], int, str]] = {
    "buckets": (
        lambda: query(st.memory_sink()),
        64,
        "256 buckets .*64; .*buckets=256",
    ),
    "a source that is gone": (renamed_source, 256, "source numbers is gone"),
    "a source with other columns": (wider_source, 256, "source numbers .*'y'.*; keep numbers"),
    "another window": (lambda: window_of("1s"), 256, "step sums .*aggregate: .*; keep sums"),
    "another type": (
        lambda: query(st.memory_sink(), lambda s: s.map(x=pl.col("x").cast(pl.Float64))),
        256,
        "step sums .*total:i64.*total:f64; keep sums",
    ),
    "another step": (
        lambda: query(st.memory_sink(), after=counted),
        256,
        "step more is new.*; .*a query of its own",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_fit_is_refused(tmp_path: Path, what: str) -> None:
    savepoint = state.save(stopped(tmp_path / "ckpt", 3), "one")
    make, buckets, reason = REFUSED[what]
    with pytest.raises(CheckpointError, match=f"savepoints/one does not fit this query: .*{reason}"):
        begin_from(savepoint, make().plan(buckets=buckets), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def kept(sink: MemorySink, before: Change) -> st.Query:
    source = before(st.source("numbers", st.memory(numbers(60), schema=SCHEMA), ts="ts"))
    kept = source.aggregate(by="key", window=st.tumbling("20s"), all=st.collect("x"), name="kept")
    return st.Query("q", kept.to(sink, name="out"))


def test_values_in_order_are_kept_with_all_columns(tmp_path: Path) -> None:
    sink, options = st.memory_sink(), Options(3, rows_per_epoch=10)
    one = kept(sink, same)
    inprocess.run(one.plan(), tmp_path / "ckpt", options, between=lambda engine: engine.manifest.epoch < 2)
    savepoint = state.save(tmp_path / "ckpt", "one")
    more = FITS["another column"][0]
    with pytest.raises(CheckpointError, match=r"step kept .*order, together with all columns .*; select the columns"):
        begin_from(savepoint, kept(sink, more).plan(), tmp_path / "new")
    plan = kept(sink, lambda s: more(s).select(*s.schema)).plan()
    begin_from(savepoint, plan, tmp_path / "new")
    inprocess.run(plan, tmp_path / "new", options)
    compare(pl.concat([sink.epochs[e] for e in sorted(sink.epochs)]), one.run_reference().rows())


def paired(sink: MemorySink, before: Change, *, both: bool) -> st.Query:
    """Make a stream joined with itself: with something before one side these are two streams, which are kept otherwise."""
    source = st.source("numbers", st.memory(numbers(60), schema=SCHEMA), ts="ts")
    left = before(source)
    pairs = left.theta_join(left if both else source, pl.col("x") > pl.col("x_right"), within="9s", name="pairs")
    return st.Query("q", pairs.select("x", "x_right", "ts").to(sink, name="out"))


def test_a_stream_that_is_joined_with_itself_is_kept_once(tmp_path: Path) -> None:
    sink, options = st.memory_sink(), Options(3, rows_per_epoch=10)
    one = paired(sink, same, both=True)
    inprocess.run(one.plan(buckets=16), tmp_path / "ckpt", options, between=lambda engine: engine.manifest.epoch < 2)
    savepoint = state.save(tmp_path / "ckpt", "one")
    change = FITS["a filter that all pass"][0]
    with pytest.raises(CheckpointError, match=r"step pairs .*once → grid.*; change both sides"):
        begin_from(savepoint, paired(sink, change, both=False).plan(buckets=16), tmp_path / "new")
    plan = paired(sink, change, both=True).plan(buckets=16)
    begin_from(savepoint, plan, tmp_path / "new")
    inprocess.run(plan, tmp_path / "new", options)
    compare(pl.concat([sink.epochs[e] for e in sorted(sink.epochs)]), one.run_reference().rows())


def test_a_step_that_is_no_more(tmp_path: Path) -> None:
    sink = st.memory_sink()
    inprocess.run(
        query(sink, after=counted).plan(),
        tmp_path / "ckpt",
        Options(rows_per_epoch=10),
        between=lambda engine: engine.manifest.epoch < 2,
    )
    savepoint = state.save(tmp_path / "ckpt", "one")
    with pytest.raises(CheckpointError, match=r"step more .* lost; keep more"):
        begin_from(savepoint, query(sink).plan(), tmp_path / "new")


def test_another_hash_is_refused(tmp_path: Path) -> None:
    savepoint = state.save(stopped(tmp_path / "ckpt", 3), "one")
    marker = savepoint / "springtide.json"
    found = json.loads(marker.read_bytes())
    found["identity"] |= {"hash": "another", "polars": "0.1"}
    marker.write_text(json.dumps(found))
    with pytest.raises(CheckpointError, match=r"another hash of keys \(Polars 0.1, here .*\); use Polars 0.1"):
        begin_from(savepoint, query(st.memory_sink()).plan(), tmp_path / "new")


def test_a_checkpoint_with_a_state_of_its_own_is_left_alone(tmp_path: Path) -> None:
    savepoint = state.save(stopped(tmp_path / "ckpt", 3), "one")
    other = stopped(tmp_path / "other", 2)
    with pytest.raises(CheckpointError, match=r"state of its own.*; .*leave the savepoint out"):
        begin_from(savepoint, query(st.memory_sink()).plan(), other)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "diary").touch()
    with pytest.raises(CheckpointError, match="is not empty"):
        begin_from(savepoint, query(st.memory_sink()).plan(), tmp_path / "full")


def test_a_checkpoint_of_a_savepoint_is_the_querys_own(tmp_path: Path) -> None:
    savepoint = state.save(stopped(tmp_path / "ckpt", 3), "one")
    plan = query(st.memory_sink(), after=lambda s: s.map(d=pl.col("total"))).plan()
    begin_from(savepoint, plan, tmp_path / "new")
    assert Checkpoint(tmp_path / "new").identity() == json.loads(json.dumps(identity(plan)))
