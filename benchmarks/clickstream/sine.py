"""Instances that follow a click-stream whose rate goes up and down, and triples within half a minute (StreamMine3G, figure 4; SM-10).

The query is that of `clickstream`: session → last 5 pages → top 20 patterns of each minute, in real time. The manager has the paper's thresholds: one more instance if one is above 80 %, one fewer
if they are below 40 %. Two cores cannot show what a cluster does, so every pattern takes 4 ms of waiting, as if for a service outside, and instances are slots (as in `autoscale`); workers stand
ready, as the paper's nodes do. The load begins at its mean and rises first.

Compared are as many instances all the time as the highest load needed. The rows are those of plain Polars.
"""

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import springtide as st
from benchmarks.clickstream.data import requests
from benchmarks.clickstream.patterns import plain, query_of, same_rows
from benchmarks.elastic.live import SLOW, session
from benchmarks.measure import DATA, result, scratch
from benchmarks.pictures import picture, series, thinned
from springtide.charts import COLOURS, INK, PALE
from springtide.elastic.policies.threshold import PRESETS

MEAN, AMPLITUDE, PERIOD = 1_200, 600, 60
"""Requests a second: from 600 to 1,800 in half a period."""
PACE = 0.5
MOST = 12
BEGIN = 1_700_000_040_000_000


def main(*args: str) -> None:
    parser = argparse.ArgumentParser(prog="sine")
    parser.add_argument("--periods", type=float, default=3)
    given = parser.parse_args(args)
    data, total = _data(round(given.periods * PERIOD))
    with session() as spark, scratch() as folder:
        run = _start(spark, data, total, folder)
        run.wait()
        rows = same_rows(folder / "out", plain(data))
        snapshots, decisions = [s for s in run.snapshots() if s.rows], run.decisions()
    begun = snapshots[0].time - snapshots[0].period
    own = [s.subqueries["last"] for s in snapshots]
    used = sum(s.period * q.instances for s, q in zip(snapshots, own, strict=True))
    most = max(q.instances for q in own)
    waits = [s.latency.p95 for s in snapshots if s.latency]
    seconds = snapshots[-1].time - begun
    behind = max(s.backlog for s in snapshots)
    result(
        "sine",
        changes=len([d for d in decisions if d.instruction.subquery == "last"]),
        instances={"least": min(q.instances for q in own), "most": most},
        saved_pct=100 * (1 - used / (most * seconds)),
        p95_latency_s=float(np.median(waits)),
        worst_p95_latency_s=max(waits),
        most_waiting=behind,
        above_upper_pct=100 * float(np.mean([max(s.utilisation("last")) > 1 for s in snapshots])),
        wrong_rows=0,
        rows_compared=rows,
        requests_per_s=[MEAN - AMPLITUDE, MEAN + AMPLITUDE],
        period_s=PERIOD,
        thresholds=[0.4, 0.8],
        drawn={
            "seconds": thinned(s.time - begun for s in snapshots),
            "came_per_s": thinned(s.rate for s in snapshots),
            "processed_per_s": thinned(s.rows / s.period for s in snapshots),
            "instances": thinned(q.instances for q in own),
            "busiest_pct": thinned(100 * max(s.utilisation("last")) for s in snapshots),
            "p95_latency_s": thinned(s.latency.p95 if s.latency else None for s in snapshots),
        },
    )


@dataclass(frozen=True)
class Recorded:
    """Gives requests out of a file, by their numbers."""

    file: Path

    def __call__(self, stream: int, first: int, count: int) -> pl.DataFrame:
        """Give `count` of them from position `first` on."""
        return _requests_of(self.file)[first : first + count]


@lru_cache(maxsize=1)
def _requests_of(file: Path) -> pl.DataFrame:
    """Read them once in every process: they are not sent along with the query."""
    return pl.read_parquet(file)


def _start(spark: Any, data: Path, total: int, folder: Path) -> Any:
    source = st.generate(Recorded(data / "all.parquet"), rate=st.sine(MEAN, AMPLITUDE, PERIOD), total=total)
    wait = pl.col("pattern").map_batches(partial(_waited, SLOW), return_dtype=pl.String)
    query = query_of(st.source("clicks", source, ts="ts"), st.parquet_sink(folder / "out"), wait)
    elastic = st.Elastic(
        policy=PRESETS["SM-10"],
        max=MOST,
        balancing=None,
        limits=dict.fromkeys(("clicks", "top", "top.merge"), (1, 1)),
        every=PACE,
        grace=1.0,
    )
    return query.start(
        spark, checkpoint=folder / "checkpoint", instances=1, trigger=f"{PACE:g} seconds", elastic=elastic
    )


def _waited(seconds: float, patterns: pl.Series) -> pl.Series:
    time.sleep(seconds * len(patterns))
    return patterns


def _data(seconds: int) -> tuple[Path, int]:
    """Write as many requests as come in this time; they come at an even pace in their own time."""
    total = st.sine(MEAN, AMPLITUDE, PERIOD).due(seconds)
    folder = DATA / f"sine-{total}"
    if not (folder / "all.parquet").exists():
        folder.mkdir(parents=True, exist_ok=True)
        ts = pl.Series("ts", BEGIN + np.arange(total) * 1_000_000 // MEAN).cast(st.TIME)
        requests(total).with_columns(ts).write_parquet(folder / "all.partial")
        (folder / "all.partial").rename(folder / "all.parquet")
    return folder, total


def draw(figures: Mapping[str, Any]) -> None:
    """Draw the load, what followed it, and how long rows waited."""
    found = figures["drawn"]
    times = found["seconds"]
    title = "a click-stream that triples within half a minute, thresholds of 80 and 40 %"
    with picture("sine", (1, 1, 1), title=title) as (rates, instances, waits):
        rates.plot(times, found["came_per_s"], color=PALE, linewidth=3, label="requests that came")
        rates.plot(times, found["processed_per_s"], color=INK, linewidth=1, label="processed")
        rates.set(ylabel="per second", ylim=(0, None))
        instances.step(times, found["instances"], where="post", color=COLOURS[0], label="instances")
        busy = instances.twinx()
        busy.plot(times, found["busiest_pct"], color=COLOURS[1], linewidth=0.7)
        for bound in figures["thresholds"]:
            busy.axhline(100 * bound, color=PALE, linestyle=":")
        busy.set(ylabel="busiest, %", ylim=(0, 200))
        instances.set(ylabel="instances", ylim=(0, None))
        waits.plot(times, series(found["p95_latency_s"]), color=COLOURS[2])
        waits.set(ylabel="p95 latency, s", xlabel="seconds", ylim=(0, None))
