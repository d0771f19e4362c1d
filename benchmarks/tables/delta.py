"""Rows to a Delta table, exactly once, beside st.parquet_sink; and how many files an hour of short epochs makes.

The same query on Spark, Parquet → sink, turn about with each sink, from its start to its end (`ratio`: Delta's rate over Parquet's). Then an hour of epochs of a second, in this
process and as fast as they go, each with a few rows from two tasks: how many files the table has at the end (`files`), and how many are still on disk, since nothing is
removed before you VACUUM (`files_on_disk`).
"""

import argparse
import time
from pathlib import Path
from typing import Any

import polars as pl
from deltalake import DeltaTable

import springtide as st
from benchmarks.measure import result, say, scratch, session, summary
from benchmarks.tables.data import make
from springtide.runtime.engine import Options
from springtide.runtime.inprocess import run

SIDES = ("parquet", "delta")


def main(*args: str) -> None:
    """Run both sides, and the hour."""
    parser = argparse.ArgumentParser(prog="delta")
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epoch", type=int, default=500_000, help="rows in an epoch")
    parser.add_argument("--epochs", type=int, default=3600, help="epochs of the hour")
    given = parser.parse_args(args)
    data = make(given.rows)
    spark = session()
    rates: dict[str, list[float]] = {name: [] for name in SIDES}
    with scratch() as folder:
        for round in range(given.rounds + 1):
            for name in SIDES if round % 2 else SIDES[::-1]:
                rates[name].append(given.rows / _seconds(spark, data, name, folder / f"{round}-{name}", given.epoch))
                say(f"{name}: {rates[name][-1]:,.0f} rows/s{'' if round else ' (warm-up)'}")
        hour = _hour(folder / "hour", given.epochs)
    found = {name: summary(some[1:]) for name, some in rates.items()}
    result(
        "delta",
        rows_per_s=found["delta"]["median"],
        ratio=found["delta"]["median"] / found["parquet"]["median"],
        **hour,
        epochs=given.epochs,
        rows=given.rows,
        rows_per_epoch=given.epoch,
        rates=found,
    )


def _seconds(spark: Any, data: Path, name: str, folder: Path, epoch: int) -> float:
    out = folder / "out"
    sink: Any = st.delta_sink(out) if name == "delta" else st.parquet_sink(out)
    query = st.Query("rows", st.source("rows", st.parquet(data), ts="ts").to(sink))
    begun = time.perf_counter()
    query.start(spark, checkpoint=folder / "checkpoint", instances=2, rows_per_epoch=epoch).wait()
    seconds = time.perf_counter() - begun
    there = pl.scan_delta(str(out)) if name == "delta" else pl.scan_parquet(out / "*.parquet")
    expected = pl.scan_parquet(data / "*.parquet")
    if not _sums(there).equals(_sums(expected)):
        raise SystemExit(f"{name}: other rows than those that went in")
    return seconds


def _sums(rows: pl.LazyFrame) -> pl.DataFrame:
    return rows.select(pl.len(), pl.col("calls").sum(), pl.col("ts").max(), pl.col("district").sum()).collect()


def _hour(folder: Path, epochs: int) -> dict[str, Any]:
    rows = make(max(20 * epochs, 1000))
    source = st.source("rows", st.parquet(rows), ts="ts")
    begun = time.perf_counter()
    query = st.Query("hour", source.to(st.delta_sink(folder / "table")))
    run(query.plan(), folder / "checkpoint", Options(2, rows_per_epoch=20))
    seconds = time.perf_counter() - begun
    table = DeltaTable(str(folder / "table"))
    files = len(table.file_uris())
    on_disk = len(list((folder / "table").rglob("*.parquet")))
    say(f"an hour of epochs: {files} files, {on_disk} on disk, {seconds / epochs * 1000:.0f} ms an epoch")
    return {"files": files, "files_on_disk": on_disk, "ms_per_short_epoch": seconds / epochs * 1000}
