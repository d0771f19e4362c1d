"""What `explain` says of exchanges is what the runtime does: queries are run, and what is sent is looked at."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest

import springtide as st
from springtide.compiler.plan import Plan
from springtide.exchange.blob import Blob
from springtide.exchange.order import PLACES
from springtide.runtime import inprocess, tasks
from springtide.runtime.engine import Options
from springtide.runtime.epoch import Epoch
from springtide.runtime.tasks import Item, source_task

TIME = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = [{"x": 1, "tags": ["a", "b"], "ts": TIME}] * 5
"""Equal ones: combined they are one row, and one of the instances gets several otherwise."""
SCHEMA = {"x": pl.Int64, "tags": pl.List(pl.String), "ts": st.TIME}


class Nothing(st.BucketOperator[dict[str, int]]):
    output: ClassVar[Mapping[str, Any]] = {"n": pl.Int64, "ts": st.TIME}

    def init(self) -> dict[str, int]:
        return {}

    def process(self, state: dict[str, int], tuples: pl.DataFrame, ready_ts: int) -> None:
        return None


CALLS = st.source("s", st.memory(ROWS, schema=SCHEMA), ts="ts")


SQUARES = st.user_aggregate(
    init={"s": 0}, add={"s": (pl.col("x") ** 2).sum()}, merge={"s": pl.col("s").sum()}, finish=pl.col("s")
)
MINUTE, SESSION, LAST = st.tumbling("1m"), st.session("1m"), st.last_n(2)
STREAMS = {
    "count": CALLS.aggregate(by="x", window=MINUTE, n=st.count(), name="q"),
    "sliding": CALLS.aggregate(by="x", window=st.sliding("1h", every="7m"), n=st.mean("x"), name="q"),
    "no key": CALLS.aggregate(window=MINUTE, n=st.sum("x"), name="q"),
    "min": CALLS.aggregate(by="x", window=MINUTE, n=st.min("x"), name="q"),
    "first": CALLS.aggregate(by="x", window=MINUTE, n=st.first("x"), name="q"),
    "collect": CALLS.aggregate(by="x", window=MINUTE, n=st.count(), all=st.collect("x"), name="q"),
    "quantile": CALLS.aggregate(by="x", window=MINUTE, n=st.approx_quantile("x", 0.5), name="q"),
    "own": CALLS.aggregate(by="x", window=MINUTE, n=SQUARES, name="q"),
    "session": CALLS.aggregate(by="x", window=SESSION, n=st.count(), name="q"),
    "session, collect": CALLS.aggregate(by="x", window=SESSION, n=st.collect("x"), name="q"),
    "last n": CALLS.aggregate(by="x", window=LAST, n=st.count(), name="q"),
    "top": CALLS.top_k(3, "x", window=MINUTE, name="q"),
    "top, sketch": CALLS.top_k(3, "x", window=MINUTE, sketch=64, name="q"),
    "join": CALLS.join(CALLS, on="x", within="1m", name="q"),
    "join, last n": CALLS.join(CALLS, on="x", within=st.last_n(2), name="q"),
    "theta": CALLS.theta_join(CALLS, pl.col("x") <= pl.col("x_right"), within="1m", name="q"),
    "grid": CALLS.theta_join(CALLS, pl.col("x") <= pl.col("x_right"), within="1m", routing="grid", name="q"),
    "operator": CALLS.operator(Nothing(), keys="x", name="q"),
    "operator, many": CALLS.operator(Nothing(), keys="tags", name="q"),
}


def said(text: str) -> list[dict[str, str]]:
    """The table of exchanges in an explanation: for each exchange, column → what it says."""
    lines = text.partition("\nexchange ")[2].splitlines()
    lines[0] = "exchange " + lines[0]
    starts = [lines[0].index(word) for word in lines[0].split()] + [None]
    cells = [[line[a:b].strip() for a, b in itertools.pairwise(starts)] for line in lines]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[1:]]


def run(query: st.Query, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Plan, dict[int, list[Blob]]]:
    """Run a query, and catch what the tasks of its sources send."""
    sent: dict[int, list[Blob]] = {}

    def caught(plan: Plan, epoch: Epoch, partition: int) -> Iterator[Item]:
        for item in source_task(plan, epoch, partition):
            if item[0] > 0:
                blob = Blob.decode(item[2])
                sent.setdefault(blob.exchange, []).append(blob)
            yield item

    monkeypatch.setattr(tasks, "source_task", caught)
    plan = query.plan(buckets=4)
    inprocess.run(plan, folder, Options(2))
    return plan, sent


@pytest.mark.parametrize("name", STREAMS)
def test_exchanges(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = st.Query("q", STREAMS[name].to(st.memory_sink()))
    plan, sent = run(query, tmp_path / "checkpoint", monkeypatch)
    rows = said(query.explain())
    assert len(rows) == len(plan.exchanges)
    for number, blobs in sent.items():
        tuples = [blob.tuples for blob in blobs if blob.tuples is not None]
        if not tuples:  # a stream that is joined with itself is sent once
            continue
        found = {
            "combine": "yes" if max(frame.height for frame in tuples) == 1 else "no",
            "order": "total" if any(_has_places(t) for t in tuples) else "any",
        }
        assert found == {key: rows[number][key] for key in found}


def _has_places(frame: pl.DataFrame) -> bool:
    """Whether rows carry their place in the total order, in columns of their own or within partial results."""
    return any(place in name or place in str(dtype) for name, dtype in frame.schema.items() for place in PLACES)
