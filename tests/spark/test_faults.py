"""What goes wrong on Spark: the error says what it is in one line, nothing of the epoch is published, the next start goes on."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import springtide as st
from springtide.state.checkpoint import Checkpoint
from springtide.testing import FAIL, compare, table
from tests.machine import LONG
from tests.spark.child import STARTED
from tests.spark.forms import choose_form
from tests.unit.runtime import crashing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
GOES_ON = "epoch failed .*not committed: .*; .*next start continues"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    crashing.write_input(tmp_path)
    return tmp_path


def run_to_the_end(folder: Path, spark: SparkSession, instances: int = 2) -> None:
    """Run the query from files to files, without patience."""
    query = crashing.files_to_files(folder)
    run = query.start(
        spark, checkpoint=folder / "checkpoint", instances=instances, buckets=8, rows_per_epoch=10, patience="0s"
    )
    assert run.wait(LONG)


def test_a_failing_expression_is_one_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    rows = table('ts text\n 1s "1"\n 12s "2"\n PAUSE\n 23s "many"\n 34s "4"')
    source = st.source("rows", st.memory(rows, schema={"ts": st.TIME, "text": pl.String}), ts="ts")
    strict = source.map(n=pl.col("text").cast(pl.Int64), name="strict")
    sums = strict.aggregate(window=st.tumbling("10s"), total=st.sum("n"))
    query = st.Query("strict", sums.to(st.parquet_sink(tmp_path / "out")))
    run = query.start(spark, checkpoint=tmp_path / "checkpoint", instances=2, buckets=8)
    with pytest.raises(st.SpringtideError, match=GOES_ON) as raised:
        assert run.wait(LONG), "it goes on as if nothing had failed"
    assert "conversion from `str` to `i64` failed" in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1
    assert not run.active
    assert run.status()["epoch"] == 0
    assert pl.read_parquet(tmp_path / "out" / "*.parquet")["total"].to_list() == [1], "that of the epoch before"
    assert not Checkpoint(tmp_path / "checkpoint").in_use()


def test_an_error_of_a_users_operator_names_step_bucket_and_row(spark: SparkSession, tmp_path: Path) -> None:
    """ST-4: all the way from the task, in one line."""

    class Inverse(st.KeyOperator):
        state = {"n": pl.Int64}  # noqa: RUF012
        output = {"y": pl.Int64, "ts": st.TIME}  # noqa: RUF012

        def init(self, key: Any) -> Any:
            return {"n": 0}

        def process(self, key: Any, state: Any, tuples: pl.DataFrame, ready_ts: int) -> Any:
            return [{"y": 6 // x, "ts": ts} for x, ts in tuples.select("x", "ts").iter_rows()]

    rows = table("ts k x\n 1s a 1\n 2s a 2\n PAUSE\n 3s a 3\n 4s a 0\n 5s a 6")
    source = st.source("rows", st.memory(rows, schema={"ts": st.TIME, "k": pl.String, "x": pl.Int64}), ts="ts")
    query = st.Query("inverse", source.operator(Inverse(), keys="k", name="mine").to(st.memory_sink()))
    run = query.start(spark, checkpoint=tmp_path / "checkpoint", instances=2, buckets=8)
    with pytest.raises(st.SpringtideError, match=GOES_ON) as raised:
        assert run.wait(LONG), "it goes on as if nothing had failed"
    wanted = r"step mine \(operator\), bucket \d: Inverse.process raised ZeroDivisionError: .*'k': 'a', 'x': 0}"
    assert re.search(wanted, str(raised.value))
    assert len(str(raised.value).splitlines()) == 1


def test_a_damaged_segment_is_named(spark: SparkSession, folder: Path) -> None:
    """The name comes all the way from the task."""
    rows = [*crashing.numbers(20).to_dicts(), FAIL, *crashing.numbers(40)[20:].to_dicts()]
    source = st.source("numbers", st.memory(rows, schema=crashing.SCHEMA), ts="ts")
    sums = source.aggregate(by="key", window=st.sliding("30s", every="5s"), all=st.collect("x"), name="sums")
    query = st.Query("damaged", sums.to(st.memory_sink()))

    def start() -> None:
        run = query.start(spark, checkpoint=folder / "checkpoint", instances=2, buckets=8, rows_per_epoch=10)
        assert run.wait(LONG)

    with pytest.raises(st.SpringtideError, match="a test wanted the run to fail here"):
        start()
    manifest = Checkpoint(folder / "checkpoint").latest()
    assert manifest is not None
    file = folder / "checkpoint" / manifest.state["sums"].segments[0].file
    whole = file.read_bytes()
    file.write_bytes(whole[:100])
    with pytest.raises(st.SpringtideError, match=rf"has lost 1 segment .*{file.name} \(.* of sums, .*\) is damaged"):
        start()
    file.write_bytes(whole)
    start()
    compare(query.step("sink").connector.rows(), query.run_reference().rows())  # type: ignore[attr-defined]


def test_two_runs_at_once(spark: SparkSession, folder: Path) -> None:
    """The second one is refused before anything of Spark is started; the first one does not notice."""
    source = st.source("numbers", st.parquet(folder / "in", schema=crashing.SCHEMA, follow=True), ts="ts")
    query = st.Query("followed", source.to(st.parquet_sink(folder / "copy")))
    run = query.start(spark, checkpoint=folder / "checkpoint", instances=2)
    before = set(spark.streams.active)
    with pytest.raises(st.CheckpointError, match="is in use by process"):
        query.start(spark, checkpoint=folder / "checkpoint", instances=2)
    assert len(spark.streams.active) == len(before)
    while run.status()["epoch"] < 0:
        assert not run.wait(0.05)
    run.stop()
    compare(pl.read_parquet(folder / "copy" / "*.parquet"), query.run_reference().rows())
    assert query.start(spark, checkpoint=folder / "checkpoint", instances=2, trigger="available now").wait(LONG)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 512 kB; only root may make one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a file system")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)  # a worker may still have a file open


@pytest.mark.parametrize(("room", "form"), [(30, "stages"), (70, "stages"), (30, "one task"), (70, "one task")])
def test_a_full_disk_fails_the_epoch_and_no_more(
    spark: SparkSession, folder: Path, small_disk: Path, room: int, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SE-1: whoever finds the disk full first, a task, the driver or Spark's own log."""
    choose_form(form, monkeypatch)
    (small_disk / "checkpoint").mkdir()
    (folder / "checkpoint").symlink_to(small_disk / "checkpoint")
    (small_disk / "ballast").write_bytes(b"\0" * (shutil.disk_usage(small_disk).free - room * 1024))
    with pytest.raises(st.SpringtideError, match="No space left on device"):
        run_to_the_end(folder, spark)
    (small_disk / "ballast").unlink()
    run_to_the_end(folder, spark, instances=3)
    crashing.every_row_is_there_once(folder)


def test_a_stop_leaves_no_noise(folder: Path) -> None:
    """Nothing on the screen once Spark has started: not from the epoch that was stopped or given up, not from Spark's own end."""
    child = subprocess.run(
        [sys.executable, "-m", "tests.spark.child", "stopped", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    _, _, noise = child.stderr.partition(f"{STARTED}\n")
    assert (child.returncode, child.stdout, noise) == (0, "", "")
    for at_once in (False, True):
        assert pl.read_parquet(folder / f"sums-{at_once}" / "*.parquet").height > 0
        assert not Checkpoint(folder / f"checkpoint-{at_once}").in_use()
