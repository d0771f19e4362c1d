"""Spans of epochs, as OpenTelemetry's in-memory exporter gets them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.query.errors import SpringtideError
from springtide.runtime.engine import Options
from springtide.runtime.inprocess import run
from springtide.runtime.tracing import Spans, Traces, spans_of
from springtide.testing import at


def query(sink: Any) -> st.Query:
    rows = [{"k": f"k{i % 5}", "ts": at(f"{i}s")} for i in range(40)]
    source = st.source("rows", st.memory(rows, schema={"k": pl.String, "ts": st.TIME}), ts="ts")
    counts = source.aggregate(by="k", window=st.tumbling("10s"), n=st.count(), name="counts")
    return st.Query("counting", counts.to(sink, name="out"))


@pytest.fixture
def traced() -> tuple[Traces, Any]:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    return Traces("counting", provider), kept


def test_an_epoch_and_its_stages(traced: tuple[Traces, Any], tmp_path: Path) -> None:
    spans, kept = traced
    engine = run(query(st.memory_sink()).plan(), tmp_path / "ckpt", Options(2, rows_per_epoch=10, spans=spans))
    found = kept.get_finished_spans()
    epochs = [s for s in found if s.name == "springtide epoch"]
    assert [s.attributes["springtide.epoch"] for s in epochs] == list(range(engine.manifest.epoch + 1))
    for epoch in epochs:
        assert epoch.attributes["springtide.query"] == "counting"
        children = [s for s in found if s.parent and s.parent.span_id == epoch.context.span_id]
        assert [s.name for s in children] == [
            "springtide run",
            "springtide commit",
            "springtide publish",
            "springtide settle",
        ]
        for child in children:
            assert epoch.start_time <= child.start_time <= child.end_time <= epoch.end_time
        stages = [s for s in found if s.parent and s.parent.span_id == children[0].context.span_id]
        assert [s.attributes["springtide.subquery"] for s in stages] == ["rows", "counts"]
        assert stages[1].attributes["springtide.tasks"] == 2
        assert all(s.end_time >= s.start_time for s in stages)
    read = [s.attributes["springtide.rows_in"] for s in found if s.name == "springtide rows"]
    assert sum(read) == 40


def test_an_error_is_told_by_its_kind_alone(traced: tuple[Traces, Any], tmp_path: Path) -> None:
    def fail(rows: pl.DataFrame, epoch: int) -> None:
        raise RuntimeError("hunter2")

    spans, kept = traced
    with pytest.raises(SpringtideError):
        run(query(st.callback(fail)).plan(), tmp_path / "ckpt", Options(1, spans=spans))
    (publish,) = [s for s in kept.get_finished_spans() if s.name == "springtide publish"]
    assert publish.status.status_code.name == "ERROR"
    assert publish.attributes["error.type"]
    assert "hunter2" not in "".join(s.to_json() for s in kept.get_finished_spans())


def test_nothing_is_told_and_nothing_imported_without_it() -> None:
    assert type(spans_of("counting", False)) is Spans


def test_without_opentelemetry_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(SpringtideError, match=r"springtide\[traces\]"):
        spans_of("counting", True)
