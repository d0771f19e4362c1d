"""`restart`: the driver is killed with 10⁷ rows of state; how long until a new process has committed its first epoch? Beside it, Spark's own operator.

Counts and sums by key and day on both sides, Spark's with its default state store and with RocksDB (the better one counts), in update
mode and without a watermark, so that a batch touches no more state than it must; two partitions or instances. A process fills the state and
gets SIGKILL, with its JVM, while it waits for more. For each start its checkpoint is put back as the killed process left it; another process starts Spark, runs a small job in the JVM and one
in Python, and then the query, which finds one file with new rows: seconds are from there until the commit of its first new epoch is on disk.
"""

import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import psutil
from pyspark.sql import functions as sf

import springtide as st
from benchmarks.measure import DATA, ROOT, result, say, session, summary
from springtide.state.checkpoint import Checkpoint

KEYS = 10_000_000
FILES = 5
MORE = 20_000
"""Rows that come after the kill, half of them of new keys."""
_DAY = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp() * 1e6)
_PROVIDERS = "org.apache.spark.sql.execution.streaming.state"
FILLED = "filled"
PARTS = ("checkpoint", "out")
SIDES = {
    "springtide": "",
    "spark-default": f"{_PROVIDERS}.HDFSBackedStateStoreProvider",
    "spark-rocksdb": f"{_PROVIDERS}.RocksDBStateStoreProvider",
}


def main(repeats: str = "3") -> None:
    for side in SIDES:
        _fill(side)
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    for i in range(int(repeats)):
        for side in SIDES:
            _put_back(side)
            last = i == int(repeats) - 1 and side == "springtide"
            found = json.loads(_child("start", side, "and close" if last else "").splitlines()[-1])
            assert found["state"] >= KEYS + MORE // 2, f"{side} has {found['state']} rows of state"
            seconds[side].append(found["seconds"])
            say(f"{side}: {found['seconds']:.2f} s")
            if last:
                _check(_folder(side) / "out")
    for side in SIDES:
        _put_back(side)
    medians = {side: statistics.median(s) for side, s in seconds.items()}
    better = min(medians["spark-default"], medians["spark-rocksdb"])
    result(
        "restart",
        seconds=medians["springtide"],
        spark_s=better,
        ratio=medians["springtide"] / better,
        spread={side: summary(s) for side, s in seconds.items()},
        state_rows=KEYS,
        rows_compared=KEYS + MORE // 2,
    )


def _folder(side: str) -> Path:
    return DATA / f"restart-{KEYS}" / side


