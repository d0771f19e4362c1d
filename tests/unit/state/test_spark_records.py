"""Spark's own records in a checkpoint: what a run keeps of them, what the next one is given, and what a run that was taken over can do."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest

import springtide as st
from springtide.state.checkpoint import Checkpoint
from springtide.state.claims import Lease
from springtide.state.manifest import Manifest
from springtide.state.spark_records import REMEMBERED, SparkRecords
from springtide.state.stores import Store
from tests.contract.forgetful_disk import ForgetfulDisk

IDENTITY = {"query": "q", "hash": "h", "buckets": 4, "polars": "2"}


class Run:
    """A run whose Spark writes what a test says."""

    def __init__(self, root: Path, name: str) -> None:
        """Take over, whoever has it; no lock is asked for, as on another machine."""
        self.checkpoint = Checkpoint(root)
        if self.checkpoint.found() is None:
            self.lease: Lease = self.checkpoint.acquire(IDENTITY)
            self.lease.release()
        else:
            self.lease = self.checkpoint.claim(name)
        self.records = SparkRecords(root, self.lease)
        self.own = self.records.own

    def write(self, **records: str) -> None:
        for name, said in records.items():
            place = self.own / name.replace("_", "/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(said)

    def commit(self, epoch: int, batch: int) -> None:
        self.records.keep(self.lease, batch)
        self.records.forget(batch, self.lease)
        self.lease.commit(Manifest(epoch, self.lease.generation, batch=batch))

    def said(self) -> dict[str, str]:
        return {f.relative_to(self.own).as_posix(): f.read_text() for f in self.own.rglob("*") if f.is_file()}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "ckpt"


def test_the_next_run_is_given_what_the_last_one_kept(root: Path) -> None:
    one = Run(root, "one")
    one.write(metadata="id", sources_0_0="a file", offsets_0="v1", **{"offsets_.1.x.tmp": "torn", ".metadata.crc": "-"})
    one.commit(0, batch=0)
    one.write(commits_0="done", offsets_1="v1, next")
    one.commit(1, batch=1)
    other = Run(root, "other")
    assert other.said() == {
        "metadata": "id",
        "sources/0/0": "a file",
        "offsets/0": "v1",
        "commits/0": "done",
        "offsets/1": "v1, next",
    }
    other.write(commits_1="done")
    other.commit(2, batch=1)
    names = {f.relative_to(root / "spark").as_posix() for f in (root / "spark").rglob("*") if f.is_file()}
    assert names == {"metadata", "sources/0/0", "offsets/0", "commits/0", "offsets/1", "commits/1~2"}, (
        "only what is new"
    )


@pytest.mark.parametrize("wakes", ["before the newer run", "after it"])
def test_a_run_that_was_taken_over_changes_nothing_for_newer_ones(root: Path, wakes: str) -> None:
    """Its Spark took another micro-batch under the same number, and it was paused before it kept the record, or after."""
    stale = Run(root, "stale")
    stale.write(offsets_0="v1")
    stale.commit(0, batch=0)
    newer = Run(root, "newer")
    stale.write(offsets_1="of the stale run")
    newer.write(offsets_1="of the newer run")
    if wakes == "before the newer run":
        stale.records.keep(stale.lease, 1)
    newer.commit(1, batch=1)
    with pytest.raises(st.CheckpointError, match="was taken over by a newer run"):
        stale.commit(1, batch=1)
    assert Run(root, "newest").said() == {"offsets/0": "v1", "offsets/1": "of the newer run"}


def test_a_record_that_was_kept_for_an_epoch_that_was_not_committed_goes_on(root: Path) -> None:
    """Spark begins the micro-batch again, with the same offsets."""
    one = Run(root, "one")
    one.write(offsets_0="v1")
    one.records.keep(one.lease, 0)
    other = Run(root, "other")
    assert other.said() == {"offsets/0": "v1"}
    other.commit(0, batch=0)
    assert Run(root, "third").said() == {"offsets/0": "v1"}


def test_what_spark_has_forgotten_is_forgotten_by_the_run_that_has_the_checkpoint(root: Path) -> None:
    one = Run(root, "one")
    last = 4 * REMEMBERED
    one.write(metadata="id", **{f"offsets_{n}": f"{n}" for n in range(last)})
    one.commit(0, batch=last - 1)
    for n in range(3 * REMEMBERED):
        (one.own / "offsets" / str(n)).unlink()
    other = Run(root, "other")
    with pytest.raises(st.CheckpointError, match="was taken over by a newer run"):
        one.commit(1, batch=last)
    assert len(list((root / "spark" / "offsets").iterdir())) == last, "nothing was removed"
    for n in range(3 * REMEMBERED):
        (other.own / "offsets" / str(n)).unlink()
    other.write(**{f"offsets_{last}": "next"})
    other.commit(1, batch=last)
    left = {f.name for f in (root / "spark" / "offsets").iterdir()}
    assert left == {str(n) for n in range(2 * REMEMBERED, last)} | {f"{last}~2"}
    assert (root / "spark" / "metadata").exists()


@pytest.mark.parametrize("gone", ["", "metadata", "offsets/1", "sources", "sources/0"])
def test_no_epoch_is_committed_once_spark_s_records_of_it_are_lost(root: Path, gone: str) -> None:
    """No start could continue after it."""
    one = Run(root, "one")
    one.write(metadata="id", sources_0_0="a file", offsets_0="v1")
    one.commit(0, batch=0)
    one.write(sources_0_1="another", offsets_1="v1, next")
    lost = one.own / gone
    lost.unlink() if lost.is_file() else shutil.rmtree(lost)
    if gone != "offsets/1":  # Spark does not notice
        one.write(offsets_1="v1, next")
    with pytest.raises(st.CheckpointError, match="has lost what Spark said of micro-batch 1"):
        one.commit(1, batch=1)
    assert one.checkpoint.epochs() == [0]
    assert Run(root, "other").said() == {"metadata": "id", "sources/0/0": "a file", "offsets/0": "v1"}


@pytest.mark.parametrize("gone", ["", "metadata", "sources"])
def test_what_somebody_else_removed_is_not_what_spark_has_forgotten(root: Path, gone: str) -> None:
    one = Run(root, "one")
    last = 3 * REMEMBERED
    one.write(metadata="id", sources_0_0="where it began", **{f"offsets_{n}": f"{n}" for n in range(last)})
    one.commit(0, batch=last - 1)
    lost = one.own / gone
    lost.unlink() if lost.is_file() else shutil.rmtree(lost)
    one.write(**{f"offsets_{last}": "next"})
    kept = one.checkpoint.store.list("spark")
    with pytest.raises(st.CheckpointError, match="has lost what Spark said"):
        one.records.keep(one.lease, last)
    one.records.forget(last, one.lease)
    assert one.records.forgotten(kept, last) == set()
    assert one.checkpoint.store.list("spark") == kept


def test_after_a_power_cut_no_record_is_without_those_that_it_refers_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = ForgetfulDisk(tmp_path / "disk", Random(0))
    root = disk.root / "ckpt"
    write, seen = Store.write, list[str]()
    before = {"offsets": ["sources/0/1", "sources/1/1"], "commits": ["offsets/1"]}

    def checked(self: Store, path: str, data: bytes) -> None:
        for needed in before.get(path.split("/")[1], ()):
            assert disk.keeps(root / "spark" / needed), f"{needed}, before {path}"
            seen.append(path)
        write(self, path, data)

    with disk.at_work():
        one = Run(root, "one")
        monkeypatch.setattr(Store, "write", checked)
        one.write(metadata="id", sources_0_1="a file", sources_1_1="a file", offsets_1="v1", commits_1="v1")
        one.commit(0, batch=1)
        assert disk.keeps(root / "spark" / "commits" / "1")
    assert set(seen) == {"spark/offsets/1", "spark/commits/1"}
    disk.cut()
    disk.restart()
