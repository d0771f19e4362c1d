"""The graph of a query: which steps, in which order, under which names (SC-3).

calls ─ map ─┬─ filter ─────┐
             └─ aggregate ──┴─ join ─ sink
"""

from __future__ import annotations

import polars as pl
import pytest

import springtide as st
from springtide.query import steps
from springtide.query.graph import Edge, Graph

COLUMNS = {"src": pl.String, "duration": pl.Int64, "ts": st.TIME}
x = pl.col("duration")
minute = st.tumbling("1m")


def stream(name: str = "calls") -> st.Stream:
    return st.source(name, st.memory(schema=COLUMNS), ts="ts")


def test_a_chain() -> None:
    graph = Graph("chain", stream().map(y=x + 1).filter(x > 1).to(st.memory_sink()))
    assert list(graph.steps) == ["calls", "map", "filter", "sink"]
    assert graph.edges == (
        Edge("calls", "out", "map", 0),
        Edge("map", "out", "filter", 0),
        Edge("filter", "out", "sink", 0),
    )


def test_a_diamond_has_each_step_once() -> None:
    mapped = stream().map(y=x + 1)
    counted = mapped.aggregate("src", window=minute, n=st.count())
    joined = mapped.filter(x > 1).join(counted, "src", within="1m")
    graph = Graph("diamond", joined.to(st.memory_sink()))
    assert list(graph.steps) == ["calls", "map", "filter", "aggregate", "join", "sink"]
    assert graph.edges == (
        Edge("calls", "out", "map", 0),
        Edge("map", "out", "filter", 0),
        Edge("map", "out", "aggregate", 0),
        Edge("filter", "out", "join", 0),
        Edge("aggregate", "out", "join", 1),
        Edge("join", "out", "sink", 0),
    )


def test_a_stream_joined_with_itself() -> None:
    calls = stream()
    graph = Graph("self", calls.join(calls, "src", within="1m").to(st.memory_sink()))
    assert list(graph.steps) == ["calls", "join", "sink"]
    assert graph.edges[:2] == (Edge("calls", "out", "join", 0), Edge("calls", "out", "join", 1))


def test_several_sources_and_several_sinks() -> None:
    a, b = stream("a"), stream("b")
    both = a.union(b)
    graph = Graph("many", both.to(st.memory_sink()), a.late.to(st.console()), b.rejected.to(st.console()))
    assert list(graph.steps) == ["a", "b", "union", "sink", "sink-2", "sink-3"]
    assert list(graph.of_kind(steps.Source)) == ["a", "b"]
    assert list(graph.of_kind(steps.Sink)) == ["sink", "sink-2", "sink-3"]
    assert Edge("a", "late", "sink-2", 0) in graph.edges
    assert Edge("b", "rejected", "sink-3", 0) in graph.edges


def test_the_outputs_of_a_split_are_ports_of_one_step() -> None:
    short, long = stream().split(short=x < 60, rest="long")
    graph = Graph("split", short.to(st.memory_sink()), long.to(st.memory_sink()))
    assert list(graph.steps) == ["calls", "split", "sink", "sink-2"]
    assert graph.edges[1:] == (Edge("split", "short", "sink", 0), Edge("split", "long", "sink-2", 0))


def test_the_same_sink_given_twice_is_one() -> None:
    sink = stream().to(st.memory_sink())
    assert list(Graph("once", sink, sink).steps) == ["calls", "sink"]


def test_one_stream_to_two_sinks() -> None:
    calls = stream().filter(x > 1)
    graph = Graph("two", calls.to(st.memory_sink()), calls.to(st.console()))
    assert list(graph.steps) == ["calls", "filter", "sink", "sink-2"]


def test_what_leads_to_no_sink_is_not_in_it() -> None:
    calls = stream()
    unused = calls.map(y=x + 1)
    graph = Graph("less", calls.to(st.memory_sink()))
    assert unused.step not in list(graph)
    assert [graph.name_of(step) for step in graph] == ["calls", "sink"]


def test_names_are_numbered_by_kind() -> None:
    calls = stream().filter(x > 1).map(y=x).filter(x > 2).filter(x > 3, name="third").filter(x > 4)
    assert list(Graph("n", calls.to(st.memory_sink())).steps) == [
        "calls",
        "filter",
        "map",
        "filter-2",
        "third",
        "filter-3",
        "sink",
    ]


def test_a_name_that_is_given_is_not_taken_for_another_step() -> None:
    calls = stream().filter(x > 1).filter(x > 2, name="filter").map(y=x, name="filter-2").filter(x > 3)
    assert list(Graph("n", calls.to(st.memory_sink(), name="map")).steps) == [
        "calls",
        "filter-3",
        "filter",
        "filter-2",
        "filter-4",
        "map",
    ]


def test_names_are_the_same_each_time() -> None:
    def build() -> Graph:
        calls = stream()
        left, right = calls.split(a=x > 1, rest="b")
        return Graph("same", left.union(right.map(duration=x + 1)).to(st.memory_sink()), calls.late.to(st.console()))

    assert list(build().steps) == list(build().steps)
    assert build().edges == build().edges


def test_drop_and_rename_are_selects() -> None:
    graph = Graph("s", stream().drop("src").rename({"duration": "d"}).select("d").to(st.memory_sink()))
    assert list(graph.steps) == ["calls", "select", "select-2", "select-3", "sink"]


def test_every_step_comes_after_its_inputs() -> None:
    a = stream("a")
    windows = [a.aggregate("src", window=st.tumbling(f"{n}s"), n=st.count()) for n in range(1, 5)]
    joined = windows[0]
    for window in windows[1:]:
        joined = joined.select("src", "n").join(window.select("src"), "src", within="1m")
    graph = Graph("order", joined.to(st.memory_sink()))
    seen: set[str] = set()
    for name, step in graph.steps.items():
        assert {graph.name_of(i.step) for i in step.inputs} <= seen
        seen.add(name)


def test_a_query_can_be_very_long() -> None:
    calls = stream()
    for _ in range(3000):
        calls = calls.drop()
    assert len(Graph("long", calls.to(st.memory_sink())).steps) == 3002


def test_a_step_by_its_name() -> None:
    graph = Graph("g", stream().filter(x > 1, name="long").to(st.memory_sink()))
    assert graph.step("long").kind == "filter"
    assert graph.name_of(graph.step("long")) == "long"
    assert graph.name == "g"


@pytest.mark.parametrize("name", ["heavy-callers", "Heavy callers", "anruf_größe", "a.b", "1", "x > 1"])
def test_names_that_are_fine(name: str) -> None:
    graph = Graph(name, stream(name).filter(x > 1, name=f"{name}!").to(st.memory_sink()))
    assert list(graph.steps) == [name, f"{name}!", "sink"]


def test_a_query_is_a_graph() -> None:
    query = st.Query("q", stream().to(st.memory_sink()))
    assert isinstance(query, Graph)
    assert list(query.steps) == ["calls", "sink"]


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_cycle_is_found_whatever_its_length(length: int) -> None:
    first = stream().filter(x > 1, name="f1")
    last = first
    for n in range(2, length + 1):
        last = last.filter(x > n, name=f"f{n}")
    object.__setattr__(first.step, "inputs", (last,))
    with pytest.raises(st.QueryError) as caught:
        Graph("round", last.to(st.memory_sink()))
    names = [f"f{n}" for n in range(length, 0, -1)]
    assert caught.value.problem == f"the steps form a cycle: {' ← '.join([*names, names[0]])}"
