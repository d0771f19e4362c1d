"""How many executors, which ones go, how long to wait for them."""

from __future__ import annotations

import pytest

import springtide as st
from springtide.elastic.instructions import instruct
from springtide.elastic.policies.policy import Proposal
from springtide.elastic.resources.sizing import Waiting, leaving
from springtide.state.bucket_map import BucketMap
from springtide.state.instructions import Instruction


@pytest.mark.parametrize(
    ("slots", "each", "warm", "most", "executors"),
    [
        (1, 1, 0, None, 1),
        (4, 1, 0, None, 4),
        (4, 1, 2, None, 6),
        (5, 4, 0, None, 2),
        (8, 4, 1, None, 3),
        (8, 4, 1, 2, 2),
        (100, 1, 1, 8, 8),
        (0, 4, 0, None, 1),
    ],
)
def test_executors_for_so_many_slots(slots: int, each: int, warm: int, most: int | None, executors: int) -> None:
    """SE-6: the warm pool comes on top, as far as the limit allows. SM-8: an executor with several cores has several instances."""
    assert st.Executors(warm=warm, most=most).target(slots, each) == executors


@pytest.mark.parametrize("wrong", [{"warm": -1}, {"most": 0}, {"wait": -1.0}])
def test_what_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="cannot be negative"):
        st.Executors(**wrong)


def test_the_newest_go_first() -> None:
    assert leaving(["1", "12", "3", "driver", "7"]) == ["12", "7", "3", "1"]


def scaling(before: int, after: int) -> Instruction:
    found = instruct(Proposal("heavy", "a test", instances=after), BucketMap.even(16, before), time=0.0, epoch=0)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("missing", "waited", "instances"),
    [
        (0, 0.0, 6),  # all there
        (-3, 0.0, 6),  # more than needed
        (1, 0.0, None),
        (1, 9.9, None),
        (1, 10.0, 5),  # those that came
        (4, 10.0, 2),  # none came
        (9, 99.0, 2),  # some were lost besides: never fewer than before
    ],
)
def test_waiting_for_slots(missing: int, waited: float, instances: int | None) -> None:
    waiting = Waiting(scaling(2, 6), since=100.0)
    assert waiting.instances(missing, 100.0 + waited, wait=10.0) == instances
