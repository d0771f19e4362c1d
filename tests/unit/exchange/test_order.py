"""The hidden columns of the total order: ts, origin, stream, position, place, content."""

from __future__ import annotations

import math

import polars as pl

import springtide as st
from springtide.exchange import order


def sorted_xs(frame: pl.DataFrame) -> list[int]:
    return frame.sort(pl.struct(order.ORDER))["x"].to_list()


def test_rows_of_a_source_carry_their_place() -> None:
    frame = pl.DataFrame({"x": [7, 8]}).with_columns(order.of_source(2, "a", 5))
    assert frame.select(order.PLACES).rows() == [(2, "a", 5, 0), (2, "a", 6, 0)]
    unplaced = pl.DataFrame({"x": [7, 8]}).with_columns(order.of_source(2, "a", None))
    assert unplaced[order.POSITION].to_list() == [None, None]
    made = pl.DataFrame({"x": [7]}).with_columns(order.of_step(1))
    assert made.select(order.PLACES).rows() == [(1, None, None, 0)]


def test_sources_and_steps_have_the_same_columns() -> None:
    empty = pl.DataFrame({"x": [1]})
    schemas = [
        empty.with_columns(columns).schema
        for columns in (order.of_source(0, "a", 0), order.of_source(0, "a", None), order.of_step(0))
    ]
    assert schemas[0] == schemas[1] == schemas[2]


def test_first_to_last() -> None:
    """Time before origin, origin before stream, stream before position, position before place, all before content."""
    rows = [  # ts, origin, stream, position, place, x
        (1, 9, "z", 9, 9, 1),
        (2, 0, "z", 9, 9, 2),
        (2, 1, "a", 9, 9, 3),
        (2, 1, "b", 0, 9, 4),
        (2, 1, "b", 1, 0, 5),
        (2, 1, "b", 1, 1, 6),
        (2, 1, "b", 1, 1, 7),
    ]
    names = ["ts", order.ORIGIN, order.STREAM, order.POSITION, order.PLACE, "x"]
    frame = pl.DataFrame(rows, schema=names, orient="row").with_columns(pl.col("ts").cast(st.TIME))
    frame = frame.with_columns(order.content(["ts", "x"]))
    for seed in range(5):
        assert sorted_xs(frame.sample(fraction=1, shuffle=True, seed=seed)) == [1, 2, 3, 4, 5, 6, 7]


def test_content_goes_column_by_column_nulls_first_nan_last() -> None:
    """As docs/semantics.md says: nulls first, false before true, NaN last, lists element by element."""
    rows = [
        (None, 1.0, [9]),
        (False, None, [9]),
        (False, 1.0, None),
        (False, 1.0, []),
        (False, 1.0, [None]),
        (False, 1.0, [1]),
        (False, 1.0, [1, 0]),
        (False, 1.0, [2]),
        (False, math.inf, [0]),
        (False, math.nan, [0]),
        (True, None, None),
    ]
    schema = {"b": pl.Boolean, "f": pl.Float64, "l": pl.List(pl.Int64)}
    frame = pl.DataFrame(rows, schema=schema, orient="row").with_columns(
        pl.Series("x", range(len(rows))), pl.lit(0).cast(st.TIME).alias("ts"), *order.of_step(0)
    )
    frame = frame.with_columns(order.content(["b", "f", "l"]))
    for seed in range(5):
        assert sorted_xs(frame.sample(fraction=1, shuffle=True, seed=seed)) == list(range(len(rows)))


def test_content_is_needed_where_tuples_can_stand_at_one_place() -> None:
    def source(*, positions: bool = True) -> st.Stream:
        return st.source("s", st.memory(schema={"x": pl.Int64, "ts": st.TIME}, positions=positions), ts="ts")

    def last(stream: st.Stream) -> bool:
        return order.needs_content(stream.aggregate(window=st.last_n(2), n=st.count()).step)

    s = source()
    a, b = s.split(a=pl.col("x") > 1, rest="b")
    assert not last(s)
    assert not last(s.map(y=pl.col("x")).filter(pl.col("y") > 1))
    assert not last(a)
    assert last(source(positions=False))
    assert last(a.map(pl.col("x") + 1).union(b))  # two tuples made of one stand at one place
    assert last(s.aggregate(window=st.tumbling("1s"), x=st.count()).select("x"))
