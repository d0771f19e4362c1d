"""Running sums: a grid of keys and windows and the changes alone give what a loop gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from springtide.operators.sliding import running
from springtide.operators.sliding.running import Changes, Sums, running_sums

Change = tuple[int, int, int, int, int]
"""A key, a window, what is counted, a number, and 1 or -1."""
CHANGES = some.lists(
    some.tuples(
        some.integers(0, 4), some.integers(0, 6), some.integers(0, 3), some.integers(-5, 5), some.sampled_from([1, -1])
    ),
    max_size=30,
)


def by_hand(changes: list[Change]) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Add up one by one; windows 0 to 5 are shown, and 6 is what is left."""
    rows = []
    for key in range(5):
        for window in range(7):
            before = [c for c in changes if c[0] == key and c[1] <= window]
            counted = sum(c[2] * c[4] for c in before)
            if counted > 0:
                rows.append((key, window, counted, sum(c[3] * c[4] for c in before)))
    return [r for r in rows if r[1] < 6], [r for r in rows if r[1] == 6]


def arranged(changes: list[Change], sign: int) -> Changes:
    """Put changes with this sign into columns."""
    table = np.array([c for c in changes if c[4] == sign], dtype=np.int64).reshape(-1, 5)
    return Changes(table[:, 0], table[:, 1], {"n": table[:, 2], "x": table[:, 3]}, 1 if sign > 0 else -1)


def listed(parts: list[Sums]) -> list[tuple[int, ...]]:
    """List the rows of all parts."""
    return [
        tuple(int(n) for n in row) for p in parts for row in zip(p.keys, p.windows, *p.values.values(), strict=True)
    ]


@pytest.mark.parametrize(("empty", "cells"), [(0, 10**6), (10**9, 10**6), (10**9, 1)], ids=["changes", "grid", "grids"])
@given(changes=CHANGES)
@settings(max_examples=60, deadline=None)
def test_running_sums_are_those_of_a_loop(empty: int, cells: int, changes: list[Change]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "_EMPTY", empty)
        patch.setattr(running, "_CELLS", cells)
        parts = list(running_sums([arranged(changes, 1), arranged(changes, -1)], 5, 6, "n"))
    shown, left = by_hand(changes)
    assert (listed([p[0] for p in parts]), listed([p[1] for p in parts])) == (shown, left)


def test_a_column_may_be_missing_where_it_does_not_change() -> None:
    one, two = np.array([0, 1]), np.array([5, 7])
    counted = Changes(one, np.array([0, 2]), {"n": np.array([1, 1])})
    more = Changes(one, np.array([1, 2]), {"n": np.array([1, 1]), "x": two})
    for empty in (0, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(running, "_EMPTY", empty)
            ((shown, left),) = running_sums([counted, more], 2, 3, "n")
        assert listed([shown]) == [(0, 0, 1, 0), (0, 1, 2, 5), (0, 2, 2, 5), (1, 2, 2, 7)]
        assert listed([left]) == [(0, 3, 2, 5), (1, 3, 2, 7)]


def test_sums_may_wrap_around_on_the_way() -> None:
    most = np.array([2**63 - 1, 2**63 - 1])
    changes = Changes(np.array([0, 1]), np.array([0, 0]), {"n": np.array([1, 1]), "x": most})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "_EMPTY", 0)
        ((shown, _),) = running_sums([changes], 2, 1, "n")
    assert listed([shown]) == [(0, 0, 1, 2**63 - 1), (1, 0, 1, 2**63 - 1)]
