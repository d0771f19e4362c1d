"""Bad checkpoints, full disks and failing expressions: a clear error, nothing overwritten, and a next start that goes on."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

import springtide as st
from springtide.runtime.engine import Engine, Options
from springtide.runtime.inprocess import run
from springtide.state.checkpoint import Checkpoint
from springtide.testing import MemorySink, compare
from tests.unit.runtime import crashing
from tests.unit.runtime.crashing import SCHEMA, numbers


def query(window: str = "9s", name: str = "sums", **more: st.Aggregate) -> st.Query:
    """Make the query of these tests: ten epochs of four rows."""
    source = st.source("numbers", st.memory(numbers(40), schema=SCHEMA), ts="ts")
    sums = source.aggregate(by="key", window=st.sliding(window, every="3s"), total=st.sum("x"), **more, name="totals")
    return st.Query(name, sums.to(st.memory_sink(), name="out"))


def start(made: st.Query, checkpoint: Path, *, upto: int = 100, buckets: int = 8) -> Engine:
    """Run up to an epoch, or to the end."""
    return run(
        made.plan(buckets=buckets), checkpoint, Options(2, rows_per_epoch=4), between=lambda e: e.manifest.epoch < upto
    )


def rows_of(made: st.Query) -> pl.DataFrame:
    sink = made.step("out").connector  # type: ignore[attr-defined]
    assert isinstance(sink, MemorySink)
    return sink.rows()


def contents(folder: Path) -> dict[str, bytes]:
    """Give every file of a folder, but for the lock, which says nothing of the data."""
    return {
        str(f.relative_to(folder)): f.read_bytes()
        for f in sorted(folder.rglob("*"))
        if f.is_file() and f.name != "lock"
    }


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A good checkpoint that ends with epoch 5."""
    folder = tmp_path / "checkpoint"
    start(query(), folder, upto=5)
    return folder


def refused(made: st.Query, checkpoint: Path, message: str, **options: int) -> None:
    """Assert that a start is refused with a message and that everything is as it was."""
    before = contents(checkpoint)
    with pytest.raises(st.CheckpointError, match=message):
        start(made, checkpoint, **options)
    assert contents(checkpoint) == before


# ── checkpoints ───────────────────────────────────────────────────────────────────────────────────────────────────


def without_tail(data: bytes) -> bytes:
    return data[:-7]


def another_number(data: bytes) -> bytes:
    return data.replace(b'"accepted":24', b'"accepted":25')


def newer(data: bytes) -> bytes:
    return data.replace(b'"format":1', b'"format":2')


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (without_tail, "is damaged"),
        (another_number, r"is damaged \(its checksum does not match\)"),
        (lambda _: b"", "is damaged"),
        (lambda _: b"[1, 2]", r"is damaged \(it is not a manifest\)"),
        (lambda _: b'{"format": 1}', "is damaged"),
        (newer, r"has format 2.* reads 1; .*newer version"),
    ],
    ids=["cut off", "changed", "empty", "other JSON", "no body", "newer"],
)
def test_a_damaged_manifest_is_named(checkpoint: Path, damage: Callable[[bytes], bytes], reason: str) -> None:
    manifest = checkpoint / "manifests" / f"{5:09d}"
    whole = manifest.read_bytes()
    assert damage(whole) != whole
    manifest.write_bytes(damage(whole))
    refused(query(), checkpoint, rf"cannot be read: the manifest of epoch 5 {reason}")
    manifest.write_bytes(whole)
    assert start(query(), checkpoint).manifest.ended


def test_a_foreign_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"sea")
    refused(query(), tmp_path, "not a Springtide checkpoint; give an empty or a new folder")
    assert [f.name for f in tmp_path.iterdir()] == ["holiday.jpg"]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("springtide.json", "{", r"has a damaged springtide\.json"),
        ("springtide.json", "[]", r"has a damaged springtide\.json"),
    ],
)
def test_other_damaged_files_are_named(checkpoint: Path, file: str, text: str, message: str) -> None:
    (checkpoint / file).write_text(text)
    refused(query(), checkpoint, message)


def test_a_newer_format_is_refused(checkpoint: Path) -> None:
    marker = checkpoint / "springtide.json"
    marker.write_text(json.dumps(json.loads(marker.read_text()) | {"format": 2}))
    refused(query(), checkpoint, r"has format 2.* reads 1; .*newer version")


def test_another_query_is_refused(checkpoint: Path) -> None:
    refused(query(name="other"), checkpoint, "belongs to the query 'sums', not 'other'")
    refused(query(window="12s"), checkpoint, "was written by another form of this query: step totals")
    refused(query(n=st.count()), checkpoint, "was written by another form of this query: step totals")
    refused(query(), checkpoint, "was written by another form of this query: buckets: 8 → 16", buckets=16)
    assert start(query(), checkpoint).manifest.ended, "the old form goes on"


def test_a_checkpoint_is_used_by_one_run_at_a_time(checkpoint: Path) -> None:
    def another(engine: Engine) -> bool:
        refused(query(), checkpoint, rf"is in use by process {os.getpid()} on .*; stop that run first")
        return True

    made = query()
    assert run(made.plan(buckets=8), checkpoint, Options(2, rows_per_epoch=4), between=another).manifest.ended


