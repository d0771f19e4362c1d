"""An epoch in one task is the same as in stages: every instance gives the same rows, keeps the same state and reports the same, and the rows are those of the reference."""

from __future__ import annotations

from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from pyspark import cloudpickle

from springtide.compiler.plan import Plan
from springtide.runtime.epoch import Epoch, TaskReport
from springtide.runtime.shipping import for_tasks
from springtide.runtime.spark.job import InstanceStage, Pair, SourceStage, WholeStage
from springtide.runtime.task_reports import read_task_reports
from springtide.runtime.tasks import Item
from tests.properties import losses
from tests.properties.queries import case
from tests.properties.retries import apart, told
from tests.properties.test_engine import run_at_random
from tests.properties.test_engine import told as compared


class Both:
    """Runs every epoch in both forms, and continues with one of them."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.epochs = 0

    def execute(self, plan: Plan, epoch: Epoch) -> list[TaskReport]:
        """Run the tasks of an epoch."""
        packed = cloudpickle.dumps(for_tasks(plan))  # type: ignore[no-untyped-call]
        whole = [item for _, item in WholeStage(packed, epoch)(0, ())]
        staged = in_stages(packed, epoch, self._random.randint(1, 4))
        one, other = told(epoch, whole), told(epoch, staged)
        assert one == other, apart(one, other)
        self.epochs += 1
        return read_task_reports(self._random.choice([whole, staged]))


def in_stages(packed: bytes, epoch: Epoch, tasks: int) -> list[Item]:
    """Do what Spark does with stages of so many tasks at most."""
    layout = epoch.topology
    few = [min(layout.partitions(level), tasks) for level in range(len(layout.levels))]
    pairs: list[Pair] = [pair for task in range(few[0]) for pair in SourceStage(packed, epoch, few[0])(task, ())]
    for level in range(1, len(layout.levels)):
        boxes: list[list[Pair]] = [[] for _ in range(few[level])]
        for pair in pairs:
            boxes[pair[0] % few[level]].append(pair)
        stage = InstanceStage(packed, epoch, level, few[level])
        pairs = [pair for task, box in enumerate(boxes) for pair in stage(task, box)]
    return [item for _, item in pairs]


@pytest.mark.parametrize("seeds", [range(first, first + 10) for first in range(0, 40, 10)], ids=str)
def test_both_forms_of_an_epoch_are_the_same(seeds: range, tmp_path: Path) -> None:
    """Whatever the query, its instances, its maps, restarts and losses."""
    both = Both(Random(seeds[0]))
    for seed in seeds:
        checkpoint = tmp_path / str(seed)
        one = case(seed, checkpoint.with_suffix(".input"))
        expected = one.query.run_reference()
        with patch.object(losses, "execute", both.execute):
            compared(one, run_at_random(one, checkpoint), expected)
    assert both.epochs > len(seeds)
