"""Rankings (SE-9, SM-10)."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.query.errors import UserCodeError
from springtide.testing import compare, table

VIEWS = st.source(
    "views", st.memory(schema={"ts": st.TIME, "page": pl.String, "site": pl.String, "bytes": pl.Int64}), ts="ts"
)
ROWS = {
    "views": table("""
        ts   page  site  bytes
        1s   b     x     5
        2s   a     x     1
        3s   b     y     1
        4s   c     y     null
        5s   c     y     2
        6s   null  y     9
        12s  a     x     1
    """)
}


def test_ties_go_to_the_smaller_value(rows_of: Any) -> None:
    """b and c were seen twice, a and null once: null is the smallest value of all."""
    expected = table("""
        window_start  window_end  rank  page  count
        0s            10s         1     b     2
        0s            10s         2     c     2
        0s            10s         3     null  1
        10s           20s         1     a     1
    """)
    found = rows_of(VIEWS.top_k(3, "page", window=st.tumbling("10s")), ROWS)
    compare(found.drop("ts"), expected)
    assert found.columns == ["ts", "window_start", "window_end", "rank", "page", "count"]


def test_by_weight_and_nulls_weigh_nothing(rows_of: Any) -> None:
    found = rows_of(VIEWS.top_k(4, "page", weight="bytes", window=st.tumbling("10s")), ROWS)
    first = [(None, 9), ("b", 6), ("c", 2), ("a", 1)]
    assert found.select("page", "count").rows() == [*first, ("a", 1)]


def test_per_group_and_several_columns(rows_of: Any) -> None:
    found = rows_of(VIEWS.top_k(1, "page", per="site", window=st.tumbling("10s")), ROWS)
    assert found.select("site", "rank", "page", "count").rows() == [
        ("x", 1, "a", 1),
        ("y", 1, "c", 2),
        ("x", 1, "a", 1),
    ]
    found = rows_of(VIEWS.top_k(2, ["page", "site"], window=st.tumbling("20s")), ROWS)
    assert found.select("page", "site", "count").rows() == [("a", "x", 2), ("c", "y", 2)]


def test_sliding_windows(rows_of: Any) -> None:
    found = rows_of(
        VIEWS.top_k(1, "page", window=st.sliding("4s", every="3s")), {"views": table("ts page \n 3s b \n 4s a")}
    )
    compare(
        found.drop("ts"),
        table("window_start window_end rank page count \n 0s 4s 1 b 1 \n 3s 7s 1 a 1"),
    )


def test_a_sketch_is_exact_while_it_is_small(rows_of: Any) -> None:
    exact = rows_of(VIEWS.top_k(3, "page", weight="bytes", window=st.tumbling("1m")), ROWS)
    compare(rows_of(VIEWS.top_k(3, "page", weight="bytes", window=st.tumbling("1m"), sketch=8), ROWS), exact)


def test_weights_below_zero(rows_of: Any) -> None:
    rows = {"views": table("ts page bytes \n 1s a -5 \n 2s b -6")}
    ranking = VIEWS.top_k(2, "page", weight="bytes", window=st.tumbling("10s"), name="top")
    assert rows_of(ranking, rows)["page"].to_list() == ["a", "b"]
    sketched = VIEWS.top_k(2, "page", weight="bytes", window=st.tumbling("10s"), sketch=8, name="top")
    with pytest.raises(UserCodeError, match=r"step top \(top_k\): the weight -5 is below zero"):
        rows_of(sketched, rows)
