"""The in-process runner: the same tasks, blobs, segments and manifests, one after the other, without Spark.

It exists so that thousands of random schedules can be tested in seconds; in production, queries run on Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from springtide.compiler.plan import Plan
from springtide.query.errors import SpringtideError
from springtide.runtime.engine import Engine
from springtide.runtime.epoch import Epoch, TaskReport
from springtide.runtime.old_owners import with_old_owners
from springtide.runtime.options import Options
from springtide.runtime.task_reports import read_task_reports
from springtide.runtime.tasks import REPORT, Item, instance_task, source_task


def execute(plan: Plan, epoch: Epoch, beside: Iterable[Item] = ()) -> list[TaskReport]:
    """Run the tasks of an epoch in this process, level by level; `beside` has the output of further tasks of level 0."""
    live, topology = with_old_owners(plan, tuple(epoch.old_owners)), epoch.topology
    items: list[Item] = [i for p in range(topology.partitions(0)) for i in source_task(live, epoch, p)]
    items += beside
    for level in range(1, len(topology.levels)):
        inboxes: list[list[Item]] = [[] for _ in range(topology.partitions(level))]
        for item in items:
            inboxes[item[1] % len(inboxes) if item[0] != REPORT else 0].append(item)
        items = [i for p, inbox in enumerate(inboxes) for i in instance_task(live, epoch, level, p, inbox)]
    return read_task_reports(items)


def run(
    plan: Plan,
    checkpoint: str | Path,
    options: Options | None = None,
    *,
    between: Callable[[Engine], bool] | None = None,
) -> Engine:
    """Run a query with bounded input to its end, or until `between` (called before each epoch) says stop."""
    options = options or Options()
    engine = Engine(plan, options.durability.checkpoint(checkpoint), lambda epoch: execute(plan, epoch), options)
    try:
        engine.begin()
        while not engine.manifest.ended:
            if between is not None and not between(engine):
                break
            if not engine.has_work():
                raise SpringtideError(
                    "there is nothing to do and the input has not ended: the in-process runner is for bounded inputs"
                )
            engine.run()
    finally:
        engine.close()
    return engine
