"""Windows of time and of tuples: which ones can be, and how they are said (SC-2).

time       0         10        20        30
tumbling   |---------|---------|---------|        size = every
sliding    |-------------------|                  size > every
                     |-------------------|
not:       |-----|   |-----|                      size < every would leave rows in no window
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import springtide as st
from springtide.query.windows import LastN, Session, Sliding, Window

MINUTE = 60_000_000


def test_tumbling_is_sliding_by_its_own_size() -> None:
    assert st.tumbling("1m") == st.sliding("1m", every="1m") == Sliding(MINUTE, MINUTE)


def test_lengths_are_texts_or_timedeltas() -> None:
    assert st.sliding(timedelta(minutes=2), every="1m") == Sliding(2 * MINUTE, MINUTE)
    assert st.session(timedelta(minutes=2)) == Session(2 * MINUTE)


def test_the_size_need_not_be_a_multiple() -> None:
    st.sliding("25s", every="10s").check("step")


def test_the_last_n_slide_by_one_if_nothing_is_said() -> None:
    assert st.last_n(5) == LastN(5, 1)
    assert st.last_n(5, every=5) == LastN(5, 5)
    assert st.last_n(np.int64(5), every=np.int8(2)) == LastN(5, 2)
    assert type(st.last_n(np.int64(5)).size) is int


@pytest.mark.parametrize(
    ("window", "text"),
    [
        (st.tumbling("1m"), "tumbling 1m"),
        (st.tumbling("90s"), "tumbling 1m30s"),
        (st.sliding("1h", every="1m"), "sliding 1h every 1m"),
        (st.last_n(5), "last 5 every 1"),
        (st.last_n(5, every=5), "last 5 every 5"),
        (st.session("30m"), "session gap 30m"),
    ],
)
def test_a_window_in_words(window: Window, text: str) -> None:
    assert str(window) == text
    window.check("step")


@pytest.mark.parametrize(
    "window",
    [
        Sliding(0, 0),
        Sliding(-1, -1),
        Sliding(10, 0),
        Sliding(10, -1),
        Sliding(10, 11),
        LastN(0, 1),
        LastN(-5, 1),
        LastN(5, 0),
        LastN(5, 6),
        Session(0),
        Session(-1),
    ],
)
def test_a_window_with_nothing_in_it_or_with_gaps_is_refused(window: Window) -> None:
    with pytest.raises(st.QueryError, match=r"^step here: "):
        window.check("here")


@pytest.mark.parametrize(
    "window", [Sliding(1, 1), Sliding(10, 10), Sliding(10, 1), LastN(1, 1), LastN(5, 5), Session(1)]
)
def test_the_smallest_and_the_tightest_windows_are_fine(window: Window) -> None:
    window.check("here")


def test_windows_are_values() -> None:
    same: set[Any] = {st.tumbling("60s"), st.tumbling("1m"), st.last_n(3), st.last_n(3), st.session("1m")}
    assert len(same) == 3
