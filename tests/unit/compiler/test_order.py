from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

import springtide as st
from springtide.compiler.explain import explain
from springtide.compiler.passes.order import order
from springtide.compiler.plan import Plan

Streams = Callable[..., st.Stream]


def test_golden_plan(every_kind: st.Query, up_to: Callable[..., Plan], golden: Callable[[str, str], None]) -> None:
    golden("compiler/4-order", explain(up_to(order, every_kind)))


@pytest.mark.parametrize("function", [st.first, st.last, st.collect], ids=lambda f: f.__name__)
def test_functions_that_look_at_order(stream: Streams, function: Callable[[str], st.Aggregate]) -> None:
    assert stream("s", x=pl.Int64).aggregate(window=st.tumbling("1m"), n=st.count(), a=function("x")).step.ordered


def test_windows_of_tuples(stream: Streams) -> None:
    s, t = stream("s", x=pl.Int64), stream("t", x=pl.Int64)
    less = pl.col("x") < pl.col("x_right")
    assert s.aggregate(window=st.last_n(5), n=st.count()).step.ordered
    assert s.join(t, on="x", within=st.last_n(5)).step.ordered
    assert s.theta_join(t, less, within=st.last_n(5)).step.ordered


def test_windows_of_time_do_not(stream: Streams) -> None:
    s, t = stream("s", x=pl.Int64), stream("t", x=pl.Int64)
    less = pl.col("x") < pl.col("x_right")
    assert not s.aggregate(window=st.session("5m"), n=st.count()).step.ordered
    assert not s.aggregate(window=st.tumbling("5m"), n=st.sum("x")).step.ordered
    assert not s.top_k(3, "x", window=st.tumbling("5m")).step.ordered
    assert not s.join(t, on="x", within="5m", how="left").step.ordered
    assert not s.theta_join(t, less, within="5m").step.ordered


def test_users_operators(every_kind: st.Query) -> None:
    assert every_kind.step("tags").ordered


def test_more_lists_one_behind_the_other_than_places_can_tell_apart_are_refused(stream: Streams) -> None:
    """Four places do not fit into 64 bits: their order was lost without a word."""
    lists = stream("s", a=pl.List(pl.Int64), b=pl.List(pl.Int64), c=pl.List(pl.Int64), d=pl.List(pl.Int64))
    three = lists.explode("a").explode("b").explode("c")
    st.Query("q", three.aggregate(window=st.last_n(2), n=st.count()).to(st.memory_sink())).plan()
    four = three.explode("d")
    st.Query("q", four.aggregate(window=st.tumbling("1m"), n=st.count()).to(st.memory_sink())).plan()
    with pytest.raises(st.QueryError, match=r"step last \(aggregate\): .*lists.* 4; .*one with"):
        st.Query("q", four.aggregate(window=st.last_n(2), n=st.count(), name="last").to(st.memory_sink())).plan()
