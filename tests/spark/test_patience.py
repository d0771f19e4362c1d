"""What is away for a while on Spark: tasks that fail more often than Spark runs them again, and a run that is stopped while it waits."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import springtide as st
from springtide.connectors import Read, Slice, Source, Take
from springtide.testing import compare
from tests.machine import LONG
from tests.unit.runtime import crashing
from tests.wording import says

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def some_times(folder: Path, times: int, fault: Callable[[], Any]) -> Callable[[int], int]:
    """Make a function of a number that meets a fault in a worker, so many times in all workers together."""
    driver = os.getpid()

    def same(x: int) -> int:
        if os.getpid() != driver and x is not None and x > 20:
            for i in range(times):
                try:
                    (folder / f"fault-{i}").touch(exist_ok=False)
                except FileExistsError:
                    continue
                fault()
        return x

    return same


def away_for_a_while(folder: Path, times: int) -> Any:
    """Make a source whose rows tasks cannot read, so many times."""

    def away() -> None:
        raise ConnectionError("the store is away")

    meet, source = some_times(folder, times, away), st.parquet(folder / "in", schema=crashing.SCHEMA)

    class Away(Source):  # made here: workers get it with the plan
        def schema(self) -> pl.Schema:
            return source.schema()

        def describe(self) -> str:
            return source.describe()

        def take(self, position: Any, limit: int, ts: str | None) -> Take:
            return source.take(position, limit, ts)

        def read(self, part: Slice) -> Read:
            meet(99)
            return source.read(part)

    return Away()


def copying(folder: Path, wrong: Callable[[int], int]) -> st.Query:
    source = st.source("numbers", st.parquet(folder / "in", schema=crashing.SCHEMA), ts="ts")
    same = source.map(pl.col("x").map_elements(wrong, return_dtype=pl.Int64))
    return st.Query("copy", same.to(st.parquet_sink(folder / "copy")))


def test_an_epoch_whose_workers_die_again_and_again_is_run_again(spark: SparkSession, tmp_path: Path) -> None:
    """Spark gives a job up when a task has failed four times."""
    crashing.write_input(tmp_path)
    die = some_times(tmp_path, 5, lambda: os.kill(os.getpid(), signal.SIGKILL))
    query = copying(tmp_path, die)
    run = query.start(spark, checkpoint=tmp_path / "checkpoint", instances=1, rows_per_epoch=30)
    assert run.wait(LONG)
    assert (tmp_path / "fault-4").exists()
    failed, works = [text for _, text in run.events()]
    assert says(failed, "step epoch 0: ", "Python worker exited", "again for 60 s")
    assert works.startswith("step epoch 0: works again, after 1 failure in ")
    compare(pl.read_parquet(tmp_path / "copy" / "*.parquet"), query.run_reference().rows())


def test_what_a_task_cannot_reach_for_a_while_is_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    """The error that names the step comes all the way from the task, and is found in what Spark says."""
    crashing.write_input(tmp_path)
    source = st.source("numbers", away_for_a_while(tmp_path, 5), ts="ts")
    query = st.Query("copy", source.to(st.parquet_sink(tmp_path / "copy")))
    run = query.start(spark, checkpoint=tmp_path / "checkpoint", instances=1, rows_per_epoch=30)
    assert run.wait(LONG)
    failed, works = [text for _, text in run.events()]
    assert failed.startswith("step numbers (source): ConnectionError: the store is away; ")
    assert works.startswith("step numbers (source): works again, after 1 failure in ")
    compare(pl.read_parquet(tmp_path / "copy" / "*.parquet"), query.run_reference().rows())


def test_a_run_that_waits_for_its_source_can_be_stopped(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = crashing.numbers(3_000)  # thousands of epochs: it has not come to the end when its source is taken away
    rows.write_parquet(tmp_path / "in" / "0.parquet", row_group_size=100)
    source = st.source("numbers", st.parquet(tmp_path / "in", schema=crashing.SCHEMA), ts="ts")
    query = st.Query("copy", source.to(st.parquet_sink(tmp_path / "copy")))
    run = query.start(spark, checkpoint=tmp_path / "checkpoint", instances=1, rows_per_epoch=1, patience="10m")
    while run.status()["epoch"] < 1:
        assert not run.wait(0.01)
    os.rename(tmp_path / "in", tmp_path / "away")
    while not run.events():
        assert not run.wait(0.01)
    assert "it is tried again for 600 s" in run.events()[0][1]
    run.stop()
    os.rename(tmp_path / "away", tmp_path / "in")
    again = query.start(spark, checkpoint=tmp_path / "checkpoint", instances=2, patience="0s")
    assert again.wait(LONG)
    compare(pl.read_parquet(tmp_path / "copy" / "*.parquet"), query.run_reference().rows())
