"""Growth: the same input per epoch at 10⁵, 10⁶ and 10⁷ rows of state, in epochs that close no window."""

import itertools
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

import springtide as st
from benchmarks.measure import memory, result, say, scratch, session, summary

SIZES = (10**5, 10**6, 10**7)
ROWS = 20_000
EPOCHS = 40
_DAY = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp() * 1e6)


def main() -> None:
    spark = session()
    seconds: dict[int, list[float]] = {}
    resident: dict[int, float] = {}
    _measure(spark, 10**5)  # warm-up
    for size in SIZES:
        seconds[size], resident[size] = _measure(spark, size)
        say(
            f"{size:>10,} rows of state: epoch {statistics.median(seconds[size]) * 1000:.0f} ms, {resident[size] / 2**20:.0f} MiB"
        )
    medians = [statistics.median(s) for s in seconds.values()]
    result(
        "growth",
        time_ratio=max(medians) / min(medians),
        rss_ratio=max(resident.values()) / min(resident.values()),
        epoch_s={str(n): summary(s) for n, s in seconds.items()},
        resident_mb={str(n): round(r / 2**20) for n, r in resident.items()},
    )


def _measure(spark: Any, size: int) -> tuple[list[float], float]:
    with scratch() as folder:
        files = folder / "in"
        files.mkdir()
        _rows(0, size, 0).write_parquet(files / "0000.parquet", row_group_size=500_000)
        run = _start(spark, folder, rows_per_epoch=4_000_000)
        _until(run, size)
        run.stop()
        for n in range(EPOCHS):
            _rows((n * ROWS) % size, ROWS, n + 1).write_parquet(files / f"{n + 1:04d}.parquet")
        run = _start(spark, folder, rows_per_epoch=ROWS)
        _until(run, size + EPOCHS * ROWS)
        stored = run.status()["subqueries"]["totals"]["state_rows"]
        assert stored >= size, f"only {stored} rows of state"
        at = [m["at"] for m in run.metrics()]
        used = memory()
        run.stop()
    return [b - a for a, b in itertools.pairwise(at)][10:], used


def _rows(first: int, count: int, second: int) -> pl.DataFrame:
    numbers = pl.int_range(first, first + count, eager=True)
    ts = pl.Series([_DAY + second * 1_000_000]).cast(st.TIME)
    return pl.DataFrame({"key": numbers, "x": numbers}).with_columns(pl.lit(ts[0]).cast(st.TIME).alias("ts"))


def _start(spark: Any, folder: Path, rows_per_epoch: int) -> Any:
    events = st.source("events", st.parquet(folder / "in", follow=True), ts="ts")
    totals = events.aggregate(by="key", window=st.tumbling("1d"), n=st.count(), total=st.sum("x"), name="totals")
    query = st.Query("growth", totals.to(st.parquet_sink(folder / "out")))
    return query.start(spark, checkpoint=folder / "checkpoint", instances=2, rows_per_epoch=rows_per_epoch)


def _until(run: Any, rows: int) -> None:
    while run.active and run.status()["sources"].get("events", {"accepted": 0})["accepted"] < rows:
        time.sleep(0.05)
