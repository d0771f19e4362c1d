"""The figures of a run as Prometheus reads them: over HTTP, from this machine."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from prometheus_client.parser import text_string_to_metric_families

import springtide as st
from springtide.query.errors import SpringtideError
from springtide.runtime.engine import Engine, Options
from springtide.runtime.exporting import Exporter
from springtide.runtime.inprocess import run
from springtide.testing import PAUSE, at
from tests.machine import free_port

SECRET = "hunter2"


def read(exporter: Exporter) -> tuple[str, dict[tuple[str, frozenset[tuple[str, str]]], float]]:
    """The text, and each figure by its name and its labels but `query`, which all have."""
    with urllib.request.urlopen(exporter.url) as answer:
        text = answer.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("query") == "counting"
            found[sample.name.removeprefix("springtide_"), frozenset(labels.items())] = sample.value
    return text, found


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    made = Exporter("counting", 0)
    yield made
    made.close()


def run_some(exporter: Exporter, folder: Path) -> Engine:
    """Six epochs of five rows; `counts` is scaled from 2 to 3 behind the third."""
    rows = [r for i in range(6) for r in [*({"k": f"k{j}", "ts": at(f"{i * 10 + j}s")} for j in range(5)), PAUSE]]
    source = st.source("rows", st.memory(rows, schema={"k": pl.String, "ts": st.TIME}), ts="ts")
    counts = source.aggregate(by="k", window=st.tumbling("10s"), n=st.count(), name="counts")
    query = st.Query("counting", counts.to(st.parquet_sink(folder / SECRET), name="out"))

    def between(engine: Engine) -> bool:
        if engine.snapshot is not None:
            exporter.observe(engine.manifest, engine.snapshot)
        if engine.manifest.epoch == 2:
            engine.scale("counts", 3)
        return True

    elastic = st.Elastic(policy=st.Manual(), balancing=None)
    engine = run(query.plan(buckets=16), folder / "ckpt", Options(2, elastic=elastic), between=between)
    assert engine.snapshot is not None
    exporter.observe(engine.manifest, engine.snapshot)
    return engine


def test_figures(exporter: Exporter, tmp_path: Path) -> None:
    engine = run_some(exporter, tmp_path)
    text, found = read(exporter)

    def figure(name: str, **labels: str) -> float:
        return found[name, frozenset(labels.items())]

    assert figure("epoch") == engine.manifest.epoch == 5
    assert figure("epoch_seconds_count") == 6
    assert figure("rows_read_total", source="rows", outcome="accepted") == 30
    assert figure("rows_read_total", source="rows", outcome="late") == 0
    assert figure("backlog_rows", source="rows") == 0
    assert figure("arriving_rows_per_second", source="rows") == 0  # all of it was there from the beginning
    assert figure("instances", subquery="counts") == 3
    assert figure("instances", subquery="rows") == 2
    assert figure("utilisation", subquery="counts", of="highest") >= figure("utilisation", subquery="counts", of="mean")
    assert figure("subquery_rows_in_total", subquery="rows") == 30
    assert figure("subquery_busy_seconds_total", subquery="counts") > 0
    assert figure("decisions_total", subquery="counts") == 1
    assert figure("decisions_total", subquery="rows") == 0
    assert figure("elasticity_paused") == 0
    assert figure("latency_seconds", quantile="0.95") >= figure("latency_seconds", quantile="0.5") > 0
    assert figure("state_bytes", subquery="counts") == engine.snapshot.subqueries["counts"].state_bytes  # type: ignore[union-attr]
    assert SECRET not in text
    assert str(tmp_path) not in text


def test_nothing_before_the_first_epoch(exporter: Exporter) -> None:
    assert read(exporter) == ("", {})


def test_only_this_machine_can_ask(exporter: Exporter) -> None:
    assert exporter.url.startswith("http://127.0.0.1:")


def test_port_is_taken(exporter: Exporter) -> None:
    port = int(exporter.url.split(":")[2].split("/")[0])
    with pytest.raises(SpringtideError, match=f"metrics cannot be served on 127.0.0.1:{port}: .*; give another port"):
        Exporter("other", port)
    with pytest.raises(SpringtideError, match="give another port"):
        Exporter("other", 99_999)


def test_the_port_is_free_again(tmp_path: Path) -> None:
    port = free_port()
    for _ in range(2):
        Exporter("counting", port).close()
