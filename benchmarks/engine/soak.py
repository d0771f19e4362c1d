"""Soak: 500 epochs with windows that close all the time. Do time, memory or files per epoch grow?"""

import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import springtide as st
from benchmarks.measure import memory, result, say, scratch, session, summary

EPOCHS = 500
ROWS = 2_000
SKIP = 150
"""Epochs before everything that fills up once (caches, kept manifests, the window) is full."""


def main(epochs: str = str(EPOCHS)) -> None:
    wanted = int(epochs)
    spark = session(spark_driver_memory="512m")  # a heap that fills up early: what grows after that is a leak
    with scratch() as folder:
        run = _start(spark, folder, wanted)
        samples = _watch(run, folder / "checkpoint")
        run.wait()
        at = [m["at"] for m in run.metrics()]
    seconds = np.diff(at)[SKIP:]
    resident = [m for e, m, _ in samples if e >= SKIP]
    files = [f for e, _, f in samples if e >= SKIP]
    slopes = {"time": _slope(seconds), "memory": _slope(np.array(resident)), "files": _slope(np.array(files))}
    result(
        "soak",
        slope_pct=max(slopes.values()),
        slopes_pct={k: round(v, 2) for k, v in slopes.items()},
        epochs=len(at),
        epoch_s=summary(list(seconds)),
        files=summary(files),
        resident_mb=summary([m / 2**20 for m in resident]),
    )


def _slope(values: np.ndarray) -> float:
    """Give the growth over the whole run, in percent of the mean: a robust line (Theil-Sen) through the samples."""
    if len(values) > 400:
        values = values[: len(values) // 4 * 4].reshape(-1, 4).mean(axis=1)
    x = np.arange(len(values))
    i, j = np.triu_indices(len(values), 1)
    line = np.median((values[j] - values[i]) / (x[j] - x[i]))
    return float(line * len(values) / values.mean() * 100)


def _start(spark: Any, folder: Path, epochs: int) -> Any:
    count = epochs * ROWS
    begin = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp() * 1e6)
    step = timedelta(seconds=1) // timedelta(microseconds=1) // 200  # an epoch is ten seconds of event time
    rows = pl.DataFrame({"i": pl.int_range(count, eager=True)}).select(
        (pl.col("i").hash(1) % 1000).alias("key"),
        pl.col("i").alias("x"),
        (pl.col("i") * step + begin).cast(st.TIME).alias("ts"),
    )
    files = folder / "in"
    files.mkdir()
    rows.write_parquet(files / "0000.parquet", row_group_size=ROWS)
    events = st.source("events", st.parquet(files), ts="ts")
    totals = events.aggregate(
        by="key", window=st.sliding("5m", every="1m"), n=st.count(), total=st.sum("x"), name="totals"
    )
    query = st.Query("soak", totals.to(st.parquet_sink(folder / "out")))
    return query.start(spark, checkpoint=folder / "checkpoint", instances=2, rows_per_epoch=ROWS)


def _watch(run: Any, checkpoint: Path) -> list[tuple[int, int, int]]:
    samples: list[tuple[int, int, int]] = []

    def look() -> None:
        while run.active:
            epoch = run.status()["epoch"]
            files = sum(1 for f in checkpoint.rglob("*") if f.is_file() and "spark" not in f.parts)
            samples.append((epoch, memory(), files))
            if len(samples) % 20 == 0:
                say(f"epoch {epoch}: {files} files, {samples[-1][1] / 2**20:.0f} MiB")
            time.sleep(0.5)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    run.wait()
    watcher.join(2)
    return samples
