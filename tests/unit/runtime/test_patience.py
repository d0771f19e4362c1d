"""What is not there for a while: sources, sinks and disks that fail and come back, within the patience of a run and beyond it."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.connectors import Publication, Read, Sink, Slice, Source, Take
from springtide.runtime import patience
from springtide.runtime.durability import Durability
from springtide.runtime.engine import Engine, Options
from springtide.runtime.inprocess import execute, run
from springtide.runtime.patience import Patience
from springtide.state import stores
from springtide.state.checkpoint import Checkpoint
from springtide.state.control import Command, send
from springtide.state.stores import Store
from springtide.testing import compare
from tests.unit.runtime import crashing
from tests.unit.runtime.crashing import SCHEMA, numbers
from tests.wording import says


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST", 0.001)


@dataclass
class Faults:
    """Fails as often as it is told: from its `first` call on, `times` times."""

    times: int
    first: int = 1
    error: Callable[[], Exception] = lambda: OSError(errno.EIO, "the cable is out")
    calls: int = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.first <= self.calls < self.first + self.times:
            raise self.error()


@dataclass(eq=False)
class Flaky(Source):
    """A source in memory that fails, when the driver looks or when a task reads."""

    rows: Any = field(default_factory=lambda: st.memory(numbers(40), schema=SCHEMA))
    look: Faults = field(default_factory=lambda: Faults(0))
    reading: Faults = field(default_factory=lambda: Faults(0))
    positions: bool = True

    def schema(self) -> pl.Schema:
        return self.rows.schema()

    def describe(self) -> str:
        return "flaky"

    def take(self, position: Any, limit: int, ts: str | None) -> Take:
        self.look()
        return self.rows.take(position, limit, ts)

    def read(self, part: Slice) -> Read:
        self.reading()
        return self.rows.read(part)

    def read_all(self) -> Any:
        return self.rows.read_all()


@dataclass(eq=False)
class Doubtful(Sink):
    """A sink that takes half of an epoch's files, and then may fail."""

    faults: Faults
    kept: dict[tuple[int, int], pl.DataFrame] = field(default_factory=dict)

    def check(self, schema: pl.Schema) -> str | None:
        return None

    def describe(self) -> str:
        return "doubtful"

    def publish(self, publication: Publication) -> None:
        for i, file in enumerate(publication.files):
            if i == len(publication.files) // 2:
                self.faults()
            self.kept[publication.epoch, i] = pl.read_ipc(file)

    def rows(self) -> pl.DataFrame:
        return pl.concat(self.kept.values())


def query(source: Any, sink: Any) -> st.Query:
    numbers = st.source("numbers", source, ts="ts")
    sums = numbers.aggregate(by="key", window=st.sliding("9s", every="3s"), total=st.sum("x"), name="sums")
    return st.Query("flaky", sums.to(sink, name="out"))


def start(made: st.Query, folder: Path, patient: float, **more: Any) -> Engine:
    return run(made.plan(buckets=8), folder / "ckpt", Options(2, rows_per_epoch=4, patience=patient), **more)


def notes(engine: Engine) -> list[str]:
    return [text for _, text in engine.events]


# ── sources ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("where", ["look", "reading"])
def test_a_source_that_comes_back_is_waited_for(tmp_path: Path, where: str) -> None:
    source, sink = Flaky(**{where: Faults(3, first=5)}), st.memory_sink()
    made = query(source, sink)
    engine = start(made, tmp_path, patient=60)
    compare(sink.rows(), made.run_reference().rows())
    failed, works = notes(engine)
    assert says(failed, "step numbers (source): ", "the cable is out; ", "again for 60 s")
    assert works.startswith("step numbers (source): works again, after 3 failures in ")


@pytest.mark.parametrize("where", ["look", "reading"])
def test_a_source_that_stays_away_ends_the_run_and_the_next_start_goes_on(tmp_path: Path, where: str) -> None:
    source, sink = Flaky(**{where: Faults(10**9, first=5)}), st.memory_sink()
    made = query(source, sink)
    with pytest.raises(st.UnavailableError, match="the cable is out") as gone:
        start(made, tmp_path, patient=0.02)
    assert (gone.value.step, gone.value.problem.split(":")[0]) == ("numbers (source)", "OSError")
    assert "failures" in gone.value.tried
    assert sink.epochs, "what was committed before is published"
    getattr(source, where).times = 0
    start(made, tmp_path, patient=0)
    compare(sink.rows(), made.run_reference().rows())


def test_a_mistake_is_not_waited_for(tmp_path: Path) -> None:
    mistake = Faults(10**9, error=lambda: st.SpringtideError("rows.parquet is not a Parquet file"))
    with pytest.raises(st.SpringtideError, match=r"rows\.parquet is not a Parquet file"):
        start(query(Flaky(look=mistake), st.memory_sink()), tmp_path, patient=60)
    assert mistake.calls == 1


