"""Durability in the background and recovery (SE-1 … SE-4): what is lost is made anew, and no row with it."""

from __future__ import annotations

import fcntl
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.elastic.maps import split
from springtide.runtime import inprocess
from springtide.runtime.durability import Durability, durability_of
from springtide.runtime.engine import Engine, Options
from springtide.runtime.epoch import Epoch, TaskReport
from springtide.runtime.publishing import Publishing
from springtide.runtime.recovering import batches, partitioned
from springtide.state.bucket_map import BucketMap
from springtide.state.checkpoint import Checkpoint
from springtide.state.errors import LostError
from springtide.state.manifest import EpochLog, Manifest
from springtide.state.segment import Segment
from springtide.testing import compare
from tests.unit.runtime.crashing import every_row_is_there_once, files_to_files, write_input
from tests.wording import says

BACKUP = "backup"
LONG = "1000000s"
"""Longer than a run takes by its timer, however often that is looked at: the state is durable when a test says so."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_input(tmp_path)
    return tmp_path


class Timer:
    """A second for every look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def durability(folder: Path, every: str = "20s", **more: Any) -> Durability:
    return Durability(every, shared_memory=folder / "memory", **more)


def run(
    folder: Path,
    chosen: Durability,
    *,
    between: Callable[[Engine], bool] = lambda _: True,
    checkpoint: str = "checkpoint",
    instances: int = 2,
    rows: int = 7,
) -> Engine:
    options = Options(instances, rows_per_epoch=rows, durability=chosen, timer=Timer())
    return inprocess.run(files_to_files(folder).plan(buckets=8), folder / checkpoint, options, between=between)


def killed_after(epoch: int) -> Callable[[Engine], bool]:
    """Stop a run as SIGKILL does: nothing is made durable any more."""

    def between(engine: Engine) -> bool:
        if engine.manifest.epoch < epoch:
            return True
        engine.storage.persister.wait()
        engine.close = engine.storage.lease.release  # type: ignore[method-assign]
        return False

    return between


def _in_memory(engine: Engine, segment: Segment) -> Path:
    assert engine.storage.tiers.shared_memory is not None
    return Path(engine.storage.tiers.shared_memory) / segment.file


def arrow_files(folder: Path) -> set[str]:
    return {f.name for f in (folder / "state").rglob("*.arrow")}


def told(engine: Engine) -> list[str]:
    return [text for _, text in engine.events]


# ── in the background ─────────────────────────────────────────────────────────────────────────────────────────────


def test_between_checkpoints_state_is_in_memory_only(folder: Path) -> None:
    run(folder, durability(folder, "never"), between=killed_after(3))
    (memory,) = (folder / "memory").iterdir()
    assert arrow_files(memory)
    assert not arrow_files(folder / "checkpoint")
    assert Checkpoint(folder / "checkpoint").epochs() == [0, 1, 2, 3], "the log: what a replay needs is not trimmed"


def test_a_checkpoint_is_incremental_and_trims_the_log(folder: Path) -> None:
    """SE-4, SM-4: only segments that are still needed and not there yet are copied; older manifests go."""
    written: list[set[str]] = []

    def between(engine: Engine) -> bool:
        engine.storage.persister.wait()
        written.append(arrow_files(folder / "checkpoint"))
        return True

    engine = run(folder, durability(folder, "6s", retain=1), between=between)
    assert any(written)
    assert len(set().union(*written)) > max(map(len, written)), "not the same ones each time"
    assert len(engine.checkpoint.epochs()) < engine.manifest.epoch
    every_row_is_there_once(folder)


def test_a_stop_makes_everything_durable_and_gives_the_memory_back(folder: Path) -> None:
    engine = run(folder, durability(folder), between=lambda e: e.manifest.epoch < 3)
    assert not any((folder / "memory").iterdir())
    assert {Path(f).name for f in engine.manifest.files()} <= arrow_files(folder / "checkpoint")
    run(folder, Durability())
    every_row_is_there_once(folder)


