"""Where everything runs in an epoch: levels and partitions. Pure."""

from __future__ import annotations

import polars as pl
import pytest

import springtide as st
from springtide.compiler.plan import Plan
from springtide.runtime.topology import Topology, origin_ranks, sources_upstream, sources_upstream_of_side, topology


def source(name: str) -> st.Stream:
    return st.source(name, st.memory(schema={"k": pl.String, "x": pl.Int64, "ts": st.TIME}), ts="ts")


def counted(stream: st.Stream, name: str) -> st.Stream:
    return stream.aggregate(by="k", window=st.tumbling("1m"), x=st.count(), name=name).select("k", "x")


def plan_of(*ends: st.Stream) -> Plan:
    return st.Query("q", *(end.to(st.memory_sink()) for end in ends)).plan()


def levels(plan: Plan) -> list[list[str]]:
    layout = topology(plan, {q.name: 1 for q in plan.subqueries})
    return [sorted(names) for names in layout.levels]


def test_a_stateless_query_has_one_level() -> None:
    assert levels(plan_of(source("s").filter(pl.col("x") > 0))) == [["s"]]


def test_a_chain() -> None:
    """s ─ one ─ two ─ three"""
    end = counted(counted(counted(source("s"), "one"), "two"), "three")
    assert levels(plan_of(end)) == [["s"], ["one"], ["two"], ["three"]]


def test_a_diamond() -> None:
    """
    s ─┬─ left ─────────┬─ end
       └─ right ─ more ─┘
    """
    s = source("s")
    left, right = counted(s, "left"), counted(counted(s, "right"), "more")
    assert levels(plan_of(counted(st.union(left, right), "end"))) == [["s"], ["left", "right"], ["more"], ["end"]]


def test_a_short_cut_waits_for_the_long_way() -> None:
    """
    s ─┬─ slow ─┬─ end
       └────────┘
    """
    s = source("s")
    end = counted(st.union(s.select("k", "x"), counted(s, "slow")), "end")
    assert levels(plan_of(end)) == [["s"], ["slow"], ["end"]]


def test_sources_without_a_common_step_stand_side_by_side() -> None:
    plan = plan_of(counted(source("a"), "one"), counted(source("b"), "two"))
    assert levels(plan) == [["a", "b"], ["one", "two"]]


def test_the_order_in_which_sinks_are_named_makes_no_difference() -> None:
    s = source("s")
    one, two = counted(s, "one"), counted(counted(s, "first"), "second")
    assert levels(plan_of(one, two)) == levels(plan_of(two, one))


LAYOUT = Topology((("s",), ("a", "b", "c"), ("d",)), {"s": 2, "a": 3, "b": 1, "c": 2, "d": 1})


@pytest.mark.parametrize(
    ("subquery", "instance", "level", "partition"),
    [("s", 0, 0, 0), ("s", 1, 0, 1), ("a", 0, 1, 0), ("a", 2, 1, 2), ("b", 0, 1, 3), ("c", 1, 1, 5), ("d", 0, 2, 0)],
)
def test_instances_lie_side_by_side(subquery: str, instance: int, level: int, partition: int) -> None:
    assert LAYOUT.level_of(subquery) == level
    assert LAYOUT.partition_of(subquery, instance) == partition
    assert LAYOUT.instance_of(level, partition) == (subquery, instance)


def test_partitions_are_counted() -> None:
    assert [LAYOUT.partitions(level) for level in range(3)] == [2, 6, 1]
    with pytest.raises(IndexError, match="level 1 has no such partition"):
        LAYOUT.instance_of(1, 6)


def test_the_sources_upstream_a_subquery() -> None:
    """
    a ─ one ─┬─ both
    b ─ two ─┘
    c ─ other
    """
    one, two = counted(source("a"), "one"), counted(source("b"), "two")
    plan = plan_of(counted(st.union(one, two), "both"), counted(source("c"), "other"))
    behind = {q.name: sources_upstream(plan, q) for q in plan.subqueries}
    assert behind == {
        "a": ("a",),
        "b": ("b",),
        "c": ("c",),
        "one": ("a",),
        "two": ("b",),
        "both": ("a", "b"),
        "other": ("c",),
    }


def test_sources_that_are_read_together_need_not_be_behind_the_same_steps() -> None:
    """
    a ─┬─ join ─ last      one prefix a+b reads both
    b ─┴─ alone
    """
    a, b = source("a"), source("b")
    pairs = a.join(counted(b, "alone"), on="k", within="1m", name="join")
    plan = plan_of(counted(pairs, "last"), counted(a.union(b), "both"))
    assert [q.name for q in plan.subqueries if q.head is None] == ["a+b"]
    behind = {q.name: sources_upstream(plan, q) for q in plan.subqueries if q.head}
    assert behind == {"alone": ("b",), "join": ("a", "b"), "last": ("a", "b"), "both": ("a", "b")}
    assert [sources_upstream_of_side(plan, plan.subquery("join"), side) for side in (0, 1, 2)] == [("a",), ("b",), ()]


def test_origins_are_ranked_by_name() -> None:
    plan = plan_of(counted(st.union(source("b"), source("a")), "ab"))
    assert origin_ranks(plan) == {"a": 0, "ab": 1, "b": 2}