def test_a_run_that_lost_its_checkpoint_commits_nothing(checkpoint: Path) -> None:
    """On file systems without locks a claim keeps a stale run out."""

    def taken_over(engine: Engine) -> bool:
        if engine.manifest.epoch == 5:
            Checkpoint(checkpoint).claim("another")
        return True

    epochs = Checkpoint(checkpoint).epochs()
    made = query()
    with pytest.raises(st.CheckpointError, match=r"taken over by a newer run \(process .*\); .*stale"):
        run(made.plan(buckets=8), checkpoint, Options(2, rows_per_epoch=4), between=taken_over)
    assert Checkpoint(checkpoint).epochs() == epochs
    assert set(made.step("out").connector.epochs) == set(), "nothing is published"  # type: ignore[attr-defined]
    assert start(query(), checkpoint).manifest.ended


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (None, "missing"),
        (lambda data: data[: len(data) // 2], "damaged"),
        (lambda _: b"", "damaged"),
        (lambda data: b"\0" * len(data), "damaged"),
        (lambda data: bytes([*data[:-200], data[-200] ^ 1, *data[-199:]]), "damaged"),
    ],
    ids=["missing", "half", "empty", "zeros", "one-bit"],
)
def test_a_damaged_segment_is_named(checkpoint: Path, damage: Callable[[bytes], bytes] | None, problem: str) -> None:
    """The epoch fails, and once the file is restored the next start goes on and gives the right rows."""
    made = query()
    start(made, checkpoint, upto=5)
    manifest = Checkpoint(checkpoint).manifest(5)
    damaged = [checkpoint / segment.file for segment in manifest.state["totals"].segments if segment.epoch == 5]
    whole = {f: f.read_bytes() for f in damaged}
    for f in damaged:
        f.unlink() if damage is None else f.write_bytes(damage(whole[f]))
    names = "|".join(f.name for f in damaged)
    with pytest.raises(
        st.CheckpointError, match=rf"has lost .*({names}) \(\d+ rows of panes of totals, .*\) is {problem}"
    ):
        start(made, checkpoint)
    assert 7 not in Checkpoint(checkpoint).epochs()
    for f, data in whole.items():
        f.write_bytes(data)
    assert start(made, checkpoint).manifest.ended
    # this query object has seen epochs 5 and later only
    expected = made.run_reference().rows()
    seen = rows_of(made)
    assert seen.height > 10
    compare(seen, expected.join(seen.select("key", "window_start"), on=["key", "window_start"]))


# ── full disks ────────────────────────────────────────────────────────────────────────────────────────────────────

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["pytest", "pandas", crashing.__name__])


@pytest.mark.parametrize("limit", [10, 300, 900, 1500, 2000, 2500, 3000, 4000, 100_000])
def test_a_file_that_cannot_be_written_fails_the_epoch_and_no_more(tmp_path: Path, limit: int) -> None:
    """SE-1: as on a full disk, a write of more than `limit` bytes fails: of a segment, of rows for a sink, of a manifest. The next start goes on."""
    crashing.write_input(tmp_path)
    child = PROCESSES.Process(target=crashing.run_with_small_files, args=(tmp_path, limit))
    child.start()
    child.join()
    assert child.exitcode in ((1,) if limit < 2000 else (0, 1) if limit < 100_000 else (0,))
    crashing.run_files(tmp_path, 3, None)
    crashing.every_row_is_there_once(tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 256 kB; only root may make one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if made.returncode != 0:
        pytest.skip("needs the right to mount a file system")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)  # somebody may still have a file open


@pytest.mark.parametrize("room", [0, 4, 8, 16, 32, 64])
def test_a_full_disk_fails_the_epoch_and_no_more(tmp_path: Path, small_disk: Path, room: int) -> None:
    """The disk has `room` kB left when the run begins; the whole run needs more."""
    crashing.write_input(tmp_path)
    (tmp_path / "checkpoint").symlink_to(small_disk / "checkpoint")
    (small_disk / "checkpoint").mkdir()
    (small_disk / "ballast").write_bytes(b"\0" * (shutil.disk_usage(small_disk).free - room * 1024))
    with pytest.raises((OSError, st.SpringtideError, pl.exceptions.PolarsError), match="No space left on device"):
        crashing.run_files(tmp_path, 2, None)
    (small_disk / "ballast").unlink()
    crashing.run_files(tmp_path, 3, None)
    crashing.every_row_is_there_once(tmp_path)


# ── failing expressions ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_failing_expression_commits_and_publishes_nothing_of_its_epoch(tmp_path: Path) -> None:
    """The rows before it are there, the state is whole: a start without the bad row goes on."""
    good = numbers(8).with_columns(text=pl.col("x").cast(pl.String))
    bad = good.with_columns(pl.col("ts") + pl.duration(seconds=10), text=pl.lit("many"))
    better = bad.with_columns(text=pl.lit("1"))

    def made(second: pl.DataFrame) -> st.Query:
        rows = st.memory(pl.concat([good, second]), schema={**SCHEMA, "text": pl.String})
        strict = st.source("numbers", rows, ts="ts").map(n=pl.col("text").cast(pl.Int64), name="strict")
        sums = strict.aggregate(window=st.tumbling("4s"), total=st.sum("n"))
        return st.Query("strict", sums.to(sink, name="out"))

    sink = st.memory_sink()
    query = made(bad)
    with pytest.raises(Exception, match="conversion from `str` to `i64` failed"):
        start(query, tmp_path)
    assert sorted(f.name for f in (tmp_path / "manifests").iterdir()) == [f"{0:09d}", f"{1:09d}"]
    assert rows_of(query)["total"].to_list() == [6], "the window [4 s, 8 s) is still open"
    fixed = made(better)
    assert start(fixed, tmp_path).manifest.ended
    compare(rows_of(fixed), fixed.run_reference().rows())
