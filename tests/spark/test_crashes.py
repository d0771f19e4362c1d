"""Processes that die on Spark: the driver at each step of a commit and at random moments, a Python worker in the middle of a task."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import polars as pl
import pytest

import springtide as st
from springtide.runtime.failpoints import PLACES
from springtide.testing import compare
from tests.machine import LONG
from tests.spark.forms import choose_form, forms
from tests.spark.processes import end_the_group, start_child, wait_for_the_group
from tests.unit.runtime import crashing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    crashing.write_input(tmp_path)
    return tmp_path


@contextmanager
def started(what: str, folder: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Have a driver of its own at work; whatever happens to the test, its JVM and its workers are gone afterwards."""
    with start_child(what, folder, **environment) as child:
        try:
            yield child
        finally:
            end_the_group(child)


def finish(folder: Path, spark: SparkSession, instances: int = 5) -> None:
    """Start again on the same checkpoint, here, and compare with the reference."""
    query = crashing.files_to_files(folder)
    run = query.start(spark, checkpoint=folder / "checkpoint", instances=instances, buckets=8, rows_per_epoch=10)
    assert run.wait(LONG)
    crashing.every_row_is_there_once(folder)


EPOCHS = dict(zip(PLACES, [1, 3, 2, 4, 1, 2], strict=True))
"""In which epoch to die at which place: in the first and in later ones. Every start of a JVM takes seconds; the in-process test does all."""


@pytest.mark.parametrize("place", PLACES)
def test_a_driver_killed_at_any_step_of_a_commit_leaves_every_row_once(
    folder: Path, spark: SparkSession, place: str
) -> None:
    """SE-1: after the restart, at another number of instances, the Parquet sinks hold every row exactly once."""
    visit = 3 * (EPOCHS[place] - 1) + 2 if place == "during-publish" else EPOCHS[place]
    with started("whole", folder, SPRINGTIDE_FAIL=f"{place}:{visit}") as child:
        _, noise = child.communicate(timeout=LONG)
        assert child.returncode == -signal.SIGKILL, noise
        wait_for_the_group(child)
    finish(folder, spark)


def kill_at_random(folder: Path, random: Random) -> None:
    """Kill a driver some time after it has begun to commit."""
    manifests = folder / "checkpoint" / "manifests"
    with started("whole", folder) as child:
        while child.poll() is None and not (manifests.exists() and any(manifests.iterdir())):
            time.sleep(0.01)
        time.sleep(random.uniform(0, 1.5))
        child.kill()
        child.communicate()
        wait_for_the_group(child)


@pytest.mark.parametrize("seed", range(2))
def test_a_driver_killed_at_a_random_moment_leaves_every_row_once(folder: Path, spark: SparkSession, seed: int) -> None:
    kill_at_random(folder, Random(seed))
    finish(folder, spark)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_a_driver_killed_at_random_moments_leaves_every_row_once(folder: Path, spark: SparkSession, seed: int) -> None:
    for start in range(3):
        kill_at_random(folder, Random(100 * seed + start))
    finish(folder, spark, instances=1 + seed % 5)


def once_fatal(marker: Path) -> Callable[[int], int]:
    """Make a function of a number that kills the worker it runs in, one single time."""
    driver = os.getpid()

    def same(x: int) -> int:
        if os.getpid() != driver and x is not None and x > 20:
            try:
                marker.touch(exist_ok=False)
            except FileExistsError:
                return x
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    return same


@pytest.mark.parametrize("form", ["stages", "one task"])
@pytest.mark.parametrize("where", ["before", "behind"])
def test_a_worker_killed_in_the_middle_of_a_task_is_replaced(
    folder: Path, spark: SparkSession, where: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark runs the task again: before the exchange, where nothing is written yet, and behind the state, where segments may be."""
    choose_form(form, monkeypatch)
    fatal = pl.col("x").map_elements(once_fatal(folder / "died"), return_dtype=pl.Int64)
    source = st.source("numbers", st.parquet(folder / "in", schema=crashing.SCHEMA), ts="ts")
    before = source.map(fatal) if where == "before" else source
    sums = before.aggregate(by="key", window=st.sliding("9s", every="3s"), x=st.sum("x"), all=st.collect("x"))
    behind = sums.map(fatal) if where == "behind" else sums
    query = st.Query("killed", behind.to(st.parquet_sink(folder / "sums")))
    run = query.start(spark, checkpoint=folder / "checkpoint", instances=2, buckets=8, rows_per_epoch=10)
    assert run.wait(LONG)
    assert (folder / "died").exists()
    assert forms(run) == {"stages", form}
    compare(pl.read_parquet(folder / "sums" / "*.parquet"), query.run_reference().rows())
