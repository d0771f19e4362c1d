"""Two drivers of one query: one works, the other stands by, and goes on when the first is killed, paused or cut off from ZooKeeper (SM-6)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from springtide.state.checkpoint import Checkpoint
from springtide.testing import compare
from tests.servers.zookeeper import zookeeper
from tests.spark.child import endless
from tests.spark.processes import end_the_group, start_child
from tests.unit.runtime.crashing import numbers

pytestmark = pytest.mark.spark
_SECONDS = 300.0


def until(is_so: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _SECONDS
    while not is_so():
        assert time.monotonic() < end, f"{what}: not within {_SECONDS:.0f} s"
        time.sleep(0.05)


def add(folder: Path, part: int) -> None:
    """Add twenty rows to the input, whole or not at all."""
    partial = folder / f"{part}.partial"
    numbers(20 * part + 20)[20 * part :].write_parquet(partial)
    partial.rename(folder / "in" / f"{part}.parquet")


def accepted(folder: Path) -> int:
    latest = Checkpoint(folder / "checkpoint").latest()
    return 0 if latest is None else latest.sources["numbers"].accepted


@pytest.mark.parametrize("ending", ["paused", "killed, with ZooKeeper"])
def test_a_standby_goes_on(tmp_path: Path, ending: str) -> None:
    if ending == "paused":
        take_over(tmp_path, "", pause=True)
    else:
        (tmp_path / "zookeeper").mkdir()
        with zookeeper(tmp_path / "zookeeper") as server:
            take_over(tmp_path, f"zk://{server.address}/springtide/numbers", pause=False)


def take_over(folder: Path, lease: str, *, pause: bool) -> None:
    (folder / "in").mkdir()
    for part in (0, 1):
        add(folder, part)
    first = start_child("standby", folder, "first", lease, log=folder / "first.log")
    second = None
    try:
        until((folder / "first-leads").exists, "the first run begins")
        second = start_child("standby", folder, "second", lease, log=folder / "second.log")
        until((folder / "second-waits").exists, "the second run stands by")
        until(lambda: accepted(folder) == 40, "the first run takes what is there")
        assert not (folder / "second-leads").exists()
        os.killpg(first.pid, signal.SIGSTOP if pause else signal.SIGKILL)
        until((folder / "second-leads").exists, "the second run takes over")
        add(folder, 2)
        until(lambda: accepted(folder) == 60 or second.poll() is not None, "the second run takes what is new")
        (folder / "end").touch()
        assert second.wait(_SECONDS) == 0, (folder / "second.log").read_text()
        if pause:  # it wakes up, sees rows that it had not taken, and may not commit them
            (folder / "end").unlink()
            os.killpg(first.pid, signal.SIGCONT)
            assert first.wait(_SECONDS) != 0, "a run that lost its checkpoint does not go on"
            assert "taken over" in (folder / "first.log").read_text()
    finally:
        for child in (first, second):
            if child is not None:
                end_the_group(child)
                child.wait(_SECONDS)
    expected = endless(folder, "sums").run_reference(bounded=False).rows("sums")
    compare(pl.read_parquet(folder / "sums" / "*.parquet"), expected)
