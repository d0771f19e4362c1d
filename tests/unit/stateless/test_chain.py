"""Stateless steps behind a source: one lazy query per output, with or without places in the total order."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as some

import springtide as st
from springtide.exchange import order
from springtide.stateless.chain import Output, run_chain

COLUMNS = {"x": pl.Int64, "tags": pl.List(pl.String), "ts": st.TIME}
ROWS = [(1, ["a", "b"]), (2, []), (3, None), (None, ["c"]), (5, [None, "d"])]


def rows() -> st.Stream:
    return st.source("rows", st.memory(schema=COLUMNS), ts="ts")


def tuples(data: list[Any], *, ordered: bool, origin: int = 0) -> pl.LazyFrame:
    frame = pl.LazyFrame(data, schema={"x": pl.Int64, "tags": pl.List(pl.String)}, orient="row")
    frame = frame.with_columns(pl.int_range(pl.len()).cast(st.TIME).alias("ts"))
    return frame.with_columns(order.of_source(origin, "0", 10)) if ordered else frame


def run(
    *ends: st.Stream, ordered: bool = False, data: Any = None, sources: tuple[str, ...] = ("rows",)
) -> dict[Output, pl.DataFrame]:
    """Run the chain of the prefix; give each output that a sink takes."""
    query = st.Query("q", *(end.to(st.memory_sink()) for end in ends))
    plan = query.plan()
    (prefix,) = (q for q in plan.subqueries if q.head is None)
    made = {(s, "out"): tuples(data or ROWS, ordered=ordered, origin=i) for i, s in enumerate(sources)}
    outputs = run_chain(plan, prefix, made, ordered=ordered)
    return {(query.name_of(end.step), end.port): outputs[query.name_of(end.step), end.port].collect() for end in ends}


def only(end: st.Stream, **options: Any) -> pl.DataFrame:
    ((_, frame),) = run(end, **options).items()
    return frame


@pytest.mark.parametrize("ordered", [False, True])
def test_map(ordered: bool) -> None:
    frame = only(rows().map(y=pl.col("x") * 2, x=pl.col("x") + 1), ordered=ordered)
    assert frame["y"].to_list() == [2, 4, 6, None, 10]
    assert frame["x"].to_list() == [2, 3, 4, None, 6]


@pytest.mark.parametrize("ordered", [False, True])
def test_select_keeps_places_where_they_are_needed(ordered: bool) -> None:
    frame = only(rows().select(y=pl.col("x")), ordered=ordered)
    assert frame.columns == ["y", "ts", *(order.PLACES if ordered else ())]
    if ordered:
        assert frame[order.POSITION].to_list() == [10, 11, 12, 13, 14]


def test_filter_null_is_not_true() -> None:
    assert only(rows().filter(pl.col("x") > 2))["x"].to_list() == [3, 5]
    assert only(rows().filter(~(pl.col("x") > 2)))["x"].to_list() == [1, 2]


def test_explode() -> None:
    frame = only(rows().explode("tags"))
    assert frame.select("x", "tags").rows() == [(1, "a"), (1, "b"), (None, "c"), (5, None), (5, "d")]


def test_explode_gives_places_in_the_list() -> None:
    frame = only(rows().explode("tags"), ordered=True)
    assert frame.select(order.POSITION, order.PLACE).rows() == [(10, 0), (10, 1), (13, 0), (14, 0), (14, 1)]
    assert frame.columns[-4:] == list(order.PLACES)


def test_exploding_twice_the_first_list_counts_more() -> None:
    twice = rows().map(again=pl.col("tags")).explode("tags").explode("again")
    frame = only(twice, ordered=True, data=[(1, ["a", "b"])])
    by_place = frame.sort(order.PLACE).select("tags", "again").rows()
    assert by_place == [("a", "a"), ("a", "b"), ("b", "a"), ("b", "b")]
    assert frame[order.PLACE].n_unique() == 4


def test_split_first_match_wins_null_is_not_true() -> None:
    small, odd, rest = rows().split(small=pl.col("x") < 3, odd=pl.col("x") % 2 == 1, rest="rest")
    got = run(small, odd, rest)
    assert [f["x"].to_list() for f in got.values()] == [[1, 2], [3, 5], [None]]


def test_split_without_rest() -> None:
    small, odd = rows().split(small=pl.col("x") < 3, odd=pl.col("x") % 2 == 1)
    assert [f["x"].to_list() for f in run(small, odd).values()] == [[1, 2], [3, 5]]


@given(some.lists(some.none() | some.integers(-5, 5), min_size=1, max_size=10))
def test_split_loses_nothing_and_doubles_nothing(values: list[int | None]) -> None:
    parts = rows().split(a=pl.col("x") > 0, b=pl.col("x") > -3, c=pl.col("x").is_null(), rest="d")
    got = run(*parts, data=[(v, None) for v in values])
    assert sorted(str(v) for f in got.values() for v in f["x"]) == sorted(map(str, values))


@pytest.mark.parametrize("ordered", [False, True])
def test_union_of_two_sources(ordered: bool) -> None:
    other = st.source("other", st.memory(schema=COLUMNS), ts="ts")
    frame = only(st.union(rows(), other), ordered=ordered, sources=("rows", "other"))
    assert frame.height == 10
    if ordered:
        assert frame[order.ORIGIN].to_list() == [0] * 5 + [1] * 5


def test_union_with_itself_and_columns_in_another_order() -> None:
    """The hidden columns may stand elsewhere in one of the inputs."""
    stream = rows().drop("tags")
    doubled = st.union(stream, stream.map(x=pl.col("x") * 10).select("x"))
    frame = only(doubled, ordered=True)
    assert frame["x"].to_list() == [1, 2, 3, None, 5, 10, 20, 30, None, 50]


def test_a_union_of_which_one_input_is_elsewhere() -> None:
    """A step that several subqueries reach runs in each of them, on the tuples that come from there."""
    stream = rows()
    hourly = stream.aggregate(window=st.tumbling("1h"), x=st.max("x")).select("x")
    both = st.union(stream.select("x"), hourly, name="both")
    query = st.Query("q", both.to(st.memory_sink()))
    plan = query.plan()
    (prefix,) = (q for q in plan.subqueries if q.head is None)
    outputs = run_chain(plan, prefix, {("rows", "out"): tuples(ROWS, ordered=False)}, ordered=False)
    assert outputs["both", "out"].collect()["x"].to_list() == [1, 2, 3, None, 5]


def test_sides_without_rows_give_no_output() -> None:
    stream = rows()
    query = st.Query("q", stream.late.map(y=pl.col("x")).to(st.memory_sink()), stream.to(st.memory_sink()))
    plan = query.plan()
    (prefix,) = plan.subqueries
    outputs = run_chain(plan, prefix, {("rows", "out"): tuples(ROWS, ordered=False)}, ordered=False)
    assert set(outputs) == {("rows", "out")}
