"""Followed folders: every file is read once, whatever its name; what is not read, or is not what was read any more, is said."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.connectors import file_ledger as ledger_module
from springtide.runtime import ledgers
from springtide.runtime.durability import Durability
from springtide.runtime.engine import Engine, Options
from springtide.runtime.inprocess import execute
from springtide.state.checkpoint import Checkpoint
from springtide.state.copying import restore
from springtide.state.errors import CheckpointError
from springtide.state.manifest import SourceState
from springtide.state.savepoints import save
from springtide.state.verifying import verify
from tests.contract.damage import as_manifest
from tests.wording import says

COLUMNS = {"x": pl.Int64}


class Folder:
    """A folder that is followed, and one checkpoint; each call of `run` is another run."""

    def __init__(self, root: Path, kind: str = "csv", **options: Any) -> None:
        self.root, self.kind, self.options = root, kind, options
        self.files, self.checkpoint, self.sink = root / "in", root / "ckpt", st.memory_sink()
        self.files.mkdir(exist_ok=True)
        self.clock, self.events = 1_700_000_000, list[str]()

    def put(self, name: str, xs: list[int]) -> Path:
        """Let a file come, a second after the one before."""
        path = self.files / f"{name}.{self.kind}"
        path.parent.mkdir(exist_ok=True)
        frame = pl.DataFrame({"x": xs}, schema=COLUMNS)
        frame.write_csv(path) if self.kind == "csv" else frame.write_parquet(path)
        self.clock += 1
        os.utime(path, (self.clock, self.clock))
        return path

    def engine(self, follow: bool = True, rows: int = 1000) -> Engine:
        make = st.csv if self.kind == "csv" else st.parquet
        numbers = st.source("numbers", make(self.options.get("path", self.files), schema=COLUMNS, follow=follow))
        plan = st.Query("followed", numbers.to(self.sink)).plan(buckets=4)
        durability = self.options.get("durability", Durability())
        options = Options(1, rows_per_epoch=rows, durability=durability)
        return Engine(plan, Checkpoint(self.checkpoint), lambda epoch: execute(plan, epoch), options)

    def run(self, **options: Any) -> list[int]:
        """Read until there is nothing new; give all numbers that the sink has now."""
        engine = self.engine(**options)
        engine.begin()
        try:
            for _ in range(1000):
                if engine.manifest.ended or not engine.has_work():
                    break
                engine.run()
        finally:
            self.events = [text for _, text in engine.events]
            self.state = engine.manifest.sources.get("numbers", SourceState())
            engine.close()
        return self.sink.rows()["x"].to_list() if self.sink.epochs else []


@pytest.fixture(params=["csv", "parquet"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    return Folder(tmp_path, request.param)


@pytest.mark.parametrize("seed", range(2))
def test_every_file_is_read_once_whatever_its_name(folder: Folder, seed: int) -> None:
    """Names as Spark's: random. Files come while the query runs, while it is down, and in the middle of a file."""
    chance, n = random.Random(seed), 0
    for _ in range(5):
        for _ in range(chance.randrange(4)):
            folder.put(f"part-{chance.randrange(10**9):09d}", list(range(n, n + (rows := chance.randrange(5)))))
            n += rows
        got = folder.run(rows=chance.choice([1, 3, 1000]))
    assert got == list(range(n)), "in the order in which they came"
    assert folder.events == []
    assert folder.state.accepted == n


def test_files_that_are_found_together_are_read_by_age(folder: Folder) -> None:
    folder.put("b", [0])
    folder.put("c", [1])
    folder.put("a", [2])
    assert folder.run() == [0, 1, 2]


def test_the_same_name_in_two_folders(tmp_path: Path) -> None:
    folder = Folder(tmp_path, path=tmp_path / "in" / "*" / "x.csv")
    folder.put("2/x", [0])
    assert folder.run() == [0]
    folder.put("1/x", [1])
    assert folder.run() == [0, 1]


def test_names_that_are_not_meant(folder: Folder) -> None:
    folder.put("a", [0])
    for name in ("_a", ".a"):
        folder.put(name, [9])
    folder.options["path"] = f"{folder.files}/*"
    for name in ("b.tmp", "b.partial"):
        shutil.copy(folder.files / f"a.{folder.kind}", folder.files / name)
    assert folder.run() == [0]
    assert folder.state.files["read"] + (folder.kind == "csv") == 1


