"""State that one can hold (SE-1), and SEEP's primitives on it (SE-2), on checkpoints at rest and on a query at work."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide import state
from springtide.query.errors import SpringtideError
from springtide.runtime import inprocess
from springtide.runtime.engine import Engine, Options
from springtide.sinks.memory import MemorySink
from springtide.state.checkpoint import Checkpoint
from springtide.state.errors import CheckpointError
from springtide.state.log import Log, Slot
from springtide.state.processing import BUCKET, PLACE, ProcessingState
from springtide.state.pulse import Sign
from springtide.state.stores import Store
from springtide.testing import compare
from tests.stores.in_turn import in_turn
from tests.stores.misbehaving import Misbehaving, served
from tests.unit.operators.user.operators import Counts, Sum
from tests.unit.runtime.crashing import numbers

WAYS = ("hash", "load", "range")
MEMORY = Path("/dev/shm")  # manifests are written through to the disk


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)


def numbered(name: str, x: str = "x") -> st.Stream:
    rows = numbers(120).rename({"key": "k", "x": x})
    return st.source(name, st.memory(rows, schema={"ts": st.TIME, "k": pl.String, x: pl.Int64}), ts="ts")


def queries() -> dict[str, st.Stream]:
    """Every kind of stateful operator."""
    one, two = numbered("one"), numbered("two", "y")
    window = st.sliding("40s", every="10s")
    return {
        "sliding": one.aggregate(by="k", window=window, n=st.sum("x"), top=st.max("x")),
        "collect": one.aggregate(by="k", window=window, all=st.collect("x")),
        "alone": one.aggregate(window=window, n=st.sum("x")),
        "long": one.aggregate(by="k", window=st.sliding("64s", every="1s"), n=st.sum("x")),
        "sketch": one.aggregate(by="k", window=st.tumbling("80s"), n=st.approx_distinct("x")),
        "session": one.aggregate(by="k", window=st.session("20s"), n=st.count()),
        "counting": one.aggregate(by="k", window=st.last_n(10, every=5), n=st.sum("x")),
        "top": one.top_k(2, "k", window=st.tumbling("80s")),
        "join": one.join(two, on="k", within="20s"),
        "left": one.join(two, on="k", within="20s", how="left"),
        "last": one.join(two, on="k", within=st.last_n(3)),
        "grid": one.theta_join(two, (pl.col("x") - pl.col("y")).abs() < 3, within="20s", routing="grid"),
        "broadcast": one.theta_join(two, (pl.col("x") - pl.col("y")).abs() < 3, within="20s", routing="broadcast"),
        "keys": one.operator(Sum(), keys="k"),
        "buckets": one.operator(Counts(), keys="k"),
    }


KINDS = [*queries()]


@dataclass(frozen=True)
class One:
    """A query that a test runs, 10 rows of each source per epoch."""

    query: st.Query
    sinks: dict[str, MemorySink]

    @staticmethod
    def of(**streams: st.Stream) -> One:
        sinks = {name: st.memory_sink() for name in streams}
        return One(st.Query("q", *(s.to(sinks[n], name=n) for n, s in streams.items())), sinks)

    def run(self, root: Path, until: Callable[[Engine], bool] = lambda _: True, **options: Any) -> None:
        plan = self.query.plan(buckets=16)
        inprocess.run(plan, root, replace(Options(2, rows_per_epoch=10), **options), between=until)

    def stopped(self, root: Path, epochs: int) -> Path:
        """Run until there are so many epochs."""
        self.run(root, lambda engine: engine.manifest.epoch < epochs - 1)
        return root

    def forget(self, after: int = -1) -> None:
        """Let the sinks have no rows of later epochs: they do not mix those of two runs."""
        for sink in self.sinks.values():
            sink.epochs = {epoch: rows for epoch, rows in sink.epochs.items() if epoch <= after}

    def finished(self, root: Path, **options: Any) -> None:
        """Run to the end, with more instances, and compare all rows of all runs."""
        self.run(root, instances=3, **options)
        expected = self.query.run_reference()
        for name, sink in self.sinks.items():
            compare(sink.rows(), expected.rows(name))


@pytest.fixture(scope="module")
def states() -> Iterator[dict[str, ProcessingState]]:
    """The state of each, on its way."""
    folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
    found = {}
    for name, stream in queries().items():
        checkpointed = state.checkpoint(One.of(out=stream).stopped(folder / name, 7))
        found[name] = next(iter(checkpointed.processing.values()))
    yield found
    shutil.rmtree(folder)


@pytest.mark.parametrize("by", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_merging_the_parts_gives_the_whole(states: dict[str, ProcessingState], kind: str, by: state.By) -> None:
    """SE-2: merge(partition(s, k)) == s, for every operator and every way to cut."""
    whole = states[kind]
    assert whole.height > 0
    if by == "range" and not has_ranges(whole):
        with pytest.raises(SpringtideError, match='partition its state by "hash"'):
            state.partition(whole, 2, by)
        return
    for k in (1, 2, 3, 7, 40):
        parts = state.partition(whole, k, by)
        assert len(parts) == k
        assert sum(part.height for part in parts) == whole.height
        assert state.merge(parts) == whole
        assert state.merge(Random(k).sample(parts, k)) == whole  # in any order
        if has_ranges(whole):
            distinct = [pl.concat([f.select(whole.keys) for f in p.rows.values()]).unique() for p in parts]
            assert sum(d.height for d in distinct) == pl.concat(distinct).unique().height  # each key in one part


def has_ranges(one: ProcessingState) -> bool:
    return bool(one.keys) and all(set(one.keys) <= set(frame.columns) for frame in one.rows.values())


def test_most_operators_have_ranges(states: dict[str, ProcessingState]) -> None:
    assert {"sliding", "collect", "sketch", "session", "join", "left"} <= {
        n for n, s in states.items() if has_ranges(s)
    }


@dataclass
class Rows:
    """A small state, by hand."""

    load: tuple[int, ...] = ()

    def state(self, buckets: list[int], keys: list[str | None]) -> ProcessingState:
        frame = pl.DataFrame(
            {BUCKET: buckets, "k": keys, PLACE: range(len(keys))}, schema_overrides={BUCKET: pl.UInt16, "k": pl.String}
        )
        routing = state.BucketMap.even(4, 2)
        return ProcessingState("s", {"panes": frame}, {"closed": 3}, routing, ("k",), self.load, (0, 1, 2, 3))


def test_ways_to_cut() -> None:
    """
    bucket   0 0 0 0 0 1 2 3      by hash   0 1 │ 2 3
    key      e d c b a f g ∅      by load     0 │ 1 2 3
                                  by range  ∅ a b c │ d e f g
    """
    whole = Rows().state([0, 0, 0, 0, 0, 1, 2, 3], ["e", "d", "c", "b", "a", "f", "g", None])
    assert [p.buckets for p in state.partition(whole, 2)] == [(0, 1), (2, 3)]
    assert [p.buckets for p in state.partition(whole, 2, by="load")] == [(0,), (1, 2, 3)]
    assert [p.span for p in state.partition(whole, 2, by="range")] == [((None,), ("c",)), (("d",), ("g",))]
    observed = Rows(load=(1, 1, 1, 97)).state([0, 0, 0, 0, 0, 1, 2, 3], ["e", "d", "c", "b", "a", "f", "g", None])
    assert [p.buckets for p in state.partition(observed, 2, by="load")] == [(0, 1, 2), (3,)]


def test_what_cannot_be_cut_or_merged() -> None:
    whole = Rows().state([0, 1], ["a", "b"])
    with pytest.raises(SpringtideError, match="step s: state cannot be cut into 0 parts"):
        state.partition(whole, 0)
    with pytest.raises(SpringtideError, match='"hash", "range" and "load"'):
        state.partition(whole, 2, by="colour")  # type: ignore[arg-type]
    with pytest.raises(SpringtideError, match="step s has no keys"):
        state.partition(replace(whole, keys=()), 2, by="range")
    with pytest.raises(SpringtideError, match="its panes have no column z"):
        state.partition(replace(whole, keys=("z",)), 2, by="range")
    with pytest.raises(SpringtideError, match="parts of different states"):
        state.merge([whole, replace(whole, marks={"closed": 4})])
    with pytest.raises(SpringtideError, match="some buckets are in several parts"):
        state.merge([whole, whole])
    with pytest.raises(SpringtideError, match="nothing to merge"):
        state.merge([])


# ── backup and restore ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=["folder", "s3"])
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Another place: the folder of another node, or a bucket."""
    return str(tmp_path / "node") if request.param == "folder" else str(request.getfixturevalue("s3"))


