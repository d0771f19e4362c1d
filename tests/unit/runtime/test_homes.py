"""Where instances are to run: they stay, give way when an executor is gone, and share executors out fairly."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from springtide.runtime.spark.homes import Instance, settled, tasks_of
from springtide.runtime.spark.placing import Executor

A, B, C, D = (Executor(str(n), host) for n, host in enumerate("xxyz"))


def tasks(count: int) -> list[list[Instance]]:
    return [[("sums", i)] for i in range(count)]


def homes(*executors: Executor) -> dict[Instance, Executor]:
    return {("sums", i): e for i, e in enumerate(executors)}


def test_everybody_stays_while_nothing_changes() -> None:
    assert settled(homes(B, A, C), tasks(3), [A, B, C]) == [B, A, C]
    assert settled(homes(B, A), tasks(2), [A, B, C, D]) == [B, A], "spare executors draw nobody"


def test_who_has_no_executor_any_more_goes_to_one_on_the_same_host() -> None:
    assert settled(homes(A, C), tasks(2), [B, C, D]) == [B, C]
    assert settled(homes(C, A), tasks(2), [A, D]) == [D, A], "else where there is room"


def test_a_new_executor_gets_its_share_and_nobody_else_moves() -> None:
    assert settled(homes(A, A, C, C), tasks(4), [A, C, D]) == [A, A, C, D]
    assert settled(homes(A, C), tasks(4), [A, B, C, D]) == [A, C, B, D], "new instances go to new executors"


def test_instances_that_share_a_task_go_where_most_of_them_were() -> None:
    before = homes(A, B, C, B)
    assert settled(before, [[("sums", 0), ("sums", 2)], [("sums", 1), ("sums", 3)]], [A, B, C]) == [A, B]


@pytest.mark.parametrize("seed", range(50))
def test_shares_differ_by_one_at_most_and_as_few_move_as_can_be(seed: int) -> None:
    random = Random(seed)
    executors = random.sample([A, B, C, D], random.randint(1, 4))
    count = random.randint(1, 9)
    before = homes(*(random.choice([A, B, C, D]) for _ in range(random.randint(0, 9))))
    found = settled(before, tasks(count), executors)
    loads = Counter(found)
    assert len(found) == count
    assert max(loads.values()) - min(loads[e] for e in executors) <= 1
    again = settled(homes(*found), tasks(count), executors)
    assert again == found, "what is settled stays"


def test_partitions_are_distributed_to_tasks_in_turn() -> None:
    assert tasks_of(["a"], {"a": 5}, 2) == [[("a", 0), ("a", 2), ("a", 4)], [("a", 1), ("a", 3)]]
