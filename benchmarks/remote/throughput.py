"""`object-store`: heavy callers with the checkpoint in an S3-compatible server over the same in a folder, both with `durability="5s"`, turn about.

Two cores for everything, the server's work among it. Rates are those of the steady state: epochs after the first full window. Requests are those of driver and tasks
together, for each epoch of the steady state, with four instances; those by the second (commands, signs of life) are among them.
"""

import itertools
import os
import statistics
from pathlib import Path
from typing import Any

import polars as pl

import springtide as st
from benchmarks.cdr.data import ROWS_PER_FILE, make
from benchmarks.measure import DATA, result, say, scratch, session, summary
from benchmarks.remote.server import Server, server

STEADY = 10
"""Files until the window is full."""


def main(repeats: str = "3", files: str = "20") -> None:
    data = make(DATA / "cdr" if int(files) == 20 else DATA / f"cdr-{files}", int(files))
    steady = min(STEADY, int(files) // 2) * ROWS_PER_FILE
    spark = session()
    rates: dict[str, list[float]] = {"folder": [], "store": []}
    requests: list[float] = []
    with scratch() as folder, server(folder) as s3:
        os.environ["SPRINGTIDE_CACHE"] = str(folder / "cache")
        found: dict[str, pl.DataFrame] = {}
        for i in range(int(repeats) + 1):  # the first warms up
            for side in ("folder", "store") if i % 2 else ("store", "folder"):
                own = folder / f"{side}{i}"
                snapshots = _run(spark, data, own, s3 if side == "store" else None)
                taken = 0
                for before, now in itertools.pairwise(snapshots):
                    taken += before.rows
                    if i and taken >= steady:
                        rates[side].append(now.rows / (now.time - before.time))
                        if now.traffic is not None:
                            requests.append(now.traffic.requests)
                say(f"{side}: {len(snapshots)} epochs, {[f'{r / 1e6:.2f} M rows/s' for r in rates[side]][-8:]}")
                found[side] = pl.read_parquet(own / "out" / "*.parquet").sort(pl.all())
        wrong = (
            0 if found["folder"].equals(found["store"]) else abs(found["folder"].height - found["store"].height) or 1
        )
        name = s3.name
    spark.stop()
    result(
        "object-store",
        ratio=statistics.median(rates["store"]) / statistics.median(rates["folder"]),
        requests=statistics.fmean(requests),
        wrong_rows=wrong,
        rows_per_s=statistics.median(rates["store"]),
        folder_rows_per_s=statistics.median(rates["folder"]),
        store=summary(rates["store"]),
        folder=summary(rates["folder"]),
        requests_spread=summary(requests),
        server=name,
        rows_compared=found["store"].height,
    )


def _run(spark: Any, data: Path, folder: Path, s3: Server | None) -> list[st.Snapshot]:
    calls = st.source("calls", st.parquet(data), ts="ts")
    windows = calls.map(duration=pl.col("end") - pl.col("start")).aggregate(
        by="src", window=st.sliding("1h", every="1m"), n=st.count(), avg=st.mean("duration"), name="windows"
    )
    query = st.Query("cdr", windows.to(st.parquet_sink(folder / "out")))
    run = query.start(
        spark,
        checkpoint=folder / "checkpoint" if s3 is None else s3.at(folder.name),
        instances={"calls": 2, "windows": 4},
        rows_per_epoch=ROWS_PER_FILE,
        durability="5s",
    )
    run.wait()
    return run.snapshots()
