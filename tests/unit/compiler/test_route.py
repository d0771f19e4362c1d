"""SC-6, ST-6: which tuples must meet decides where they go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import polars as pl
import pytest

import springtide as st
from springtide.compiler.explain import explain
from springtide.compiler.passes.route import route
from springtide.compiler.plan import Broadcast, Grid, Hash, Plan, Routing, Single

Streams = Callable[..., st.Stream]
below = pl.col("x") < pl.col("y")


class Nothing(st.BucketOperator[dict[str, int]]):
    output: ClassVar[Mapping[str, Any]] = {"ts": st.TIME}

    def init(self) -> dict[str, int]:
        return {}

    def process(self, state: dict[str, int], tuples: pl.DataFrame, ready_ts: int) -> None:
        return None


@pytest.fixture
def routing(up_to: Callable[..., Plan]) -> Callable[..., list[Routing | None]]:
    """`routing(stream)` gives the routing of the last head's exchanges, side by side, then to its merge."""

    def find(stream: st.Stream, buckets: int = 256) -> list[Routing | None]:
        query = st.Query("q", stream.to(st.memory_sink()))
        plan = up_to(route, query, buckets)
        return [e.routing for e in plan.exchanges if plan.target(e) is stream.step]

    return find


Find = Callable[..., list[Routing | None]]


def test_golden_plan(every_kind: st.Query, up_to: Callable[..., Plan], golden: Callable[[str, str], None]) -> None:
    golden("compiler/3-route", explain(up_to(route, every_kind)))


def test_aggregate_goes_by_its_groups(stream: Streams, routing: Find) -> None:
    s = stream("s", x=pl.Int64, k=pl.String)
    assert routing(s.aggregate(by=["x", "k"], window=st.tumbling("1m"), n=st.count())) == [Hash(("x", "k"))]
    assert routing(s.aggregate(window=st.tumbling("1m"), n=st.count())) == [Single()]


def test_join_goes_by_its_keys_on_each_side(stream: Streams, routing: Find) -> None:
    left, right = stream("s", x=pl.Int64), stream("t", y=pl.Int64)
    assert routing(left.join(right, left_on="x", right_on="y", within="1m")) == [Hash(("x",)), Hash(("y",))]


def test_ranking_counts_each_value_in_one_place(stream: Streams, routing: Find) -> None:
    s = stream("s", x=pl.Int64, k=pl.String)
    assert routing(s.top_k(3, "x", per="k", window=st.tumbling("1m"))) == [Hash(("k", "x")), Hash(("k",))]
    assert routing(s.top_k(3, "x", window=st.tumbling("1m"))) == [Hash(("x",)), Single()]


def test_sketch_of_a_ranking_has_all_values_in_it(stream: Streams, routing: Find) -> None:
    s = stream("s", x=pl.Int64, k=pl.String)
    assert routing(s.top_k(3, "x", per="k", window=st.tumbling("1m"), sketch=64)) == [Hash(("k",))]
    assert routing(s.top_k(3, "x", window=st.tumbling("1m"), sketch=64)) == [Single()]


def test_operator_goes_by_its_keys(stream: Streams, routing: Find) -> None:
    s = stream("s", x=pl.Int64, tags=pl.List(pl.String))
    assert routing(s.operator(Nothing(), keys="x")) == [Hash(("x",))]
    assert routing(s.operator(Nothing(), keys="tags")) == [Hash(("tags",), many=True)]
    assert routing(s.operator(Nothing())) == [Single()]


def test_theta_join_of_different_streams_over_time_is_a_grid(stream: Streams, routing: Find) -> None:
    s, t = stream("s", x=pl.Int64), stream("t", y=pl.Int64)
    assert routing(s.theta_join(t, below, within="5m")) == [Grid(16, 16)] * 2


def test_theta_join_over_tuples_is_a_broadcast(stream: Streams, routing: Find) -> None:
    s, t = stream("s", x=pl.Int64), stream("t", y=pl.Int64)
    assert routing(s.theta_join(t, below, within=st.last_n(5))) == [Broadcast()] * 2


def test_theta_join_of_a_stream_with_itself_is_a_broadcast(stream: Streams, routing: Find) -> None:
    s = stream("s", x=pl.Int64, y=pl.Int64)
    assert routing(s.theta_join(s, below, within="5m")) == [Broadcast()] * 2
    assert routing(s.theta_join(s.filter(pl.col("x") > 1), below, within="5m")) == [Grid(16, 16)] * 2


def test_theta_join_of_unequal_weights_is_a_broadcast(stream: Streams, routing: Find) -> None:
    s, t = stream("s", x=pl.Int64), stream("t", y=pl.Int64)
    light = t.aggregate(window=st.tumbling("1m"), y=st.max("y"), name="light").filter(pl.col("y") > 1)
    other = s.top_k(1, "x", window=st.tumbling("1m")).select("x")
    assert routing(s.theta_join(light, below, within="5m")) == [Broadcast()] * 2
    assert routing(other.theta_join(light, below, within="5m")) == [Grid(16, 16)] * 2
    half_light = light.select("y").union(t)  # as heavy as t
    assert routing(s.theta_join(half_light, below, within="5m"))[0] == Grid(16, 16)


def test_user_decides(stream: Streams, routing: Find) -> None:
    s, t = stream("s", x=pl.Int64), stream("t", y=pl.Int64)
    assert routing(s.theta_join(t, below, within="5m", routing="broadcast")) == [Broadcast()] * 2
    both = stream("b", x=pl.Int64, y=pl.Int64)
    assert routing(both.theta_join(both, below, within="5m", routing="grid")) == [Grid(16, 16)] * 2


@pytest.mark.parametrize(("buckets", "rows", "columns"), [(1, 1, 1), (2, 1, 2), (4, 2, 2), (8, 2, 4), (512, 16, 32)])
def test_grid_is_as_square_as_possible(stream: Streams, routing: Find, buckets: int, rows: int, columns: int) -> None:
    s, t = stream("s", x=pl.Int64), stream("t", y=pl.Int64)
    assert routing(s.theta_join(t, below, within="5m"), buckets) == [Grid(rows, columns)] * 2
