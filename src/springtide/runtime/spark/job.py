"""One epoch as one Spark job of RDDs: with a stage per level, or with one task if there is little to do (`brevity.py`).

RDDs, not DataFrames: a two-stage Python job with nothing to do takes half the time, and a blob crosses the JVM as plain bytes
(docs/decisions/0001-rdd.md has the figures).
"""

from __future__ import annotations

import functools
import gc
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pyspark import RDD, SparkContext, cloudpickle

from springtide.compiler.plan import Plan
from springtide.query.errors import SpringtideError
from springtide.runtime.epoch import Epoch, TaskReport
from springtide.runtime.old_owners import with_old_owners
from springtide.runtime.shipping import for_tasks
from springtide.runtime.spark.brevity import Brevity
from springtide.runtime.spark.ending import end_quietly
from springtide.runtime.spark.faults import GONE, is_gone, passing
from springtide.runtime.spark.homes import Instance, settled, tasks_of
from springtide.runtime.spark.packing import packed
from springtide.runtime.spark.placing import MOST, Executor, LiveExecutors, preferring
from springtide.runtime.spark.probe import Sighted
from springtide.runtime.task_reports import read_task_reports
from springtide.runtime.tasks import REPORT, Item, instance_task, source_task, whole_epoch
from springtide.runtime.topology import Topology

Pair = tuple[int, Item]
"""The partition of the next level, and an item for it."""

Worker = tuple[str, int]
"""The machine of a Python worker, and its process."""

PER_SLOT = 2
"""The maximum number of tasks of a stage for each slot: if there are more instances, they share tasks.

A task costs Spark tens of milliseconds, whatever it does. With two for each slot, Spark can still even out what the bucket map does not.
"""

_WHOLE = -1
"""Stands for the level of a task that does the work of all levels."""
_LEAST = 4
"""On one machine, so many workers are kept ready if there are as many slots; or two for each that the widest stage needs, if that is more."""
_SIDE_BY_SIDE = 0.1
"""Seconds that a call of the workers takes at least, if a shorter one was answered by fewer than were called: some had answered twice."""


@functools.lru_cache(maxsize=8)
def unpack(plan: bytes) -> Plan:
    """Unpack the plan that the driver sent, once per worker."""
    end_quietly()
    unpacked: Plan = cloudpickle.loads(plan)
    return unpacked


def live(plan: bytes, epoch: Epoch) -> Plan:
    """Return the plan that the driver sent, with the old owners of an epoch."""
    return with_old_owners(unpack(plan), tuple(epoch.old_owners))


@functools.lru_cache(maxsize=64)
def freeze(plan: bytes, level: int) -> None:
    """Exclude what a worker has imported and keeps from garbage collection; called after every task, but done only after the first of each level.

    Spark's worker collects garbage after every task, and went through all modules each time: 30 ms, more than most tasks take.
    """
    gc.collect()
    gc.freeze()


@dataclass(frozen=True)
class SourceStage:
    """The tasks of level 0, as Spark ships them."""

    plan: bytes
    epoch: Epoch
    tasks: int

    def __call__(self, task: int, nothing: Iterable[int]) -> Iterator[Pair]:
        """Run one task: an instance, or several one after the other."""
        for _ in nothing:  # Spark discards a worker that leaves input unread, and a new one must import everything
            pass
        plan, topology = live(self.plan, self.epoch), self.epoch.topology
        for partition in range(task, topology.partitions(0), self.tasks):
            yield from addressed(topology, 1, source_task(plan, self.epoch, partition))
        freeze(self.plan, 0)


