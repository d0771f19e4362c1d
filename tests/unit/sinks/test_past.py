"""Sinks with a past: what every sink does over several runs, stopped or killed, on checkpoints old and new. One suite that every sink passes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide import state
from springtide.runtime import epochs as epochs_module
from springtide.runtime import publishing
from springtide.sinks import spark as spark_module
from springtide.state.errors import LostError
from tests.unit.sinks.kinds import EPOCHS, IN_STORES, KINDS, ROWS, Died, Folder, MadeUp, Runs, Sink, query_of, stored
from tests.wording import says

ALL = list(range(ROWS))


@pytest.fixture(params=[*KINDS, *IN_STORES])
def sink(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sink]:
    monkeypatch.setattr(spark_module, "_session", MadeUp)
    monkeypatch.setattr(spark_module, "spark_schema", lambda schema: schema)
    if request.param in KINDS:
        yield KINDS[request.param](tmp_path)
        return
    with stored(request.param, tmp_path, lambda: str(request.getfixturevalue("s3"))) as made:
        yield made


def dying(monkeypatch: pytest.MonkeyPatch, place: str, visit: int) -> None:
    """Let the process die when it comes to a place for the so-manieth time."""
    left = [visit]

    def failpoint(here: str) -> None:
        left[0] -= here == place
        if here == place and left[0] == 0:
            raise Died

    monkeypatch.setattr(epochs_module, "failpoint", failpoint)
    monkeypatch.setattr(publishing, "failpoint", failpoint)


def seen(root: Path) -> set[str]:
    """Every file of a folder, with its content."""
    return {f"{f.relative_to(root)}: {f.read_bytes().hex()}" for f in root.rglob("*") if f.is_file()}


# ── stopped and started ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("epochs", [1, 2])
@pytest.mark.parametrize("taken", [False, True], ids=["left there", "taken away"])
def test_after_a_clean_stop_nothing_comes_again(sink: Sink, tmp_path: Path, epochs: int, taken: bool) -> None:
    runs = Runs(tmp_path / "ckpt")
    for _ in range(EPOCHS // epochs + 2):
        runs.run(query_of(sink.connector()), epochs)
        if taken:
            sink.consume()
    assert sink.rows() == ALL


@pytest.mark.parametrize("taken", [False, True], ids=["left there", "taken away"])
def test_nor_on_another_machine_with_the_backup(sink: Sink, tmp_path: Path, taken: bool) -> None:
    runs = Runs(tmp_path / "ckpt", st.Durability(backup=str(tmp_path / "backup")))
    for _ in range(EPOCHS + 1):
        runs.run(query_of(sink.connector()), 1)
        if taken:
            sink.consume()
        shutil.rmtree(tmp_path / "ckpt")
    assert sink.rows() == ALL


@pytest.mark.parametrize("visit", [1, EPOCHS])
@pytest.mark.parametrize("place", ["before-job", "after-job", "after-manifest", "during-publish", "after-publish"])
@pytest.mark.parametrize("backup", [False, True], ids=["here", "elsewhere"])
def test_after_a_crash_only_the_last_epoch_may_come_again(
    sink: Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, visit: int, backup: bool
) -> None:
    """With the same number and the same rows; to a sink that remembers nothing comes twice."""
    durability = st.Durability(backup=str(tmp_path / "backup")) if backup else st.Durability()
    runs = Runs(tmp_path / "ckpt", durability)
    with monkeypatch.context() as patch:
        dying(patch, place, visit)
        runs.run(query_of(sink.connector()), between=sink.consume)
    sink.consume()
    if backup:
        shutil.rmtree(tmp_path / "ckpt")
    runs.run(query_of(sink.connector()))
    assert sink.rows_once() == ALL
    if sink.remembers:
        assert sink.rows() == ALL
    assert len(sink.rows()) <= ROWS + ROWS // EPOCHS


# ── another's ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_checkpoint_does_not_go_on_with_the_rows_of_an_old_one(sink: Sink, tmp_path: Path) -> None:
    """A function gets everything from the beginning; a sink that has rows of another checkpoint refuses, and is left as it was."""
    Runs(tmp_path / "old").run(query_of(sink.connector()), 2)
    before = sink.rows()
    if not sink.remembers:
        Runs(tmp_path / "new").run(query_of(sink.connector()))
        assert sink.rows() == sorted([*before, *ALL])
        return
    there = seen(tmp_path / "out") if isinstance(sink, Folder) else None
    with pytest.raises(st.SinkError, match=r"step out \(sink\): .*(belongs to|of another run)"):
        Runs(tmp_path / "new").run(query_of(sink.connector()))
    assert sink.rows() == before
    assert there is None or seen(tmp_path / "out") == there
    Runs(tmp_path / "old").run(query_of(sink.connector()))
    assert sink.rows() == ALL


def test_two_sinks_in_one_place_are_refused_when_the_query_is_built(sink: Sink, tmp_path: Path) -> None:
    source = query_of(sink.connector()).steps["numbers"]
    one, two, stream = sink.connector(), sink.connector(), st.Stream(source, "out", source.schema)
    if not sink.remembers:
        assert st.Query("two", stream.to(one), stream.to(two))
        return
    with pytest.raises(st.QueryError, match=r"step sink-2 \(sink\): the sink sink .*same place"):
        st.Query("two", stream.to(one), stream.to(two))


def test_a_newest_manifest_that_is_gone_is_missed(sink: Sink, tmp_path: Path) -> None:
    """The rows of its epoch are with the sinks: to do it again would double them."""
    runs = Runs(tmp_path / "ckpt")
    runs.run(query_of(sink.connector()), 2)
    manifest, before = tmp_path / "ckpt" / "manifests" / f"{1:09d}", sink.rows()
    os.rename(manifest, tmp_path / "kept")
    with pytest.raises(st.CheckpointError, match=r"lost the manifest of epoch 1.*; restore"):
        runs.run(query_of(sink.connector()))
    assert sink.rows() == before
    os.rename(tmp_path / "kept", manifest)
    runs.run(query_of(sink.connector()))
    assert sink.rows() == ALL


def test_a_checkpoint_that_was_restored_goes_on_and_the_old_one_does_not(sink: Sink, tmp_path: Path) -> None:
    Runs(tmp_path / "old").run(query_of(sink.connector()), 2)
    state.restore(tmp_path / "old", tmp_path / "new")
    sink.consume()
    Runs(tmp_path / "new").run(query_of(sink.connector()))
    assert sink.rows() == ALL
    if sink.remembers:
        with pytest.raises(st.SinkError, match=r"step out \(sink\)"):
            Runs(tmp_path / "old").run(query_of(sink.connector()))
        assert sink.rows() == ALL


def test_an_older_epoch_that_was_restored_needs_another_place(sink: Sink, tmp_path: Path) -> None:
    Runs(tmp_path / "old").run(query_of(sink.connector()), 3)
    state.restore(tmp_path / "old", tmp_path / "new", at=0)
    if sink.remembers:
        before = sink.rows()
        with pytest.raises(st.SinkError, match=r"up to epoch 2"):
            Runs(tmp_path / "new").run(query_of(sink.connector()))
        assert sink.rows() == before
    else:
        Runs(tmp_path / "new").run(query_of(sink.connector()))
        assert sink.rows() == sorted([*ALL, *ALL[3:9]]), "what came after that epoch comes again, and no more"


def test_a_sink_that_is_no_more_does_not_lose_its_rows(
    sink: Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(tmp_path / "ckpt")
    with monkeypatch.context() as patch:
        dying(patch, "after-manifest", 2)
        runs.run(query_of(sink.connector()))
    source = query_of(sink.connector()).steps["numbers"]
    renamed = st.Query("past", st.Stream(source, "out", source.schema).to(st.memory_sink(), name="other"))
    with pytest.raises(st.CheckpointError, match=r"has rows of epoch 1 for out, which"):
        runs.run(renamed)
    runs.run(query_of(sink.connector()))
    assert sink.rows() == ALL


def test_rows_that_are_lost_on_the_way_are_not_passed_over(
    sink: Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster whose nodes do not share the folder the driver finds nothing of what tasks wrote."""
    with monkeypatch.context() as patch:
        dying(patch, "after-manifest", 2)
        Runs(tmp_path / "ckpt").run(query_of(sink.connector()))
    shutil.rmtree(tmp_path / "ckpt" / "outbox" / f"{1:09d}")
    before = sink.rows()
    with pytest.raises(LostError, match=r"lost rows of epoch 1 .*sink out.*outbox.*; restore"):
        Runs(tmp_path / "ckpt").run(query_of(sink.connector()))
    assert sink.rows() == before


