"""What a run keeps of Spark's own records, in its folder and in the store that outlives the machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import springtide as st
from springtide.runtime.spark import records
from springtide.runtime.storage import Storage
from springtide.state.claims import Lease
from springtide.state.manifest import Manifest
from springtide.state.spark_records import REMEMBERED, digest
from springtide.state.stores import Store
from tests.stores.misbehaving import Misbehaving, served

IDENTITY = {"query": "q", "steps": {}, "buckets": 8, "hash": "h", "polars": "2"}


class Place:
    """A checkpoint with a copy that outlives the machine: in an object store, or with a backup."""

    def __init__(self, root: Path, kind: str) -> None:
        self.remote = kind == "in an object store"
        self.where = "fake://bucket/ckpt" if self.remote else root / "ckpt"
        given: dict[str, Any] = {"cache": root / "cache"} if self.remote else {"backup": root / "backup"}
        self.durability = st.Durability(**given)
        self.store = Store.at(self.where if self.remote else root / "backup")
        self.folder = self.durability.checkpoint(self.where).root

    def start(self) -> Storage:
        """Do what a start does before Spark reads."""
        checkpoint = self.durability.checkpoint(self.where)
        return Storage(checkpoint, IDENTITY, self.durability, lambda: 0.0, lambda _: None)

    def run(self) -> tuple[Storage, Path]:
        storage = self.start()
        own = storage.folder_for_spark()
        records.check(self.folder, own, storage.manifest)
        storage.begin(lambda: None)
        return storage, own


@pytest.fixture(params=["with a backup", "in an object store"])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    with served(bucket=Misbehaving(0, trouble=0.0)):
        yield Place(tmp_path, request.param)


def write(own: Path, **said: str) -> None:
    for name, text in said.items():
        file = own / name.replace("_", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def commit(storage: Storage, own: Path, epoch: int, batch: int) -> None:
    storage.commit(Manifest(epoch, storage.lease.generation, batch=batch, offsets=digest(own, batch)))


def ended(place: Place) -> None:
    """Have a checkpoint with a micro-batch."""
    storage, own = place.run()
    write(own, metadata="id", sources_0_0="a file", offsets_0="v1")
    commit(storage, own, 0, batch=0)
    storage.close()


def said(own: Path) -> dict[str, str]:
    return {f.relative_to(own).as_posix(): f.read_text() for f in own.rglob("*") if f.is_file()}


ALL = {"metadata": "id", "sources/0/0": "a file", "offsets/0": "v1"}


@pytest.mark.parametrize("harm", ["damaged", "torn", "gone", "all gone", "an old one", "its source is gone"])
def test_what_is_lost_of_the_folder_s_records_is_brought_again(place: Place, harm: str) -> None:
    ended(place)
    file = place.folder / "spark" / "offsets" / "0"
    match harm:
        case "damaged":
            file.write_text("v2")
        case "torn":
            file.write_text("v")
        case "gone":
            file.unlink()
        case "all gone":
            shutil.rmtree(place.folder / "spark")
        case "an old one":
            file.write_text("from long ago")
        case _:
            (place.folder / "spark" / "sources" / "0" / "0").unlink()
    storage, own = place.run()
    assert said(own) == ALL
    storage.close()
    assert place.store.read("spark/offsets/0") == b"v1"


def test_a_start_that_is_refused_changes_nothing_where_the_records_are_whole(place: Place) -> None:
    ended(place)
    good = {f: place.store.read(f) for f in place.store.list("spark")}
    storage = place.start()
    write(place.folder / "spark", offsets_1="never was")
    storage.folder_for_spark()
    storage.close()  # because of anything before it has begun
    assert {f: place.store.read(f) for f in place.store.list("spark")} == good


def test_a_record_that_is_there_with_other_content_is_not_overwritten(place: Place) -> None:
    storage, own = place.run()
    write(own, offsets_0="v1")
    place.store.write("spark/offsets/0", b"another")
    with pytest.raises(st.CheckpointError, match=r"cannot copy Spark's record spark/offsets/0 .* is not the one in"):
        commit(storage, own, 0, batch=0)
    storage.close()
    assert place.store.read("spark/offsets/0") == b"another"


def test_no_epoch_is_committed_without_its_record(place: Place) -> None:
    ended(place)
    storage, own = place.run()
    write(own, offsets_1="v1, next")
    shutil.rmtree(own)
    with pytest.raises(st.CheckpointError, match="has lost what Spark said"):
        commit(storage, own, 1, batch=1)
    storage.close()
    storage, own = place.run()
    assert storage.manifest.epoch == 0
    assert said(own) == ALL
    storage.close()


@pytest.mark.parametrize("gone", ["what is kept", "all that there is"])
def test_what_the_store_has_too_may_be_deleted_at_any_moment(
    place: Place, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between Spark's record and the commit, and while that keeps it. Where Spark writes is not in a cache."""
    ended(place)
    storage, own = place.run()
    write(own, offsets_1="v1, next")
    folder = place.folder if gone == "all that there is" and place.remote else place.folder / "spark"
    assert not place.remote or not own.is_relative_to(folder)
    flush = Store.flush_names

    def flushed(self: Store, files: Any) -> None:
        flush(self, files)
        shutil.rmtree(folder, ignore_errors=True)

    shutil.rmtree(folder)
    with monkeypatch.context() as patched:
        patched.setattr(Store, "flush_names", flushed)
        commit(storage, own, 1, batch=1)
    storage.close()
    assert not own.exists()
    storage, own = place.run()
    assert storage.manifest.epoch == 1
    assert said(own) == ALL | {"offsets/1": "v1, next"}
    storage.close()


