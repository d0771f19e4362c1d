"""`springtide checkpoint …`: list, verify, copy, restore, save."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import Result

import springtide as st
from springtide.cli.launch import RunOptions, prepare
from springtide.query import steps
from springtide.runtime import inprocess
from springtide.runtime.engine import Engine, Options
from springtide.state.checkpoint import Checkpoint
from springtide.state.errors import CheckpointError
from springtide.state.stores import Store
from springtide.testing import compare
from tests.wording import says

Run = Callable[..., Result]
Make = Callable[..., Path]


def segment_of(root: Path) -> Path:
    return root / next(iter(Checkpoint(root).latest().segments())).file  # type: ignore[union-attr]


def test_list(run: Run, checkpoint: Make) -> None:
    root = checkpoint(3)
    run("checkpoint", "save", root, "noon")
    title, epochs, saved = run("checkpoint", "list", root).stdout.split("\n\n")
    assert title == "query numbers, 3 epochs kept, 1 savepoint"
    head, *lines = epochs.splitlines()
    assert head.split() == ["epoch", "time", "rows", "in", "segments", "state"]
    assert [line.split()[0] for line in lines] == ["0", "1", "2"]
    assert [line.split()[2] for line in lines] == ["100", "200", "300"]
    assert lines[0].split()[-1] == "kB"
    head, line = saved.splitlines()
    assert head.split()[0] == "savepoint"
    assert line.split()[:2] == ["noon", "2"]


def test_list_of_nothing(run: Run, tmp_path: Path) -> None:
    result = run("checkpoint", "list", tmp_path / "nothing")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: checkpoint {tmp_path / 'nothing'} does not exist")


def test_verify_of_a_whole_one(run: Run, checkpoint: Make) -> None:
    root = checkpoint(3)
    run("checkpoint", "save", root, "noon")
    result = run("checkpoint", "verify", root)
    assert result.exit_code == 0
    assert result.stdout.startswith("1")
    assert "files of 3 epochs and 1 savepoint, " in result.stdout
    assert result.stdout.endswith("of state: all whole\n")


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "changed": (
        lambda path: path.write_bytes(path.read_bytes()[:-40] + b"!" + path.read_bytes()[-39:]),
        "is not what was written: its checksum does not match",
    ),
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:-10]), "bytes, not"),
    "gone": (lambda path: path.unlink(), "is missing"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("place", ["folder", "s3"])
def test_verify_names_what_is_damaged(
    run: Run, checkpoint: Make, damage: str, place: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    root: Path | str = checkpoint(3)
    manifest = Checkpoint(root).latest()
    assert manifest is not None
    segment = manifest.state["counts"].segments[-1]
    act, problem = DAMAGES[damage]
    if place == "s3":
        address = request.getfixturevalue("s3")
        run("checkpoint", "copy", root, address)
        store, root = Store.at(address), address
        store.fetch(segment.file, tmp_path / "one")
        act(tmp_path / "one")
        store.delete(segment.file)
        if (tmp_path / "one").exists():
            store.put(tmp_path / "one", segment.file)
    else:
        act(Path(root) / segment.file)
    result = run("checkpoint", "verify", root)
    assert result.exit_code == 1
    title, what = result.stdout.split("\n\n")
    assert title.endswith(", 1 damaged")
    assert what.splitlines()[0] == "what is damaged"
    first, second = what.splitlines()[1:]
    assert first.startswith(f"{segment.file} ")
    assert problem in first
    assert second.strip().startswith(
        f"{segment.rows} rows of {segment.kind} of counts, written in epoch {segment.epoch} by instance "
        f"{segment.instance}, slots {segment.low} … {segment.high}, "
    )
    assert "buckets " in second


def test_verify_of_a_manifest(run: Run, checkpoint: Make) -> None:
    root = checkpoint(3)
    path = root / "manifests" / f"{1:09d}"
    path.write_bytes(path.read_bytes().replace(b'"epoch":1', b'"epoch":7'))
    result = run("checkpoint", "verify", root)
    assert result.exit_code == 1
    assert says(result.stdout, "manifests/000000001 ", "epoch 1 is damaged", "checksum")
    assert "the commit record of epoch 1: positions, routing, marks" in result.stdout


def test_verify_of_a_savepoint(run: Run, checkpoint: Make) -> None:
    root = checkpoint(3)
    run("checkpoint", "save", root, "noon")
    path = segment_of(root / "savepoints" / "noon")
    data = path.read_bytes()
    path.unlink()  # the checkpoint's own name for it is another link
    path.write_bytes(data[:-1])
    result = run("checkpoint", "verify", root)
    assert result.exit_code == 1
    assert "1 damaged" in result.stdout
    assert f"savepoints/noon/{path.relative_to(root / 'savepoints' / 'noon')} has " in result.stdout


def test_verify_of_state_that_is_not_durable(run: Run, query: st.Query, tmp_path: Path) -> None:
    """It is no damage: a start makes it anew."""

    def between(engine: Engine) -> bool:
        if engine.manifest.epoch == 1:
            engine.checkpoint_now()
        if engine.manifest.epoch < 4:
            return True
        engine.close = engine.storage.lease.release  # type: ignore[method-assign]  # as if it were killed
        return False

    durability = st.Durability("never", shared_memory=tmp_path / "memory")
    options = replace(Options(2, rows_per_epoch=100), durability=durability)
    inprocess.run(query.plan(), tmp_path / "ckpt", options, between=between)
    assert "all whole" in run("checkpoint", "verify", tmp_path / "ckpt").stdout
    shutil.rmtree(tmp_path / "memory")
    result = run("checkpoint", "verify", tmp_path / "ckpt")
    assert result.exit_code == 0
    assert result.stdout.endswith("the state of epoch 2–4 is not durable; a start rebuilds it\n")
    listed = run("checkpoint", "list", tmp_path / "ckpt").stdout.splitlines()
    assert [line.endswith("not durable") for line in listed[-5:]] == [False, False, True, True, True]


@pytest.mark.parametrize("place", ["folder", "s3"])
def test_copy_and_restore(
    run: Run, checkpoint: Make, query: st.Query, place: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    root = checkpoint(3)
    to = str(tmp_path / "node") if place == "folder" else request.getfixturevalue("s3")
    shown = Store.at(to).url
    first = run("checkpoint", "copy", root, to)
    assert first.exit_code == 0
    assert first.stdout.startswith(f"{shown} has epoch 2: ")
    assert "hush" not in first.stdout
    second = run("checkpoint", "copy", root, to).stdout
    assert second.startswith(f"{shown} has epoch 2: nothing new; ")
    assert run("checkpoint", "list", to).stdout.startswith("query numbers, 3 epochs kept, 0 savepoints")

    new = tmp_path / "new"
    assert run("checkpoint", "restore", to, new, "--at", 1).stdout.startswith(f"{new} has epoch 1: ")
    assert Checkpoint(new).epochs() == [1]
    plan = query.plan()
    for sink in plan.graph.of_kind(steps.Sink).values():
        sink.connector.epochs.clear()  # type: ignore[attr-defined]  # it has rows of an epoch that the copy does not have
    inprocess.run(plan, new, Options(1, rows_per_epoch=100))
    again = run("checkpoint", "restore", to, new)
    assert again.exit_code == 1
    assert "is not empty; give an empty or a new folder" in again.stderr
    missing = run("checkpoint", "restore", to, tmp_path / "x", "--at", 9)
    assert missing.stderr == f"error: checkpoint {shown} has no manifest of epoch 9; it has [0, 1, 2]\n"


def test_a_query_moves_from_store_to_store(
    run: Run, query: st.Query, s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folder → S3 → another place in S3 → folder: each goes on behind the epoch that it was copied at, and the rows are those of one run."""
    monkeypatch.setenv("SPRINGTIDE_CACHE", str(tmp_path / "cache"))
    places = [str(tmp_path / "ckpt"), s3.replace("?", "/one?"), s3.replace("?", "/two?"), str(tmp_path / "back")]
    for number, place in enumerate(places):
        if number:
            copied = run("checkpoint", "copy", places[number - 1], place)
            assert copied.exit_code == 0, copied.stderr
            assert copied.stdout.startswith(f"{Store.at(place).url} has epoch {2 * number - 1}: ")
            assert "hush" not in copied.stdout
            assert run("checkpoint", "verify", place).exit_code == 0
        until = 2 * number + 1 if place is not places[-1] else None
        inprocess.run(
            query.plan(),
            place,
            Options(1 + number, rows_per_epoch=70),
            between=lambda engine, until=until: until is None or engine.manifest.epoch < until,  # type: ignore[misc]
        )
    (sink,) = query.plan().graph.of_kind(steps.Sink).values()
    compare(sink.connector.rows(), query.run_reference().rows())  # type: ignore[attr-defined]