@pytest.mark.parametrize("behind", [1, 2])
def test_a_folder_of_which_an_older_copy_was_brought_back(tmp_path: Path, behind: int) -> None:
    """The last epoch is published again; what was published before that is nowhere else."""
    runs, out = Runs(tmp_path / "ckpt"), tmp_path / "out"
    runs.run(query_of(st.parquet_sink(out)), 1)
    shutil.copytree(out, tmp_path / "copy")
    runs.run(query_of(st.parquet_sink(out)), behind)
    shutil.rmtree(out)
    os.rename(tmp_path / "copy", out)
    before = seen(out)
    if behind > 1:
        with pytest.raises(st.SinkError, match=r"though epoch 2 was published there: it has lost rows; .*restore"):
            runs.run(query_of(st.parquet_sink(out)))
        assert seen(out) == before
        return
    runs.run(query_of(st.parquet_sink(out)))
    assert sorted(pl.read_parquet(out / "*.parquet")["x"].to_list()) == ALL


def test_a_folder_that_is_removed_between_two_runs_is_begun_anew(tmp_path: Path) -> None:
    """A reader took it as a whole: nothing of it comes again, however often the query is started."""
    runs, out = Runs(tmp_path / "ckpt"), tmp_path / "out"
    runs.run(query_of(st.parquet_sink(out)), 2)
    shutil.rmtree(out)
    for epochs in (0, 0, 1, 1):
        runs.run(query_of(st.parquet_sink(out)), epochs)
    assert sorted(pl.read_parquet(out / "*.parquet")["x"].to_list()) == ALL[6:]


