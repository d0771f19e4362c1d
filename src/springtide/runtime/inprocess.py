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
from springtide.runtime.tasks import Item, whole_epoch


def execute(plan: Plan, epoch: Epoch, beside: Iterable[Item] = ()) -> list[TaskReport]:
    """Run the tasks of an epoch in this process, level by level; `beside` has the output of further tasks of level 0."""
    return read_task_reports(whole_epoch(with_old_owners(plan, tuple(epoch.old_owners)), epoch, beside))


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
