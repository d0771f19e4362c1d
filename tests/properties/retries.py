"""An executor that runs every task twice, as Spark does when an executor is lost or a fetch fails, and gives each reader either attempt.

    attempt 1 ──┐                      reader 0 takes attempt 2
                ├─ equal as sets? ──→  reader 1 takes attempt 1
    attempt 2 ──┘                      …

The second attempt finds its inbox in another order, and nothing that the first one has prepared; now and then it runs in another process, where
Polars hashes with other seeds.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
from pyspark import cloudpickle

from springtide.compiler.plan import Plan
from springtide.exchange.blob import Blob
from springtide.operators import registry
from springtide.runtime import old_owners, topology
from springtide.runtime.epoch import Epoch, TaskReport
from springtide.runtime.shipping import for_tasks
from springtide.runtime.task_reports import read_task_reports
from springtide.runtime.tasks import REPORT, Item, instance_task, source_task
from springtide.state.segment import Segment, read_segment
from springtide.state.traffic import NONE

NUMBERS = "__row"
"""Names of tuples in the state of a join: any will do, as long as no two are alike."""
_LISTS = re.compile(r"\d+\.[cd]")
"""Partial results that are lists in no order: of `collect` and `count_distinct`."""


class Retries:
    """Runs epochs with every task twice."""

    def __init__(self, random: Random, *, elsewhere: float = 0.0) -> None:
        """Decide by `random` alone; so many of the second attempts run in another process."""
        self._random, self._elsewhere = random, elsewhere

    def execute(self, plan: Plan, epoch: Epoch) -> list[TaskReport]:
        """Run the tasks of an epoch, level by level, as `inprocess.execute` does."""
        layout = epoch.topology
        inboxes: list[list[Item]] = [[] for _ in range(layout.partitions(0))]
        for level in range(len(layout.levels)):
            after = layout.partitions(level + 1) if level + 1 < len(layout.levels) else 1
            coming: list[list[Item]] = [[] for _ in range(after)]
            for partition, inbox in enumerate(inboxes):
                attempts = self._attempts(plan, epoch, level, partition, inbox)
                for reader, taken in enumerate(coming):
                    chosen = attempts[self._random.randrange(2)]
                    taken.extend(i for i in chosen if (0 if i[0] == REPORT else i[1] % after) == reader)
            for taken in coming:
                self._random.shuffle(taken)
            inboxes = coming
        return read_task_reports(inboxes[0])

    def _attempts(
        self, plan: Plan, epoch: Epoch, level: int, partition: int, inbox: list[Item]
    ) -> tuple[list[Item], list[Item]]:
        """Run a task twice, or, to have time for more cases, only once."""
        random = self._random
        first = _run(plan, epoch, level, partition, inbox)
        if random.random() < 0.3:
            return first, first
        again = random.sample(inbox, len(inbox))
        if random.random() < self._elsewhere:
            packed = cloudpickle.dumps((for_tasks(plan), epoch, level, partition, again))
            second = _elsewhere().run(packed)
        else:
            if random.random() < 0.2:
                _forget()
            second = _run(plan, epoch, level, partition, again)
        one, other = (told(epoch, items) for items in (first, second))
        if one != other:
            where = epoch.topology.instance_of(level, partition)
            raise AssertionError(f"{where} gave something else when it ran again: {apart(one, other)}")
        return first, second


def _run(plan: Plan, epoch: Epoch, level: int, partition: int, inbox: Sequence[Item]) -> list[Item]:
    live = old_owners.with_old_owners(plan, tuple(epoch.old_owners))
    if level == 0:
        return list(source_task(live, epoch, partition))
    return list(instance_task(live, replace(epoch, slices={}), level, partition, inbox))


class _Elsewhere:
    """Another process that runs tasks. Not one of `multiprocessing`: those of the contract may not have any."""

    def __init__(self) -> None:
        root = Path(__file__).parents[2]
        code = "from tests.properties.retries import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def run(self, packed: bytes) -> list[Item]:
        """Run a task there."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        _write(self._process.stdin, packed)
        given = cloudpickle.loads(_read(self._process.stdout))
        if isinstance(given, Exception):
            raise given
        return given  # type: ignore[no-any-return]


@cache
def _elsewhere() -> _Elsewhere:
    """Begin another process, once; it ends with this one."""
    return _Elsewhere()


def serve() -> None:
    """Run tasks until nobody wants any more."""
    while packed := _read(sys.stdin.buffer):
        try:
            given: Any = _run(*cloudpickle.loads(packed))
        except Exception as error:
            given = error
        _write(sys.stdout.buffer, cloudpickle.dumps(given))


def _write(stream: Any, data: bytes) -> None:
    stream.write(len(data).to_bytes(8) + data)
    stream.flush()


def _read(stream: Any) -> bytes:
    data: bytes = stream.read(int.from_bytes(stream.read(8)))
    return data


def _forget() -> None:
    """Forget what tasks prepare once in a process."""
    for cached in (
        registry.operator_of,
        old_owners.with_old_owners,
        topology._levels,
        topology.origin_ranks,
    ):
        cached.cache_clear()


# ── what a task gave, as sets ─────────────────────────────────────────────────────────────────────────────────────


def told(epoch: Epoch, items: Iterable[Item]) -> dict[Any, Any]:
    """Say what a task sent and reported, in no order; not how long it took, nor what its files are called."""
    found: dict[Any, Any] = {}
    for to, partition, payload in items:
        if to == REPORT:
            report = TaskReport.from_json(json.loads(payload))
            found["report", report.subquery, report.instance] = replace(
                report, busy=0, wait=0, began=0, cpu=0, traffic=NONE, segments=(), outbox=(), buffers=()
            )
            for segment in report.segments:
                key = "state", report.subquery, report.instance, segment.kind
                found.setdefault(key, Counter()).update(_stored(epoch, segment))
            for sent in report.outbox:
                key = "outbox", sent.sink, report.subquery, report.instance
                found[key] = found.get(key, 0) + sent.rows
        else:
            blob = Blob.decode(payload)
            key = to, partition, blob.exchange
            found.setdefault(key, Counter()).update(_rows(blob.tuples))
            found.setdefault((*key, "times"), set()).add(json.dumps([blob.times, blob.greatest], sort_keys=True))
    return found


def _stored(epoch: Epoch, segment: Segment) -> list[str]:
    rows = read_segment(epoch.tiers.find(segment))
    return _rows(rows.drop(NUMBERS, strict=False))


def _rows(frame: pl.DataFrame | None) -> list[str]:
    if frame is None:
        return []
    lists = [n for n, t in frame.schema.items() if isinstance(t, pl.List) and _LISTS.fullmatch(n)]
    return list(map(repr, frame.with_columns(pl.col(lists).list.sort()).rows()))


def apart(one: dict[Any, Any], other: dict[Any, Any]) -> str:
    """Name what is different."""
    lines = []
    for key in dict.fromkeys([*one, *other]):
        a, b = one.get(key), other.get(key)
        if a != b:
            if isinstance(a, Counter) and isinstance(b, Counter):
                a, b = a - b, b - a
            lines.append(f"{key}:\n  {a}\n  {b}")
    return "\n".join(lines)
