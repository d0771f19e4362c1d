"""More instances than slots share tasks; the rows, and who reports what, stay the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark import cloudpickle

from springtide.runtime.engine import Engine, Options
from springtide.runtime.epoch import Epoch, TaskReport
from springtide.runtime.inprocess import execute as in_one_task
from springtide.runtime.spark.job import InstanceStage, Pair, SourceStage
from springtide.runtime.task_reports import read_task_reports
from springtide.state.checkpoint import Checkpoint
from tests.unit.runtime.crashing import every_row_is_there_once, files_to_files, write_input


@pytest.mark.parametrize(("instances", "tasks"), [(5, 2), (5, 5), (6, 4), (3, 1)])
def test_instances_that_share_a_task_are_instances_still(tmp_path: Path, instances: int, tasks: int) -> None:
    write_input(tmp_path)
    plan = files_to_files(tmp_path).plan(buckets=8)
    packed = cloudpickle.dumps(plan)  # type: ignore[no-untyped-call]
    seen: list[TaskReport] = []

    def execute(epoch: Epoch) -> list[TaskReport]:
        """Do what Spark does with the stages: partition p of a stage goes to task p modulo tasks."""
        layout = epoch.topology
        few = [min(layout.partitions(level), tasks) for level in range(len(layout.levels))]
        pairs: list[Pair] = [p for t in range(few[0]) for p in SourceStage(packed, epoch, few[0])(t, ())]
        for level in range(1, len(layout.levels)):
            stage, boxes = InstanceStage(packed, epoch, level, few[level]), [[] for _ in range(few[level])]  # type: ignore[var-annotated]
            for pair in pairs:
                boxes[pair[0] % few[level]].append(pair)
            pairs = [p for t, box in enumerate(boxes) for p in stage(t, box)]
        reports = read_task_reports(item for _, item in pairs)
        seen[:] = reports
        return reports

    engine = Engine(plan, Checkpoint(tmp_path / "checkpoint"), execute, Options(instances, rows_per_epoch=10))
    engine.begin()
    while engine.has_work() and not engine.manifest.ended:
        engine.run()
        told = sorted((r.subquery, r.instance) for r in seen)
        assert told == sorted((q.name, i) for q in plan.subqueries for i in range(engine.maps[q.name].instances))
    engine.close()
    every_row_is_there_once(tmp_path)


def test_instances_that_one_task_ran_are_as_busy_as_side_by_side(tmp_path: Path) -> None:
    """One after the other they would seem to have had the time of all of them."""
    write_input(tmp_path)
    plan = files_to_files(tmp_path).plan(buckets=8)

    def execute(epoch: Epoch) -> list[TaskReport]:
        return [
            replace(report, together=True, began=100.0 + report.instance, wait=0.0, busy=0.4)
            for report in in_one_task(plan, epoch)
        ]

    engine = Engine(plan, Checkpoint(tmp_path / "checkpoint"), execute, Options(2, rows_per_epoch=10))
    engine.begin()
    assert engine.has_work()
    engine.run()
    found = engine.snapshot
    engine.close()
    assert found is not None
    assert {found.span(name) for name in found.subqueries} == {0.4}, "not what its two instances took together"