@pytest.mark.parametrize("left", ["nothing", "an empty folder", "the files behind"])
@pytest.mark.parametrize("follow", [False, True])
def test_a_folder_that_is_gone_for_a_while_is_not_the_end_of_the_input(tmp_path: Path, left: str, follow: bool) -> None:
    """A network drive that is lost shows an empty folder, or none; files that had been read in part are not passed over."""
    crashing.write_input(tmp_path)
    sink = st.memory_sink()
    made = query(st.parquet(tmp_path / "in", schema=SCHEMA, follow=follow), sink)
    expected = made.run_reference(bounded=not follow).rows()
    plan, seen = made.plan(buckets=8), list[int]()
    options = Options(2, rows_per_epoch=7, patience=60)
    engine = Engine(plan, Checkpoint(tmp_path / "ckpt"), lambda epoch: execute(plan, epoch), options)

    def come_back() -> None:
        """Let the folder be there again, all of it at once, as soon as it was missed."""
        while not engine.events:
            time.sleep(0.005)
        if left != "nothing":
            os.rename(tmp_path / "in", tmp_path / "left")
        os.rename(tmp_path / "away", tmp_path / "in")

    for number in range(1000):
        if number == 4:  # 28 rows: in the middle of the second file
            shutil.copytree(tmp_path / "in", tmp_path / "away")
            shutil.rmtree(tmp_path / "in")
            if left != "nothing":
                (tmp_path / "in").mkdir()
            if left == "the files behind":
                shutil.copy(tmp_path / "away" / "2.parquet", tmp_path / "in")
            threading.Thread(target=come_back, daemon=True).start()
        if engine.manifest.ended or not engine.has_work():
            break
        engine.run()
        seen.append(engine.manifest.sources["numbers"].accepted)
    engine.close()
    assert seen[-1] == 60
    compare(sink.rows(), expected)
    assert "1.parquet is no longer in" in notes(engine)[0]


# ── sinks ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_sink_that_fails_half_way_gets_the_epoch_again(tmp_path: Path) -> None:
    sink = Doubtful(Faults(3, first=4, error=lambda: RuntimeError("the database is busy")))
    made = query(st.memory(numbers(40), schema=SCHEMA), sink)
    engine = start(made, tmp_path, patient=60)
    compare(sink.rows(), made.run_reference().rows())
    failed, works = notes(engine)
    assert says(failed, "step out (sink): ", "the database is busy; ", "again for 60 s")
    assert works.startswith("step out (sink): works again, after 3 failures in ")


def test_a_sink_that_stays_away_ends_the_run_and_the_next_start_publishes_first(tmp_path: Path) -> None:
    sink = Doubtful(Faults(10**9, first=4))
    made = query(st.memory(numbers(40), schema=SCHEMA), sink)
    with pytest.raises(st.UnavailableError, match=r"step out \(sink\): OSError: .*; .*next start"):
        start(made, tmp_path, patient=0.02)
    committed = Checkpoint(tmp_path / "ckpt").latest()
    assert committed is not None
    sink.faults.times = 0
    start(made, tmp_path, patient=0, between=lambda engine: False)
    assert (committed.epoch, len(committed.outbox) - 1) in sink.kept, "before the first epoch of the new run"
    start(made, tmp_path, patient=0)
    compare(sink.rows(), made.run_reference().rows())


