"""Tiers: the nearest whole copy of a segment is taken, and one that is damaged counts as none."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import springtide as st
from springtide.state import private
from springtide.state import tiers as module
from springtide.state.segment import BucketSizes, Segment, read_segment, write_segment
from springtide.state.stores import Store
from springtide.state.tiers import Tiers

FILE = "state/counts/000000007-1-panes-4711.arrow"
ROWS = pl.DataFrame({"b": [0, 0, 3], "n": [1, 2, 3]}, schema={"b": pl.UInt16, "n": pl.Int64})


@pytest.fixture
def tiers(tmp_path: Path) -> Tiers:
    memory = private.new(tmp_path, tmp_path / "root")
    return Tiers(str(tmp_path / "root"), str(memory), Store.at(tmp_path / "backup"))


def memory_of(tiers: Tiers) -> Path:
    assert tiers.shared_memory is not None
    return Path(tiers.shared_memory)


def written(tiers: Tiers) -> Segment:
    size, crc, _ = write_segment(tiers.place(FILE), ROWS, "b", through=True)
    segment = Segment(
        FILE, "panes", epoch=7, instance=1, version=0, rows=ROWS.height, bytes=size, low=0, high=0, crc=crc
    )
    tiers.keep(segment)
    return segment


def spoil(path: Path) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)
    os.utime(path, ns=(1, 1))  # where time stamps are coarse it could pass for the old one


def test_a_segment_is_written_to_memory_and_persisted_to_root_and_backup(tiers: Tiers, tmp_path: Path) -> None:
    """SE-2: spill and persist keep the name of a file."""
    segment = written(tiers)
    assert tiers.find(segment) == memory_of(tiers) / FILE
    assert not (tmp_path / "root" / FILE).exists()
    tiers.persist([segment])
    tiers.persist([segment])  # a second time there is nothing to do
    for place in (memory_of(tiers), tmp_path / "root", tmp_path / "backup"):
        assert read_segment(place / FILE).equals(ROWS)
    tiers.clear_shared_memory()
    assert tiers.find(segment) == tmp_path / "root" / FILE


def test_without_memory_a_segment_goes_to_the_backup_at_once(tmp_path: Path) -> None:
    tiers = Tiers(str(tmp_path / "root"), backup=Store.at(tmp_path / "backup"))
    segment = written(tiers)
    assert read_segment(tmp_path / "backup" / FILE).equals(ROWS)
    assert tiers.find(segment) == tmp_path / "root" / FILE


@pytest.mark.parametrize("loss", ["missing", "damaged", "cut"])
def test_a_copy_that_is_not_whole_counts_as_none(tiers: Tiers, tmp_path: Path, loss: str) -> None:
    segment = written(tiers)
    tiers.persist([segment])
    for place, left in ((memory_of(tiers), "root"), (tmp_path / "root", "backup")):
        path = place / FILE
        assert tiers.find(segment) == path
        if loss == "damaged":
            spoil(path)
        elif loss == "cut":
            path.write_bytes(path.read_bytes()[:100])
        else:
            path.unlink()
        assert read_segment(tiers.find(segment)).equals(ROWS), f"taken from {left}"
    assert tiers.find(segment) == tmp_path / "root" / FILE, "what was fetched is kept"


def test_what_is_lost_is_named_exactly(tiers: Tiers, tmp_path: Path) -> None:
    segment = written(tiers)
    spoil(memory_of(tiers) / FILE)
    told = rf"has lost a segment: {FILE} \(3 rows of panes of counts, written in epoch 7 by instance 1\) is damaged"
    with pytest.raises(st.CheckpointError, match=told):
        tiers.find(segment)
    (memory_of(tiers) / FILE).unlink()
    with pytest.raises(st.CheckpointError, match="is missing; restore it from a backup"):
        tiers.find(segment)


def test_a_damaged_backup_does_not_become_state(tmp_path: Path) -> None:
    tiers = Tiers(str(tmp_path / "root"), backup=Store.at(tmp_path / "backup"))
    segment = written(tiers)
    for place in ("root", "backup"):
        spoil(tmp_path / place / FILE)
    with pytest.raises(st.CheckpointError, match="has lost a segment"):
        tiers.find(segment)


def test_other_files_are_fetched_when_they_are_not_here(tiers: Tiers, tmp_path: Path) -> None:
    path = tmp_path / "root" / "outbox" / "rows.arrow"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"rows")
    tiers.settle("outbox/rows.arrow")
    path.unlink()
    assert tiers.fetched("outbox/rows.arrow").read_bytes() == b"rows"
    assert not tiers.fetched("outbox/none.arrow").exists()


def test_what_counts_as_durable_is_what_has_arrived(
    tiers: Tiers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that is damaged on its way is none, and the next checkpoint makes another."""
    segment, copy = written(tiers), module.copy_through

    def damaging(source: Path, target: Path) -> None:
        copy(source, target)
        spoil(target)

    tiers = replace(tiers, backup=None)
    monkeypatch.setattr(module, "copy_through", damaging)
    with pytest.raises(OSError, match="was damaged while it was copied"):
        tiers.persist([segment])
    monkeypatch.undo()
    assert tiers.find(segment) == memory_of(tiers) / FILE
    tiers.persist([segment])
    tiers.clear_shared_memory()
    assert read_segment(tiers.find(segment)).equals(ROWS)


def test_a_copy_that_goes_while_it_is_looked_at_is_none(tiers: Tiers, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = written(tiers)
    spoilt = tiers.place(FILE)
    spoil(spoilt)  # so that its content is looked at

    def gone(path: Path) -> int:
        path.unlink()
        raise FileNotFoundError(path)

    monkeypatch.setattr(module, "checksum", gone)
    assert tiers.nearest(segment) is None
    alike = BucketSizes(lambda _: spoilt).of([segment], 4)
    assert alike == (segment.bytes // 4,) * 4, (
        "of a file that is lost this moment nobody knows how much each bucket has"
    )
