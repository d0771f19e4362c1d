"""What every place for files must do: one suite, held against each of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from springtide.state.stores import Store
from tests.stores.misbehaving import Misbehaving, served

KINDS = ["folder", "objects", "fake", *(f"misbehaving-{seed}" for seed in range(4))]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    kind, _, seed = request.param.partition("-")
    if kind == "folder":
        yield Store.at(tmp_path / "folder")
    elif kind == "objects":
        yield Store.at(request.getfixturevalue("s3").replace("?", "/some/folder?"))
    else:
        bucket = Misbehaving(int(seed or 0), trouble=0.4 if seed else 0.0)
        with served(bucket=bucket):
            yield Store.at("fake://bucket/some/folder")


def listed(store: Store, wanted: set[str], folder: str = "") -> None:
    """Look until the listing has caught up: it may be behind, but not for good."""
    for _ in range(1000):
        if set(store.files(folder)) == wanted:
            return
    assert set(store.files(folder)) == wanted


def test_reads_see_writes(store: Store) -> None:
    for data in (b"one", b"another", b""):
        store.write("a/b.c", data)
        assert store.read("a/b.c") == data
        assert store.size("a/b.c") == len(data)
    with pytest.raises(FileNotFoundError, match="has no file a/x"):
        store.read("a/x")
    with pytest.raises(FileNotFoundError, match="has no file a/x"):
        store.size("a/x")
    assert not store.exists("a")


def test_a_part_of_a_file(store: Store, tmp_path: Path) -> None:
    data = bytes(range(256)) * 40
    (tmp_path / "data").write_bytes(data)
    store.put(tmp_path / "data", "x")
    for start, length in ((0, 1), (0, 256), (17, 300), (10_239, 1), (5000, 50_000)):
        assert store.read("x", start, length) == data[start : start + length], (start, length)
    assert store.read("x", 10_000) == data[10_000:]


def test_a_file_comes_out_whole(store: Store, tmp_path: Path) -> None:
    data = bytes(range(256)) * 1000
    store.write("x", data)
    for _ in range(5):
        store.fetch("x", tmp_path / "here" / "x")
        assert (tmp_path / "here" / "x").read_bytes() == data
    assert [f.name for f in (tmp_path / "here").iterdir()] == ["x"]


def test_of_several_who_create_a_file_one_has_made_it(store: Store) -> None:
    for turn in range(4):
        made: list[bytes] = []

        def make(data: bytes, path: str = f"log/{turn}", made: list[bytes] = made) -> None:
            if store.create(path, data):
                made.append(data)

        threads = [threading.Thread(target=make, args=(f"run {i}".encode(),)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [store.read(f"log/{turn}")]
        assert store.create(f"log/{turn}", made[0]), "an answer that got lost: it was made"
        assert not store.create(f"log/{turn}", b"somebody else")


def test_what_was_created_is_not_changed_by_another(store: Store) -> None:
    assert store.create("claim", b"mine")
    for other in range(20):
        assert not store.create("claim", f"theirs {other}".encode())
    assert store.read("claim") == b"mine"


def test_listings_catch_up(store: Store) -> None:
    assert store.files("nowhere") == {}
    names = {"manifests/000000001", "manifests/000000001.2", "state/sums/1 2.arrow", "state/größe/x#1.arrow", "top"}
    for name in names:
        store.write(name, name.encode())
    listed(store, names)
    listed(store, {n for n in names if n.startswith("state/")}, "state")
    store.delete("top", "state/sums/1 2.arrow", "never/there")
    store.delete("top")
    store.delete()
    listed(store, names - {"top", "state/sums/1 2.arrow"})
    assert not store.exists("top")


def test_a_copy_is_a_file_of_its_own(store: Store) -> None:
    store.write("a/1", b"data")
    store.copy("a/1", "savepoints/x/a/1")
    store.copy("a/1", "savepoints/x/a/1")
    store.delete("a/1")
    assert store.read("savepoints/x/a/1") == b"data"
    with pytest.raises(FileNotFoundError):
        store.copy("a/1", "b")


def test_names_with_everything_in_them(store: Store) -> None:
    for name in ("a b", "ü", "x#y", "x?y", "x%20y", "x+y", "x&y=z", "[x]", "it's"):
        store.write(f"state/{name}/1.arrow", name.encode())
        assert store.read(f"state/{name}/1.arrow") == name.encode()
        assert store.under(f"state/{name}").read("1.arrow") == name.encode()
        store.delete(f"state/{name}/1.arrow")
