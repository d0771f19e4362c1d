"""A checkpoint whose log is in its backup: machines that take over from each other."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import springtide as st
from springtide.state.checkpoint import Checkpoint
from springtide.state.claims import Lease
from springtide.state.manifest import Manifest
from springtide.state.mirror import Mirror
from springtide.state.spark_records import valid_files
from springtide.state.stores import Store

IDENTITY = {"query": "q", "steps": {}, "buckets": 8, "hash": "h", "polars": "2"}


class Machine:
    """A run on a machine with a folder of its own."""

    def __init__(self, root: Path, store: Store) -> None:
        self.checkpoint = Checkpoint(root)
        self.mirror = Mirror(self.checkpoint, store)
        self.lease: Lease = self.mirror.acquire(IDENTITY)
        kept = self.checkpoint.history()
        try:
            self.lease = self.mirror.begin(self.lease, kept, set().union(*(m.files() for m in kept)))
        except OSError:
            self.lease.release()
            raise

    def commit(self, epoch: int, batch: int | None = None) -> None:
        manifest = Manifest(epoch, self.lease.generation, batch=batch)
        self.mirror.keep_records(valid_files(Store.at(self.checkpoint.root).list("spark")).values(), self.lease)
        self.mirror.copy(manifest, self.lease, self.lease.commit(manifest))

    def close(self) -> None:
        self.mirror.close(self.lease)
        self.lease.release()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.at(tmp_path / "backup")


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_machines_take_over_from_each_other_and_back(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    store = Store.at(tmp_path / "backup" if kind == "folder" else request.getfixturevalue("s3"))
    here = Machine(tmp_path / "here", store)
    offsets = here.checkpoint.root / "spark" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text("offset")
    (offsets / ".0.crc").write_text("not needed")
    here.commit(0, batch=0)
    here.commit(1, batch=1)
    there = Machine(tmp_path / "there", store)
    assert there.checkpoint.epochs() == [0, 1]
    assert there.checkpoint.identity()["query"] == "q"
    assert (there.checkpoint.root / "spark" / "offsets" / "0").read_text() == "offset"
    assert not (there.checkpoint.root / "spark" / "offsets" / ".0.crc").exists()
    for lost in (lambda: here.commit(2), here.lease.check):
        with pytest.raises(st.CheckpointError, match="was taken over by a newer run"):
            lost()
    assert here.checkpoint.epochs() == [0, 1]
    there.commit(2)
    (there.checkpoint.root / "spark" / "offsets" / "1").write_text("another's")
    there.commit(3, batch=3)
    here.close()
    (offsets / "1").write_text("never committed")

    back = Machine(tmp_path / "here", store)
    assert back.checkpoint.epochs() == [0, 1, 2, 3]
    assert (offsets / "1").read_text() == "another's"
    back.commit(4)
    with pytest.raises(st.CheckpointError, match="was taken over by a newer run"):
        there.commit(4)
    there.close()
    back.close()
    assert Checkpoint(tmp_path / "here").epochs() == [0, 1, 2, 3, 4]


def test_records_of_spark_are_not_overwritten_by_a_run_that_was_taken_over(tmp_path: Path, store: Store) -> None:
    """The newest manifest has a digest of them: another's in their place would keep the next machine from starting."""
    here = Machine(tmp_path / "here", store)
    there = Machine(tmp_path / "there", store)
    for machine, said in ((there, "mine"), (here, "a stale one's")):
        (machine.checkpoint.root / "spark" / "offsets").mkdir(parents=True)
        (machine.checkpoint.root / "spark" / "offsets" / "0").write_text(said)
    there.commit(0, batch=0)
    with pytest.raises(st.CheckpointError, match="was taken over by a newer run"):
        here.commit(0, batch=0)
    assert store.read("spark/offsets/0") == b"mine"
    here.close()
    there.close()


