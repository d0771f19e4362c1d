"""Two replicas of a query, with a driver each and different instances (SM-5): one joins late, one is paused and then killed, and the other goes on as if nothing had happened; one moves to a cluster or to another Spark, and then takes the other's place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

import springtide as st
from benchmarks.elastic.standalone import standalone
from springtide.runtime.replicas.group import Group
from springtide.state.checkpoint import Checkpoint
from springtide.state.stores import Store
from springtide.testing import compare
from tests.spark.child import endless
from tests.spark.processes import ROOT, end_the_group, start_child
from tests.spark.test_standby import _SECONDS, add, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
LOCAL = "local[2,4]"


def test_one_of_two_replicas_is_paused_and_then_killed(spark: SparkSession, tmp_path: Path) -> None:
    """One is in a process of its own, the other in this one, so that only one more Spark has to start."""
    (tmp_path / "in").mkdir()
    add(tmp_path, 0)
    group, query = Group(Store.at(tmp_path / "group")), endless(tmp_path, "sums")
    child = start_child("replica", tmp_path, "a", 1, LOCAL, log=tmp_path / "a.log")
    replica = st.Replicated(tmp_path / "group", "b")

    def has(name: str, rows: int) -> bool:
        assert child.poll() in (None, -signal.SIGKILL), (tmp_path / "a.log").read_text()
        latest = Checkpoint(tmp_path / name).latest() if (tmp_path / name / "springtide.json").exists() else None
        return latest is not None and latest.sources["numbers"].accepted == rows

    try:
        until(lambda: has("a", 20) and group.newest() >= 0, "the first replica publishes what is there")
        with query.start(spark, checkpoint=tmp_path / "b", instances=3, buckets=16, replicas=replica) as run:
            until(lambda: has("b", 20) or not run.active, "the second one catches up")
            os.killpg(child.pid, signal.SIGSTOP)
            add(tmp_path, 1)
            until(lambda: has("b", 40) or not run.active, "the second one goes on alone")
            assert not has("a", 40)
            os.killpg(child.pid, signal.SIGCONT)
            until(lambda: has("a", 40), "the first one catches up")
            add(tmp_path, 2)
            os.killpg(child.pid, signal.SIGKILL)
            until(lambda: has("b", 60) or not run.active, "the second one goes on alone again")
    finally:
        end_the_group(child)
        child.wait(_SECONDS)
    assert [m.name for m in group.members()] == ["a", "b"]
    first, last = group.done(0), group.done(group.newest())
    assert first is not None
    assert last is not None
    assert (first.by, last.by) == ("a", "b")
    assert group.alarms() == []
    compare(pl.read_parquet(tmp_path / "sums" / "*.parquet"), query.run_reference(bounded=False).rows("sums"))


def test_one_replica_after_the_other_moves_to_a_cluster(spark: SparkSession, tmp_path: Path) -> None:
    with standalone(tmp_path / "cluster", workers=1, cores=1, memory="512m") as master:
        move(spark, tmp_path, master, sys.executable)
    assert f"Spark {spark.version} at {master}" in (tmp_path / "b.log").read_text()


def test_one_replica_after_the_other_gets_another_spark(spark: SparkSession, tmp_path: Path) -> None:
    """`make sparks` runs this on each version; the other one is that of the project's own environment."""
    python = os.environ.get("SPRINGTIDE_OTHER_PYTHON", str(ROOT / ".venv" / "bin" / "python"))
    if not Path(python).exists():
        pytest.skip(f"there is no other environment: {python}")
    version = [python, "-c", "import pyspark; print(pyspark.__version__)"]
    other = subprocess.run(version, capture_output=True, check=True, text=True).stdout.strip()
    if other == spark.version:
        pytest.skip(f"both would run on Spark {other}: make sparks has others")
    move(spark, tmp_path, LOCAL, python)
    assert f"Spark {other} at {LOCAL}" in (tmp_path / "b.log").read_text()


def move(spark: SparkSession, folder: Path, master: str, python: str) -> None:
    """Stop one of two replicas here, and go on with its checkpoint there while the other is at work; then stop the other."""
    (folder / "in").mkdir()
    group, query = Group(Store.at(folder / "group")), endless(folder, "sums")
    log = folder / "b.log"

    def accepted(name: str) -> int:
        latest = Checkpoint(folder / name).latest() if (folder / name / "springtide.json").exists() else None
        return 0 if latest is None else latest.sources["numbers"].accepted

    def start(name: str, instances: int) -> st.Run:
        replica = st.Replicated(folder / "group", name)
        return query.start(spark, checkpoint=folder / name, instances=instances, buckets=16, replicas=replica)

    add(folder, 0)
    with start("b", 2) as run:
        until(lambda: accepted("b") == 20 or not run.active, "the first replica publishes what is there")
    child = None
    try:
        with start("a", 3) as run:
            before = group.newest()
            add(folder, 1)
            until(lambda: accepted("a") == 40 or not run.active, "the other one goes on alone")
            until(lambda: group.newest() > before or not run.active, "it publishes what is new")
            alone = group.newest()
            child = start_child("replica", folder, "b", 1, master, log=log, python=python, PYSPARK_PYTHON=python)

            def has(rows: int) -> bool:
                assert child.poll() is None, log.read_text()
                return accepted("b") == rows

            until(lambda: has(40) or not run.active, "the first one catches up there")
            add(folder, 2)
            until(lambda: (has(60) and accepted("a") == 60) or not run.active, "both are at work")
        together = group.newest()
        add(folder, 3)
        until(lambda: has(80), "the one that moved goes on alone")
        (folder / "end").touch()
        assert child.wait(_SECONDS) == 0, log.read_text()
    finally:
        if child is not None:
            end_the_group(child)
            child.wait(_SECONDS)
    by = [done.by for epoch in range(group.newest() + 1) if (done := group.done(epoch)) is not None]
    assert len(by) == group.newest() + 1
    assert (by[0], by[alone], set(by[together + 1 :])) == ("b", "a", {"b"})
    assert group.alarms() == []
    compare(pl.read_parquet(folder / "sums" / "*.parquet"), query.run_reference(bounded=False).rows("sums"))
