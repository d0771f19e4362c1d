"""SC-5: one subquery per stateful operator, with the stateless ones behind it, and stateless prefixes."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

import springtide as st
from springtide.compiler.explain import explain
from springtide.compiler.passes.split import split
from springtide.compiler.plan import Plan, Subquery

Streams = Callable[..., st.Stream]
x = pl.col("x")


def per_minute(stream: st.Stream, name: str) -> st.Stream:
    return stream.aggregate(by="x", window=st.tumbling("1m"), n=st.count(), name=name)


def cut(*sinks: object) -> Plan:
    return split(Plan(st.Query("q", *sinks)))  # type: ignore[arg-type]


def names(plan: Plan) -> list[str]:
    return [subquery.name for subquery in plan.subqueries]


def test_golden_plan(every_kind: st.Query, up_to: Callable[..., Plan], golden: Callable[[str, str], None]) -> None:
    golden("compiler/2-split", explain(up_to(split, every_kind)))


def test_sc5_query_of_figure_1_has_three_subqueries(stream: Streams) -> None:
    """Two maps, a join, a filter, an aggregate, a filter: a prefix and two stateful subqueries."""
    left, right = stream("l", x=pl.Int64).map(y=x + 1, name="m1"), stream("r", x=pl.Int64).map(z=x + 1, name="m2")
    joined = left.join(right, on="x", within="1m", name="j").filter(x > 1, name="f1")
    plan = cut(per_minute(joined, "ag").filter(pl.col("n") > 1, name="f2").to(st.memory_sink()))
    assert plan.subqueries == (
        Subquery("l+r", None, ("l", "r"), ("m1", "m2"), ()),
        Subquery("j", "j", (), ("f1",), ()),
        Subquery("ag", "ag", (), ("f2",), ("sink",)),
    )
    assert [(e.origin, e.step, e.target, e.side) for e in plan.exchanges] == [
        ("l+r", "m1", "j", 0),
        ("l+r", "m2", "j", 1),
        ("j", "f1", "ag", 0),
    ]


def test_source_alone_is_a_prefix(stream: Streams) -> None:
    assert names(cut(per_minute(stream("s", x=pl.Int64), "n").to(st.memory_sink()))) == ["s", "n"]


def test_query_without_state_is_one_prefix(stream: Streams) -> None:
    plan = cut(stream("s", x=pl.Int64).filter(x > 1, name="f").to(st.memory_sink()))
    assert plan.subqueries == (Subquery("s", None, ("s",), ("f",), ("sink",)),)
    assert plan.exchanges == ()


def test_unrelated_prefixes_are_two(stream: Streams) -> None:
    one, two = per_minute(stream("a", x=pl.Int64), "n"), per_minute(stream("b", x=pl.Int64), "m")
    assert names(cut(one.to(st.memory_sink()), two.to(st.memory_sink()))) == ["a", "b", "n", "m"]


def test_prefixes_are_one_through_a_third(stream: Streams) -> None:
    """a and c have nothing in common but that b is joined with each."""
    a, b, c = (stream(name, x=pl.Int64) for name in "abc")
    left, right = a.join(b, on="x", within="1m", name="ab"), b.join(c, on="x", within="1m", name="bc")
    assert names(cut(left.to(st.memory_sink()), right.to(st.memory_sink()))) == ["a+b+c", "ab", "bc"]


def test_prefix_keeps_the_order_of_the_sources_when_groups_meet_late(stream: Streams) -> None:
    a, b, c = (stream(name, x=pl.Int64) for name in "abc")
    sinks = [a.to(st.memory_sink()), b.to(st.memory_sink()), c.union(b, a).to(st.memory_sink())]
    assert names(cut(*sinks)) == ["a+b+c"]


def test_union_of_two_stateful_outputs_runs_in_both(stream: Streams) -> None:
    s = stream("s", x=pl.Int64)
    both = st.union(per_minute(s, "n"), per_minute(s.filter(x > 1, name="f"), "m"), name="u").filter(x > 2, name="g")
    plan = cut(per_minute(both, "o").to(st.memory_sink()))
    assert plan.subquery("n").steps == ("n", "u", "g")
    assert plan.subquery("m").steps == ("m", "u", "g")
    assert [(e.origin, e.step, e.target) for e in plan.exchanges if e.target == "o"] == [
        ("n", "g", "o"),
        ("m", "g", "o"),
    ]


def test_union_of_a_source_and_a_stateful_output(stream: Streams) -> None:
    s = stream("s", x=pl.Int64)
    both = s.union(per_minute(s, "n").select("x"), name="u")
    plan = cut(both.to(st.memory_sink()))
    assert plan.subquery("s").steps == ("s", "u", "sink")
    assert plan.subquery("n").steps == ("n", "select", "u", "sink")


def test_self_join_takes_the_same_output_twice(stream: Streams) -> None:
    s = stream("s", x=pl.Int64)
    plan = cut(s.join(s, on="x", within="1m", name="j").to(st.memory_sink()))
    assert [(e.step, e.side) for e in plan.exchanges] == [("s", 0), ("s", 1)]


def test_side_outputs_stay_in_the_prefix(stream: Streams) -> None:
    s = stream("s", x=pl.Int64)
    plan = cut(
        per_minute(s, "n").to(st.memory_sink(), name="out"),
        s.late.filter(x > 1, name="f").to(st.memory_sink(), name="late"),
    )
    assert plan.subquery("s").steps == ("s", "f", "late")


def test_subquery_is_found_by_any_of_its_steps(stream: Streams) -> None:
    s = stream("s", x=pl.Int64).filter(x > 1, name="f")
    plan = cut(per_minute(s, "n").filter(x > 1, name="g").to(st.memory_sink()))
    assert plan.subquery("f").name == "s"
    assert plan.subquery("g").name == "n"


def test_an_exact_ranking_is_counted_in_one_subquery_and_merged_in_another(stream: Streams) -> None:
    """s ─ top ─ top.merge: f ─ n"""
    top = stream("s", x=pl.Int64).top_k(3, "x", window=st.tumbling("1m"), name="top").filter(x > 1, name="f")
    plan = cut(per_minute(top.select("x", name="x"), "n").to(st.memory_sink()), top.to(st.memory_sink(), name="out"))
    assert plan.subqueries == (
        Subquery("s", None, ("s",), (), ()),
        Subquery("top", "top", (), (), ()),
        Subquery("top.merge", "top", (), ("f", "x"), ("out",), merges=True),
        Subquery("n", "n", (), (), ("sink",)),
    )
    assert [(e.origin, e.step, e.target) for e in plan.exchanges] == [
        ("s", "s", "top"),
        ("top", "top", "top.merge"),
        ("top.merge", "x", "n"),
    ]
    assert plan.subquery("top").name == "top"
    assert plan.subquery("f").name == "top.merge"
    assert plan.merge_of(plan.subquery("top")) == plan.subquery("top.merge")
    assert plan.merge_of(plan.subquery("top.merge")) is plan.merge_of(plan.subquery("n")) is None


def test_a_ranking_by_sketch_needs_no_merge(stream: Streams) -> None:
    top = stream("s", x=pl.Int64).top_k(3, "x", window=st.tumbling("1m"), sketch=64, name="top")
    assert names(cut(top.to(st.memory_sink()))) == ["s", "top"]


def test_the_merge_of_a_ranking_takes_its_name(stream: Streams) -> None:
    s = stream("s", x=pl.Int64)
    top = s.top_k(3, "x", window=st.tumbling("1m"), name="top")
    with pytest.raises(st.QueryError, match=r"top.merge \(subquery\): .*taken.*merge of a ranking"):
        cut(top.to(st.memory_sink()), per_minute(s, "top.merge").to(st.memory_sink()))


def test_names_that_clash_are_refused(stream: Streams) -> None:
    a, b = stream("a", x=pl.Int64), stream("b", x=pl.Int64)
    with pytest.raises(st.QueryError, match=r"a\+b \(subquery\): .*taken.*prefix of several sources"):
        cut(per_minute(a.union(b), "a+b").to(st.memory_sink()))
