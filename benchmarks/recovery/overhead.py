"""`checkpoint-overhead` (SE-4): what it costs to make 10⁶ keys of state durable: with every epoch, every 5 seconds, never.

Counts and sums of a day by key, as fast as the input can be read; the first epochs make all keys, the others change two thirds of a million of them each. Rows per second are those of
whole epochs behind the first ones, start to start. The sides take turns, and those of a round are compared: the ratio is the median of the rounds.
"""

import shutil
import statistics
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import springtide as st
from benchmarks.measure import DATA, result, say, scratch, session, summary

KEYS = 1_000_000
ROWS = 1_000_000
"""In a file, and in an epoch."""
FILES = 30
SKIP = 3
"""Epochs until all keys are there and the workers are warm."""
SIDES = {"epoch": "epoch", "5s": "5s", "off": "never"}
_DAY = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp() * 1e6)


def main(rounds: str = "5") -> None:
    data = _data()
    spark = session(spark_driver_memory="2g")
    rates: dict[str, list[float]] = {side: [] for side in SIDES}
    compared = 0
    with scratch() as folder:
        _run(spark, data, folder / "warm-up", "epoch")
        for i in range(int(rounds)):
            rows: dict[str, pl.DataFrame] = {}
            for side in list(SIDES)[i % 3 :] + list(SIDES)[: i % 3]:
                rate, rows[side] = _run(spark, data, folder / side, SIDES[side])
                rates[side].append(rate)
                shutil.rmtree(folder / side)
            assert all(rows["off"].equals(other) for other in rows.values()), "other rows"
            compared += 2 * rows["off"].height
    spark.stop()
    rounds_of = {side: [a / b for a, b in zip(rates[side], rates["off"], strict=True)] for side in ("epoch", "5s")}
    ratios = {side: statistics.median(found) for side, found in rounds_of.items()}
    result(
        "checkpoint-overhead",
        ratio=min(ratios.values()),
        ratio_epoch=ratios["epoch"],
        ratio_5s=ratios["5s"],
        ratios_by_round={side: summary(found) for side, found in rounds_of.items()},
        rows_per_s={side: summary(r) for side, r in rates.items()},
        keys=KEYS,
        rows_compared=compared,
    )


def _data() -> Path:
    folder = DATA / f"overhead-{KEYS}-{ROWS}-{FILES}"
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(11)
        for i in range(FILES):
            keys = random.permutation(KEYS) if i == 0 else random.integers(0, KEYS, ROWS)
            ts = _DAY + (i * ROWS + np.arange(ROWS)) * 86_400_000_000 // (FILES * ROWS)
            frame = pl.DataFrame({"key": keys, "x": np.arange(ROWS) % 1000, "ts": pl.Series(ts).cast(st.TIME)})
            frame.write_parquet(folder / f"{i:04d}.parquet", compression="lz4")
        (folder / "done").touch()
    return folder


def _run(spark: Any, data: Path, folder: Path, durability: str) -> tuple[float, pl.DataFrame]:
    events = st.source("events", st.parquet(data), ts="ts")
    totals = events.aggregate(by="key", window=st.tumbling("1d"), n=st.count(), total=st.sum("x"), name="totals")
    run = st.Query("overhead", totals.to(st.parquet_sink(folder / "out"))).start(
        spark, checkpoint=folder / "checkpoint", instances=2, rows_per_epoch=ROWS, durability=durability
    )
    run.wait()
    epochs = [m for m in run.metrics() if m["rows"]][:-1]  # the last one gives all windows
    rows = sum(m["rows"] for m in epochs[SKIP:])
    found = pl.read_parquet(folder / "out" / "*.parquet", columns=["key", "n", "total"]).sort("key")
    assert found.height == KEYS
    rate = rows / (epochs[-1]["at"] - epochs[SKIP - 1]["at"])
    say(f"{durability}: {rate / 1e6:.2f} M rows/s")
    return rate, found
