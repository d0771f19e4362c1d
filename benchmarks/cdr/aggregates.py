"""Windowed aggregates over call records: Springtide beside Spark's own operator, same files, same rows out.

Both sides read Parquet files and write Parquet files, two cores each. Spark's own operator runs with the RocksDB state store and change
logs. Its batch size was compared: for `district` 10 files are the best of 1, 2, 4, 10 (770 k, 1.32 M, 1.73 M, 2.10 M rows/s); for `heavy-callers` 2, 4 and 10 are
alike and 1 is slower (62, 63, 63 and 38 k rows/s), and 2 are used. Rates are those of the steady state: epochs (or micro-batches) after the first full window,
ours with the last epoch, which flushes every open window. Spark's side of `heavy-callers` runs on the first 16 files.
"""

import statistics
from pathlib import Path
from typing import Any

import polars as pl
from pyspark.sql import functions as sf

import springtide as st
from benchmarks.cdr.data import ROWS_PER_FILE, make
from benchmarks.measure import DATA, result, say, scratch, session, summary

OURS = 3
"""Our runs before and after each run of Spark's own operator."""


def heavy_callers() -> None:
    _compare(
        "heavy-callers", size=3600, every=60, key="src", spark_files=16, spark_per_batch=2, steady_after=10, repeats=1
    )


def district() -> None:
    _compare(
        "district", size=60, every=10, key="district", spark_files=20, spark_per_batch=10, steady_after=4, repeats=3
    )


def _compare(
    name: str,
    *,
    size: int,
    every: int,
    key: str,
    spark_files: int,
    spark_per_batch: int,
    steady_after: int,
    repeats: int,
) -> None:
    data = make(DATA / "cdr")
    spark = session()
    ours: list[float] = []
    theirs: list[float] = []
    with scratch() as folder:
        _springtide(spark, data, folder / "warm-up", size, every, key, steady_after)
        for i in range(repeats):  # turn about, so that a busy minute of the machine hits both
            for half in ("before", "after"):
                for j in range(OURS):
                    rates = _springtide(spark, data, folder / f"{half}{i}{j}", size, every, key, steady_after)
                    say(f"springtide: {[f'{r / 1e6:.2f} M rows/s' for r in rates]}")
                    ours += rates
                if half == "before":
                    own = folder / f"spark{i}"
                    rates = _spark(spark, data, own, size, every, key, spark_files, spark_per_batch, steady_after)
                    say(f"spark: {[f'{r / 1e3:.1f} k rows/s' for r in rates]}")
                    theirs += rates
        rows = _same_rows(folder / "warm-up" / "out", folder / "spark0" / "out", key)
    ratio = statistics.median(ours) / statistics.median(theirs)
    result(
        name,
        ratio_vs_spark=ratio,
        rows_per_s=statistics.median(ours),
        spark_rows_per_s=statistics.median(theirs),
        springtide=summary(ours),
        spark=summary(theirs),
        rows_compared=rows,
        spark_prefix_rows=spark_files * ROWS_PER_FILE,
        spark_files_per_batch=spark_per_batch,
    )


def _springtide(
    spark: Any, data: Path, folder: Path, size: int, every: int, key: str, steady_after: int
) -> list[float]:
    calls = st.source("calls", st.parquet(data), ts="ts")
    windows = calls.map(duration=pl.col("end") - pl.col("start")).aggregate(
        by=key, window=st.sliding(f"{size}s", every=f"{every}s"), n=st.count(), avg=st.mean("duration"), name="windows"
    )
    query = st.Query("cdr", windows.to(st.parquet_sink(folder / "out")))
    run = query.start(spark, checkpoint=folder / "checkpoint", instances=2, rows_per_epoch=4 * ROWS_PER_FILE)
    run.wait()
    epochs = run.metrics()
    rates, done = [], 0
    for before, epoch in zip([None, *epochs], epochs, strict=False):
        if before is not None and done >= steady_after * ROWS_PER_FILE:
            rates.append(epoch["rows"] / (epoch["at"] - before["at"]))
        done += epoch["rows"]
    return rates


def _spark(
    spark: Any, data: Path, folder: Path, size: int, every: int, key: str, files: int, per_batch: int, steady_after: int
) -> list[float]:
    prefix = folder / "files"
    prefix.mkdir(parents=True)
    for file in sorted(data.glob("*.parquet"))[:files]:
        (prefix / file.name).symlink_to(file)
    store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", store)
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    stream = spark.readStream.schema(spark.read.parquet(str(data)).schema).option("maxFilesPerTrigger", per_batch)
    windows = spark_windows(stream.parquet(str(prefix)), size, every, key)
    writer = windows.writeStream.outputMode("append").format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    rates, done = [], 0
    for progress in query.recentProgress:
        rows = progress["numInputRows"]
        if rows and done >= steady_after * ROWS_PER_FILE:
            rates.append(rows / progress["durationMs"]["triggerExecution"] * 1000)
        done += rows
    return rates


def spark_windows(calls: Any, size: int, every: int, key: str) -> Any:
    """Write the query for Spark's own windowed aggregate."""
    return (
        calls.withWatermark("ts", "0 seconds")
        .withColumn("duration", sf.col("end") - sf.col("start"))
        .groupBy(sf.window("ts", f"{size} seconds", f"{every} seconds"), key)
        .agg(sf.count("*").alias("n"), sf.avg("duration").alias("avg"))
        .select(key, sf.col("window.start").alias("window_start"), sf.col("window.end").alias("window_end"), "n", "avg")
    )


def _same_rows(ours: Path, theirs: Path, key: str) -> int:
    """Compare every window that Spark gave with ours; it keeps the last ones, which are open when its input stops."""
    spark_rows = pl.concat([pl.read_parquet(f) for f in theirs.glob("*.parquet")]).with_columns(
        pl.col("window_start", "window_end").cast(pl.Datetime("us", "UTC"))
    )
    our_rows = pl.read_parquet(ours / "*.parquet").filter(pl.col("window_end") <= spark_rows["window_end"].max())
    keys = [key, "window_start", "window_end"]
    both = our_rows.join(spark_rows, on=keys, how="full", suffix="_spark")
    wrong = both.filter(
        pl.col("n").ne_missing(pl.col("n_spark"))
        | ((pl.col("avg") - pl.col("avg_spark")).abs() > 1e-9 * pl.col("avg").abs())
    )
    if wrong.height:
        raise AssertionError(f"{wrong.height} of {both.height} rows differ:\n{wrong.head()}")
    say(f"{both.height} rows are the same on both sides")
    return both.height
