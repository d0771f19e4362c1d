"""What a node keeps of a checkpoint in an object store, and how its segments get there behind the epochs."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import springtide as st
from springtide.state import tiers as tiers_module
from springtide.state.caches import VARIABLE, Cache, mark_of, marked
from springtide.state.errors import LostError
from springtide.state.segment import Segment, checksum
from springtide.state.stores import Store
from springtide.state.tiers import Tiers
from springtide.state.uploads import Uploads
from tests.stores.misbehaving import Misbehaving, served


@pytest.fixture
def bucket() -> Iterator[Misbehaving]:
    bucket = Misbehaving(1, trouble=0.0)
    with served(bucket=bucket):
        yield bucket


STORE = "fake://bucket/ckpt"


def cached(folder: Path, name: str, size: int, used: float) -> Path:
    path = folder / "state" / "sums" / f"{name}.arrow"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    at = int((time.time() - used) * 1e9)
    os.utime(path, ns=(at, at))
    return path


def test_a_cache_is_bounded_and_what_is_used_or_on_its_way_stays(tmp_path: Path) -> None:
    cache = Cache(STORE, str(tmp_path), limit=250)
    here = cache.here()
    files = {name: cached(here, name, 100, age) for name, age in [("a", 900), ("b", 800), ("c", 700), ("d", 1)]}
    mark = marked(here, "state/sums/a.arrow")
    mark.parent.mkdir()
    mark.touch()
    assert mark_of(mark) == "state/sums/a.arrow"
    assert cache.trim(now=True) == 200
    assert [name for name, path in files.items() if path.exists()] == ["a", "d"]
    assert cache.trim(now=True) == 0


def test_a_cache_leaves_a_tenth_of_a_small_disk_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(STORE, str(tmp_path))
    files = {name: cached(cache.here(), name, 100, age) for name, age in [("a", 900), ("b", 800), ("c", 700)]}
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=40))
    assert cache.trim(now=True) == 0, "300 of 340 is less than nine tenths"
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    assert cache.trim(now=True) == 100
    assert [name for name, path in files.items() if path.exists()] == ["b", "c"]


def test_a_full_disk_takes_what_the_store_has_too(bucket: Misbehaving, tmp_path: Path) -> None:
    """However young; but nothing that was written a moment ago, since that may not have arrived."""
    cache = Cache(STORE, str(tmp_path))
    files = {name: cached(cache.here(), name, 100, age) for name, age in [("a", 30), ("b", 20), ("c", 10), ("d", 0)]}
    marked(cache.here(), "state/sums/a.arrow").parent.mkdir()
    marked(cache.here(), "state/sums/a.arrow").touch()
    tiers, tries = Tiers(str(cache.here()), None, Store.at(STORE), cache), list[int]()

    def write() -> str:
        tries.append(sum(path.exists() for path in files.values()))
        if tries[-1] > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return "written"

    assert tiers.with_room(write) == "written"
    assert tries == [4, 3, 2]
    assert files["a"].exists()
    assert files["d"].exists()
    for error in (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), OSError("something else")):

        def fail(error: OSError = error) -> None:
            raise error

        with pytest.raises(OSError, match=str(error)[-10:]):
            tiers.with_room(fail)


def test_a_cache_is_nobody_elses(tmp_path: Path) -> None:
    cache = Cache(STORE, str(tmp_path))
    assert cache.here().stat().st_mode & 0o077 == 0
    assert Cache("fake://bucket/other", str(tmp_path)).place() != cache.place()
    os.chmod(cache.place(), 0o777)
    with pytest.raises(st.CheckpointError, match="can be written by other users"):
        cache.here()


def test_a_node_says_where_its_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "node"))
    assert Cache(STORE, str(tmp_path / "query")).place().parent == tmp_path / "node"


def segment_of(path: Path, file: str) -> Segment:
    return Segment(
        file,
        "panes",
        epoch=1,
        instance=0,
        version=0,
        rows=1,
        bytes=path.stat().st_size,
        low=0,
        high=0,
        crc=checksum(path),
    )


def test_what_another_node_has_on_its_way_is_waited_for(
    bucket: Misbehaving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (Tiers(str(tmp_path), None, Store.at(STORE), Cache(STORE, str(tmp_path / n)), True) for n in "ab")
    path = cached(one.here, "x", 10, 0)
    segment = segment_of(path, "state/sums/x.arrow")
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            Store.at(STORE).put(path, segment.file)

    clock = SimpleNamespace(sleep=sleep, monotonic=time.monotonic)  # other threads sleep as they did
    monkeypatch.setattr(tiers_module, "time", clock)
    assert two.find(segment).read_bytes() == b"x" * 10
    assert len(looks) == 3
    bucket.files.clear()
    two.remove(segment.file)
    monkeypatch.setattr(tiers_module, "_ARRIVES", 0.0)
    with pytest.raises(LostError, match=r"checkpoint fake://bucket/ckpt has lost a segment: .* is missing"):
        two.find(segment)


def test_what_a_process_that_died_left_is_taken_up_by_the_next_one(bucket: Misbehaving, tmp_path: Path) -> None:
    cache, store = Cache(STORE, str(tmp_path)), Store.at(STORE)
    here = cache.here()
    for name in ("left", "gone"):
        mark = marked(here, f"state/sums/{name}.arrow")
        mark.parent.mkdir(exist_ok=True)
        mark.touch()
    cached(here, "left", 10, 0)
    uploads = Uploads(store, cache)
    uploads.drain()
    assert store.list() == ["state/sums/left.arrow"]
    assert [*(here / "pending").iterdir()] == []
    cached(here, "new", 10, 0)
    uploads.begin("state/sums/new.arrow")
    uploads.drain()
    assert store.list() == ["state/sums/left.arrow", "state/sums/new.arrow"]


def test_an_upload_that_fails_stays_marked(bucket: Misbehaving, tmp_path: Path) -> None:
    cache, store = Cache(STORE, str(tmp_path)), Store.at(STORE)
    cached(cache.here(), "new", 10, 0)
    uploads = Uploads(store, cache)
    bucket.trouble = 5.0
    uploads.begin("state/sums/new.arrow")
    with pytest.raises(st.CheckpointError, match="cannot write"):
        uploads.drain()  # it tries again what has failed by now
    bucket.trouble = 0.0
    uploads.drain()
    assert store.list() == ["state/sums/new.arrow"]
