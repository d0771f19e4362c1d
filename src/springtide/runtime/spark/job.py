"""One epoch as one Spark job of RDDs.

RDDs, not DataFrames: a two-stage Python job with nothing to do takes half the time, and a blob crosses the JVM as the bytes it is
(docs/decisions/0001-rdd.md has the figures).
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from pyspark import RDD, SparkContext, cloudpickle

from springtide.compiler.plan import Plan
from springtide.query.errors import SpringtideError
from springtide.runtime.epoch import Epoch, Report
from springtide.runtime.reports import reports_of
from springtide.runtime.shadows import with_shadows
from springtide.runtime.spark.faults import GONE, is_gone, passing
from springtide.runtime.tasks import REPORT, Item, instance_task, source_task
from springtide.runtime.topology import Topology, topology

Pair = tuple[int, Item]
"""The partition of the next level, and what goes there."""


@functools.lru_cache(maxsize=8)
def unpack(plan: bytes) -> Plan:
    """Unpack the plan that the driver sent, once per worker."""
    unpacked: Plan = cloudpickle.loads(plan)
    return unpacked


@functools.lru_cache(maxsize=64)
def freeze(plan: bytes, level: int) -> None:
    """Have what a worker imported and keeps left out when garbage is collected; called behind every task, done behind the first of each level.

    Spark's worker does that behind every task, and went through all modules each time: 30 ms, more than most tasks take.
    """
    gc.collect()
    gc.freeze()


@dataclass(frozen=True)
class SourceStage:
    """The tasks of level 0, as Spark ships them."""

    plan: bytes
    epoch: Epoch

    def __call__(self, partition: int, nothing: Iterable[int]) -> Iterator[Pair]:
        """Run one task."""
        for _ in (
            nothing
        ):  # a worker that leaves input unread is thrown away by Spark, and the next one must import everything anew
            pass
        plan = unpack(self.plan)
        layout = topology(with_shadows(plan, self.epoch.shadows), self.epoch.instances)
        yield from addressed(layout, 1, source_task(plan, self.epoch, partition))
        freeze(self.plan, 0)


@dataclass(frozen=True)
class InstanceStage:
    """The tasks of a later level, as Spark ships them."""

    plan: bytes
    epoch: Epoch
    level: int

    def __call__(self, partition: int, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Run one task."""
        plan = unpack(self.plan)
        items = instance_task(plan, self.epoch, self.level, partition, (item for _, item in pairs))
        layout = topology(with_shadows(plan, self.epoch.shadows), self.epoch.instances)
        yield from addressed(layout, self.level + 1, items)
        freeze(self.plan, self.level)


def addressed(layout: Topology, level: int, items: Iterable[Item]) -> Iterator[Pair]:
    """Say for each item which partition of the next level takes it, or passes it on."""
    partitions = layout.partitions(level) if level < len(layout.levels) else 1
    for item in items:
        yield (0 if item[0] == REPORT else item[1] % partitions), item


def _unpack(plan: bytes, nothing: Iterable[int]) -> Iterable[int]:
    unpack(plan)
    return list(nothing)


def _same(partition: int) -> int:
    return partition


class SparkExecutor:
    """Runs epochs of one plan on a Spark context."""

    def __init__(self, context: SparkContext, plan: Plan) -> None:
        """Pack the plan once."""
        self._context = context
        self._plan = plan
        self._packed: bytes = cloudpickle.dumps(plan)  # type: ignore[no-untyped-call]
        self.rows: Callable[[bytes, Epoch], RDD[Pair]] | None = None
        """Further tasks of level 0, on rows that Spark reads itself."""

    def warm_up(self, tasks: int) -> Callable[[], bool]:
        """Begin so many tasks that only bring a worker to where an epoch can begin: everything imported, the plan unpacked.

        What is given back tells whether they are done.
        """
        rdd = self._context.parallelize(range(tasks), tasks).mapPartitions(functools.partial(_unpack, self._packed))
        done: Callable[[], bool] = rdd._jrdd.countAsync().isDone
        return done

    def __call__(self, epoch: Epoch) -> list[Report]:
        """Run the tasks of an epoch."""
        layout = topology(with_shadows(self._plan, epoch.shadows), epoch.instances)
        tasks = layout.partitions(0)
        sources = self._context.parallelize(range(tasks), tasks)
        rdd: RDD[Pair] = sources.mapPartitionsWithIndex(SourceStage(self._packed, epoch))
        if self.rows is not None and not epoch.silent:
            rdd = self._context.union([rdd, self.rows(self._packed, epoch)])
        later = replace(epoch, slices={})
        for level in range(1, len(layout.levels)):
            partitions = layout.partitions(level)
            shuffled = rdd.partitionBy(partitions, _same)
            rdd = shuffled.mapPartitionsWithIndex(InstanceStage(self._packed, later, level))
        try:
            return reports_of(item for _, item in rdd.collect())
        except Exception as error:
            if is_gone(error):  # no use to wait for it
                raise SpringtideError(f"{GONE}; the next start goes on from the last committed epoch") from error
            if (fault := passing(error, f"epoch {epoch.number}")) is not None:
                raise fault from error
            raise
