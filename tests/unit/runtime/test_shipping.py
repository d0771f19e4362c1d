"""What goes to the tasks: of sinks no more than how they want their files."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import polars as pl
from pyspark import cloudpickle

import springtide as st
from springtide.connectors import ArrowFiles, ParquetFiles
from springtide.runtime.shipping import for_tasks


def query(folder: Path) -> st.Query:
    lock = threading.Lock()

    def keep(rows: Any, epoch: int) -> None:
        with lock:
            raise AssertionError

    source = st.source("numbers", st.memory(pl.DataFrame({"x": range(3)})))
    return st.Query("held", source.to(st.callback(keep)), source.to(st.parquet_sink(folder / "secret")))


def test_a_plan_goes_without_its_sinks(tmp_path: Path) -> None:
    plan = query(tmp_path).plan()
    packed = cloudpickle.dumps(for_tasks(plan))  # type: ignore[no-untyped-call]
    assert b"secret" not in packed
    arrived = pickle.loads(packed)
    assert list(arrived.graph.steps) == list(plan.graph.steps)
    assert [arrived.step(n).connector.outbox for n in ("sink", "sink-2")] == [ArrowFiles(), ParquetFiles()]
    assert arrived.graph.name_of(arrived.step("sink")) == "sink"
    assert plan.step("sink").describe() == "function keep", "the driver's own is as it was"
