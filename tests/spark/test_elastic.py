"""Queries whose degrees change while they run on Spark give the rows of the sequential reference (SC-9, ST-5, SM-7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import springtide as st
from springtide.query import steps
from tests.spark import test_engine as queries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEDULE = (2, 5, 3, 8, 1)
"""After the first epoch, and after each that follows; they begin with 1."""


@dataclass(frozen=True)
class Scheduled:
    """A policy that goes through the schedule with every stateful subquery, an epoch at a time."""

    schedule: Sequence[int] = SCHEDULE

    def decide(self, snapshot: st.Snapshot, history: Sequence[st.Snapshot]) -> Sequence[st.Proposal]:
        if snapshot.epoch >= len(self.schedule):
            return []
        return [
            st.Proposal(name, f"epoch {snapshot.epoch} is over", instances=self.schedule[snapshot.epoch])
            for name, load in snapshot.subqueries.items()
            if load.most != 1
        ]


ELASTIC: list[tuple[Callable[[Path], list[steps.Sink]], Any]] = [
    (queries.heavy_callers, "virtual"),
    (queries.heavy_callers, "window"),
    (queries.chained, "state"),
    (queries.order, "window"),
    (queries.union_of_aggregates, "virtual"),
    (queries.last_calls, "state"),
    (queries.rankings, "window"),
    (queries.files, "virtual"),
]


@pytest.mark.parametrize(("made", "protocol"), ELASTIC, ids=lambda value: getattr(value, "__name__", value))
def test_a_query_that_grows_and_shrinks_gives_the_rows_of_the_reference(
    made: Callable[[Path], list[steps.Sink]], protocol: Any, spark: SparkSession, tmp_path: Path
) -> None:
    """1 → 2 → 5 → 3 → 8 → 1 instances of every stateful part, by every protocol."""
    query = st.Query("query", *made(tmp_path))
    elastic = st.Elastic(
        policy=Scheduled(), balancing=None, every=0.0, grace=0.0, confirmations=1, slots=64, protocol=protocol
    )
    run = query.start(
        spark, checkpoint=tmp_path / "checkpoint", instances=1, buckets=16, rows_per_epoch=8, elastic=elastic
    )
    assert run.wait(120)
    changed = [name for name, load in run.snapshots()[-1].subqueries.items() if load.most != 1]
    assert changed
    for name in changed:
        used = [s.subqueries[name].instances for s in run.snapshots()]
        assert used[: len(SCHEDULE) + 1] == [1, *SCHEDULE]
    queries.check(query, query.run_reference(), run.status())


@pytest.mark.slow
def test_from_1_to_64_instances_and_back(spark: SparkSession, tmp_path: Path) -> None:
    """SM-7: as many as have no core, nor even a key."""
    query = st.Query("query", *queries.heavy_callers(tmp_path))
    elastic = st.Elastic(policy=Scheduled((64, 1)), balancing=None, every=0.0, grace=0.0, confirmations=1, slots=64)
    run = query.start(spark, checkpoint=tmp_path / "checkpoint", instances=1, rows_per_epoch=8, elastic=elastic)
    assert run.wait(120)
    used = [max(load.instances for load in s.subqueries.values() if load.most != 1) for s in run.snapshots()]
    assert used[:3] == [1, 64, 1]
    queries.check(query, query.run_reference(), run.status())
