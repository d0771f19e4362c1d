"""A run keeps Python workers ready that it does not need yet, and leaves nothing running behind."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

import springtide as st
from springtide.runtime.spark import warmth
from tests.machine import LONG
from tests.unit.runtime import crashing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def workers(spark: SparkSession) -> list[psutil.Process]:
    """Return the Python workers of this session: Spark's JVM has one process that makes them."""
    jvm = psutil.Process(int(spark._jvm.ProcessHandle.current().pid()))  # type: ignore[union-attr]
    return [p for p in jvm.children(recursive=True) if p.ppid() != jvm.pid and p.status() != psutil.STATUS_ZOMBIE]


def test_workers_come_back_before_they_are_needed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one instance of everything: no epoch has two tasks at once."""
    monkeypatch.setattr(warmth, "EVERY", 0.1)
    monkeypatch.setattr(warmth, "_LOOK", 0.1)
    crashing.write_input(tmp_path)
    source = st.source("numbers", st.parquet(tmp_path / "in", schema=crashing.SCHEMA, follow=True), ts="ts")
    query = st.Query("warm", source.to(st.memory_sink()))
    run = query.start(spark, checkpoint=tmp_path / "checkpoint", instances=1, buckets=8)
    before = workers(spark)
    for worker in before:
        worker.kill()
    until = time.monotonic() + LONG
    while len({p.pid for p in workers(spark)} - {p.pid for p in before}) < 2:
        assert time.monotonic() < until, "nobody has called them"
        time.sleep(0.05)
    run.stop()
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()
