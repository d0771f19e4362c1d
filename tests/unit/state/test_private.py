"""What a run makes for itself in shared memory is private, and nothing else is ever removed (issue 11, 1 and 14)."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import springtide as st
from springtide.runtime import inprocess
from springtide.runtime.durability import Durability
from springtide.runtime.engine import Engine, Options
from springtide.state import private
from springtide.state.checkpoint import Checkpoint
from tests.unit.runtime.crashing import every_row_is_there_once, files_to_files, write_input

OWN = {"holiday.jpg": b"sea", "state/letters.txt": b"dear", "springtide-notes/a": b"b"}


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    """A folder in which a user has things of his own."""
    for name, content in OWN.items():
        (tmp_path / "memory" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "memory" / name).write_bytes(content)
    return tmp_path / "memory"


def is_as_it_was(memory: Path) -> bool:
    files = {str(f.relative_to(memory)): f.read_bytes() for f in memory.rglob("*") if f.is_file()}
    return files == OWN


def run(folder: Path, memory: Path, *, killed_after: int | None = None, **more: Any) -> Engine:
    """Run a query in a folder of its own; one that is killed leaves its memory."""
    if not folder.exists():
        folder.mkdir()
        write_input(folder)

    def between(engine: Engine) -> bool:
        if killed_after is None or engine.manifest.epoch < killed_after:
            return True
        engine.close = engine.storage.lease.release  # type: ignore[method-assign]
        return False

    durability = Durability("never", shared_memory=memory, **more)
    options = Options(2, rows_per_epoch=7, durability=durability)
    return inprocess.run(files_to_files(folder).plan(buckets=8), folder / "checkpoint", options, between=between)


def folders(memory: Path) -> list[Path]:
    return sorted(f for f in memory.glob("springtide-*-*-*") if f.is_dir())


def test_a_users_folder_is_left_as_it_was(tmp_path: Path, memory: Path) -> None:
    run(tmp_path / "a", memory, killed_after=3)
    (made,) = folders(memory)
    assert made.stat().st_mode & 0o777 == 0o700
    run(tmp_path / "a", memory)
    assert is_as_it_was(memory)
    every_row_is_there_once(tmp_path / "a")


def test_two_queries_do_not_touch_each_other(tmp_path: Path, memory: Path) -> None:
    run(tmp_path / "a", memory, killed_after=3)
    run(tmp_path / "b", memory, killed_after=5)
    assert len(folders(memory)) == 2
    for name in ("a", "b"):
        engine = run(tmp_path / name, memory)
        assert engine.events == [], "nothing was lost"
        every_row_is_there_once(tmp_path / name)
    assert is_as_it_was(memory)


def test_what_killed_runs_left_goes_with_the_next_start(tmp_path: Path, memory: Path) -> None:
    """Also what no manifest names: a run that dies before its first epoch has a folder too."""
    run(tmp_path / "a", memory, killed_after=3)
    private.make(private.new(memory, tmp_path / "a" / "checkpoint"))
    run(tmp_path / "a", memory)
    assert is_as_it_was(memory)


def test_a_copy_does_not_remove_the_memory_of_a_run(tmp_path: Path, memory: Path) -> None:
    """`cp -r` of a checkpoint in use: its manifest names the memory of another."""
    run(tmp_path / "a", memory, killed_after=3)
    (made,) = folders(memory)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    run(tmp_path / "b", memory)
    assert folders(memory) == [made]
    engine = run(tmp_path / "a", memory)
    assert engine.events == [], "nothing was lost"
    every_row_is_there_once(tmp_path / "a")


@pytest.mark.parametrize("forged", ["memory", "memory/springtide-notes", "/", "memory/../memory", "a\0b", "linked"])
def test_a_forged_manifest_reaches_no_other_folder(tmp_path: Path, memory: Path, forged: Any) -> None:
    run(tmp_path / "a", memory, killed_after=3)
    if forged == "linked":  # a link with a name like ours
        forged = str(private.new(memory, tmp_path / "a" / "checkpoint"))
        os.symlink(memory, forged)
    elif isinstance(forged, str):
        forged = str(tmp_path / forged) if forged != "/" else forged
    checkpoint = Checkpoint(tmp_path / "a" / "checkpoint")
    last = checkpoint.latest()
    assert last is not None
    assert last.log is not None
    assert private.left(forged, checkpoint.root) is None
    path = checkpoint.root / "manifests" / f"{last.epoch:09d}"
    path.write_bytes(replace(last, log=replace(last.log, shared_memory=forged)).encode())
    engine = run(tmp_path / "a", memory)
    assert "being rebuilt" in engine.events[0][1], "what was there was not read"
    if os.path.lexists(str(forged)) and os.path.islink(str(forged)):
        os.unlink(forged)
    assert is_as_it_was(memory)
    every_row_is_there_once(tmp_path / "a")


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = private.new(tmp_path, tmp_path / "checkpoint")
    (tmp_path / "theirs").mkdir()
    os.symlink(tmp_path / "theirs", folder)
    with pytest.raises(st.CheckpointError, match=r"not a folder; .*st.Durability\(shared_memory=…\)"):
        private.make(folder)
    folder.unlink()
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(st.CheckpointError, match="can be written by other users"):
        private.make(folder)
    folder.chmod(0o700)
    private.make(folder)
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(st.CheckpointError, match="belongs to another user"):
        private.make(folder)
    private.remove(folder)
    assert folder.exists()


def test_the_folder_that_earlier_versions_made_is_taken_and_removed(
    tmp_path: Path, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private, "_SHARED_MEMORY", tmp_path / "shm")
    (tmp_path / "shm").mkdir()
    run(tmp_path / "a", memory, killed_after=3)
    checkpoint = Checkpoint(tmp_path / "a" / "checkpoint")
    (made,), former = folders(memory), private.former(checkpoint.root)
    made.rename(former)
    (former / private.MARKER).unlink()
    for manifest in checkpoint.history():
        path = checkpoint.root / "manifests" / f"{manifest.epoch:09d}"
        assert manifest.log is not None
        path.write_bytes(replace(manifest, log=replace(manifest.log, shared_memory=str(former))).encode())
    engine = run(tmp_path / "a", memory)
    assert engine.events == [], "nothing was lost"
    assert not former.exists()
    assert is_as_it_was(memory)
    every_row_is_there_once(tmp_path / "a")
