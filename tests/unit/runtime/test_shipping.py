"""What goes to the tasks: of sinks no more than how they want their files."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest
from pyspark import cloudpickle

import springtide as st
from springtide.connectors import ArrowFiles, ParquetFiles
from springtide.runtime.shipping import for_tasks
from springtide.runtime.spark.packing import packed


def query(folder: Path) -> st.Query:
    lock = threading.Lock()

    def keep(rows: Any, epoch: int) -> None:
        with lock:
            raise AssertionError

    source = st.source("numbers", st.memory(pl.DataFrame({"x": range(3)})))
    return st.Query("held", source.to(st.callback(keep)), source.to(st.parquet_sink(folder / "secret")))


def test_a_plan_goes_without_its_sinks(tmp_path: Path) -> None:
    plan = query(tmp_path).plan()
    sent = cloudpickle.dumps(for_tasks(plan))  # type: ignore[no-untyped-call]
    assert b"secret" not in sent
    arrived = pickle.loads(sent)
    assert list(arrived.graph.steps) == list(plan.graph.steps)
    assert [arrived.step(n).connector.outbox for n in ("sink", "sink-2")] == [ArrowFiles(), ParquetFiles()]
    assert arrived.graph.name_of(arrived.step("sink")) == "sink"
    assert plan.step("sink").describe() == "function keep", "the driver's own is as it was"


class Locked(st.KeyOperator):
    """An operator with something that no other process can have."""

    state: ClassVar = {"n": pl.Int64}
    output: ClassVar = {"x": pl.Int64, "ts": st.TIME}

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def init(self, key: tuple[Any, ...]) -> dict[str, Any]:
        return {"n": 0}

    def process(self, key: Any, state: dict[str, Any], tuples: pl.DataFrame, ready_ts: int) -> list[dict[str, Any]]:
        return []


@pytest.mark.parametrize("reads", [True, False])
def test_code_that_cannot_be_sent_is_refused_by_the_name_of_its_step(reads: bool) -> None:
    """Otherwise a file that is edited while its query runs would end the run with an error of pickle's."""
    rows = pl.DataFrame({"x": [1], "ts": [1]}).with_columns(pl.col("ts").cast(st.TIME))
    source = st.source("numbers", st.memory(rows), ts="ts")
    folded = source.filter(pl.col("x") > 0).operator(Locked(), keys="x", name="fold")
    plan = for_tasks(st.Query("held", folded.filter(pl.col("x") > 1).to(st.memory_sink(), name="out")).plan())
    with pytest.raises(st.QueryError, match=r"step fold .operator.: its code cannot be sent .*lock"):
        packed(plan, reads=reads)