def test_a_listing_without_the_newest_record_is_asked_for_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ended(place)
    shutil.rmtree(place.folder / "spark")
    listed, behind = Store.files, [None] * 3

    def files(self: Store, folder: str = "") -> dict[str, int]:
        found = listed(self, folder)
        if self == place.store and folder == "spark" and behind:
            behind.pop()
            del found["spark/offsets/0"]
        return found

    monkeypatch.setattr(Store, "files", files)
    storage, own = place.run()
    assert said(own) == ALL
    storage.close()


def test_what_a_killed_run_left_of_spark_s_folder_is_removed(place: Place) -> None:
    killed, own = place.run()
    killed.lease.release()
    write(own, offsets_0="v1")
    storage, other = place.run()
    assert not own.exists()
    assert other.stat().st_mode & 0o077 == 0
    storage.close()
    assert not other.exists()


@pytest.mark.parametrize("loses", ["nothing", "its folder", "its sources"])
def test_only_what_spark_itself_has_forgotten_goes_from_the_store(place: Place, loses: str) -> None:
    last = 3 * REMEMBERED
    storage, own = place.run()
    old = range(50)
    write(own, metadata="id", sources_0_0="in use", **{f"offsets_{n}": f"{n}" for n in [*old, last - 1]})
    commit(storage, own, 0, batch=last - 1)
    write(own, **{f"offsets_{last}": "next"})
    for n in old:
        (own / "offsets" / str(n)).unlink()
    match loses:
        case "its folder":
            shutil.rmtree(own)
            write(own, **{f"offsets_{last}": "next"})
        case "its sources":
            shutil.rmtree(own / "sources")
    if loses == "nothing":
        commit(storage, own, 1, batch=last)
    else:
        with pytest.raises(st.CheckpointError, match="has lost what Spark said"):
            commit(storage, own, 1, batch=last)
    storage.close()
    stay = {"spark/metadata", "spark/sources/0/0", f"spark/offsets/{last - 1}"}
    stay |= {f"spark/offsets/{last}"} if loses == "nothing" else {f"spark/offsets/{n}" for n in old}
    assert set(place.store.list("spark")) == stay


def test_nothing_is_looked_at_while_the_micro_batch_stays(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other sources have epochs while Spark has no rows."""
    storage, own = place.run()
    write(own, metadata="id", offsets_0="v1")
    commit(storage, own, 0, batch=0)

    def look(*_: Any) -> Any:
        raise AssertionError("it looks into folders")

    for method in (Path.rglob, Store.files):
        monkeypatch.setattr(Path if method is Path.rglob else Store, method.__name__, look)
    checks: list[None] = []
    check = Lease.check
    monkeypatch.setattr(Lease, "check", lambda self: (checks.append(None), check(self)))
    for epoch in range(1, 4):
        commit(storage, own, epoch, batch=0)
    assert not checks
    monkeypatch.undo()
    storage.close()
