"""Two replicas of a query, with a driver each and different instances: one joins late, one is paused and then killed, and the other goes on as if nothing had happened (SM-5)."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

import springtide as st
from springtide.runtime.replicas.group import Group
from springtide.state.checkpoint import Checkpoint
from springtide.state.stores import Store
from springtide.testing import compare
from tests.spark.child import endless
from tests.spark.processes import end_the_group, start_child
from tests.spark.test_standby import _SECONDS, add, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_one_of_two_replicas_is_paused_and_then_killed(spark: SparkSession, tmp_path: Path) -> None:
    """One is in a process of its own, the other in this one, so that only one more Spark has to start."""
    (tmp_path / "in").mkdir()
    add(tmp_path, 0)
    group, query = Group(Store.at(tmp_path / "group")), endless(tmp_path, "sums")
    child = start_child("replica", tmp_path, "a", 1, log=tmp_path / "a.log")
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
