"""Windows over rows that stand one after the other: however they are put together, they are those of a loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as some

import springtide as st
from springtide.operators.aggregates.partials import Partials
from springtide.operators.counting import merging
from springtide.operators.counting.merging import gathered, members_of, merge_runs

ROW = "row"
SCHEMA = pl.Schema({"x": pl.Int64, ROW: pl.UInt32})
FUNCTIONS: dict[str, list[st.Aggregate]] = {
    "adds up": [st.count(), st.sum("x"), st.mean("x")],
    "merged": [st.count(), st.min("x"), st.max("x"), st.count_distinct("x")],
}


def partials_of(functions: list[st.Aggregate]) -> Partials:
    return Partials([f.bind("", str(i), SCHEMA) for i, f in enumerate(functions)])


def rows_of(partials: Partials, values: list[int]) -> pl.DataFrame:
    tuples = pl.DataFrame({"x": values}, schema={"x": pl.Int64}).with_row_index(ROW)
    return partials.add(tuples.lazy(), [ROW]).sort(ROW).collect()


def in_a_loop(values: list[int], starts: list[int], length: int, kind: str) -> list[tuple[Any, ...]]:
    found = []
    for start in starts:
        inside = values[start : start + length]
        if kind == "adds up":
            found.append((length, sum(inside), sum(inside) / length))
        else:
            found.append((length, min(inside), max(inside), len(set(inside))))
    return found


@pytest.mark.parametrize("kind", FUNCTIONS)
@given(
    values=some.lists(some.integers(-9, 9), min_size=1, max_size=70),
    length=some.integers(1, 70),
    every=some.integers(1, 9),
)
def test_windows_are_those_of_a_loop(kind: str, values: list[int], length: int, every: int) -> None:
    length = min(length, len(values))
    starts = list(range(0, len(values) - length + 1, every))
    partials = partials_of(FUNCTIONS[kind])
    merged = merge_runs(partials, rows_of(partials, values), np.array(starts), length)
    assert partials.finish(merged.lazy(), []).drop(partials.hidden).collect().rows() == in_a_loop(
        values, starts, length, kind
    )


def test_long_windows_are_not_put_together_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError

    partials = partials_of([st.max("x")])
    rows, starts = rows_of(partials, list(range(100))), np.arange(100 - 63)
    monkeypatch.setattr(merging, "gathered", never)
    assert merge_runs(partials, rows, starts, 64)["0.m"].to_list() == [s + 63 for s in range(37)]
    with pytest.raises(AssertionError):
        merge_runs(partials, rows, starts[:2], 64)  # two windows only: 128 rows are less than six times 200


@pytest.mark.parametrize("cells", [1, 5, 12, 1000])
def test_a_bounded_number_of_rows_at_a_time(monkeypatch: pytest.MonkeyPatch, cells: int) -> None:
    monkeypatch.setattr(merging, "CELLS", cells)
    parts = list(members_of(np.array([0, 2, 3]), 4))
    assert max(members.size for _, members in parts) <= max(4, cells)
    assert [m for _, members in parts for m in members] == [0, 1, 2, 3, 2, 3, 4, 5, 3, 4, 5, 6]
    partials = partials_of([st.max("x")])
    rows = rows_of(partials, list(range(9)))
    assert gathered(partials, rows, np.array([0, 2, 3]), 4, partials.merge)["0.m"].to_list() == [3, 5, 6]


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize("length", [1, 3, 20])
def test_no_window(kind: str, length: int) -> None:
    partials = partials_of(FUNCTIONS[kind])
    merged = merge_runs(partials, rows_of(partials, [1, 2]), np.empty(0, dtype=np.int64), length)
    assert merged.height == 0
    assert merged.columns == partials.columns
