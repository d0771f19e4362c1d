"""The in-process runner: the same tasks, blobs, segments and manifests, one after the other, without Spark.

It is there so that thousands of random schedules can be tested in seconds; the product's runtime is Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from springtide.compiler.plan import Plan
from springtide.query.errors import SpringtideError
from springtide.runtime.engine import Engine, Options
from springtide.runtime.epoch import Epoch, Report
from springtide.runtime.reports import reports_of
from springtide.runtime.shadows import with_shadows
from springtide.runtime.tasks import REPORT, Item, instance_task, source_task
from springtide.runtime.topology import topology
from springtide.state.checkpoint import Checkpoint


def execute(plan: Plan, epoch: Epoch, beside: Iterable[Item] = ()) -> list[Report]:
    """Run the tasks of an epoch in this process, level by level; `beside` has what further tasks of level 0 give."""
    layout = topology(with_shadows(plan, epoch.shadows), epoch.instances)
    items: list[Item] = [i for p in range(layout.partitions(0)) for i in source_task(plan, epoch, p)]
    items += beside
    for level in range(1, len(layout.levels)):
        inboxes: list[list[Item]] = [[] for _ in range(layout.partitions(level))]
        for item in items:
            inboxes[item[1] % len(inboxes) if item[0] != REPORT else 0].append(item)
        items = [i for p, inbox in enumerate(inboxes) for i in instance_task(plan, epoch, level, p, inbox)]
    return reports_of(items)


def run(
    plan: Plan,
    checkpoint: str | Path,
    options: Options | None = None,
    *,
    between: Callable[[Engine], bool] | None = None,
) -> Engine:
    """Run a query with bounded input to its end, or until `between` (called before each epoch) says stop."""
    engine = Engine(plan, Checkpoint(checkpoint), lambda epoch: execute(plan, epoch), options or Options())
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