def test_a_move_to_the_parquet_sink_that_fails_half_way_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some files of the epoch are in the folder, some are not: those that are stay, the others come."""
    crashing.write_input(tmp_path)
    made, faults, move = crashing.files_to_files(tmp_path), Faults(2, first=7), os.rename

    def rename(origin: Any, target: Any) -> None:
        if str(target).endswith(".parquet"):
            faults()
        move(origin, target)

    monkeypatch.setattr(os, "rename", rename)
    options = Options(3, rows_per_epoch=10, patience=60)
    engine = run(made.plan(buckets=8), tmp_path / "checkpoint", options)
    assert len(notes(engine)) == 2
    crashing.every_row_is_there_once(tmp_path)


# ── the checkpoint ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("short_tries")
@pytest.mark.parametrize("written", [False, True], ids=["not written", "written all the same"])
def test_a_commit_that_fails_for_a_while_happens_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    """Over a network a write may arrive of which only the answer is lost: the manifest that is there is then ours."""
    faults, link = Faults(9, first=4), os.link

    def failing(origin: Any, target: Any) -> None:
        if written:
            link(origin, target)
        faults()
        if not written:
            link(origin, target)

    monkeypatch.setattr(os, "link", failing)
    sink = st.memory_sink()
    made = query(st.memory(numbers(40), schema=SCHEMA), sink)
    engine = start(made, tmp_path, patient=60)
    compare(sink.rows(), made.run_reference().rows())
    assert written or (notes(engine)[0].startswith("step commit: AwayError") and "the cable is out" in notes(engine)[0])


def test_history_and_cleaning_that_fail_do_not_end_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Faults(10**9, error=lambda: OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr("springtide.state.history.History.append", lambda *_: faults())
    monkeypatch.setattr(Checkpoint, "forget", lambda *_: faults())
    sink = st.memory_sink()
    made = query(st.memory(numbers(60), schema=SCHEMA), sink)
    engine = start(made, tmp_path, patient=0)
    compare(sink.rows(), made.run_reference().rows())
    assert any(says(text, "history", "not be written", "No space left on device") for text in notes(engine))


# ── waiting ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pauses_grow_and_end_with_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is a number: it moves when somebody waits."""
    monkeypatch.setattr(patience, "FIRST", 0.1)
    now, tried = [0.0], list[float]()

    def fail() -> None:
        tried.append(round(now[0], 3))
        raise OSError("gone")

    waiting = Patience(20, lambda _: None, timer=lambda: now[0])
    waiting._over.wait = lambda seconds: now.__setitem__(0, now[0] + seconds)  # type: ignore[method-assign, assignment, misc, return-value]
    with pytest.raises(st.UnavailableError, match=r"step s: OSError: gone; 10 failures in 20\.0 s"):
        waiting.attempt("s", fail)
    assert tried == [0.0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 11.3, 16.3, 20.0]


def test_a_run_that_waits_can_be_stopped(tmp_path: Path) -> None:
    """By a command, which is done with then: the next start does not find it."""
    source, sink = Flaky(look=Faults(10**9, first=4)), st.memory_sink()
    made = query(source, sink)
    ask = threading.Timer(0.05, send, (tmp_path / "ckpt", Command("stop")))

    def between(engine: Engine) -> bool:
        if engine.manifest.epoch == 2:
            ask.start()
        return True

    with pytest.raises(st.UnavailableError, match="the cable is out"):
        start(made, tmp_path, patient=600, between=between)
    source.look.times = 0
    start(made, tmp_path, patient=0)
    compare(sink.rows(), made.run_reference().rows())
    assert list((tmp_path / "ckpt" / "control").glob("*.json")) == []


# ── the backup ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def short_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "WAITS", (0.001,))


def kept(folder: Path, every: str) -> Durability:
    return Durability(every=every, backup=folder / "backup", shared_memory=folder / "memory")


@pytest.mark.usefixtures("short_tries")
@pytest.mark.parametrize("every", ["epoch", "1us"])
@pytest.mark.parametrize("verb", ["create", "put", "exists", "files"])
def test_a_backup_that_fails_for_a_while_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, every: str
) -> None:
    """Now and then it is away for longer than a store waits by itself."""
    faults, work = Faults(5, first=6), getattr(Store, verb)

    def failing(store: Store, *arguments: Any) -> Any:
        return store._try(verb, str(arguments[0]), lambda: (faults(), work(store, *arguments))[1])

    monkeypatch.setattr(Store, verb, failing)
    sink = st.memory_sink()
    made = query(st.memory(numbers(40), schema=SCHEMA), sink)
    options = Options(2, rows_per_epoch=4, patience=60, durability=kept(tmp_path, every))
    engine = run(made.plan(buckets=8), tmp_path / "ckpt", options)
    compare(sink.rows(), made.run_reference().rows())
    assert faults.calls > 11 or verb in ("exists", "files")
    if faults.calls > 11 and every == "epoch":
        assert any("works again" in text for text in notes(engine))
    assert Checkpoint(tmp_path / "backup").epochs()[-1] == engine.manifest.epoch


@pytest.mark.usefixtures("short_tries")
def test_a_backup_that_stays_away_ends_the_run_and_the_next_start_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults, put = Faults(10**9, first=9), Store.put

    def failing(store: Store, local: Path, path: str) -> Any:
        return store._try("write", path, lambda: (faults(), put(store, local, path))[1])

    monkeypatch.setattr(Store, "put", failing)
    sink = st.memory_sink()
    made = query(st.memory(numbers(40), schema=SCHEMA), sink)
    options = Options(2, rows_per_epoch=4, patience=0.02, durability=kept(tmp_path, "epoch"))
    with pytest.raises(st.UnavailableError, match=r"step .*backup cannot write .*the cable is out.*; \d+ failures"):
        run(made.plan(buckets=8), tmp_path / "ckpt", options)
    faults.times = 0
    run(made.plan(buckets=8), tmp_path / "ckpt", options)
    compare(sink.rows(), made.run_reference().rows())
