"""Which epochs are one task: short ones after short ones. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from springtide.connectors import Slice
from springtide.runtime.epoch import Epoch, TaskReport
from springtide.runtime.spark.brevity import LONG, SHORT, Brevity
from springtide.state.bucket_map import BucketMap
from springtide.state.manifest import SubqueryState
from springtide.state.segment import Segment

MAPS = {"calls": BucketMap.even(0, 1), "heavy": BucketMap.even(8, 2)}
SOME: Any = None
"""What does not matter here."""


def epoch(rows: int = 100, **more: Any) -> Epoch:
    part = Slice("0", 0, rows, None)
    return replace(Epoch(SOME, SOME, {}, {}, {"calls": ((part,),)}, SOME, MAPS, {}), **more)


def after(*work: float, rows: int = 100) -> Brevity:
    """Give the choice after epochs with so many seconds of work."""
    found = Brevity()
    for seconds in work:
        found.choose(epoch(rows))
        found.learn(epoch(rows), [TaskReport("heavy", 0, cpu=seconds / 2), TaskReport("heavy", 1, cpu=seconds / 2)])
    return found


def test_the_first_epoch_has_stages() -> None:
    assert not Brevity().choose(epoch())


@pytest.mark.parametrize(
    ("work", "one_task"),
    [
        ([SHORT * 0.9], True),
        ([SHORT * 1.1], False),
        ([SHORT * 0.9, SHORT * 1.1], True),
        ([SHORT * 0.9, LONG * 1.1], False),
        ([SHORT * 0.9, LONG * 1.1, SHORT * 1.1], False),
        ([SHORT * 0.9, LONG * 1.1, SHORT * 0.9], True),
    ],
)
def test_short_epochs_are_one_task_until_there_is_much_more_to_do(work: list[float], one_task: bool) -> None:
    assert after(*work).choose(epoch()) is one_task


@pytest.mark.parametrize(("rows", "one_task"), [(0, True), (200, True), (10_000, False)])
def test_many_more_rows_than_before_are_more_work(rows: int, one_task: bool) -> None:
    assert after(SHORT / 2).choose(epoch(rows)) is one_task


def test_on_a_busy_machine_short_work_is_short() -> None:
    found = Brevity()
    found.learn(epoch(), [TaskReport("heavy", 0, busy=3 * SHORT, cpu=SHORT / 5)])
    assert found.choose(epoch())


def test_tasks_that_wait_for_something_outside_wait_side_by_side() -> None:
    found = Brevity()
    found.learn(epoch(), [TaskReport("heavy", i, busy=0.2) for i in (0, 1)])
    assert not found.choose(epoch())


def big(rows: int) -> Segment:
    return Segment("a", "panes", epoch=SOME, instance=SOME, version=0, rows=rows, bytes=rows, low=0, high=0)


@pytest.mark.parametrize(
    "more",
    [
        {"maps": MAPS | {"heavy": BucketMap.even(8, 3)}},
        {"silent": True},
        {"migrated": frozenset({"heavy"})},
        {"replayed": {"calls": (("buffer/a",),)}},
        {"compact": {"heavy": {0: ("a",)}}, "state": {"heavy": SubqueryState({}, (big(1 << 30),))}},
    ],
    ids=lambda more: next(iter(more)),
)
def test_what_the_last_epoch_does_not_foretell_has_stages(more: dict[str, Any]) -> None:
    assert not after(SHORT / 2).choose(epoch(**more))


def test_an_epoch_that_failed_is_tried_again_in_stages() -> None:
    found = after(SHORT / 2)
    found.forget()
    assert not found.choose(epoch())