def test_records_are_forgotten_in_the_store(tmp_path: Path, store: Store) -> None:
    here = Machine(tmp_path / "here", store)
    offsets = here.checkpoint.root / "spark" / "offsets"
    offsets.mkdir(parents=True)
    for batch in range(3):
        (offsets / str(batch)).write_text(f"{batch}")
    here.commit(0, batch=2)
    here.mirror.forget_records({"spark/offsets/0", "spark/offsets/1"}, here.lease)
    here.close()
    assert store.list("spark") == ["spark/offsets/2"]


def test_a_start_that_is_cut_short_anywhere_leaves_nothing_that_is_out_of_date(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder whose log is that of its backup counts as up to date: so the log comes after all else."""
    here = Machine(tmp_path / "here", store)
    here.commit(0)
    here.close()
    there = Machine(tmp_path / "there", store)
    records = there.checkpoint.root / "spark" / "offsets"
    records.mkdir(parents=True)
    (records / "0").write_text("newer")
    there.commit(1, batch=0)
    store.write("published", b"newer")
    there.close()

    left: list[None] = []

    def dying(call: str) -> Callable[..., Any]:
        act = getattr(Store, call)

        def die(self: Store, *given: Any) -> Any:
            if not left:
                raise KeyboardInterrupt
            left.pop()
            return act(self, *given)

        return die

    moments = 0
    while True:
        folder, backup = tmp_path / f"here {moments}", Store.at(tmp_path / f"backup {moments}")
        shutil.copytree(tmp_path / "here", folder)
        shutil.copytree(tmp_path / "backup", tmp_path / f"backup {moments}")
        left[:] = [None] * moments
        with monkeypatch.context() as patched:
            for call in ("write", "fetch"):
                patched.setattr(Store, call, dying(call))
            try:
                Machine(folder, backup).close()
                break
            except KeyboardInterrupt:
                pass
        Machine(folder, backup).close()
        assert (folder / "spark" / "offsets" / "0").read_text() == "newer", moments
        assert (folder / "published").read_bytes() == b"newer", moments
        moments += 1
    assert moments > 3


def test_two_first_starts_at_once(tmp_path: Path, store: Store) -> None:
    one = Machine(tmp_path / "one", store)
    two = Machine(tmp_path / "two", store)
    with pytest.raises(st.CheckpointError, match="was taken over by a newer run"):
        one.commit(0)
    two.commit(0)
    assert {m.checkpoint.found() for m in (one, two)} == {store.read("springtide.json")}
    one.close()
    two.close()


def test_a_claim_that_was_made_though_the_answer_was_lost(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Machine(tmp_path / "one", store)
    one.commit(0)
    create, lost = Store.create, []

    def forgetful(self: Store, path: str, data: bytes) -> bool:
        made = create(self, path, data)
        if not lost:
            lost.append(path)
            return create(self, path, data)
        return made

    monkeypatch.setattr(Store, "create", forgetful)
    two = Machine(tmp_path / "two", store)
    assert lost == ["manifests/000000001"]
    assert two.lease.generation == 2
    two.commit(1)
    one.close()
    two.close()


def test_a_restore_that_was_cut_short_is_done_again(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Manifests were there, and what makes a folder a checkpoint was not."""
    here = Machine(tmp_path / "here", store)
    for epoch in range(2):
        here.commit(epoch)
    here.close()
    write = Store.write

    def cut(self: Store, path: str, data: bytes) -> None:
        if path == "springtide.json":
            raise OSError("killed")
        write(self, path, data)

    monkeypatch.setattr(Store, "write", cut)
    with pytest.raises(OSError, match="killed"):
        Machine(tmp_path / "there", store)
    monkeypatch.undo()
    there = Machine(tmp_path / "there", store)
    assert there.checkpoint.epochs() == [0, 1]
    there.commit(2)
    there.close()


@pytest.mark.parametrize("left", [0, 20])
def test_what_a_power_cut_left_of_the_copy_of_a_record_is_written_anew(tmp_path: Path, store: Store, left: int) -> None:
    """Copies in the folder are not flushed; that is no other history."""
    here = Machine(tmp_path / "here", store)
    for epoch in range(2):
        here.commit(epoch)
    here.close()
    torn = tmp_path / "here" / "manifests" / "000000001"
    whole = torn.read_bytes()
    torn.write_bytes(whole[:left])
    again = Machine(tmp_path / "here", store)
    assert torn.read_bytes() == whole
    assert again.checkpoint.epochs() == [0, 1]
    again.commit(2)
    again.close()


def test_a_backup_of_another_checkpoint_is_left_alone(tmp_path: Path, store: Store) -> None:
    one = Machine(tmp_path / "one", store)
    one.commit(0)
    other = Checkpoint(tmp_path / "other")
    other.acquire(IDENTITY).release()
    with pytest.raises(st.CheckpointError, match="is not the one whose backup is in"):
        Machine(tmp_path / "other", store)
    one.commit(1)
    one.close()


def test_a_backup_that_comes_later_goes_on_where_the_folder_is(tmp_path: Path, store: Store) -> None:
    alone = Checkpoint(tmp_path / "one")
    for start in range(2):
        lease = alone.acquire(IDENTITY)
        lease.commit(Manifest(start, lease.generation))
        lease.release()
    one = Machine(tmp_path / "one", store)
    assert one.checkpoint.epochs() == [1], "the newest epoch goes along"
    one.commit(2)
    one.close()
    lease = alone.acquire(IDENTITY)  # for a while without the backup
    lease.commit(Manifest(3, lease.generation))
    lease.release()
    again = Machine(tmp_path / "one", store)
    again.commit(4)
    again.close()
    two = Machine(tmp_path / "two", store)
    assert two.checkpoint.epochs()[-1] == 4
    two.close()


def test_a_folder_and_a_backup_that_went_apart_are_refused(tmp_path: Path, store: Store) -> None:
    one = Machine(tmp_path / "one", store)
    one.commit(0)
    one.close()
    lease = Checkpoint(tmp_path / "one").acquire(IDENTITY)  # without the backup
    lease.commit(Manifest(1, lease.generation))
    lease.release()
    two = Machine(tmp_path / "two", store)
    two.commit(1)
    before = store.files()
    with pytest.raises(st.CheckpointError, match=r"\(epoch .*; give an empty folder"):
        Machine(tmp_path / "one", store)
    assert store.files() == before
    two.commit(2)
    two.close()


def test_a_first_backup_that_was_cut_short_is_nobody_elses(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Checkpoint(tmp_path / "one").acquire(IDENTITY)
    lease.commit(Manifest(0, lease.generation))
    lease.release()
    create = Store.create

    def cut(self: Store, path: str, data: bytes) -> bool:
        if self == store and path == "springtide.json":
            raise OSError("killed")
        return create(self, path, data)

    monkeypatch.setattr(Store, "create", cut)
    with pytest.raises(OSError, match="killed"):
        Machine(tmp_path / "one", store)
    monkeypatch.undo()
    with pytest.raises(st.CheckpointError, match="has the beginnings of another checkpoint's backup"):
        Machine(tmp_path / "two", store)
    one = Machine(tmp_path / "one", store)
    one.commit(1)
    one.close()


def test_a_folder_that_is_removed_is_filled_again(tmp_path: Path, store: Store) -> None:
    one = Machine(tmp_path / "one", store)
    one.commit(0)
    shutil.rmtree(tmp_path / "one")
    one.commit(1)
    assert one.checkpoint.epochs() == [0, 1]
    assert one.checkpoint.found() == store.read("springtide.json")
    one.close()


def test_a_stale_run_removes_nothing(tmp_path: Path, store: Store) -> None:
    one = Machine(tmp_path / "one", store)
    one.commit(0)
    two = Machine(tmp_path / "two", store)
    store.write("state/counts/needed.arrow", b"x")
    one.mirror.remove(one.lease, ["state/counts/needed.arrow"])
    one.close()
    assert store.exists("state/counts/needed.arrow")
    two.close()


def test_what_no_manifest_speaks_of_is_removed_at_the_start(tmp_path: Path, store: Store) -> None:
    one = Machine(tmp_path / "one", store)
    one.close()
    store.write("state/counts/left.arrow", b"")
    Machine(tmp_path / "one", store).close()
    assert store.list("state") == []
