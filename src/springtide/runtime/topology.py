"""Where everything runs in an epoch: subqueries by level, instances by partition. Pure.

A subquery's level is one more than the highest of those that send to it; a stateless prefix has level 0. One epoch is one Spark job
with one stage per level; the partitions of a stage are the instances of all its subqueries, side by side. Each is a task, unless
there are many more than slots: then some share one. An epoch with little to do is one task in all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from springtide.compiler.plan import Plan, Subquery
from springtide.query.ids import InstanceId
from springtide.query.steps import Source, Step
from springtide.query.stream import Stream


@dataclass(frozen=True)
class Topology:
    """Levels and partitions for given numbers of instances."""

    levels: tuple[tuple[str, ...], ...]
    """Subqueries of each level."""
    instances: Mapping[str, int]

    def level_of(self, subquery: str) -> int:
        """Return the level of a subquery."""
        return next(i for i, names in enumerate(self.levels) if subquery in names)

    def partitions(self, level: int) -> int:
        """Count the partitions of a level."""
        return sum(self.instances[name] for name in self.levels[level])

    def partition_of(self, subquery: str, instance: InstanceId) -> int:
        """Return the partition, in its level, of an instance."""
        names = self.levels[self.level_of(subquery)]
        return sum(self.instances[n] for n in names[: names.index(subquery)]) + instance

    def instance_of(self, level: int, partition: int) -> tuple[str, InstanceId]:
        """Return the subquery and the instance that run in a partition."""
        for name in self.levels[level]:
            if partition < self.instances[name]:
                return name, InstanceId(partition)
            partition -= self.instances[name]
        raise IndexError(f"level {level} has no such partition")


def topology(plan: Plan, instances: Mapping[str, int]) -> Topology:
    """Lay out a plan."""
    return Topology(_levels(plan), dict(instances))


@lru_cache(maxsize=64)
def _levels(plan: Plan) -> tuple[tuple[str, ...], ...]:
    level: dict[str, int] = {s.name: 0 for s in plan.subqueries if s.head is None}
    while len(level) < len(plan.subqueries):
        for subquery in plan.subqueries:
            senders = [e.origin for e in plan.exchanges if e.target == subquery.name]
            if subquery.name not in level and all(s in level for s in senders):
                level[subquery.name] = 1 + max(level[s] for s in senders)
    height = 1 + max(level.values())
    return tuple(tuple(n for n in level if level[n] == i) for i in range(height))


@lru_cache(maxsize=256)
def sources_upstream(plan: Plan, subquery: Subquery) -> tuple[str, ...]:
    """Return every source whose tuples can reach a subquery's head; its own ones for a stateless prefix."""
    return (
        _sources_upstream(plan, plan.step(subquery.head).inputs) if subquery.head else tuple(sorted(subquery.sources))
    )


@lru_cache(maxsize=256)
def sources_upstream_of_side(plan: Plan, subquery: Subquery, side: int) -> tuple[str, ...]:
    """Return every source whose tuples can reach one input of a subquery's head."""
    assert subquery.head is not None
    return _sources_upstream(plan, plan.step(subquery.head).inputs[side : side + 1])


def _sources_upstream(plan: Plan, streams: Sequence[Stream]) -> tuple[str, ...]:
    """Go back step by step: sources that are read in the same tasks may lead to different steps."""
    todo, seen = [stream.step for stream in streams], set[Step]()
    while todo:
        step = todo.pop()
        if step not in seen:
            seen.add(step)
            todo += [stream.step for stream in step.inputs]
    return tuple(sorted(plan.graph.name_of(step) for step in seen if isinstance(step, Source)))


@lru_cache(maxsize=64)
def origin_ranks(plan: Plan, known: tuple[str, ...] = ()) -> dict[str, int]:
    """Rank the names of everything that produces tuples: the rank is part of the total order. Those that are `known` keep their ranks."""
    names = {s for q in plan.subqueries for s in (*q.sources, *((q.head,) if q.head else ()))}
    return {name: rank for rank, name in enumerate((*known, *sorted(names - set(known))))}