def same(one: state.Checkpointed, other: state.Checkpointed) -> None:
    assert (one.query, one.epoch, one.times, one.routing) == (other.query, other.epoch, other.times, other.routing)
    assert one.processing == other.processing


@pytest.fixture
def one() -> One:
    """A query with several steps that have state, and 12 epochs."""
    streams = queries()
    return One.of(**{name: streams[name] for name in ("sliding", "left", "keys")})


def test_restore_after_backup_is_the_identity(one: One, tmp_path: Path, elsewhere: str) -> None:
    """SE-2, SM-4: state goes to stable storage and comes back as it was; the query goes on to the rows of the reference."""
    root = one.stopped(tmp_path / "ckpt", 8)
    before = state.checkpoint(root)
    first = state.backup(root, elsewhere)
    assert first.epochs == tuple(range(8))
    assert first.there == 0
    same(state.checkpoint(elsewhere), before)

    one.stopped(root, 10)
    second = state.backup(root, elsewhere)
    assert second.epochs[-1] == 9
    assert 0 < second.files < first.files + 4  # what was there was not copied again
    assert second.there > 0
    third = state.backup(root, elsewhere)
    assert third.files == 0
    same(state.checkpoint(elsewhere), state.checkpoint(root))

    shutil.rmtree(root)  # the node is lost
    state.restore(elsewhere, tmp_path / "new")
    same(state.checkpoint(tmp_path / "new"), state.checkpoint(elsewhere))
    one.finished(tmp_path / "new")


