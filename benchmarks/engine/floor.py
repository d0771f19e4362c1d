"""The floor: an epoch with 100 rows and one stateful subquery at 2 instances, beside a bare two-stage Python job on the same session."""

import itertools
import statistics
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

import springtide as st
from benchmarks.measure import result, say, scratch, session, summary

EPOCHS = 60
ROWS = 100
WARM_UP = 15
ROUNDS = 3


def main() -> None:
    spark = session()
    epochs: list[float] = []
    bare: list[float] = []
    for _ in range(ROUNDS):  # turn about, so that a busy minute of the machine hits both
        bare += _bare(spark.sparkContext)
        epochs += _epochs(spark)
        say(f"epoch {statistics.median(epochs) * 1000:.0f} ms, bare job {statistics.median(bare) * 1000:.0f} ms")
    result(
        "epoch-floor",
        floor_ms=statistics.median(epochs) * 1000,
        ratio_vs_bare=statistics.median(epochs) / statistics.median(bare),
        epoch_s=summary(epochs),
        bare_s=summary(bare),
    )


def _epochs(spark: Any) -> list[float]:
    begin = datetime(2024, 1, 1, tzinfo=UTC)
    rows = pl.DataFrame(
        {
            "key": [f"k{i % 17}" for i in range(EPOCHS * ROWS)],
            "x": range(EPOCHS * ROWS),
            "ts": [begin + timedelta(milliseconds=20 * i) for i in range(EPOCHS * ROWS)],
        }
    )
    events = st.source("events", st.memory(rows.cast({"ts": st.TIME})), ts="ts")
    totals = events.aggregate(
        by="key", window=st.sliding("10s", every="1s"), n=st.count(), total=st.sum("x"), name="totals"
    )
    with scratch() as folder:
        query = st.Query("floor", totals.to(st.parquet_sink(folder / "out")))
        run = query.start(spark, checkpoint=folder / "checkpoint", instances=2, rows_per_epoch=ROWS)
        run.wait()
        at = [m["at"] for m in run.metrics()]
    return [b - a for a, b in itertools.pairwise(at)][WARM_UP:]


def _bare(context: Any) -> list[float]:
    """Two stages of Python tasks with a shuffle between them, and nothing to do."""
    times = []
    for _ in range(EPOCHS):
        started = time.time()
        first = context.parallelize(range(2), 2).mapPartitionsWithIndex(
            lambda _, it: [(k, b"") for _ in it for k in (0, 1)]
        )
        first.partitionBy(2, lambda k: k).mapPartitionsWithIndex(lambda _, it: [len(list(it))]).collect()
        times.append(time.time() - started)
    return times[WARM_UP:]
