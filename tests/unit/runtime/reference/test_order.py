"""The total order: ts, origin, physical stream, position, place in a list, side, content."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.testing import at, streams, table

SCHEMA = {"ts": st.TIME, "x": pl.String}


def source(name: str = "s", **options: Any) -> st.Stream:
    return st.source(name, st.memory(schema=SCHEMA, **options), ts="ts")


def collected(rows_of: Any, stream: st.Stream, inputs: Any, column: str = "x") -> list[Any]:
    """All values in the total order."""
    (row,) = rows_of(stream.aggregate(window=st.tumbling("1d"), all=st.collect(column)), inputs)["all"].to_list()
    return row


def test_ts_then_source_then_stream_then_position(rows_of: Any) -> None:
    """Physical streams are compared by name as texts: "10" stands before "9"."""
    both = source("b").union(source("a"))
    inputs = {
        "b": streams(p=table("ts x \n 1s b1 \n 2s b2")),
        "a": {"9": table("ts x \n 1s n1 \n 1s n0"), "10": table("ts x \n 1s t1 \n 1s t0")},
    }
    assert collected(rows_of, both, inputs) == ["t1", "t0", "n1", "n0", "b1", "b2"]


def test_disorder_is_put_right(rows_of: Any) -> None:
    late = st.source("s", st.memory(schema=SCHEMA), ts="ts", max_disorder="1m")
    assert collected(rows_of, late, {"s": table("ts x \n 3s c \n 1s a \n 2s b")}) == ["a", "b", "c"]


def test_without_positions_the_content_decides_within_a_stream(rows_of: Any) -> None:
    """`positions=False`: rows of one physical stream have no places; the stream's name still counts."""
    inputs = {"s": streams(p=table("ts x \n 1s c \n 1s null \n 1s b"), q=table("ts x \n 1s a"))}
    assert collected(rows_of, source(positions=False), inputs) == [None, "b", "c", "a"]
    assert collected(rows_of, source(), inputs) == ["c", None, "b", "a"]


def test_elements_of_a_list_stand_in_the_lists_order(rows_of: Any) -> None:
    words = source().map(x=pl.col("x").str.split("-")).explode("x")
    inputs = {"s": table("ts x \n 1s c-a-b \n 1s a")}
    assert collected(rows_of, words, inputs) == ["c", "a", "b", "a"]


def test_of_two_explodes_the_first_one_weighs_more(rows_of: Any) -> None:
    parts = source().map(x=pl.col("x").str.split("-")).explode("x")
    letters = parts.map(x=pl.col("x").str.split(",")).explode("x")
    assert collected(rows_of, letters, {"s": table("ts x \n 1s d,c-b,a")}) == ["d", "c", "b", "a"]


def test_a_stream_that_meets_itself_again_is_ordered_by_content(rows_of: Any) -> None:
    """The same row on two ways has one place; then what it became on the way decides."""
    s = source()
    both = s.map(x=pl.col("x") + "2").union(s.map(x=pl.col("x") + "1"))
    assert collected(rows_of, both, {"s": table("ts x \n 1s b \n 1s a")}) == ["b1", "b2", "a1", "a2"]


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (pl.Int64, [None, -1, 0, 1]),
        (pl.Float64, [None, float("-inf"), -1.0, 2.0, float("inf"), float("nan")]),
        (pl.Boolean, [None, False, True]),
        (pl.String, [None, "", "A", "a", "é", "日", "😀"]),
        (pl.Binary, [None, b"", b"\x00", b"\xff"]),
        (pl.List(pl.Int64), [None, [], [None], [None, 1], [1], [1, None], [1, 0], [2]]),
        (pl.Struct({"a": pl.Int64, "b": pl.Int64}), [{"a": None, "b": 2}, {"a": 1, "b": None}, {"a": 1, "b": 0}]),
        (st.TIME, [None, at("-1s"), at("1s")]),
    ],
)
def test_content_of_what_a_stateful_step_makes(rows_of: Any, dtype: Any, values: list[Any]) -> None:
    """Nulls first, false before true, NaN last, lists element by element: here of rows that come out of a join."""
    s = st.source("s", st.memory(schema={"ts": st.TIME, "k": pl.Int64, "v": dtype}), ts="ts")
    pairs = s.join(s, on="k", within="0s").select("v")
    rows = [{"ts": at("1s"), "k": i, "v": v} for i, v in enumerate(values)]
    found = collected(rows_of, pairs, {"s": rows[::-1]}, "v")
    assert found == values or repr(found) == repr(values)  # NaN is not equal to itself


def test_content_goes_column_by_column_in_the_order_of_the_schema(rows_of: Any) -> None:
    """Aggregates of one window come out ordered by their groups: `ts` is the same, then `a`, then `b`."""
    s = st.source("s", st.memory(schema={"ts": st.TIME, "a": pl.Int64, "b": pl.String}), ts="ts")
    groups = s.aggregate(by=["a", "b"], window=st.tumbling("1s"), n=st.count()).map(
        key=pl.format("{}{}", pl.col("a"), "b")
    )
    inputs = {"s": table("ts a b \n 0s 2 x \n 0s 1 z \n 0s 10 w \n 0s 1 y")}
    assert collected(rows_of, groups, inputs, "key") == ["1y", "1z", "2x", "10w"]
