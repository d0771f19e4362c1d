"""What a pair looks like: columns, names, the later time, the predicate."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import springtide as st
from springtide.operators.join.pairs import PairShape

LEFT = {"k": pl.String, "a": pl.Int64, "ts": st.TIME}
RIGHT = {"ts": st.TIME, "b": pl.Float64, "a": pl.Int64, "k": pl.String}


def shape(**options: Any) -> PairShape:
    left, right = (st.source(n, st.memory(schema=s), ts="ts") for n, s in (("l", LEFT), ("r", RIGHT)))
    return PairShape(left.join(right, on="k", within="5us", **options).step)  # type: ignore[arg-type]


def theta(predicate: pl.Expr) -> PairShape:
    left, right = (st.source(n, st.memory(schema=s), ts="ts") for n, s in (("l", LEFT), ("r", RIGHT)))
    return PairShape(left.theta_join(right, predicate, within="5us").step)  # type: ignore[arg-type]


def frames() -> tuple[pl.DataFrame, pl.DataFrame]:
    left = pl.DataFrame({"__bucket": [0, 1, 2], "ts": [1, 5, 9], "a": [1, 2, None], "k": ["x", "y", None]})
    right = pl.DataFrame({"a": [7, 8], "k": ["x", "y"], "ts": [4, 5], "b": [0.5, None], "__hash": [3, 4]})
    return left.with_columns(pl.col("ts").cast(st.TIME)), right.with_columns(pl.col("ts").cast(st.TIME))


ALL = np.array([0, 1, 2, 0, 1, 2]), np.array([0, 0, 0, 1, 1, 1])


def test_columns_of_both_sides_and_the_later_time() -> None:
    made = shape().made(*frames(), np.array([0, 1, 2]), np.array([0, 1, 0]))
    assert made.rows.columns == ["k", "a", "ts", "b", "a_right"]
    assert made.rows.schema == shape().schema
    assert made.rows.with_columns(pl.col("ts").to_physical()).rows() == [
        ("x", 1, 4, 0.5, 7),
        ("y", 2, 5, None, 8),
        (None, None, 9, 0.5, 7),
    ]
    assert made.left.tolist() == [0, 1, 2]
    assert made.right.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        (pl.col("a") + 6 == pl.col("a_right"), [(0, 0), (1, 1)]),
        (pl.col("b") > 0, [(0, 0), (1, 0), (2, 0)]),
        (pl.col("ts").dt.epoch("us") == 5, [(1, 0), (0, 1), (1, 1)]),
        (pl.lit(True), list(zip(*(part.tolist() for part in ALL), strict=True))),
        (pl.lit(False), []),
        (pl.lit(None, dtype=pl.Boolean), []),
    ],
)
def test_pairs_of_which_the_predicate_is_true(where: pl.Expr, kept: list[tuple[int, int]]) -> None:
    """Null is not true."""
    for one in (shape(where=where), theta(where)):
        made = one.made(*frames(), *ALL)
        assert list(zip(made.left.tolist(), made.right.tolist(), strict=True)) == kept
        assert made.rows.height == len(kept)
        assert made.rows.schema == one.schema


def test_a_theta_join_has_the_keys_of_both_sides() -> None:
    assert theta(pl.lit(True)).made(*frames(), *ALL).rows.columns == ["k", "a", "ts", "b", "a_right", "k_right"]


def test_no_pairs() -> None:
    none = np.array([], dtype=np.int64)
    for where in (None, pl.lit(True), pl.col("b") > 0):
        assert shape(where=where).made(*frames(), none, none).rows.schema == shape().schema
    assert shape().none().rows() == []


def test_a_left_tuple_alone() -> None:
    rows = shape(how="left").alone(frames()[0], pl.col("ts").to_physical() + 5)
    assert rows.schema == shape().schema
    assert rows.with_columns(pl.col("ts").to_physical()).rows() == [
        ("x", 1, 6, None, None),
        ("y", 2, 10, None, None),
        (None, None, 14, None, None),
    ]
