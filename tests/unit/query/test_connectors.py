"""What the query language needs of connectors: everybody can write one (SC-3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.query.connectors import Marker, SinkConnector, SourceConnector


class Own:
    """A source and a sink that know nothing of springtide."""

    positions = False

    def schema(self) -> pl.Schema:
        return pl.Schema({"x": pl.Int64(), "when": pl.Datetime("ms")})

    def describe(self) -> str:
        return "my own"

    def read_all(self) -> Mapping[str, Any]:
        return {}

    def check(self, schema: pl.Schema) -> str | None:
        return "no x" if "x" not in schema else None


def test_any_object_of_the_right_shape_is_a_connector() -> None:
    assert isinstance(Own(), SourceConnector)
    assert isinstance(Own(), SinkConnector)
    stream = st.source("own", Own(), ts="when")
    sink = stream.to(Own())
    assert stream.step.describe() == "my own → x:i64 ts:time"
    assert sink.describe() == "my own"
    assert list(st.Query("q", sink).steps) == ["own", "sink"]


def test_a_sink_may_refuse_what_comes() -> None:
    stream = st.source("own", Own(), ts="when")
    with pytest.raises(st.QueryError) as caught:
        stream.drop("x").to(Own(), name="mine")
    assert caught.value.step == "mine (sink)"
    assert caught.value.problem == "my own cannot take these rows: no x"


def test_our_own_connectors_have_the_shape() -> None:
    assert isinstance(st.memory([{"x": 1}]), SourceConnector)
    assert isinstance(st.parquet("in/"), SourceConnector)
    for sink in (st.memory_sink(), st.console(), st.callback(print), st.parquet_sink("out/")):
        assert isinstance(sink, SinkConnector)
        assert not isinstance(sink, SourceConnector)


def test_a_marker_is_said_as_it_is_written() -> None:
    assert repr(Marker("FAIL")) == "FAIL"
    assert repr(Marker("TIME", 5)) == "TIME(5)"
