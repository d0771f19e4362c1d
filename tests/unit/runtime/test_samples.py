"""Samples of rows that did not come in: in the history, with the reason."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

import springtide as st
from springtide.runtime import inprocess
from springtide.runtime.engine import Options
from springtide.state.history import History

BEGIN = datetime(2024, 5, 1, tzinfo=UTC)


def test_late_and_rejected_rows_are_sampled(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"k": "a", "n": i, "ts": BEGIN + timedelta(seconds=i)} for i in range(20)]
    rows.insert(10, {"k": "late", "n": 1, "ts": BEGIN})
    rows.insert(15, {"k": "no time", "n": 1, "ts": None})
    source = st.source(
        "x", st.memory(pl.DataFrame(rows, schema={"k": pl.String, "n": pl.Int64, "ts": st.TIME})), ts="ts"
    )
    counts = source.aggregate(by="k", window=st.tumbling("5s"), n=st.count(), name="counts")
    inprocess.run(st.Query("q", counts.to(st.memory_sink())).plan(), tmp_path / "ckpt", Options(rows_per_epoch=1000))
    samples = [row for record in History(tmp_path / "ckpt").read("refused") for row in record["rows"]]
    assert [(s["source"], s["outcome"]) for s in samples] == [("x", "late"), ("x", "rejected")]
    assert samples[0]["reason"].startswith("its time is 2024-05-01 00:00:00, and the physical stream ")
    assert '"late"' in samples[0]["row"]
    assert samples[1]["reason"] == "the time 'ts' is null"


def test_a_sum_that_does_not_fit_is_sampled(tmp_path: Path) -> None:
    rows = [{"k": "a", "n": 2**62, "ts": BEGIN + timedelta(seconds=i)} for i in range(4)]
    source = st.source(
        "x", st.memory(pl.DataFrame(rows, schema={"k": pl.String, "n": pl.Int64, "ts": st.TIME})), ts="ts"
    )
    sums = source.aggregate(by="k", window=st.tumbling("1h"), total=st.sum("n"), name="sums")
    inprocess.run(st.Query("q", sums.to(st.memory_sink())).plan(), tmp_path / "ckpt", Options())
    (record,) = History(tmp_path / "ckpt").read("refused")
    (sample,) = record["rows"]
    assert (sample["source"], sample["outcome"]) == ("sums", "rejected")
    assert "does not fit i64" in sample["reason"]
    assert '"k":"a"' in sample["row"]


def test_without_such_rows_nothing_is_written(tmp_path: Path) -> None:
    rows = [{"k": "a", "n": i, "ts": BEGIN + timedelta(seconds=i)} for i in range(4)]
    source = st.source(
        "x", st.memory(pl.DataFrame(rows, schema={"k": pl.String, "n": pl.Int64, "ts": st.TIME})), ts="ts"
    )
    inprocess.run(st.Query("q", source.to(st.memory_sink())).plan(), tmp_path / "ckpt", Options())
    assert History(tmp_path / "ckpt").read("refused") == []
