"""A clock that somebody sets back and forth changes nothing: no row, no decision, no figure below zero."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.runtime.engine import Engine, Options
from springtide.runtime.epoch import TaskReport
from springtide.runtime.inprocess import run
from springtide.runtime.measuring import span_of
from springtide.testing import PAUSE, compare, table
from tests.unit.runtime.test_reconfiguring import Script, elastic

SCHEMA = {"ts": st.TIME, "k": pl.String}


class Timer:
    """A second passes with every look."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def steady(timer: Timer) -> Callable[[], float]:
    return lambda: 1e9 + timer.now


def back(timer: Timer) -> Callable[[], float]:
    """An hour back, in the middle of the run."""
    return lambda: 1e9 + timer.now - (3600.0 if timer.now > 60 else 0.0)


def erratic(timer: Timer) -> Callable[[], float]:
    random = Random(7)
    return lambda: 1e9 + random.uniform(-1e6, 1e6)


def idling() -> tuple[st.Query, Any, Any]:
    """Make a query with a physical stream that falls silent, and comes back late."""
    quiet = [*table("ts k\n 1s a\n 2s b"), *[PAUSE] * 12, *table("ts k\n 3s a\n 90s b")]
    busy = [row for i in range(14) for row in (*table(f"ts k\n {5 * i + 1}s a\n {5 * i + 3}s b"), PAUSE)]
    rows, late = st.memory_sink(), st.memory_sink()
    source = st.source("rows", st.memory({"quiet": quiet, "busy": busy}, schema=SCHEMA), ts="ts", idle_after="30s")
    counts = source.aggregate(by="k", window=st.tumbling("10s"), n=st.count(), name="counts")
    return st.Query("idling", counts.to(rows, name="out"), source.late.to(late, name="late")), rows, late


def result(folder: Path, clock: Callable[[Timer], Callable[[], float]]) -> tuple[Engine, pl.DataFrame, pl.DataFrame]:
    """Run with a policy that wants another number of instances all the time, and has to wait for its grace period."""
    query, rows, late = idling()
    timer = Timer()
    wants = replace(elastic(Script([3, 1, 4, 2] * 9)), grace=25.0)
    options = Options(1, elastic=wants, clock=clock(timer), timer=timer)
    return run(query.plan(buckets=8), folder, options), rows.rows(), late.rows()


@pytest.mark.parametrize("clock", [back, erratic])
def test_a_clock_that_is_set_changes_nothing(tmp_path: Path, clock: Any) -> None:
    expected, rows, late = result(tmp_path / "steady", steady)
    engine, found, found_late = result(tmp_path / "set", clock)
    compare(found, rows)
    compare(found_late, late)
    assert late.height == 1, "the silent stream was given up, and came back"
    told = [text for _, text in expected.events]
    assert [text for _, text in engine.events] == told
    assert sum("scaled" in text for text in told) > 1
    snapshots = engine.history.read("snapshots")
    assert len(snapshots) > 10
    assert all(s["seconds"] > 0 and s["period"] > 0 for s in snapshots)
    assert all(s["latency"] is None or s["latency"]["p99"] >= 0 for s in snapshots)
    assert sorted(s["time"] for s in snapshots) == [s["time"] for s in snapshots]
    assert [s["seconds"] for s in snapshots] == [s["seconds"] for s in expected.history.read("snapshots")]


def test_a_stage_takes_no_longer_than_its_epoch_and_no_less_than_its_tasks() -> None:
    def report(began: float) -> TaskReport:
        return TaskReport("counts", 0, began=began, wait=0.5, busy=1.0)

    assert span_of([report(100.0), report(100.7)], seconds=4.0) == 2.2
    assert span_of([report(3700.0), report(100.7)], seconds=4.0) == 4.0, "set back between two tasks"
    assert span_of([report(100.0)], seconds=0.0) == 1.5