def test_restore_of_an_older_epoch(one: One, tmp_path: Path) -> None:
    """The rows behind that epoch come again; those before it are not published twice."""
    elsewhere = tmp_path / "node"
    root = one.stopped(tmp_path / "ckpt", 8)
    state.backup(root, elsewhere)
    state.restore(elsewhere, tmp_path / "new", at=4)
    assert Checkpoint(tmp_path / "new").epochs() == [4]
    same(state.checkpoint(tmp_path / "new"), state.checkpoint(root, at=4))
    one.forget(after=4)
    one.finished(tmp_path / "new")
    with pytest.raises(CheckpointError, match=r"has no manifest of epoch 99; it has \[0, 1, 2"):
        state.restore(elsewhere, tmp_path / "other", at=99)


def test_what_backup_and_restore_refuse(one: One, tmp_path: Path) -> None:
    root = one.stopped(tmp_path / "ckpt", 3)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "diary.txt").touch()
    with pytest.raises(CheckpointError, match="is not empty; give an empty or a new folder"):
        state.restore(root, tmp_path / "full")
    with pytest.raises(CheckpointError, match="is not empty and not a Springtide checkpoint"):
        state.backup(root, tmp_path / "full")
    with pytest.raises(CheckpointError, match="has no epoch that is committed"):
        state.backup(tmp_path / "nothing", tmp_path / "node")
    state.backup(root, tmp_path / "node")
    one.forget()
    other = one.stopped(tmp_path / "other", 3)
    with pytest.raises(CheckpointError, match="is the backup of another checkpoint"):
        state.backup(other, tmp_path / "node")
    one.forget()
    one.stopped(tmp_path / "node", 5)
    with pytest.raises(CheckpointError, match=r"at epoch 4, ahead of .* epoch 2.*; .*another place"):
        state.backup(root, tmp_path / "node")


