"""Table I of the StreamCloud paper: what being elastic costs when nothing has to change.

Heavy callers over the same files at the same degree, with and without a manager that watches every epoch; turn about, so that a busy minute of
the machine hits both. The manager's limits are the degree itself, so it measures, reports and decides, and changes nothing.
"""

import statistics
from pathlib import Path
from typing import Any

import polars as pl

import springtide as st
from benchmarks.cdr.data import ROWS_PER_FILE, make
from benchmarks.measure import DATA, result, say, scratch, session, summary

PAIRS = 12


def main() -> None:
    data = make(DATA / "cdr")
    spark = session()
    rates: dict[str, list[float]] = {"static": [], "elastic": []}
    with scratch() as folder:
        _rate(spark, data, folder / "warm-up", None)
        for i in range(PAIRS):
            for name in ("static", "elastic") if i % 2 == 0 else ("elastic", "static"):
                elastic = st.Elastic(min=2, max=2, every=0.5, grace=0.5) if name == "elastic" else None
                rates[name].append(_rate(spark, data, folder / f"{name}{i}", elastic))
            say(f"static {rates['static'][-1] / 1e6:.2f}, elastic {rates['elastic'][-1] / 1e6:.2f} M rows/s")
    pairs = [e / s for e, s in zip(rates["elastic"], rates["static"], strict=True)]
    result(
        "elastic-overhead",
        ratio=statistics.median(pairs),
        pairs=summary(pairs),
        static=summary(rates["static"]),
        elastic=summary(rates["elastic"]),
    )


def _rate(spark: Any, data: Path, folder: Path, elastic: st.Elastic | None) -> float:
    calls = st.source("calls", st.parquet(data), ts="ts").map(duration=pl.col("end") - pl.col("start"))
    windows = calls.aggregate(
        by="src", window=st.sliding("1h", every="1m"), n=st.count(), avg=st.mean("duration"), name="windows"
    )
    query = st.Query("overhead", windows.to(st.parquet_sink(folder / "out")))
    run = query.start(
        spark, checkpoint=folder / "checkpoint", instances=2, rows_per_epoch=ROWS_PER_FILE, elastic=elastic
    )
    run.wait()
    metrics = run.metrics()
    rows = sum(m["rows"] for m in metrics[1:])
    return rows / (metrics[-1]["at"] - metrics[0]["at"])
