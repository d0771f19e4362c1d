"""What counts is on the disk before it counts: content, names, and those of the folders on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.runtime import inprocess
from springtide.runtime.engine import Engine, Options
from springtide.sinks.folder import Folder
from springtide.sinks.ledger import named
from springtide.state.checkpoint import MARKER
from springtide.state.claims import Lease
from springtide.state.manifest import Manifest
from springtide.state.savepoints import save
from tests.contract.forgetful_disk import ForgetfulDisk

ROWS = pl.DataFrame({"k": ["a", "b"] * 4, "x": range(8), "ts": [n * 1_000_000 for n in range(8)]})
SCHEMA = {"k": pl.String, "x": pl.Int64, "ts": st.TIME}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[ForgetfulDisk]:
    disk = ForgetfulDisk(tmp_path / "disk", Random(0))
    with disk.at_work():
        yield disk
    disk.cut()
    disk.restart()


def run(disk: ForgetfulDisk, between: Callable[[Engine], bool] = lambda _: True, **durability: Any) -> Engine:
    source = st.source("rows", st.memory(ROWS.cast({"ts": st.TIME}), schema=SCHEMA), ts="ts")
    sums = source.aggregate(by="k", window=st.tumbling("2s"), total=st.sum("x"), name="sums")
    query = st.Query(
        "durable",
        source.to(st.parquet_sink(disk.root / "some" / "copies"), name="copies"),
        sums.to(st.parquet_sink(disk.root / "some" / "windows"), name="windows"),
    )
    options = Options(1, rows_per_epoch=2, durability=st.Durability(**durability))
    return inprocess.run(query.plan(buckets=4), disk.root / "new" / "checkpoint", options, between=between)


def files_of(manifest: Manifest) -> set[str]:
    return manifest.files() | manifest.buffers() | {d.file for d in manifest.outbox}


@pytest.mark.parametrize("backup", [False, True], ids=["a folder", "a backup"])
def test_an_epoch_is_committed_when_all_its_files_are_kept(
    disk: ForgetfulDisk, monkeypatch: pytest.MonkeyPatch, backup: bool
) -> None:
    """That is state, outbox, manifests and springtide.json, where the log is."""
    commit, seen = Lease.commit, set[str]()

    def checked(self: Lease, manifest: Manifest) -> bytes:
        root = self.log.store.local
        assert root is not None
        assert not [f for f in files_of(manifest) if not disk.keeps(root / f)]
        data = commit(self, manifest)
        assert all(disk.keeps(root / slot.path) for slot in self.epochs[manifest.epoch])
        assert disk.keeps(root / MARKER)
        assert disk.keeps(disk.root / "new" / "checkpoint" / MARKER), "else nobody would know whose the other files are"
        seen.update(f.partition("/")[0] for f in files_of(manifest))
        return data

    monkeypatch.setattr(Lease, "commit", checked)
    run(disk, backup=disk.root / "backup" if backup else None)
    assert seen == {"state", "outbox"}


def test_what_went_in_is_kept_where_state_is_not(
    disk: ForgetfulDisk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commit, seen = Lease.commit, list[str]()

    def checked(self: Lease, manifest: Manifest) -> bytes:
        assert all(disk.keeps(self.log.store.local / f) for f in manifest.buffers())  # type: ignore[operator]
        seen.extend(manifest.buffers())
        return commit(self, manifest)

    def between(engine: Engine) -> bool:
        if engine.manifest.epoch == 2:
            engine.checkpoint_now()
            assert all(disk.keeps(engine.checkpoint.root / f) for f in engine.manifest.files())
        return True

    monkeypatch.setattr(Lease, "commit", checked)
    run(disk, between, every="never", shared_memory=tmp_path / "memory", buffer=True)
    assert seen


def test_an_epoch_is_recorded_when_its_files_are_kept_and_seen_when_that_is(
    disk: ForgetfulDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, reveal, seen = Folder._record, Folder._reveal, list[Path]()

    def recorded(self: Folder, after: Any) -> None:
        staged = [*self._path.glob(".part-*")]
        assert staged
        assert all(map(disk.keeps, staged))
        record(self, after)

    def revealed(self: Folder, hidden: Path, epoch: int, number: int) -> None:
        assert disk.keeps(self._path / named(self._entry))
        seen.append(hidden)
        reveal(self, hidden, epoch, number)

    monkeypatch.setattr(Folder, "_record", recorded)
    monkeypatch.setattr(Folder, "_reveal", revealed)
    engine = run(disk)
    assert seen
    assert all(disk.keeps(f) for f in (disk.root / "some").rglob("*.parquet")), "at the end"
    assert disk.keeps(engine.checkpoint.root / "published")


def test_a_savepoint_that_was_made_is_kept(disk: ForgetfulDisk) -> None:
    root = run(disk, lambda engine: engine.manifest.epoch < 2).checkpoint.root
    save(root, "mine")
    files = [f for f in (root / "savepoints" / "mine").rglob("*") if f.is_file()]
    assert len(files) > 2
    assert [f for f in files if not disk.keeps(f)] == []


def test_the_record_of_an_epoch_is_forgotten_for_good_before_its_files_go(
    disk: ForgetfulDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut could bring back the one and not the others."""
    known, removed = dict[str, set[str]](), list[str]()
    commit = Lease.commit

    def noted(self: Lease, manifest: Manifest) -> bytes:
        known[f"manifests/{manifest.epoch:09d}"] = manifest.files()
        return commit(self, manifest)

    monkeypatch.setattr(Lease, "commit", noted)

    def between(engine: Engine) -> bool:
        root = engine.checkpoint.root
        for record in list(known):
            gone = [f for f in known[record] if not (root / f).exists()]
            if gone:
                assert not disk.may_have(root / record)
                removed.extend(gone)
        return True

    run(disk, between, retain=1)
    assert removed
