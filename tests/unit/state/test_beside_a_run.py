"""Whoever looks at a checkpoint while a run has it: files go before their eyes, and nothing is said that is not so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import springtide as st
from springtide import state
from springtide.runtime import inprocess
from springtide.runtime.durability import Durability
from springtide.runtime.engine import Engine, Options
from springtide.state import control, copying, verifying
from springtide.state.checkpoint import Checkpoint
from springtide.state.control import Command, receive, send
from springtide.state.history import History
from springtide.state.stores import Store
from springtide.state.tiers import Tiers
from springtide.testing import compare
from tests.unit.runtime.crashing import files_to_files, numbers, write_input


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkpoint of some epochs."""
    write_input(tmp_path)
    options = Options(2, rows_per_epoch=7, durability=Durability(retain=4))
    plan = files_to_files(tmp_path).plan(buckets=8)
    inprocess.run(plan, tmp_path / "checkpoint", options, between=lambda engine: engine.manifest.epoch < 7)
    return tmp_path / "checkpoint"


def only_in_the_oldest(root: Path) -> set[str]:
    oldest, *others = Checkpoint(root).history()
    own = oldest.files() - set[str]().union(*(m.files() for m in others))
    assert own
    return own


# ── verify ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("forgotten", [True, False])
def test_an_epoch_that_is_forgotten_meanwhile_is_not_damaged(
    root: Path, monkeypatch: pytest.MonkeyPatch, forgotten: bool
) -> None:
    """A segment that is missing is damage only where there is still a manifest that speaks of it."""
    checkpoint, own, look = Checkpoint(root), only_in_the_oldest(root), verifying.problem_of
    oldest, *others = checkpoint.epochs()

    def problem_of(*args: Any) -> str | None:
        if forgotten:
            checkpoint.forget(oldest)
        for file in own:
            (root / file).unlink(missing_ok=True)
        return look(*args)

    monkeypatch.setattr(verifying, "problem_of", problem_of)
    found = verifying.verify(root)
    assert {d.file for d in found.damaged} == (set() if forgotten else own)
    assert found.epochs == tuple(others if forgotten else [oldest, *others])


def test_a_segment_that_goes_while_it_is_looked_at_is_missing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file, *_) = only_in_the_oldest(root)
    copies = Tiers.copies

    def gone(tiers: Tiers, segment: Any) -> list[Path]:
        found = copies(tiers, segment)
        if segment.file == file:
            (root / file).unlink(missing_ok=True)
        return found

    monkeypatch.setattr(Tiers, "copies", gone)
    assert [(d.file, d.problem) for d in verifying.verify(root).damaged] == [(file, "is missing")]


def test_a_file_that_is_no_manifest_is_passed_over(root: Path) -> None:
    (root / "manifests" / "notes.txt").write_text("somebody's")
    assert not verifying.verify(root).lost


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_manifest_that_goes_while_manifests_are_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Checkpoint(root)
    listed = checkpoint.epochs()
    checkpoint.forget(listed[0])
    monkeypatch.setattr(checkpoint, "epochs", lambda: listed)
    assert [m.epoch for m in checkpoint.history()] == listed[1:]


def test_the_newest_manifest_where_only_one_is_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Checkpoint(root)
    listed, looks = checkpoint.epochs(), [[0]]  # when epoch 0 was listed, it was the newest; by now it is gone
    monkeypatch.setattr(checkpoint, "epochs", lambda: looks.pop() if looks else listed)
    newest = checkpoint.latest()
    assert newest is not None
    assert newest.epoch == 7


def test_a_part_of_the_history_that_goes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(root)
    parts = [*history._parts("snapshots"), root / "history" / "snapshots-000000-000000.jsonl"]
    monkeypatch.setattr(history, "_parts", lambda kind: sorted(parts))
    assert len(history.read("snapshots")) == 8


def test_a_file_of_a_store_that_goes_while_it_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("a")
    rglob = Path.rglob
    monkeypatch.setattr(Path, "rglob", lambda self, pattern: [*rglob(self, pattern), tmp_path / "b"])
    assert Store.at(tmp_path).files() == {"a": 1}


def test_two_who_look_do_not_take_each_other_for_a_run(root: Path) -> None:
    import fcntl

    with open(root / "lock", "r+b") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert not Checkpoint(root).in_use()
        fcntl.flock(other, fcntl.LOCK_EX)
        assert Checkpoint(root).in_use()


def test_a_command_that_is_taken_back_while_commands_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [send(tmp_path, Command("stop")), send(tmp_path, Command("pause"))]
    read = control.content

    def content(path: Path, *args: Any, **more: Any) -> bytes:
        if path == left[0]:
            path.unlink()
        return read(path, *args, **more)

    monkeypatch.setattr(control, "content", content)
    assert [c.name for c in receive(tmp_path)] == ["pause"]


# ── cleaning up ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_manifest_goes_before_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill in between leaves files that nobody speaks of, not a manifest without its files."""
    write_input(tmp_path)
    root, removed = tmp_path / "checkpoint", list[str]()

    def remove(tiers: Tiers, file: str) -> None:
        assert not any(file in m.files() | m.buffers() for m in Checkpoint(root).history())
        removed.append(file)

    monkeypatch.setattr(Tiers, "remove", remove)
    options = Options(2, rows_per_epoch=7, durability=Durability(retain=2))
    inprocess.run(files_to_files(tmp_path).plan(buckets=8), root, options)
    assert any(file.startswith("state/") for file in removed)


# ── copies ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def counting(sink: st.MemorySink) -> st.Query:
    rows = numbers(60).rename({"key": "k"})
    counts = st.source("x", st.memory(rows), ts="ts").aggregate(by="k", window=st.tumbling("8s"), n=st.sum("x"))
    return st.Query("q", counts.to(sink))


@pytest.mark.parametrize("copy", [state.backup, state.restore], ids=lambda made: made.__name__)
def test_a_copy_that_is_overtaken_by_the_next_epoch_can_be_started(
    copy: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of its epoch are with the sinks by then, and what was on its way to them is gone."""
    made, sink, at = copying.copy, st.memory_sink(), list[int]()
    query = counting(sink)

    def overtaken(source: Any, manifests: Any, target: Any, **how: Any) -> Any:
        if not at:
            at.append(engines[0].manifest.epoch)
            assert engines[0].has_work()
            engines[0].run()
        return made(source, manifests, target, **how)

    engines = list[Engine]()

    def between(engine: Engine) -> bool:
        if engine.manifest.epoch >= 3 and engine.manifest.outbox and not engines:
            engines.append(engine)
            copy(tmp_path / "ckpt", tmp_path / "copy")
        return True

    monkeypatch.setattr(copying, "copy", overtaken)
    options = Options(2, rows_per_epoch=5)
    inprocess.run(query.plan(buckets=8), tmp_path / "ckpt", options, between=between)
    compare(sink.rows(), query.run_reference().rows())
    assert at
    again = st.memory_sink()
    inprocess.run(counting(again).plan(buckets=8), tmp_path / "copy", options)
    rows = {tuple(row.items()) for row in sink.rows().drop("ts", strict=False).to_dicts()}
    assert 0 < again.rows().height < sink.rows().height
    assert {tuple(row.items()) for row in again.rows().drop("ts", strict=False).to_dicts()} <= rows
