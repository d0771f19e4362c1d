"""State that one can hold (SE-1), and SEEP's primitives on it (SE-2), on checkpoints at rest and on a query at work.

Every kind of stateful operator is among the random queries; the checkpoints are those of their in-process runs, stopped on the way.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import polars as pl
import pytest

import springtide as st
from springtide import state
from springtide.query.errors import SpringtideError
from springtide.runtime import inprocess
from springtide.runtime.engine import Engine, Options
from springtide.state.checkpoint import Checkpoint
from springtide.state.errors import CheckpointError
from springtide.state.processing import BUCKET, PLACE, ProcessingState
from springtide.state.stores import Store
from springtide.testing import compare
from tests.properties.queries import Case, case

SEEDS = range(60)
WAYS = ("hash", "load", "range")
MEMORY = Path("/dev/shm")  # manifests are written through to the disk


def stopped(one: Case, root: Path, epochs: int, durability: st.Durability | None = None) -> Path:
    """Run a case for some epochs, or to the end if that comes first."""
    options = Options(2, rows_per_epoch=one.rows_per_epoch)
    if durability is not None:
        options = replace(options, durability=durability)
    persistently(one, root, options, lambda engine: engine.manifest.epoch < epochs - 1)
    return root


def finished(one: Case, root: Path) -> None:
    persistently(one, root, Options(3, rows_per_epoch=one.rows_per_epoch), lambda _: True)


def persistently(one: Case, root: Path, options: Options, between: Callable[[Engine], bool]) -> None:
    """Run a case; start again where its input has a mark that makes the run fail."""
    while True:
        try:
            inprocess.run(one.plan, root, options, between=between)
            return
        except SpringtideError as error:
            if "a test wanted" not in str(error):
                raise


@pytest.fixture(scope="module")
def states() -> Iterator[list[ProcessingState]]:
    """The processing states of all random queries, on their way."""
    found = []
    folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
    for seed in SEEDS:
        one = case(seed, folder / f"{seed}.input")
        root = stopped(one, folder / str(seed), 1 + seed % 7)
        if Checkpoint(root).latest() is not None:
            found += state.checkpoint(root).processing.values()
    yield found
    shutil.rmtree(folder)


def test_the_random_queries_have_every_kind_of_state(states: list[ProcessingState]) -> None:
    kinds = {kind for one in states for kind, frame in one.rows.items() if frame.height}
    assert {"panes", "sessions", "left", "right", "states", "tuples"} <= kinds


@pytest.mark.parametrize("by", WAYS)
@pytest.mark.parametrize("k", [1, 2, 3, 7])
def test_merging_the_parts_gives_the_whole(states: list[ProcessingState], k: int, by: state.By) -> None:
    """SE-2: merge(partition(s, k)) == s, for every operator and every way to cut."""
    possible = [s for s in states if by != "range" or has_ranges(s)]
    assert len(possible) > len(states) // 3
    for whole in possible:
        parts = state.partition(whole, k, by)
        assert len(parts) == k
        assert sum(part.height for part in parts) == whole.height
        assert state.merge(parts) == whole
        assert state.merge(Random(k).sample(parts, k)) == whole  # in any order


def has_ranges(one: ProcessingState) -> bool:
    return bool(one.keys) and all(set(one.keys) <= set(frame.columns) for frame in one.rows.values())


@pytest.mark.parametrize("by", WAYS)
def test_no_part_has_a_key_of_another(states: list[ProcessingState], by: state.By) -> None:
    for whole in (s for s in states if s.height and has_ranges(s)):
        parts = state.partition(whole, 3, by)
        keyed = [[f.select(whole.keys) for f in p.rows.values() if set(whole.keys) <= set(f.columns)] for p in parts]
        distinct = [pl.concat(frames).unique() for frames in keyed if frames]
        assert sum(d.height for d in distinct) == (pl.concat(distinct).unique().height if distinct else 0)


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


def usual(folder: Path) -> Case:
    """A case with state and a dozen epochs."""
    for seed in range(100):
        one = case(seed, folder / f"{seed}.input")
        root = stopped(one, folder / f"{seed}.try", 12)
        newest = Checkpoint(root).latest()
        shutil.rmtree(root)
        if newest is not None and newest.epoch == 11 and sum(s.rows for s in newest.segments()) > 20:
            for sink in one.sinks.values():
                sink.epochs.clear()
            return one
    raise AssertionError


@pytest.fixture
def one(tmp_path: Path) -> Case:
    return usual(tmp_path)


def test_restore_after_backup_is_the_identity(one: Case, tmp_path: Path, elsewhere: str) -> None:
    """SE-2, SM-4: state goes to stable storage and comes back as it was; the query goes on to the rows of the reference."""
    root = stopped(one, tmp_path / "ckpt", 8)
    before = state.checkpoint(root)
    first = state.backup(root, elsewhere)
    assert first.epochs == tuple(range(8))
    assert first.there == 0
    same(state.checkpoint(elsewhere), before)

    stopped(one, root, 10)
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
    finished(one, tmp_path / "new")
    expected = one.query.run_reference()
    for name, sink in one.sinks.items():
        compare(without_text(name, sink.rows()), without_text(name, expected.rows(name)))


def without_text(name: str, rows: pl.DataFrame) -> pl.DataFrame:
    return rows.drop("row") if name.startswith("rejected") else rows


def test_restore_of_an_older_epoch(one: Case, tmp_path: Path, elsewhere: str) -> None:
    """The rows behind that epoch come again; those before it are not published twice."""
    root = stopped(one, tmp_path / "ckpt", 8)
    state.backup(root, elsewhere)
    state.restore(elsewhere, tmp_path / "new", at=4)
    assert Checkpoint(tmp_path / "new").epochs() == [4]
    same(state.checkpoint(tmp_path / "new"), state.checkpoint(root, at=4))
    for sink in one.sinks.values():
        for epoch in [e for e in sink.epochs if e > 4]:
            del sink.epochs[epoch]
    finished(one, tmp_path / "new")
    expected = one.query.run_reference()
    for name, sink in one.sinks.items():
        compare(without_text(name, sink.rows()), without_text(name, expected.rows(name)))
    with pytest.raises(CheckpointError, match=r"has no manifest of epoch 99; it has \[0, 1, 2"):
        state.restore(elsewhere, tmp_path / "other", at=99)


def test_what_backup_and_restore_refuse(one: Case, tmp_path: Path) -> None:
    root = stopped(one, tmp_path / "ckpt", 3)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "diary.txt").touch()
    with pytest.raises(CheckpointError, match="is not empty; give an empty or a new folder"):
        state.restore(root, tmp_path / "full")
    with pytest.raises(CheckpointError, match="is not empty and not a Springtide checkpoint"):
        state.backup(root, tmp_path / "full")
    with pytest.raises(CheckpointError, match="has no epoch that is committed"):
        state.backup(tmp_path / "nothing", tmp_path / "node")
    state.backup(root, tmp_path / "node")
    other = stopped(one, tmp_path / "other", 3)
    with pytest.raises(CheckpointError, match="is the backup of another checkpoint"):
        state.backup(other, tmp_path / "node")
    stopped(one, tmp_path / "node", 5)
    with pytest.raises(CheckpointError, match=r"is at epoch 4, ahead of .* at epoch 2: another run went on from it"):
        state.backup(root, tmp_path / "node")


def test_a_backup_that_was_cut_short_goes_on(one: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = stopped(one, tmp_path / "ckpt", 8)
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
    def checkpoint_root(self) -> Path:
        return self.engine.checkpoint.root

    def checkpoint_now(self) -> int:
        return self.engine.checkpoint_now()


@pytest.mark.parametrize("every", ["epoch", "1h"])
def test_a_query_at_work(one: Case, tmp_path: Path, every: str) -> None:
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

    durability = st.Durability(every=every, memory=tmp_path / "memory" if every != "epoch" else None)
    options = replace(Options(2, rows_per_epoch=one.rows_per_epoch), durability=durability)
    inprocess.run(one.plan, tmp_path / "ckpt", options, between=between)
    assert [c.epoch for c in seen] == [5, 7]
    assert not list((tmp_path / "ckpt" / "savepoints").glob("*"))
    assert Checkpoint(tmp_path / "node").epochs() == [5, 7]
    finished(one, tmp_path / "node")
    expected = one.query.run_reference()
    for name, sink in one.sinks.items():
        compare(without_text(name, sink.rows()), without_text(name, expected.rows(name)))


# ── trim, replay, tiers ───────────────────────────────────────────────────────────────────────────────────────────


def test_trim_leaves_the_last_epochs(one: Case, tmp_path: Path, elsewhere: str) -> None:
    root = stopped(one, tmp_path / "ckpt", 9)
    state.backup(root, elsewhere)
    before = state.checkpoint(elsewhere)
    assert state.trim(elsewhere, keep=2).epochs == tuple(range(7))
    same(state.checkpoint(elsewhere), before)
    state.checkpoint(elsewhere, at=7)
    store = Store.at(elsewhere)
    with_manifests = {n.rpartition("/")[2] for n in store.list("manifests")}
    assert with_manifests == {"000000007", "000000008"}
    needed = Checkpoint(root).manifest(7).files() | Checkpoint(root).manifest(8).files()
    assert set(store.list("state")) == needed
    assert state.trim(elsewhere, keep=2).epochs == ()
    with pytest.raises(SpringtideError, match="give at least 1"):
        state.trim(elsewhere, keep=0)


def interrupted(one: Case, root: Path, memory: Path, epochs: int, persist_at: int) -> None:
    """A run that dies with its state in shared memory, but for what was durable after an epoch."""

    class Died(Exception):
        pass

    def between(engine: Engine) -> bool:
        if engine.manifest.epoch == persist_at:
            engine.checkpoint_now()
        if engine.manifest.epoch == epochs - 1:
            raise Died
        return True

    options = replace(
        Options(2, rows_per_epoch=one.rows_per_epoch), durability=st.Durability(every="never", memory=memory)
    )
    close, Engine.close = Engine.close, lambda self: self.lease.release()  # type: ignore[method-assign]
    try:
        with pytest.raises(Died):
            inprocess.run(one.plan, root, options, between=between)
    finally:
        Engine.close = close  # type: ignore[method-assign]


def test_trim_never_removes_what_a_replay_needs(one: Case, tmp_path: Path) -> None:
    """SE-2: epochs 4 … 8 were in shared memory only, which is gone; they are replayed behind a trim, a backup and a restore."""
    root, memory = tmp_path / "ckpt", tmp_path / "memory"
    interrupted(one, root, memory, epochs=9, persist_at=3)
    assert state.replay(root).epochs == ()  # all is still in memory
    shutil.rmtree(memory)
    told = state.replay(root)
    assert (told.base, told.epochs) == (3, (4, 5, 6, 7, 8))
    assert told.rows > 0 or told.buffers
    found = state.checkpoint(root)
    assert found.epoch == 3
    assert [m.epoch for m in found.buffer] == [4, 5, 6, 7, 8]
    assert state.trim(root, keep=1).epochs == (0, 1, 2)
    assert state.replay(root) == told
    state.backup(root, tmp_path / "node")
    state.restore(tmp_path / "node", tmp_path / "new")
    assert state.replay(tmp_path / "new") == told
    finished(one, tmp_path / "new")
    expected = one.query.run_reference()
    for name, sink in one.sinks.items():
        compare(without_text(name, sink.rows()), without_text(name, expected.rows(name)))


def test_spill_frees_shared_memory(one: Case, tmp_path: Path) -> None:
    root, memory = tmp_path / "ckpt", tmp_path / "memory"
    interrupted(one, root, memory, epochs=9, persist_at=3)
    before = state.checkpoint(root)
    assert state.spill(root) > 0
    assert [f for f in memory.rglob("*") if f.is_file()] == []
    same(state.checkpoint(root), before)
    assert state.spill(root) == 0


def test_persist_frees_the_disk(one: Case, tmp_path: Path, elsewhere: str) -> None:
    """Segments go to the store under their names; a start with that store as its backup fetches them."""
    root = stopped(one, tmp_path / "ckpt", 8)
    state.backup(root, elsewhere)
    assert state.persist(root, elsewhere, free=True) == 0  # they were there
    assert list((root / "state").rglob("*.arrow")) == []
    durability = st.Durability(backup=elsewhere)
    inprocess.run(one.plan, root, replace(Options(2, rows_per_epoch=one.rows_per_epoch), durability=durability))
    expected = one.query.run_reference()
    for name, sink in one.sinks.items():
        compare(without_text(name, sink.rows()), without_text(name, expected.rows(name)))


def test_what_is_in_use_is_left_alone(one: Case, tmp_path: Path) -> None:
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

    inprocess.run(one.plan, tmp_path / "ckpt", Options(2, rows_per_epoch=one.rows_per_epoch), between=between)