def test_a_file_that_was_read_and_has_changed_is_reported_once(folder: Folder) -> None:
    path = folder.put("a", [1, 2])
    folder.put("b", [3])
    assert folder.run() == [1, 2, 3]
    size = path.stat().st_size
    folder.put("a", list(range(100, 200)))
    assert folder.run() == [1, 2, 3]
    (told,) = folder.events
    assert says(
        told, f"step numbers (source): {path} ", f"from {size:,} to {path.stat().st_size:,} bytes", "another name"
    )
    assert folder.state.files["changed"] == 1
    folder.put("c", [4])
    assert folder.run() == [1, 2, 3, 4]
    assert folder.events == [], "it was said, and written down"
    os.utime(path, (1, 1))
    folder.run()
    assert folder.events[0].startswith(f"step numbers (source): {path} was written again since it was read")


def test_files_that_were_read_may_go(folder: Folder) -> None:
    for i, name in enumerate("abc"):
        folder.put(name, [i])
    assert folder.run() == [0, 1, 2]
    shutil.rmtree(folder.files)
    folder.files.mkdir()
    assert folder.run() == [0, 1, 2]
    folder.put("d", [3])
    assert folder.run() == [0, 1, 2, 3]
    assert folder.events == []
    folder.put("a", [7])
    assert folder.run() == [0, 1, 2, 3]
    assert "a file is read once" in folder.events[0]


def test_a_file_that_goes_before_it_is_read_is_reported(folder: Folder) -> None:
    for i, name in enumerate("abc"):
        folder.put(name, [i, i])
    engine = folder.engine(rows=2)
    engine.begin()
    engine.has_work()
    engine.run()
    away = (folder.files / f"b.{folder.kind}").rename(folder.root / "b")
    assert engine.has_work()
    assert engine.has_work(), "looking twice changes nothing"
    engine.run()
    ((_, told),) = engine.events
    assert told.startswith(f"step numbers (source): {folder.files}/b.{folder.kind} is gone")
    assert engine.manifest.sources["numbers"].files["gone"] == 1
    away.rename(folder.files / f"b.{folder.kind}")
    folder.put("d", [3])
    while engine.has_work():
        engine.run()
    assert engine.manifest.sources["numbers"].files["gone"] == 0
    engine.close()
    assert sorted(folder.sink.rows()["x"]) == [0, 0, 1, 1, 2, 2, 3]


def test_a_bounded_input_waits_for_files_that_it_has_seen(folder: Folder) -> None:
    for i, name in enumerate("abc"):
        folder.put(name, [i])
    engine = folder.engine(follow=False, rows=1)
    engine.begin()
    engine.has_work()
    engine.run()
    (folder.files / f"c.{folder.kind}").rename(folder.root / "c")
    with pytest.raises(st.UnavailableError, match=f"c.{folder.kind} is no longer in "):
        engine.has_work()
    engine.close()


def test_a_begun_file_that_is_replaced_is_reported(folder: Folder) -> None:
    path = folder.put("a", list(range(10, 90)))
    folder.put("b", [3])
    engine = folder.engine(rows=5)
    engine.begin()
    engine.has_work()
    engine.run()
    folder.put("a", [7])
    while engine.has_work():
        engine.run()
    assert folder.sink.rows()["x"].to_list() == [*range(10, 15), 3]
    assert "bytes while it was read: a file is read once" in engine.events[0][1]
    assert engine.manifest.sources["numbers"].files == {"read": folder.kind != "csv", "changed": 1, "gone": 0}
    assert path.exists()
    engine.close()


def test_positions_of_older_checkpoints_go_on(folder: Folder) -> None:
    """Then a position was the last name, and names before it counted as read."""
    make = st.csv if folder.kind == "csv" else st.parquet
    for i, name in enumerate("bcd"):
        folder.put(name, [i])
    source = make(folder.files, schema=COLUMNS, follow=True)
    old = {"file": f"c.{folder.kind}", "row": 1, "rows": 2}
    take = source.take(old, 100, None)
    assert [(s.position, s.rows) for s in take.slices] == [(2, 1)]
    folder.put("a", [9])
    later = source.take(take.position, 100, None)
    assert [(os.path.basename(s.data[0]), s.position) for s in later.slices] == [(f"a.{folder.kind}", 3)]