def test_copy_and_save_while_the_query_runs(
    run: Run, running: Callable[..., AbstractContextManager[Path]], tmp_path: Path
) -> None:
    with running() as root:
        assert run("checkpoint", "copy", root, tmp_path / "node").exit_code == 0
        saved = run("checkpoint", "save", root, "now")
        assert saved.exit_code == 0, saved.stderr
        assert saved.stdout.startswith("savepoint now of epoch ")
        assert run("checkpoint", "list", root).stdout.splitlines()[0].endswith("1 savepoint")
    assert run("checkpoint", "verify", root).exit_code == 0
    assert run("checkpoint", "verify", tmp_path / "node").exit_code == 0


def test_a_run_begins_with_a_savepoint_or_a_backup(run: Run, checkpoint: Make, query: st.Query, tmp_path: Path) -> None:
    """What `springtide run --savepoint` and `--backup` do before Spark starts."""
    root = checkpoint(3)
    run("checkpoint", "save", root, "noon")
    plan, savepoint = query.plan(), str(root / "savepoints" / "noon")
    begun = prepare(plan, RunOptions(savepoint=savepoint), tmp_path / "one")
    assert begun.epochs() == [2]
    with pytest.raises(CheckpointError, match=r"256 buckets .* 8; start with buckets=256"):
        prepare(query.plan(buckets=8), RunOptions(savepoint=savepoint), tmp_path / "two")
    run("checkpoint", "copy", root, tmp_path / "node")
    options = RunOptions(durability=st.Durability(backup=tmp_path / "node"))
    assert prepare(plan, options, tmp_path / "three").epochs() == [0, 1, 2]
    assert prepare(plan, options, tmp_path / "three").epochs() == [0, 1, 2]


def test_a_run_that_stands_by_begins_with_a_savepoint_too(
    run: Run, checkpoint: Make, query: st.Query, tmp_path: Path
) -> None:
    """Whoever is first makes the checkpoint of it; for the others that is the one that there is, on their machines too."""
    root = checkpoint(3)
    run("checkpoint", "save", root, "noon")
    plan, options = query.plan(), RunOptions(savepoint=str(root / "savepoints" / "noon"), standby=st.Standby())
    lock = prepare(plan, options, tmp_path / "one").lock()  # it is at work
    assert prepare(plan, options, tmp_path / "one").epochs() == [2]
    os.close(lock)
    with pytest.raises(CheckpointError, match="has state of its own, and cannot begin with"):
        prepare(plan, options, root)
    backed = replace(options, durability=st.Durability(backup=tmp_path / "backup"))
    assert prepare(plan, backed, tmp_path / "here").epochs() == [2]
    inprocess.run(plan, tmp_path / "here", Options(durability=st.Durability(backup=tmp_path / "backup")))
    assert prepare(plan, backed, tmp_path / "there").epochs() == [], "it is filled when it takes over"