@dataclass(frozen=True)
class InstanceStage:
    """The tasks of a later level, as Spark ships them."""

    plan: bytes
    epoch: Epoch
    level: int
    tasks: int

    def __call__(self, task: int, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Run one task: an instance, or several one after the other."""
        plan, topology = live(self.plan, self.epoch), self.epoch.topology
        mine = range(task, topology.partitions(self.level), self.tasks)
        yield from addressed(topology, self.level + 1, self._run(plan, mine, (item for _, item in pairs)))
        freeze(self.plan, self.level)

    def _run(self, plan: Plan, mine: Sequence[int], items: Iterable[Item]) -> Iterator[Item]:
        if len(mine) == 1:
            yield from instance_task(plan, self.epoch, self.level, mine[0], items)
            return
        inboxes: dict[int, list[Item]] = {partition: [] for partition in mine}
        for item in items:
            if item[0] == self.level:
                inboxes[item[1]].append(item)
            else:
                yield item
        for partition in mine:
            yield from instance_task(plan, self.epoch, self.level, partition, inboxes.pop(partition))


@dataclass(frozen=True)
class WholeStage:
    """The only task of a short epoch, as Spark ships it."""

    plan: bytes
    epoch: Epoch

    def __call__(self, task: int, nothing: Iterable[int]) -> Iterator[Pair]:
        """Do the work of all instances of all levels, one after the other."""
        for _ in nothing:
            pass
        for item in whole_epoch(live(self.plan, self.epoch), self.epoch):
            yield 0, item
        freeze(self.plan, _WHOLE)


def addressed(topology: Topology, level: int, items: Iterable[Item]) -> Iterator[Pair]:
    """Return, for each item, which partition of the next level takes it or passes it on."""
    partitions = topology.partitions(level) if level < len(topology.levels) else 1
    for item in items:
        yield (0 if item[0] == REPORT else item[1] % partitions), item


def _answer(plans: Iterable[bytes], seconds: float, nothing: Iterable[int]) -> Iterable[Worker]:
    for plan in plans:
        unpack(plan)
    for _ in nothing:
        pass
    time.sleep(seconds)
    return [(socket.gethostname(), os.getpid())]


def _same(partition: int) -> int:
    return partition


class Rows(Protocol):
    """Rows of a micro-batch that Spark reads itself."""

    def tasks(self, plan: bytes, epoch: Epoch, whole: bool) -> RDD[Pair]:
        """Return further tasks of level 0; with `whole`, all rows of a physical stream go to one of them."""
        ...

    def split(self, plan: Plan, epoch: Epoch, reports: Sequence[TaskReport]) -> list[str]:
        """Return the sources with rows of one physical stream in several of these tasks, if that changes which rows are late."""
        ...


class SparkExecutor:
    """Runs epochs of one plan on a Spark context."""

    def __init__(self, context: SparkContext, plan: Plan) -> None:
        """Pack the plan once for each kind of task."""
        self._context = context
        self._plan = plan
        shipped = for_tasks(plan)
        self._packed, self._later = packed(shipped, reads=True), packed(shipped, reads=False)
        self.rows: Rows | None = None
        """The micro-batch of this epoch, if Spark reads a source and there is one."""
        self._whole = False
        self.note: Callable[[str], None] = lambda text: None
        """Receives what people may want to know."""
        self.slots: Callable[[], int | None] = lambda: None
        """Returns how many tasks can run at once, if that is known."""
        self.ready: Callable[[], int] = lambda: sys.maxsize
        """Returns how many executors, counted from the oldest, have started their workers."""
        self._executors = LiveExecutors(context)
        self.homes: dict[Instance, Executor] = {}
        """Where each instance was last meant to run, and therefore has its state."""
        self._brevity = Brevity()
        self._widest = 0
        """How many tasks the widest stage of the last epoch with stages had: every change of instances begins with one."""
        self._numbers: dict[int, RDD[int]] = {}
        """The beginning of jobs with so many tasks: to make one takes some milliseconds."""

    def replaced(self, plan: Plan) -> SparkExecutor:
        """Return an executor for another form of the query, which knows what this one knows."""
        other = SparkExecutor(self._context, plan)
        other.note, other.slots, other.ready = self.note, self.slots, self.ready
        other._whole, other.homes = self._whole, self.homes
        return other

    def warm_up(self, tasks: int) -> Callable[[], bool]:
        """Start this many tasks that only prepare workers for an epoch: everything imported, the plan unpacked.

        Return a function that says whether they are done.
        """
        done: Callable[[], bool] = self._called(tasks)._jrdd.countAsync().isDone
        return done

    def call_workers(self, workers: int) -> None:
        """Have this many workers prepared for an epoch, and wait until they are."""
        for seconds in (0.0, _SIDE_BY_SIDE):
            if len(set(self._called(workers, seconds).collect())) >= workers:
                return

    def workers(self) -> int:
        """Count the workers that should be ready: on a cluster one in every slot, since tasks go to any; on one machine more than are needed now."""
        slots = self.slots() or self._context.defaultParallelism
        return min(slots, max(_LEAST, 2 * self._widest)) if self._is_local else slots

    def _called(self, tasks: int, seconds: float = 0.0) -> RDD[Worker]:
        answer = functools.partial(_answer, (self._packed, self._later), seconds)
        return self._context.parallelize(range(tasks), tasks).mapPartitions(answer)

    @property
    def _is_local(self) -> bool:
        return str(self._context.master).startswith("local")

    def _placed(
        self, stage: SourceStage | InstanceStage | WholeStage
    ) -> Callable[[int, Iterable[Any]], Iterator[Pair]]:
        """Return a stage whose tasks, if they run on other machines, look for the checkpoint first."""
        tiers = stage.epoch.tiers
        return stage if tiers.cache is not None or self._is_local else Sighted(stage, tiers.root)

    def __call__(self, epoch: Epoch) -> list[TaskReport]:
        """Run the tasks of an epoch.

        Rows of a physical stream with positions must be processed in one task to find the late ones. If Spark has read them in several, nothing is committed
        yet: the epoch is run again with the rows of each stream together, and later epochs are run like that too.
        """
        reports = self._run(epoch)
        if self.rows is not None and not self._whole and not epoch.silent:
            halves = self.rows.split(self._plan, epoch, reports)
            if halves:
                self._whole = True
                self.note(
                    f"{', '.join(halves)}: Spark reads rows of one physical stream in several tasks; "
                    "from now on they are brought together first, which costs a shuffle"
                )
                reports = self._run(epoch)
        return reports

    def _at_home(self, rdd: RDD[Pair], epoch: Epoch, level: int, tasks: int) -> RDD[Pair]:
        """Make the tasks of a level run where their state is, if nodes keep state of their own."""
        executors = self._executors()[: self.ready()] if epoch.tiers.cache is not None and tasks <= MOST else ()
        if not executors:
            return rdd
        instances = tasks_of(epoch.topology.levels[level], epoch.topology.instances, tasks)
        chosen = settled(self.homes, instances, executors)
        self.homes |= {one: executor for task, executor in zip(instances, chosen, strict=True) for one in task}
        return preferring(rdd, tuple(chosen))

    def _run(self, epoch: Epoch) -> list[TaskReport]:
        short = self._can_be_one_task(epoch) and self._brevity.choose(epoch)
        try:
            reports = self._as_one_task(epoch) if short else self._by_stages(epoch)
        except Exception:
            self._brevity.forget()
            raise
        self._brevity.learn(epoch, reports)
        return reports

    def _can_be_one_task(self, epoch: Epoch) -> bool:
        """Return whether one process can take all input and has all state: rows that Spark reads come in several tasks, and nodes may keep state of their own."""
        rows = self.rows is not None and not epoch.silent
        return not rows and (epoch.tiers.cache is None or len(self._executors()) <= 1)

    def _as_one_task(self, epoch: Epoch) -> list[TaskReport]:
        if epoch.tiers.cache is not None:
            stateful = [name for level in epoch.topology.levels[1:] for name in level]
            for executor in self._executors()[:1]:  # it has all that is written now
                self.homes |= {(n, i): executor for n in stateful for i in range(epoch.topology.instances[n])}
        rdd = self._numbered(1).mapPartitionsWithIndex(self._placed(WholeStage(self._packed, epoch)))
        return [replace(report, together=True) for report in self._collected(rdd, epoch)]

    def _by_stages(self, epoch: Epoch) -> list[TaskReport]:
        topology = epoch.topology
        most = PER_SLOT * (self.slots() or 0)
        tasks = [min(topology.partitions(level), most or sys.maxsize) for level in range(len(topology.levels))]
        self._widest = max(tasks)
        stage = self._placed(SourceStage(self._packed, epoch, tasks[0]))
        rdd: RDD[Pair] = self._numbered(tasks[0]).mapPartitionsWithIndex(stage)
        if self.rows is not None and not epoch.silent:
            rdd = self._context.union([rdd, self.rows.tasks(self._packed, epoch, self._whole)])
        later = replace(epoch, slices={})
        for level in range(1, len(topology.levels)):
            shuffled = rdd.partitionBy(tasks[level], _same)  # partition p goes to task p modulo tasks
            shuffled = self._at_home(shuffled, epoch, level, tasks[level])
            rdd = shuffled.mapPartitionsWithIndex(self._placed(InstanceStage(self._later, later, level, tasks[level])))
        return self._collected(rdd, epoch)

    def _numbered(self, tasks: int) -> RDD[int]:
        """Return the beginning of a job with so many tasks."""
        if tasks not in self._numbers:
            self._numbers[tasks] = self._context.parallelize(range(tasks), tasks)
        return self._numbers[tasks]

    def _collected(self, rdd: RDD[Pair], epoch: Epoch) -> list[TaskReport]:
        """Run a job, and return the reports of its tasks."""
        try:
            return read_task_reports(item for _, item in rdd.collect())
        except Exception as error:
            if is_gone(error):  # there is no point in waiting for it
                raise SpringtideError(f"{GONE}; the next start continues from the last committed epoch") from error
            if (fault := passing(error, f"epoch {epoch.number}")) is not None:
                raise fault from error
            raise
