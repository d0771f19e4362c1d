"""Two replicas of a query, with a Spark each and different instances; one is killed, and the other goes on as if nothing had happened (SM-5)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import polars as pl
import pytest

from springtide.runtime.replicas.group import Group
from springtide.state.checkpoint import Checkpoint
from springtide.state.stores import Store
from springtide.testing import compare
from tests.spark.child import endless
from tests.spark.processes import end_the_group, start_child
from tests.spark.test_standby import _SECONDS, add, until

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def accepted(folder: Path, name: str) -> int:
    latest = Checkpoint(folder / name).latest()
    return 0 if latest is None else latest.sources["numbers"].accepted


def test_one_of_two_replicas_is_killed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    add(tmp_path, 0)
    runs = {n: start_child("replica", tmp_path, n, i, log=tmp_path / f"{n}.log") for n, i in (("a", 1), ("b", 3))}
    group = Group(Store.at(tmp_path / "group"))
    try:
        until(lambda: accepted(tmp_path, "a") == accepted(tmp_path, "b") == 20, "both take what is there")
        add(tmp_path, 1)
        until(lambda: max(accepted(tmp_path, n) for n in runs) == 40, "one of them takes what is new")
        last = group.done(group.newest())
        assert last is not None
        gone, left = (last.by, "b" if last.by == "a" else "a")
        os.killpg(runs[gone].pid, signal.SIGKILL)
        add(tmp_path, 2)
        until(lambda: accepted(tmp_path, left) == 60 or runs[left].poll() is not None, "the other takes what is new")
        (tmp_path / "end").touch()
        assert runs[left].wait(_SECONDS) == 0, (tmp_path / f"{left}.log").read_text()
    finally:
        for run in runs.values():
            end_the_group(run)
            run.wait(_SECONDS)
    assert [m.name for m in group.members()] == ["a", "b"]
    assert group.done(group.newest()).by == left  # type: ignore[union-attr]
    expected = endless(tmp_path, "sums").run_reference(bounded=False).rows("sums")
    compare(pl.read_parquet(tmp_path / "sums" / "*.parquet"), expected)