def _fill(side: str) -> None:
    """Have a process fill the state, and kill it; what it leaves is kept, for the next time too."""
    folder = _folder(side)
    if (folder / "killed").exists():
        return
    say(f"filling the state of {side}")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "in").mkdir(parents=True)
    for n in range(FILES):
        _rows(n * KEYS // FILES, KEYS // FILES).write_parquet(folder / "in" / f"{n:04d}.parquet")
    _child("fill", side, "")
    (folder / "being killed").mkdir()
    for part in PARTS:
        (folder / part).mkdir(exist_ok=True)
        shutil.move(folder / part, folder / "being killed" / part)
    (folder / "being killed").rename(folder / "killed")


def _put_back(side: str) -> None:
    """Let everything be as it was after the kill, with one file of new rows."""
    folder = _folder(side)
    for part in PARTS:
        shutil.rmtree(folder / part, ignore_errors=True)
        shutil.copytree(folder / "killed" / part, folder / part)
    (folder / "in" / "9999.parquet").unlink(missing_ok=True)
    _more().write_parquet(folder / "in" / "8888.parquet")


def _child(what: str, side: str, more: str) -> str:
    """Run this module in a process of its own; one that fills is killed when it says so."""
    command = [sys.executable, "-m", "benchmarks.recovery.restart", what, side, more]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = ""
        for line in child.stdout:
            said += line
            if line.strip() == FILLED:
                for process in (psutil.Process(child.pid), *psutil.Process(child.pid).children(recursive=True)):
                    process.kill()
    assert child.returncode == (-9 if what == "fill" else 0), f"{what} {side} failed"
    return said


def _rows(first: int, count: int) -> pl.DataFrame:
    number = pl.int_range(first, first + count, dtype=pl.Int64)
    return pl.select(key=number * 7919 % (2 * KEYS), x=number, ts=(number * 1000 + _DAY).cast(st.TIME))


def _more() -> pl.DataFrame:
    """Make the rows that come after the kill: none is late."""
    return _rows(KEYS - MORE // 2, MORE).with_columns(
        (pl.col("ts").to_physical() + MORE * 1000).cast(st.TIME).alias("ts")
    )


def _check(out: Path) -> None:
    """Compare all rows with a plain group-by."""
    everything = pl.concat([_rows(0, KEYS), _more()])
    right = everything.group_by("key").agg(n=pl.len().cast(pl.Int64), total=pl.col("x").sum()).sort("key")
    found = pl.read_parquet(out / "*.parquet", columns=["key", "n", "total"]).sort("key")
    assert right.equals(found.cast(dict(right.schema))), "other rows"
    say(f"{right.height:,} rows are right")


# ── in a process of its own ───────────────────────────────────────────────────────────────────────────────────────────


def child(what: str, side: str, more: str) -> None:
    """Fill the state and wait to be killed, or start again and print how long it took."""
    spark = session(spark_driver_memory="8g")
    spark.range(1000).repartition(2).count()
    spark.sparkContext.parallelize(range(2), 2).map(_imported).collect()
    folder = _folder(side)
    commits = folder / "checkpoint" / ("manifests" if side == "springtide" else "commits")
    before, began = _numbers(commits), time.time()
    rows, state, stop = _springtide(spark, folder) if side == "springtide" else _spark(spark, folder, SIDES[side])
    if what == "fill":
        while rows() < KEYS:
            time.sleep(0.1)
        print(FILLED, flush=True)
        time.sleep(60)
    while not _numbers(commits) - before:
        time.sleep(0.002)
    took = time.time() - began
    while rows() < MORE:
        time.sleep(0.01)
    stored = state()
    if more:  # a row of another day closes the windows of this one
        last = _rows(0, 1).with_columns(pl.lit(_DAY + 2 * 86_400_000_000).cast(st.TIME).alias("ts"))
        last.write_parquet(folder / "in" / "9999.parquet")
        while rows() < KEYS + MORE + 1:
            time.sleep(0.1)
    print(json.dumps({"seconds": took, "state": stored}))
    stop()
    spark.stop()


def _imported(number: int) -> int:
    import polars as pl  # what every task needs

    return pl.Series([number]).sum()


def _numbers(folder: Path) -> set[str]:
    if folder.name == "manifests":  # claims are no commits
        return {str(epoch) for epoch in Checkpoint(folder.parent).epochs()}
    return {f.name for f in folder.iterdir() if f.name.isdigit()} if folder.exists() else set()


Watched = tuple[Callable[[], int], Callable[[], int], Callable[[], None]]
"""Counts the rows that were taken, counts those of the state, stops."""


def _springtide(spark: Any, folder: Path) -> Watched:
    events = st.source("events", st.parquet(folder / "in", follow=True), ts="ts")
    totals = events.aggregate(by="key", window=st.tumbling("1d"), n=st.count(), total=st.sum("x"), name="totals")
    query = st.Query("restart", totals.to(st.parquet_sink(folder / "out")))
    run = query.start(spark, checkpoint=folder / "checkpoint", instances=2)

    def rows() -> int:
        return int(run.status()["sources"].get("events", {"accepted": 0})["accepted"])

    return rows, lambda: int(run.status()["subqueries"]["totals"]["state_rows"]), run.stop


def _spark(spark: Any, folder: Path, provider: str) -> Watched:
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    stream = spark.readStream.schema("key bigint, x bigint, ts timestamp").option("maxFilesPerTrigger", 1)
    days = stream.parquet(str(folder / "in")).groupBy(sf.window("ts", "1 day"), "key")
    totals = days.agg(sf.count("*").alias("n"), sf.sum("x").alias("total"))
    writer = totals.writeStream.outputMode("update").format("noop")
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()

    def rows() -> int:
        if query.exception() is not None:
            raise query.exception()
        return sum(p["numInputRows"] for p in query.recentProgress)

    def state() -> int:
        return max(int(p["stateOperators"][0]["numRowsTotal"]) for p in query.recentProgress)

    return rows, state, query.stop


if __name__ == "__main__":
    child(*sys.argv[1:])
