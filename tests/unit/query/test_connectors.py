"""What the query language needs of connectors: everybody can write one (SC-3), and what it lacks is found when the query is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.connectors import Publication, Read, Sink, Slice, Source, Take
from springtide.query.connectors import Marker


class Mine(Source):
    """As little of a source as there can be."""

    positions = False

    def schema(self) -> pl.Schema:
        return pl.Schema({"x": pl.Int64(), "when": pl.Datetime("ms")})

    def describe(self) -> str:
        return "my own"

    def take(self, position: Any, limit: int, ts: str | None) -> Take:
        return Take((), position, ended=True)

    def read(self, part: Slice) -> Read:
        raise NotImplementedError


class Yours(Sink):
    """As little of a sink as there can be."""

    def describe(self) -> str:
        return "your own"

    def check(self, schema: pl.Schema) -> str | None:
        return "no x" if "x" not in schema else None

    def publish(self, publication: Publication) -> None:
        pass


def test_everybody_can_write_a_connector() -> None:
    stream = st.source("own", Mine(), ts="when")
    sink = stream.to(Yours())
    assert stream.step.describe() == "my own → x:i64 ts:time"
    assert sink.describe() == "your own"
    query = st.Query("q", sink)
    assert list(query.steps) == ["own", "sink"]
    assert query.run_reference().rows().height == 0


def test_a_sink_may_refuse_what_comes() -> None:
    stream = st.source("own", Mine(), ts="when")
    with pytest.raises(st.QueryError) as caught:
        stream.drop("x").to(Yours(), name="mine")
    assert caught.value.step == "mine (sink)"
    assert caught.value.problem == "your own cannot take these rows: no x"


class TakesTooLittle(Mine):
    def take(self, position: Any, limit: int) -> Take:  # type: ignore[override]
        raise NotImplementedError


class TakesNothing(Source):
    schema, describe, read = Mine.schema, Mine.describe, Mine.read


class Untyped(Mine):
    def schema(self) -> pl.Schema:
        return {"x": pl.Int64()}  # type: ignore[return-value]


class Reserved(Mine):
    def schema(self) -> pl.Schema:
        return pl.Schema({"__position": pl.Int64()})


class PublishesNothing(Sink):
    def describe(self) -> str:
        return "nowhere"


class OpensNothing(Yours):
    def open(self) -> Any:  # type: ignore[override]
        return self


class NoOutbox(Yours):
    outbox = "parquet"  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("build", "step", "problem"),
    [
        (TakesTooLittle, "own (source)", r"TakesTooLittle\.take cannot be called with \(position, limit, ts\)"),
        (TakesNothing, "own (source)", r"TakesNothing defines neither open nor take"),
        (Untyped, "own (source)", r"Untyped\.schema\(\) returned"),
        (Reserved, "own (source)", r"'__position'"),
        (object, "own (source)", r"is not a source"),
        (PublishesNothing, "out (sink)", r"PublishesNothing defines neither open nor publish"),
        (OpensNothing, "out (sink)", r"OpensNothing\.open cannot be called with \(owner\)"),
        (NoOutbox, "out (sink)", r"NoOutbox\.outbox"),
        (object, "out (sink)", r"is not a sink"),
    ],
)
def test_what_is_missing_is_found_when_the_query_is_built(build: Callable[[], Any], step: str, problem: str) -> None:
    stream = st.source("mine", Mine(), ts="when")
    with pytest.raises(st.QueryError, match=problem) as caught:
        st.source("own", build()) if step == "own (source)" else stream.to(build(), name="out")
    assert caught.value.step == step


def test_a_marker_is_said_as_it_is_written() -> None:
    assert repr(Marker("FAIL")) == "FAIL"
    assert repr(Marker("TIME", 5)) == "TIME(5)"
