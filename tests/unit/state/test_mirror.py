"""The backup of a checkpoint while it is in use."""

from __future__ import annotations

from pathlib import Path

import pytest

import springtide as st
from springtide.state.checkpoint import Checkpoint, Lease
from springtide.state.manifest import Manifest
from springtide.state.mirror import Mirror
from springtide.state.stores import Store

IDENTITY = {"query": "q", "steps": {}, "buckets": 8, "hash": "h", "polars": "2"}


def begin(root: Path, store: Store) -> tuple[Checkpoint, Mirror, Lease]:
    checkpoint = Checkpoint(root)
    mirror = Mirror(checkpoint, store)
    mirror.restore()
    lease = checkpoint.acquire(IDENTITY, after=mirror.generation())
    mirror.claim(lease)
    mirror.begin(set(), checkpoint.history())
    return checkpoint, mirror, lease


def commit(checkpoint: Checkpoint, mirror: Mirror, lease: Lease, epoch: int, batch: int | None = None) -> None:
    manifest = Manifest(epoch, lease.generation, batch=batch)
    checkpoint.commit(manifest, lease)
    mirror.commit(manifest, lease)


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_an_empty_folder_is_filled_from_the_backup(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    store = Store.at(tmp_path / "backup" if kind == "folder" else request.getfixturevalue("s3"))
    checkpoint, mirror, lease = begin(tmp_path / "here", store)
    offsets = checkpoint.root / "spark" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text("offset")
    (offsets / ".0.crc").write_text("not needed")
    commit(checkpoint, mirror, lease, 0, batch=0)
    commit(checkpoint, mirror, lease, 1, batch=1)
    mirror.remove("manifests/000000000")
    mirror.close()
    lease.release()

    there, again, theirs = begin(tmp_path / "there", store)
    assert there.epochs() == [1]
    assert there.identity()["query"] == "q"
    assert (there.root / "spark" / "offsets" / "0").read_text() == "offset"
    assert not (there.root / "spark" / "offsets" / ".0.crc").exists()
    assert theirs.generation > lease.generation
    commit(there, again, theirs, 2)
    with pytest.raises(st.CheckpointError, match="was taken over by a newer run"):
        mirror.commit(Manifest(2, lease.generation), lease)
    again.close()
    theirs.release()
    with pytest.raises(st.CheckpointError, match=r"is at epoch 1, behind its backup .* at epoch 2"):
        begin(tmp_path / "here", store)


def test_a_restore_that_was_cut_short_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Manifests were there, and what makes a folder a checkpoint was not."""
    store = Store.at(tmp_path / "backup")
    checkpoint, mirror, lease = begin(tmp_path / "here", store)
    for epoch in range(2):
        commit(checkpoint, mirror, lease, epoch)
    mirror.close()
    lease.release()
    fetch = Store.fetch

    def cut(self: Store, path: str, local: Path) -> None:
        if path == "generation":
            raise OSError("killed")
        fetch(self, path, local)

    monkeypatch.setattr(Store, "fetch", cut)
    with pytest.raises(OSError, match="killed"):
        begin(tmp_path / "there", store)
    monkeypatch.undo()
    there, again, theirs = begin(tmp_path / "there", store)
    assert there.epochs() == [0, 1]
    assert theirs.generation == lease.generation + 1
    again.close()
    theirs.release()


def test_a_backup_of_another_checkpoint_is_left_alone(tmp_path: Path) -> None:
    store = Store.at(tmp_path / "backup")
    checkpoint, mirror, lease = begin(tmp_path / "one", store)
    commit(checkpoint, mirror, lease, 0)
    mirror.close()
    lease.release()
    other = Checkpoint(tmp_path / "other")
    theirs = other.acquire(IDENTITY | {"buckets": 16})
    other.commit(Manifest(0, theirs.generation), theirs)
    theirs.release()
    with pytest.raises(st.CheckpointError, match="is not the one whose backup is in"):
        Mirror(other, store).restore()


def test_what_no_manifest_speaks_of_is_removed_at_the_start(tmp_path: Path) -> None:
    store = Store.at(tmp_path / "backup")
    store.write("state/counts/left.arrow", b"")
    _, mirror, lease = begin(tmp_path / "one", store)
    mirror.close()
    lease.release()
    assert store.list("state") == []
