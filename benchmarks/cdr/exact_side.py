"""One checkout at work for `exact.py`: runs queries as they come, one line each, with the `springtide` of its own environment."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import polars as pl

import springtide as st

ROWS_PER_EPOCH = 2_000_000
ROWS_PER_FILE = 500_000


def main(folder: Path, data: Path) -> None:
    """Answer until the input ends."""
    spark = st.spark_session("local[2,4]", spark_driver_memory="2g", spark_sql_shuffle_partitions="2")
    for number, line in enumerate(sys.stdin):
        print(json.dumps(run(spark, data, folder / str(number), json.loads(line))), flush=True)
        shutil.rmtree(folder / str(number), ignore_errors=True)


def run(spark: Any, data: Path, folder: Path, query: dict[str, Any]) -> dict[str, Any]:
    """Run one query over all files."""
    duration = pl.col("end") - pl.col("start")
    if query["float"]:
        duration = duration.cast(pl.Float64) / 1000
    calls = st.source("calls", st.parquet(data), ts="ts")
    window = st.sliding(f"{query['size']}s", every=f"{query['every']}s")
    windows = calls.map(duration=duration).aggregate(
        by=query["key"], window=window, n=st.count(), avg=st.mean("duration"), name="windows"
    )
    plan = st.Query("cdr", windows.to(st.parquet_sink(folder / "out")))
    handle = plan.start(spark, checkpoint=folder / "checkpoint", instances=2, rows_per_epoch=ROWS_PER_EPOCH)
    handle.wait()
    rates, done, epochs = [], 0, handle.metrics()
    for before, epoch in zip([None, *epochs], epochs, strict=False):
        if before is not None and done >= query["steady_after"] * ROWS_PER_FILE:
            rates.append(epoch["rows"] / (epoch["at"] - before["at"]))
        done += epoch["rows"]
    out = pl.scan_parquet(folder / "out" / "*.parquet")
    return {"rates": rates, "windows": out.select(pl.len().alias("windows"), pl.col("n").sum()).collect().row(0)}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
