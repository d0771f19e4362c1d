"""How a bucket goes to its new owner: the rule of section VI-C.1 of the StreamCloud paper, unless somebody wishes for one (SC-9)."""

from __future__ import annotations

from typing import Any

import pytest

import springtide as st
from springtide.elastic.protocols import check_protocol, choose


@pytest.mark.parametrize(
    ("shared", "windowed", "moving", "filling", "chosen"),
    [
        (True, True, 9.0, 5.0, "virtual"),  # nothing has to move
        (False, True, 4.0, 5.0, "state"),
        (False, True, 5.0, 5.0, "state"),
        (False, True, 9.0, 5.0, "window"),  # moving takes longer than filling a window
        (False, False, 9.0, 5.0, "state"),  # there is no window to fill
        (False, True, None, None, "state"),  # nobody knows
    ],
)
def test_the_rule(shared: bool, windowed: bool, moving: float | None, filling: float | None, chosen: str) -> None:
    assert choose("rule", shared=shared, windowed=windowed, moving=moving, filling=filling) == chosen


@pytest.mark.parametrize("wish", ["virtual", "state", "window"])
def test_a_wish_counts_more_than_the_rule(wish: Any) -> None:
    assert choose(wish, shared=True, windowed=True) == wish
    assert choose(wish, shared=False, windowed=True, moving=9.0, filling=5.0) == wish


def test_only_windows_of_time_can_be_recreated() -> None:
    assert choose("window", shared=True, windowed=False) == "state"


def test_what_is_no_protocol() -> None:
    with pytest.raises(st.QueryError, match="'windows' is unknown"):
        check_protocol("windows")
