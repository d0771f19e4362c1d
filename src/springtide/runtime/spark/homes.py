"""Which executor each task would best run on: where its instances have their state. Pure.

An instance keeps its executor from epoch to epoch. One whose executor is gone goes to another on the same host, which has the same cache, or else where there is least to do.
Every executor has its fair share of the tasks of a stage: one that is new gets what others have too much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from springtide.runtime.spark.placing import Executor

Instance = tuple[str, int]
"""A subquery, and the number of one of its instances."""
Homes = Mapping[Instance, Executor]


def settled(before: Homes, tasks: Sequence[Sequence[Instance]], executors: Sequence[Executor]) -> list[Executor]:
    """Return an executor for each task of a stage, given where instances were before.

    >>> one, two = Executor("1", "a"), Executor("2", "b")
    >>> homes = {("sums", 0): one, ("sums", 1): one, ("sums", 2): one}
    >>> settled(homes, [[("sums", 0)], [("sums", 1)], [("sums", 2)]], [one, two])
    [Executor(id='1', host='a'), Executor(id='1', host='a'), Executor(id='2', host='b')]
    """
    least, more = divmod(len(tasks), len(executors))
    loads = dict.fromkeys(executors, 0)
    chosen: list[Executor | None] = [None] * len(tasks)

    def take(task: int, executor: Executor | None) -> bool:
        """Assign tasks to executors that have room: each gets an equal share, and some get one more."""
        nonlocal more
        if executor is None or loads.get(executor, least + 1) > least or (loads[executor] == least and not more):
            return False
        more -= loads[executor] == least
        loads[executor] += 1
        chosen[task] = executor
        return True

    was = [_most([before[i] for i in task if i in before]) for task in tasks]
    for number, home in enumerate(was):
        take(number, home)
    for number, home in enumerate(was):
        if chosen[number] is None:
            nearest = sorted(executors, key=lambda e: (home is None or e.host != home.host, loads[e]))
            next(e for e in nearest if take(number, e))
    return [executor for executor in chosen if executor is not None]


def _most(homes: Sequence[Executor]) -> Executor | None:
    """Return the executor that most instances of a task were on."""
    return max(dict.fromkeys(homes), key=homes.count, default=None)


def tasks_of(names: Sequence[str], instances: Mapping[str, int], tasks: int) -> list[list[Instance]]:
    """Return the instances of each task of a stage: partitions are assigned to tasks in turn.

    >>> tasks_of(["sums", "counts"], {"sums": 2, "counts": 1}, 2)
    [[('sums', 0), ('counts', 0)], [('sums', 1)]]
    """
    partitions = [(name, i) for name in names for i in range(instances[name])]
    return [partitions[task::tasks] for task in range(tasks)]
