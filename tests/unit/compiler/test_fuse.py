from __future__ import annotations

from collections.abc import Callable

import polars as pl

import springtide as st
from springtide.compiler.explain import explain
from springtide.compiler.passes.fuse import fuse
from springtide.compiler.plan import Plan

x = pl.col("x")


def test_golden_plan(every_kind: st.Query, up_to: Callable[..., Plan], golden: Callable[[str, str], None]) -> None:
    golden("compiler/2-fuse", explain(up_to(fuse, every_kind)))


def fused(*sinks: object) -> tuple[tuple[str, ...], ...]:
    return fuse(Plan(st.Query("q", *sinks))).fused  # type: ignore[arg-type]


def test_steps_with_one_consumer_run_as_one(stream: Callable[..., st.Stream]) -> None:
    s = stream("s", x=pl.List(pl.Int64)).explode("x", name="a").map(y=x + 1, name="b").filter(x > 1, name="c")
    assert fused(s.to(st.memory_sink())) == (("a", "b", "c"),)


def test_step_with_two_consumers_ends_a_chain(stream: Callable[..., st.Stream]) -> None:
    shared = stream("s", x=pl.Int64).map(y=x + 1, name="a").filter(x > 1, name="b")
    left, right = shared.map(z=x, name="c").select("z", name="d"), shared.filter(x > 2, name="e")
    assert fused(left.to(st.memory_sink()), right.to(st.memory_sink())) == (("a", "b"), ("c", "d"), ("e",))


def test_sink_is_a_consumer_too(stream: Callable[..., st.Stream]) -> None:
    shared = stream("s", x=pl.Int64).map(y=x + 1, name="a")
    assert fused(shared.to(st.memory_sink()), shared.filter(x > 2, name="b").to(st.memory_sink())) == (("a",), ("b",))


def test_union_and_split_stand_alone(stream: Callable[..., st.Stream]) -> None:
    small, large = stream("s", x=pl.Int64).map(y=x + 1, name="a").split(small=x < 9, rest="large", name="b")
    joined = small.filter(x > 1, name="c").union(large, name="d").filter(x > 2, name="e")
    assert fused(joined.to(st.memory_sink())) == (("a",), ("b",), ("c",), ("d",), ("e",))


def test_state_ends_a_chain(stream: Callable[..., st.Stream]) -> None:
    before = stream("s", x=pl.Int64).filter(x > 1, name="a")
    after = before.aggregate(by="x", window=st.tumbling("1m"), n=st.count(), name="n").filter(x > 2, name="b")
    assert fused(after.to(st.memory_sink())) == (("a",), ("b",))