def test_two_copies_of_a_checkpoint_do_not_both_go_on_with_one_place(tmp_path: Path) -> None:
    """Made with cp: they have the same name, run as often, and have as many epochs; what they published tells them apart."""
    out = tmp_path / "out"
    Runs(tmp_path / "one").run(query_of(st.parquet_sink(out)), 1)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    shutil.copytree(out, tmp_path / "kept")
    Runs(tmp_path / "one").run(query_of(st.parquet_sink(out)), 1)
    os.rename(out, tmp_path / "of one")
    os.rename(tmp_path / "kept", out)
    Runs(tmp_path / "two").run(query_of(st.parquet_sink(out)), 1)
    shutil.rmtree(out)
    os.rename(tmp_path / "of one", out)
    before = seen(out)
    with pytest.raises(st.SinkError, match=r"two runs .* the same checkpoint"):
        Runs(tmp_path / "two").run(query_of(st.parquet_sink(out)))
    assert seen(out) == before


def test_a_record_that_a_power_cut_damaged_says_nothing(sink: Sink, tmp_path: Path) -> None:
    runs = Runs(tmp_path / "ckpt")
    runs.run(query_of(sink.connector()), 2)
    (tmp_path / "ckpt" / "published").write_bytes(b"")
    runs.run(query_of(sink.connector()))
    assert sink.rows_once() == ALL


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_error_names_the_sink_and_what_caused_it(tmp_path: Path) -> None:
    def fail(rows: Any, epoch: int) -> None:
        try:
            raise ConnectionResetError("the database has hung up")
        except ConnectionResetError as error:
            raise RuntimeError(
                "An error occurred while calling o7.save.\n: org.SparkException: Job aborted\n\tat org.Job(Job.scala:7)\nCaused by: java.IOException: no room"
            ) from error

    with pytest.raises(st.UnavailableError) as caught:
        Runs(tmp_path / "ckpt").run(query_of(st.callback(fail)))
    told = str(caught.value)
    assert says(told, "step out (sink): RuntimeError: ", "o7.save.", "Caused by: java.IOException: no room")
    assert "caused by ConnectionResetError: the database has hung up" in told
    assert "Job.scala" not in told
