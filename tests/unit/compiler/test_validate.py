from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.compiler.explain import explain
from springtide.compiler.passes.validate import validate
from springtide.compiler.plan import Plan
from springtide.query.graph import Graph
from springtide.query.steps import Sink, Step
from tests.wording import says

Streams = Callable[..., st.Stream]


def forged(stream: st.Stream, **changes: Any) -> st.Stream:
    """The same stream, with its step or itself changed behind the back of the checks."""
    own = {name: changes.pop(name) for name in ("port", "timed", "schema") if name in changes}
    return replace(stream, step=replace(stream.step, **changes), **own)


def refused(*sinks: Sink, buckets: int = 256) -> str:
    with pytest.raises(st.QueryError) as caught:
        validate(Plan(Graph("q", *sinks), buckets))
    return str(caught.value)


def test_golden_plan(every_kind: st.Query, golden: Callable[[str, str], None]) -> None:
    plan = Plan(every_kind)
    assert validate(plan) == plan
    golden("compiler/1-validate", explain(plan))


@pytest.mark.parametrize("buckets", [1, 2, 256, 65536])
def test_powers_of_two_are_accepted(stream: Streams, buckets: int) -> None:
    validate(Plan(Graph("q", stream("s", x=pl.Int64).to(st.memory_sink())), buckets))


@pytest.mark.parametrize(("buckets", "problem"), [(0, "evenly"), (-4, "evenly"), (100, "evenly"), (2**17, "too many")])
def test_other_numbers_of_buckets_are_refused(stream: Streams, buckets: int, problem: str) -> None:
    message = refused(stream("s", x=pl.Int64).to(st.memory_sink()), buckets=buckets)
    assert f"{buckets} buckets" in message
    assert problem in message


def test_head_needs_time(stream: Streams) -> None:
    s = stream("s", x=pl.Int64)
    counted = s.aggregate(window=st.tumbling("1m"), n=st.count(), name="n")
    untimed = forged(counted, inputs=(replace(s, timed=False),))
    assert "step n (aggregate): s has no time" in refused(untimed.to(st.memory_sink()))


def test_time_must_be_ts(stream: Streams) -> None:
    s = stream("s", x=pl.Int64)
    bare = replace(s, schema=pl.Schema({"x": pl.Int64}), step=replace(s.step, schema=pl.Schema({"x": pl.Int64})))
    assert "ts of s is not there" in refused(bare.to(st.memory_sink()))


def test_column_that_is_not_there(stream: Streams) -> None:
    s, other = stream("s", x=pl.Int64), stream("t", count=pl.Int64)
    for after in (
        s.map(y=pl.col("x") + 1),
        s.filter(pl.col("x") > 1),
        s.select("x"),
        s.split(a=pl.col("x") > 1).a,
        s.aggregate(by="x", window=st.tumbling("1m"), n=st.count()),
        s.aggregate(window=st.tumbling("1m"), n=st.sum("x")),
        s.top_k(1, "x", window=st.tumbling("1m")),
        s.join(s, on="x", within="1m"),
    ):
        message = refused(forged(after, inputs=(other,) * len(after.step.inputs)).to(st.memory_sink()))
        assert "there is no column 'x'; there are: count, ts" in message, after.step.kind


def test_other_type_than_expected(stream: Streams) -> None:
    s, text = stream("s", x=pl.Int64), stream("t", x=pl.String)
    union = s.union(s, name="u")
    assert "takes x:i64 ts:time, but gets x:str ts:time" in refused(
        forged(union, inputs=(s, text)).to(st.memory_sink())
    )
    join = s.join(s, on="x", within="1m", name="j")
    mixed = refused(forged(join, inputs=(s, text)).to(st.memory_sink()))
    assert says(mixed, "'x' is i64 on the left", "'x' is str")


def test_output_that_the_step_does_not_have(stream: Streams) -> None:
    s = stream("s", x=pl.Int64)
    sink = s.split(small=pl.col("x") < 9, rest="large", name="cut").small.to(st.memory_sink())
    wrong = replace(sink, inputs=(replace(sink.inputs[0], port="smal"),))
    assert "cut has no output 'smal'; did you mean 'small'?" in refused(wrong)
    stale = replace(sink, inputs=(replace(sink.inputs[0], schema=pl.Schema({"y": pl.Int64, "ts": st.TIME})),))
    assert "it expects y:i64 ts:time, but cut gives x:i64 ts:time" in refused(stale)


def test_sink_that_cannot_take_the_rows(stream: Streams) -> None:
    s = stream("s", x=pl.Int64)
    sink = replace(s.to(st.parquet_sink("out/")), schema=pl.Schema({"x": pl.Struct({}), "ts": st.TIME}))
    objects = replace(s, schema=sink.schema, step=replace(s.step, schema=sink.schema))
    assert "parquet out/ cannot take these rows" in refused(replace(sink, inputs=(objects,)))


def shuffled(graph: Graph, order: list[str], names: dict[str, str | None] | None = None) -> Graph:
    """The graph with its steps in another order, and some of them with other names: as no graph is built."""
    steps: dict[str, Step] = {name: graph.steps[name] for name in order}
    for name, new in (names or {}).items():
        object.__setattr__(steps[name], "name", new)
    graph.steps = steps
    return graph


def test_cycle_shows_as_an_input_that_comes_later(stream: Streams) -> None:
    graph = Graph("q", stream("s", x=pl.Int64).filter(pl.col("x") > 1, name="f").to(st.memory_sink()))
    with pytest.raises(st.QueryError, match=r"'f' .*cycle"):
        validate(Plan(shuffled(graph, ["s", "sink", "f"])))


def test_name_borne_twice(stream: Streams) -> None:
    graph = Graph("q", stream("s", x=pl.Int64).filter(pl.col("x") > 1, name="f").to(st.memory_sink(), name="t"))
    with pytest.raises(st.QueryError, match=r"'f' .*taken.* filter"):
        validate(Plan(shuffled(graph, ["s", "f", "t"], {"t": "f"})))


def test_the_name_that_a_step_has_while_old_windows_are_finished_is_taken(stream: Streams) -> None:
    def counted(name: str, stream: st.Stream) -> st.Stream:
        return stream.aggregate(window=st.tumbling("1m"), n=st.count(), name=name)

    one = stream("s", x=pl.Int64)
    message = refused(counted("a@old", counted("a", one)).to(st.memory_sink()))
    assert "a@old (aggregate)" in message
    assert "does not end in @old" in message
    validate(Plan(Graph("q", counted("a@old", one).to(st.memory_sink()))))