def test_a_checkpoint_by_hand(folder: Path) -> None:
    def between(engine: Engine) -> bool:
        if engine.manifest.epoch == 3:
            assert engine.checkpoint_now() == 3
            assert {Path(f).name for f in engine.manifest.files()} <= arrow_files(folder / "checkpoint")
        return True

    run(folder, durability(folder, "never"), between=between)


def test_memory_that_is_lost_while_a_checkpoint_copies_it(folder: Path) -> None:
    """A task finds no copy, as one is lost and the other one not there yet; when the driver looks, it is: the epoch runs again."""
    failed: list[int] = []

    def between(engine: Engine) -> bool:
        if engine.manifest.epoch == 3:
            execute = engine.form.execute

            def once(epoch: Epoch) -> Sequence[TaskReport]:
                if not failed:
                    failed.append(epoch.number)
                    engine.checkpoint_now()
                    raise LostError("checkpoint", "has lost a segment", "look again")
                return execute(epoch)

            engine.epochs.form = replace(engine.form, execute=once)
        return True

    engine = run(folder, durability(folder, "never"), between=between)
    assert failed == [4]
    assert not [text for text in told(engine) if "rebuilt" in text]
    every_row_is_there_once(folder)


def test_damage_that_no_task_sees_when_a_window_recreation_begins(folder: Path) -> None:
    """No replay crosses the beginning of one. It happens only once its state is durable: damage is found in time to make it anew."""
    damaged = list[int]()

    def between(engine: Engine) -> bool:
        assert bool(engine.manifest.old_owners) == (6 <= engine.manifest.epoch < 9)
        if engine.manifest.epoch == 5:
            execute = engine.form.execute

            def spoil(epoch: Epoch) -> Sequence[TaskReport]:
                reports = execute(epoch)
                for path in [] if damaged else [_in_memory(engine, s) for s in engine.manifest.segments()]:
                    data = bytearray(path.read_bytes())
                    data[len(data) // 2] ^= 1
                    path.unlink()
                    path.write_bytes(data)
                damaged.append(epoch.number)
                return reports

            engine.epochs.form = replace(engine.form, execute=spoil)
            engine.scale("sums", 3, "window")
        return True

    engine = run(folder, durability(folder, "never"), between=between, rows=2)
    assert damaged.count(6) == 2, "the epoch was run again"
    assert any("rebuilt" in text for text in told(engine))
    every_row_is_there_once(folder)


def test_a_window_recreation_that_begins_and_ends_in_one_epoch(folder: Path) -> None:
    """No replay crosses that either: what was sent to old owners cannot be sent again without them."""

    def between(engine: Engine) -> bool:
        assert not engine.manifest.old_owners
        if engine.manifest.epoch == 0:
            engine.scale("sums", 3, "window")
        if engine.manifest.epoch == 1:
            shutil.rmtree(folder / "memory")
        return True

    engine = run(folder, durability(folder, "never", buffer=True), between=between, rows=20)
    assert any("old windows of aggregate are finished" in text for text in told(engine))
    every_row_is_there_once(folder)


def test_replays_with_several_old_owners_do_not_depend_on_their_order(tmp_path: Path) -> None:
    """One run knows them in the order in which they came, the next one in that of their names."""
    rows = pl.DataFrame({"k": [i % 3 for i in range(60)], "x": range(60), "ts": range(60)})
    source = st.source("rows", st.memory(rows.with_columns(pl.col("ts").cast(st.TIME))), ts="ts")
    window = st.tumbling("40us")
    sums = source.aggregate(by="k", window=window, total=st.sum("x"), name="sums")
    counts = source.filter(pl.col("x") > 9).aggregate(by="k", window=window, n=st.count(), name="counts")
    sinks = {"sums": st.memory_sink(), "counts": st.memory_sink()}
    query = st.Query("two", sums.to(sinks["sums"], name="of-sums"), counts.to(sinks["counts"], name="of-counts"))
    killed = killed_after(4)

    def between(engine: Engine) -> bool:
        if engine.manifest.epoch == 2:
            for step in sinks:
                engine.scale(step, 3, "window")
        return killed(engine)

    options = Options(2, rows_per_epoch=5, durability=durability(tmp_path, "never"))
    engine = inprocess.run(query.plan(buckets=8), tmp_path / "checkpoint", options, between=between)
    assert list(engine.manifest.old_owners) == ["sums", "counts"]
    shutil.rmtree(tmp_path / "memory")
    assert "being rebuilt" in "".join(told(inprocess.run(query.plan(buckets=8), tmp_path / "checkpoint", options)))
    for name, sink in sinks.items():
        compare(sink.rows(), query.run_reference().rows(f"of-{name}"))


def test_a_checkpoint_that_fails_is_tried_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from springtide.state import tiers

    real, failures = tiers.copy_through, iter([OSError("the disk is away"), OSError("the disk is away")])

    def copy(source: Path, target: Path) -> None:
        if (failure := next(failures, None)) is not None:
            raise failure
        real(source, target)

    monkeypatch.setattr(tiers, "copy_through", copy)
    engine = run(folder, durability(folder, "5s"))
    assert any(says(text, "checkpoint failed", "again", "the disk is away") for text in told(engine))
    every_row_is_there_once(folder)


# ── recovery ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_killed_run_goes_on_from_shared_memory(folder: Path) -> None:
    run(folder, durability(folder, "never"), between=killed_after(4))
    engine = run(folder, durability(folder))
    assert engine.events == [], "nothing was lost"
    every_row_is_there_once(folder)


@pytest.mark.parametrize("buffer", [False, True], ids=["read again", "sent again"])
@pytest.mark.parametrize("every", [LONG, "never"])
@pytest.mark.parametrize("degree", [1, 3])
def test_what_was_only_in_memory_is_made_anew(folder: Path, every: str, degree: int, buffer: bool) -> None:
    """SE-3: recovery is scale-out, to degree 1 or in parallel; from the checkpoint and the buffer state.

    SE-7: without a checkpoint it is upstream backup (sent again) or source replay (read again).
    """
    lost = False

    def between(engine: Engine) -> bool:
        nonlocal lost
        if every == LONG and engine.manifest.epoch == 2:
            engine.checkpoint_now()
        if engine.manifest.epoch == 5 and not lost:
            lost = True
            shutil.rmtree(folder / "memory")
        return True

    engine = run(folder, durability(folder, every, degree=degree, buffer=buffer), between=between, instances=1)
    assert re.match(r"lost \d+ segments of aggregate, aggregate-2:", told(engine)[0])
    assert "is whole again after" in told(engine)[1]
    assert engine.maps["aggregate"].instances == degree
    every_row_is_there_once(folder)


@pytest.mark.parametrize("kept", [True, False], ids=["in order", "machine lost"])
def test_a_killed_run_whose_memory_is_lost(folder: Path, kept: bool) -> None:
    killed = killed_after(5)

    def between(engine: Engine) -> bool:
        if engine.manifest.epoch == 2:
            engine.checkpoint_now()
        return killed(engine)

    run(folder, durability(folder, LONG), between=between)
    if not kept:
        shutil.rmtree(folder / "memory")
    engine = run(folder, Durability())
    assert ("being rebuilt" in "".join(told(engine))) is not kept
    every_row_is_there_once(folder)


@pytest.mark.parametrize("step", range(4))
def test_the_recovery_itself_may_fail(folder: Path, step: int) -> None:
    """SE-3: it changes nothing until it is done, so that it can begin again."""
    run(folder, durability(folder, "never"), between=killed_after(5))
    shutil.rmtree(folder / "memory")
    plan = files_to_files(folder).plan(buckets=8)
    calls = 0

    def execute(epoch: Epoch) -> Sequence[TaskReport]:
        nonlocal calls
        calls += 1
        reports = inprocess.execute(plan, epoch)
        if calls == step:
            raise RuntimeError("killed after its tasks were done")
        return reports

    options = Options(
        2, rows_per_epoch=14, durability=durability(folder, degree=2)
    )  # the six epochs are replayed as three
    engine = Engine(plan, Checkpoint(folder / "checkpoint"), execute, options)
    if step:
        with pytest.raises(RuntimeError, match="killed"):
            engine.begin()
        assert calls == step
    engine.storage.lease.release()
    run(folder, durability(folder))
    every_row_is_there_once(folder)


def test_without_a_log_a_loss_is_reported_exactly(folder: Path) -> None:
    run(folder, Durability(retain=1), between=lambda e: e.manifest.epoch < 4)
    manifest = Checkpoint(folder / "checkpoint").latest()
    assert manifest is not None
    first = min(manifest.segments(), key=lambda s: s.file)
    whole = (folder / "checkpoint" / first.file).read_bytes()
    (folder / "checkpoint" / first.file).unlink()
    gone = rf"has lost 1 segment with {first.rows} rows?, .*: {first.file}"
    with pytest.raises(st.CheckpointError, match=gone):
        run(folder, Durability(retain=1))
    (folder / "checkpoint" / first.file).write_bytes(whole)
    run(folder, Durability())
    every_row_is_there_once(folder)


# ── a backup ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("every", ["epoch", "20s", "never"])
@pytest.mark.parametrize("loss", ["segments", "segments while running", "machine"])
def test_the_backup_outlives_the_machine(folder: Path, every: str, loss: str) -> None:
    """SM-4: passive replication; another folder stands for another machine."""
    chosen = durability(folder, every, backup=folder / BACKUP)

    def lose(engine: Engine) -> bool:
        if engine.manifest.epoch == 4:
            shutil.rmtree(folder / "checkpoint" / "state", ignore_errors=True)
            shutil.rmtree(folder / "memory", ignore_errors=True)
        return True

    if loss == "segments while running":
        run(folder, chosen, between=lose)
    else:
        run(folder, chosen, between=killed_after(4))
        shutil.rmtree(folder / "memory", ignore_errors=True)
        shutil.rmtree(folder / "checkpoint" / ("state" if loss == "segments" else ""), ignore_errors=True)
        run(folder, chosen, checkpoint="checkpoint" if loss == "segments" else "elsewhere")
    every_row_is_there_once(folder)


@pytest.mark.parametrize(("every", "buffer"), [("epoch", False), ("20s", True)])
@pytest.mark.parametrize(
    "when", ["between epochs", "while tasks run", "before the commit", "before rows are published"]
)
def test_a_folder_that_is_removed_under_a_running_query_is_restored_from_the_backup(
    folder: Path, every: str, buffer: bool, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = durability(folder, every, backup=folder / BACKUP, buffer=buffer)
    removed: list[str] = []

    def remove() -> None:
        if not removed:
            removed.append(when)
            shutil.rmtree(folder / "checkpoint")

    def before(owner: Any, name: str, *, after: bool = False) -> None:
        act = getattr(owner, name)

        def acting(*given: Any, **more: Any) -> Any:
            if not after:
                remove()
            done = act(*given, **more)
            if after:
                remove()
            return done

        monkeypatch.setattr(owner, name, acting)

    def between(engine: Engine) -> bool:
        if engine.manifest.epoch == 4 and not removed:
            if when == "between epochs":
                remove()
            elif when == "while tasks run":
                before(inprocess, "execute", after=True)
            elif when == "before the commit":
                before(engine.storage.lease, "commit")
            else:
                before(engine.publishing, "publish")
        return engine.manifest.epoch < 6

    engine = run(folder, chosen, between=between)
    assert removed
    assert any("the checkpoint's folder was gone: it was restored from" in text for text in told(engine)), told(engine)
    engine = run(folder, chosen)
    assert not any("restored" in text for text in told(engine)), "the folder is a whole checkpoint again"
    every_row_is_there_once(folder)


def test_a_backup_in_an_object_store(folder: Path, s3: str) -> None:
    chosen = Durability(backup=s3)
    engine = run(folder, chosen, between=lambda e: e.manifest.epoch < 4)
    shutil.rmtree(folder / "checkpoint")
    engine = run(folder, chosen, checkpoint="elsewhere")
    assert "hush" not in "".join(told(engine))
    for file in (folder / "elsewhere").rglob("*"):
        assert not file.is_file() or b"hush" not in file.read_bytes(), f"a secret is in {file}"
    every_row_is_there_once(folder)


def test_a_run_that_is_paused_before_it_asks_the_sinks_is_told_that_it_was_taken_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that a folder of its own is another's."""
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    opening = Publishing.open

    def later(self: Publishing) -> None:
        monkeypatch.setattr(Publishing, "open", opening)
        run(folder, Durability(), between=lambda e: e.manifest.epoch < 3)
        opening(self)

    monkeypatch.setattr(Publishing, "open", later)
    with pytest.raises(st.CheckpointError, match="taken over"):
        run(folder, Durability())
    run(folder, Durability())
    every_row_is_there_once(folder)


@pytest.mark.parametrize("paused", ["left", "sweep"])
def test_a_run_that_is_paused_before_it_cleans_up_removes_nothing_of_a_newer_one(
    folder: Path, paused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file system without locks; the newer run went on meanwhile, and is not done yet."""
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    run(folder, Durability(), between=lambda e: e.manifest.epoch < 2)
    act, others = getattr(Checkpoint, paused), list[Engine]()

    def later(self: Checkpoint, *given: Any) -> Any:
        monkeypatch.setattr(Checkpoint, paused, act)
        others.append(run(folder, Durability(), between=lambda e: e.manifest.epoch < 5))
        return act(self, *given)

    monkeypatch.setattr(Checkpoint, paused, later)
    with pytest.raises(st.CheckpointError, match="taken over"):
        run(folder, Durability())
    (other,) = others
    assert all((folder / "checkpoint" / file).exists() for file in other.manifest.files())
    run(folder, Durability())
    every_row_is_there_once(folder)


def test_a_backup_may_be_added_later(folder: Path) -> None:
    run(folder, Durability(), between=lambda e: e.manifest.epoch < 3)
    run(folder, Durability(backup=folder / BACKUP), between=lambda e: e.manifest.epoch < 5)
    shutil.rmtree(folder / "checkpoint")
    run(folder, Durability(backup=folder / BACKUP))
    every_row_is_there_once(folder)


# ── the parts ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_buckets_of_those_who_lost_state_are_partitioned() -> None:
    before = {"counts": BucketMap.even(8, 2, version=3), "sums": BucketMap.even(8, 1)}
    gone = [Segment("state/counts/x.arrow", "panes", epoch=4, instance=1, version=3, rows=1, bytes=1, low=0, high=0)]
    assert partitioned(before, gone, 2) == before | {"counts": split(before["counts"], 1, 2)}
    assert partitioned(before, gone, 1) == before
    assert partitioned(before, gone, 2, fixed={"counts"}) == before
    old = [Segment("state/counts/x.arrow", "panes", epoch=1, instance=1, version=2, rows=1, bytes=1, low=0, high=0)]
    assert partitioned(before, old, 2)["counts"].instances == 4, "of an older map: all of them may have lost rows"


def test_epochs_are_replayed_as_few_large_ones() -> None:
    def epoch(number: int, rows: int, idle: bool = False) -> Manifest:
        return Manifest(number, 1, log=EpochLog(rows=rows, idle=idle))

    records = [epoch(0, 4), epoch(1, 4), epoch(2, 4), epoch(3, 1, idle=True), epoch(4, 1), epoch(5, 20)]
    assert [[m.epoch for m in batch] for batch in batches(records, 10)] == [[0, 1], [2], [3], [4], [5]]


def test_the_old_name_of_shared_memory_still_works(tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match="shared_memory"):
        old = Durability("5s", memory=tmp_path)
    assert old == Durability("5s", shared_memory=tmp_path)
    assert replace(old, retain=3).shared_memory == tmp_path


def test_what_a_user_gives(tmp_path: Path) -> None:
    assert durability_of(None) == Durability()
    assert durability_of("5s").seconds == 5
    assert durability_of(Durability(retain=3)).retain == 3
    assert Durability().tiers(Checkpoint(tmp_path)).shared_memory is None
    with pytest.raises(st.QueryError, match="retain=0 is too few; give at least 1"):
        Durability(retain=0)
    with pytest.raises(st.QueryError, match="every"):
        Durability("0s")
