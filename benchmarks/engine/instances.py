"""One instance against two, on two cores: the wall time of the stateful stage of an aggregate, a join and a band join.

The same input, turn about; measured is the time from the first start to the last end of the stage's tasks, summed up over all epochs but the first.
Polars works with one thread per task, on Spark as here, so one instance is one core.
"""

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import springtide as st
from benchmarks.measure import DATA, result, say, scratch, session, summary

ROWS = 400_000
FILES = 12
PAIRS = 3


def main() -> None:
    spark = session()
    data = _data()
    queries: dict[str, Callable[[Path, Path], st.Query]] = {"aggregate": _aggregate, "join": _join, "scalejoin": _band}
    speedups: dict[str, dict[str, float]] = {}
    spans: dict[str, dict[str, dict[str, float]]] = {}
    for name, make in queries.items():
        times: dict[int, list[float]] = {1: [], 2: []}
        with scratch() as folder:
            _span(spark, make(data, folder / "warm"), folder / "warm-up", 2)
            for i in range(PAIRS):
                for n in (1, 2) if i % 2 == 0 else (2, 1):
                    times[n].append(_span(spark, make(data, folder / f"o{n}{i}"), folder / f"c{n}{i}", n))
                say(f"{name}: {times[1][-1]:.2f} s with one instance, {times[2][-1]:.2f} s with two")
        speedups[name] = summary([a / b for a, b in zip(times[1], times[2], strict=True)])
        spans[name] = {str(n): summary(t) for n, t in times.items()}
    result("instances", speedup=min(s["median"] for s in speedups.values()), speedups=speedups, stage_seconds=spans)


def _span(spark: Any, query: st.Query, checkpoint: Path, instances: int) -> float:
    (name,) = [s.name for s in query.plan().subqueries if s.head]
    run = query.start(spark, checkpoint=checkpoint, instances={name: instances}, rows_per_epoch=ROWS)
    run.wait()
    return statistics.fsum(s.subqueries[name].span or 0.0 for s in run.snapshots()[1:])


def _data() -> Path:
    """Write records of a sensor network, evenly over 12 × 60 s."""
    folder = DATA / f"instances-{ROWS}-{FILES}"
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(7)
        for i in range(FILES):
            micros = (i * 60_000_000 + np.sort(rng.integers(0, 60_000_000, ROWS))).astype(np.int64)
            frame = pl.DataFrame(
                {
                    "key": rng.integers(0, 20_000, ROWS),
                    "x": rng.uniform(0, 100_000, ROWS),
                    "ts": pl.Series(micros).cast(st.TIME),
                }
            )
            frame.write_parquet(folder / f"{i:02d}.parquet", compression="lz4")
        (folder / "done").touch()
    return folder


def _source(data: Path) -> st.Stream:
    return st.source("rows", st.parquet(data), ts="ts")


def _aggregate(data: Path, out: Path) -> st.Query:
    """Distinct values per key: the combined rows are as many as the tuples, the work is at the receiver."""
    found = _source(data).aggregate(
        by="key", window=st.sliding("60s", every="10s"), low=st.min("x"), high=st.max("x"), sd=st.std("x"), name="agg"
    )
    return st.Query("aggregate", found.filter(pl.col("high") < 0).to(st.parquet_sink(out)))


def _join(data: Path, out: Path) -> st.Query:
    rows = _source(data)
    pairs = rows.join(rows, on="key", within="20s", where=(pl.col("x") - pl.col("x_right")) > 99_000, name="pairs")
    return st.Query("join", pairs.to(st.parquet_sink(out)))


def _band(data: Path, out: Path) -> st.Query:
    """Two halves of the stream, by two bands and no equality, in a window of five minutes, as in `scalejoin`."""
    rows = _source(data)
    near = (pl.col("x") - pl.col("x_right")).abs() <= 10
    alike = (pl.col("key") - pl.col("key_right")).abs() <= 2
    left, right = rows.filter(pl.col("key") % 2 == 0), rows.filter(pl.col("key") % 2 == 1)
    pairs = left.theta_join(right, near & alike, within="5m", routing="broadcast", name="band")
    return st.Query("scalejoin", pairs.to(st.parquet_sink(out)))