def test_bounded_after_followed_reads_the_rest_and_ends(folder: Folder) -> None:
    folder.put("b", [0, 1])
    folder.run()
    folder.put("a", [2])
    assert folder.run(follow=False) == [0, 1, 2]
    assert folder.state.ended
    assert folder.state.files == {"read": 2, "changed": 0, "gone": 0}


# ── many files ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers, "RECENT", 3)
    monkeypatch.setattr(ledger_module, "_LOOKED_AT", 7)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("durability", ["epoch", "1h"])
def test_a_manifest_does_not_grow_with_the_files_that_were_read(tmp_path: Path, durability: str) -> None:
    kept = Durability(every=durability, backup=tmp_path / "backup", shared_memory=tmp_path / "memory", retain=2)
    folder, chance, n = Folder(tmp_path, "parquet", durability=kept), random.Random(1), 0
    for turn in range(24):
        for _ in range(chance.randrange(4)):
            folder.put(f"{chance.randrange(10**9)}", [n])
            n += 1
        if turn == 15:  # all but the backup is lost
            shutil.rmtree(folder.checkpoint)
        assert folder.run(rows=2) == list(range(n))
        (ledger,) = folder.state.ledgers() or [{"recent": []}]
        assert len(ledger["recent"]) <= 3 + 2
        assert len(ledger.get("files", ())) <= 8
    assert sum(count for _, count, _ in ledger["files"]) + len(ledger["recent"]) == folder.state.files["read"] == n
    there = {str(f.relative_to(folder.checkpoint)) for f in (folder.checkpoint / "state" / "files").iterdir()}
    assert {file for file, _, _ in ledger["files"]} <= there
    assert len(there) <= 24, "what no manifest speaks of is removed"
    assert not verify(folder.checkpoint).damaged
    assert not verify(tmp_path / "backup").damaged
    engine = folder.engine()
    engine.begin()
    for age in (5, 6):
        for path in chance.sample(sorted(folder.files.iterdir()), 5):
            os.utime(path, (age, age))
        for _ in range(n):  # after the first, a look compares some of them, the next one others
            if engine.has_work():
                engine.run()
    engine.close()
    assert len(engine.events) == 10


@pytest.mark.usefixtures("few")
def test_savepoints_and_copies_know_the_files_that_were_read(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "parquet")
    for n in range(20):
        folder.put(f"{99 - n}", [n])
        folder.run()
    place = save(folder.checkpoint, "one")
    restore(folder.checkpoint, tmp_path / "copy")
    for source in (place, tmp_path / "copy"):
        assert not verify(source).damaged
        folder.checkpoint = source
        assert folder.run() == list(range(20))


def test_files_that_do_not_add_up_are_found(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "parquet")
    folder.put("a", [1])
    folder.run()
    assert verify(folder.checkpoint).unaccounted == ()
    path = folder.checkpoint / "manifests" / "000000000"
    body = json.loads(path.read_bytes())["body"]
    body["sources"]["numbers"]["position"]["ledger"]["read"] = 2
    path.write_bytes(as_manifest(body))
    (told,) = verify(folder.checkpoint).unaccounted
    assert says(told, "source numbers: ", "2 read, 0 changed, 0 gone", "1 read, 0 changed, 0 gone")


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("damage", ["gone", "other"])
def test_a_lost_ledger_is_found_and_named(tmp_path: Path, damage: str) -> None:
    folder = Folder(tmp_path, "parquet")
    for n in range(9):
        folder.put(f"{99 - n}", [n])
        folder.run()
    file = folder.state.ledgers()[0]["files"][0][0]
    path = folder.checkpoint / file
    path.unlink() if damage == "gone" else path.write_text("[]")
    (found,) = verify(folder.checkpoint).damaged
    assert found.file == file
    with pytest.raises(CheckpointError, match=r"names of files .*(missing|damaged)"):
        folder.run()