def test_a_backup_that_was_cut_short_goes_on(one: One, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = one.stopped(tmp_path / "ckpt", 8)
    put, left = Store.put, [5]

    def failing(self: Store, local: Path, path: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise CheckpointError(self.url, "cannot write", "wait")
        put(self, local, path)

    monkeypatch.setattr(Store, "put", failing)
    with pytest.raises(CheckpointError, match="cannot write"):
        state.backup(root, tmp_path / "node")
    assert not (tmp_path / "node" / "springtide.json").exists()
    monkeypatch.undo()
    assert state.backup(root, tmp_path / "node").there >= 4
    same(state.checkpoint(tmp_path / "node"), state.checkpoint(root))


# ── at work ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class AtWork:
    """What a run looks like to the primitives."""

    engine: Engine

    active = True

    @property
    def checkpoint_store(self) -> Store:
        return self.engine.checkpoint.store

    def checkpoint_now(self) -> int:
        return self.engine.checkpoint_now()


@pytest.mark.parametrize("every", ["epoch", "1h"])
def test_a_query_at_work(one: One, tmp_path: Path, every: str) -> None:
    """Its state is read, and backed up, between epochs; state that was in shared memory only is made durable."""
    seen: list[state.Checkpointed] = []

    def between(engine: Engine) -> bool:
        if engine.manifest.epoch in (5, 7):
            run = AtWork(engine)
            assert engine.checkpoint.in_use()
            seen.append(state.checkpoint(run))
            assert state.replay(run).epochs == ()
            state.backup(run, tmp_path / "node")
            same(state.checkpoint(tmp_path / "node"), seen[-1])
            state.persist(run, tmp_path / "segments")
        return True

    durability = st.Durability(every=every, shared_memory=tmp_path / "memory" if every != "epoch" else None)
    one.run(tmp_path / "ckpt", between, durability=durability)
    assert [c.epoch for c in seen] == [5, 7]
    assert not list((tmp_path / "ckpt" / "savepoints").glob("*"))
    assert Checkpoint(tmp_path / "node").epochs() == [5, 7]
    one.forget(after=7)
    one.finished(tmp_path / "node")


# ── trim, replay, tiers ───────────────────────────────────────────────────────────────────────────────────────────


def test_trim_leaves_the_last_epochs(one: One, tmp_path: Path) -> None:
    elsewhere = tmp_path / "node"
    root = one.stopped(tmp_path / "ckpt", 9)
    state.backup(root, elsewhere)
    before = state.checkpoint(elsewhere)
    assert state.trim(elsewhere, keep=2).epochs == tuple(range(7))
    same(state.checkpoint(elsewhere), before)
    state.checkpoint(elsewhere, at=7)
    store = Store.at(elsewhere)
    with_manifests = {n.rpartition("/")[2] for n in store.list("manifests")}
    assert with_manifests == {"000000007", "000000008", "000000009"}, (
        "the last is the claim that keeps out who might still run"
    )
    needed = Checkpoint(root).manifest(7).files() | Checkpoint(root).manifest(8).files()
    assert set(store.list("state")) == needed
    assert state.trim(elsewhere, keep=2).epochs == ()
    with pytest.raises(SpringtideError, match="give at least 1"):
        state.trim(elsewhere, keep=0)


@pytest.mark.parametrize("place", ["a folder", "a store"])
def test_a_copy_that_was_trimmed_is_copied_to_again_and_continued(one: One, tmp_path: Path, place: str) -> None:
    """What kept others out while it was trimmed says nothing about the epochs that come later."""
    root = tmp_path / "ckpt"
    with served(bucket=Misbehaving(0, trouble=0.0)), in_turn():
        copy = tmp_path / "copy" if place == "a folder" else "fake://bucket/copy"
        for epochs in (5, 7, 8):
            one.stopped(root, epochs)
            state.backup(root, copy)
            assert state.trim(copy, keep=2).epochs
            assert not state.trim(copy, keep=2).epochs
        state.backup(root, copy)
        durability = st.Durability(cache=tmp_path / "cache")
        one.run(copy, lambda engine: engine.manifest.epoch < 8, durability=durability)
        log = Log(Store.at(copy))
        assert log.read().last == Slot(8, 4), "the run after three others"
        assert len(log.read().claims()) == 1
        one.finished(copy, durability=durability)


def test_a_place_whose_run_is_at_work_is_not_copied_to(one: One, tmp_path: Path) -> None:
    root, copy = one.stopped(tmp_path / "ckpt", 3), tmp_path / "copy"
    state.backup(root, copy)

    def between(engine: Engine) -> bool:
        with pytest.raises(CheckpointError, match="is in use"):
            state.backup(root, copy)
        return False

    one.run(copy, between)


def interrupted(one: One, root: Path, memory: Path, epochs: int, durable: tuple[int, ...]) -> None:
    """A run that dies with its state in shared memory, but for what was made durable behind some epochs."""

    def between(engine: Engine) -> bool:
        if engine.manifest.epoch in durable:
            engine.checkpoint_now()
        if engine.manifest.epoch < epochs - 1:
            return True
        engine.close = engine.storage.lease.release  # type: ignore[method-assign]
        return False

    durability = st.Durability(every="never", shared_memory=memory)
    one.run(root, between, durability=durability)


def test_trim_never_removes_what_a_replay_needs(one: One, tmp_path: Path) -> None:
    """SE-2: epochs 4 … 8 were in shared memory only, which is gone; they are replayed behind a trim, a backup and a restore."""
    root, memory = tmp_path / "ckpt", tmp_path / "memory"
    interrupted(one, root, memory, epochs=9, durable=(1, 3))
    assert state.replay(root).epochs == ()  # all is still in memory,
    assert state.trim(root, keep=1).epochs == (1,)  # which is not to be relied upon
    shutil.rmtree(memory)
    told = state.replay(root)
    assert (told.base, told.epochs) == (3, (4, 5, 6, 7, 8))
    assert told.rows > 0 or told.buffers
    found = state.checkpoint(root)
    assert found.epoch == 3
    assert [m.epoch for m in found.buffer] == [4, 5, 6, 7, 8]
    assert state.trim(root, keep=1).epochs == ()
    assert state.replay(root) == told
    state.backup(root, tmp_path / "node")
    state.restore(tmp_path / "node", tmp_path / "new")
    assert state.replay(tmp_path / "new") == told
    one.finished(tmp_path / "new")


def test_trim_takes_nothing_from_a_run_in_a_store(one: One, tmp_path: Path) -> None:
    """One that is heard of is left alone; one that nobody has heard of for long ends, and loses nothing that counts."""
    with served(bucket=Misbehaving(0, trouble=0.0)), in_turn():
        address, told = "fake://bucket/ckpt", list[bool]()

        def between(engine: Engine) -> bool:
            if engine.manifest.epoch == 6:
                Store.at(address).write("running", Sign.of(10.0, 1).encode())
                with pytest.raises(st.CheckpointError, match="is in use"):
                    state.trim(address, keep=2)
                Store.at(address).delete("running")
                told.append(state.trim(address, keep=2).epochs == (0, 1, 2, 3, 4))
            return True

        durability = st.Durability(cache=tmp_path / "cache")
        with pytest.raises(st.CheckpointError, match="was taken over by a newer run"):
            one.run(address, between, durability=durability)
        assert told == [True]
        one.finished(address, durability=durability)
        assert state.trim(address, keep=1).epochs
        assert state.trim(address, keep=1).epochs == ()


def test_spill_frees_shared_memory(one: One, tmp_path: Path) -> None:
    root, memory = tmp_path / "ckpt", tmp_path / "memory"
    interrupted(one, root, memory, epochs=9, durable=(1, 3))
    before = state.checkpoint(root)
    assert state.spill(root) > 0
    assert [f for f in memory.rglob("*.arrow") if f.is_file()] == []
    same(state.checkpoint(root), before)
    assert state.spill(root) == 0


def test_persist_frees_the_disk(one: One, tmp_path: Path, elsewhere: str) -> None:
    """Segments go to the store under their names; a start with that store as its backup fetches them."""
    root = one.stopped(tmp_path / "ckpt", 8)
    state.backup(root, elsewhere)
    assert state.persist(root, elsewhere, free=True) == 0  # they were there
    assert list((root / "state").rglob("*.arrow")) == []
    one.finished(root, durability=st.Durability(backup=elsewhere))


def test_what_is_in_use_is_left_alone(one: One, tmp_path: Path) -> None:
    acts: list[Callable[[Path], object]] = [
        lambda root: state.trim(root, keep=1),
        state.spill,
        lambda root: state.persist(root, tmp_path / "node", free=True),
    ]

    def between(engine: Engine) -> bool:
        for act in acts if engine.manifest.epoch == 2 else ():
            with pytest.raises(CheckpointError, match="is in use"):
                act(engine.checkpoint.root)
        return engine.manifest.epoch < 3

    one.run(tmp_path / "ckpt", between)
