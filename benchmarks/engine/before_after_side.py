"""One checkout at work for `before_after.py`: runs queries as they come, one line each, with the `springtide` of its own sources.

It says only what every checkout understands: the public names, and what `metrics()` has always had.
"""

import itertools
import json
import shutil
import statistics
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

import springtide as st

SMALL = 100
"""Rows of an epoch that is as short as can be."""
WARM_UP = 15
"""Such epochs that do not count."""
STEADY_AFTER = 5_000_000
"""Rows, of heavy callers: then windows of an hour are full."""
PATTERN = 5

Answer = dict[str, Any]


def main(folder: Path) -> None:
    """Answer until the input ends."""
    spark = st.spark_session("local[2,4]", spark_driver_memory="2g", spark_sql_shuffle_partitions="2")
    for number, line in enumerate(sys.stdin):
        task, own = json.loads(line), folder / str(number)
        print(json.dumps(QUERIES[task["query"]](spark, own, task)), flush=True)
        shutil.rmtree(own, ignore_errors=True)


def floor(spark: Any, folder: Path, task: dict[str, Any]) -> Answer:
    """Run epochs with a hundred rows each: epochs per second, by the median."""
    begin, count = datetime(2024, 1, 1, tzinfo=UTC), task["epochs"] * SMALL
    rows = pl.DataFrame(
        {
            "key": [f"k{i % 17}" for i in range(count)],
            "x": range(count),
            "ts": [begin + timedelta(milliseconds=20 * i) for i in range(count)],
        }
    )
    events = st.source("events", st.memory(rows.cast({"ts": st.TIME})), ts="ts")
    window = st.sliding("10s", every="1s")
    totals = events.aggregate(by="key", window=window, n=st.count(), total=st.sum("x"), name="totals")
    epochs = _run(spark, totals, folder, SMALL)
    took = [b["at"] - a["at"] for a, b in itertools.pairwise(epochs)]
    counted = took[min(WARM_UP, len(took) // 2) :]
    return {"speed": 1 / statistics.median(counted), "unit": "epochs/s", "rows": _digest(folder)}


def heavy_callers(spark: Any, folder: Path, task: dict[str, Any]) -> Answer:
    """Average the calls of each caller over an hour, every minute: rows per second, by the median of epochs with full windows."""
    calls = st.source("calls", st.parquet(Path(task["data"])), ts="ts")
    windows = calls.map(duration=pl.col("end") - pl.col("start")).aggregate(
        by="src", window=st.sliding("1h", every="1m"), n=st.count(), avg=st.mean("duration"), name="windows"
    )
    epochs, rates, done = _run(spark, windows, folder, task["rows_per_epoch"]), [], 0
    for before, epoch in itertools.pairwise(epochs):
        done += before["rows"]
        rates.append((done, epoch["rows"] / (epoch["at"] - before["at"])))
    steady = [rate for done, rate in rates if done >= STEADY_AFTER and rate] or [rate for _, rate in rates if rate]
    return {"speed": statistics.median(steady), "unit": "rows/s", "rows": _digest(folder)}


def clickstream(spark: Any, folder: Path, task: dict[str, Any]) -> Answer:
    """Rank the runs of five pages of each minute: events per second, of all epochs after the first."""
    clicks = st.source("clicks", st.parquet(Path(task["data"])), ts="ts")
    patterns = (
        clicks.map(page=pl.col("page").str.to_lowercase().str.strip_suffix(".html"))
        .filter(~pl.col("page").str.ends_with(".png"))
        .aggregate(by="session", window=st.last_n(PATTERN), pattern=st.collect("page"), name="last")
        .map(pattern=pl.col("pattern").list.join(" > "))
    )
    top = patterns.top_k(20, "pattern", window=st.tumbling("1m"), name="top")
    first, *epochs = _run(spark, top, folder, task["rows_per_epoch"])
    speed = sum(e["rows"] for e in epochs) / (epochs[-1]["at"] - first["at"])
    return {"speed": speed, "unit": "events/s", "rows": _digest(folder)}


QUERIES: dict[str, Callable[[Any, Path, dict[str, Any]], Answer]] = {
    "epoch-floor": floor,
    "heavy-callers": heavy_callers,
    "clickstream": clickstream,
}


def _run(spark: Any, stream: Any, folder: Path, rows_per_epoch: int) -> list[dict[str, Any]]:
    """Run a query to its end; return what was measured of its epochs."""
    query = st.Query("compared", stream.to(st.parquet_sink(folder / "out")))
    run = query.start(spark, checkpoint=folder / "checkpoint", instances=2, rows_per_epoch=rows_per_epoch)
    run.wait()
    found: list[dict[str, Any]] = run.metrics()
    return found


def _digest(folder: Path) -> str:
    """Return how many rows came out, and a sum of their hashes: the same rows in another order have the same."""
    rows = pl.read_parquet(folder / "out" / "*.parquet")
    return f"{rows.height} rows, {int(rows.select(sorted(rows.columns)).hash_rows().sum())}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
