"""`rescale-large`: 2 → 4 → 3 instances with more than 2 GB of state on nodes that share nothing but an S3-compatible server, under load.

Counts, sums, extremes and means by a text key and day, over 12 million keys. A first start fills the state in large epochs; the second goes on in small ones, one after the other, as fast as they go, while instances change. Then the input
ends, all windows close, and every row is compared with a plain group-by. Extra time of a switching epoch is as the history has it: over the median of those before. Settled: from
the switch until five epochs in a row take no longer than 1.2 times the median before it. An aggregate reads old state when it merges segments and when windows close, so most of what changed owners
is fetched later than in the switching epoch, some of it at the end: all of it is counted.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

import springtide as st
from benchmarks.measure import result, say, scratch
from benchmarks.remote.nodes import nodes
from benchmarks.remote.server import server

LOAD = 20_000
"""Rows of an epoch under load."""
STEADY = 20
"""Epochs before and after each change."""
CHANGES = (4, 3)
_BEGIN = 1_704_067_200_000_000


class Make:
    """Makes rows: each key once in the beginning, then all of them again."""

    def __init__(self, keys: int) -> None:
        self.keys = keys

    def __call__(self, stream: int, first: int, count: int) -> pl.DataFrame:
        number = pl.int_range(first, first + count, dtype=pl.Int64)
        key = pl.concat_str(pl.lit("customer-of-region-"), (number * 7919 % self.keys).cast(pl.String).str.zfill(16))
        return pl.select(key=key, x=number, y=number % 1000 / 8, ts=(number * 1000 + _BEGIN).cast(st.TIME))


def main(keys: str = "12000000") -> None:
    count = int(keys)
    make = Make(count)
    total = count + (len(CHANGES) + 1) * 3 * STEADY * LOAD
    with scratch() as folder, server(folder) as s3, nodes(folder, 4, "2g") as spark:
        query = _query(make, total, folder)

        def start(rows: int) -> Any:
            return query.start(spark, checkpoint=s3.at("checkpoint"), instances=2, rows_per_epoch=rows, durability="5s")

        run = start(1_000_000)
        _until(run, lambda: _accepted(run) >= count)
        say("the state is full")
        run.stop()
        run = start(LOAD)
        first = run.status()["epoch"]
        _until(run, lambda: run.status()["epoch"] > first + STEADY)
        decisions = []
        for instances in CHANGES:
            run.scale("totals", instances)
            _until(run, lambda n=instances: _done(run, n))  # type: ignore[misc]
            decisions.append(run.decisions(1)[0])
            said = decisions[-1].outcome
            say(f"→ {instances}: {said.extra_seconds * 1000:.0f} ms extra")
            _until(run, lambda at=said.epoch: run.status()["epoch"] > at + STEADY)  # type: ignore[misc]
        state = run.status()["subqueries"]["totals"]
        run.wait()
        snapshots = [s for s in run.snapshots() if s.epoch > first]
        name, wrong = s3.name, _wrong(make, total, folder / "out")
    switched = [d.outcome.epoch for d in decisions]
    fetched = sum(s.traffic.fetched for s in snapshots if s.traffic and s.epoch >= switched[0])
    moved = sum(d.outcome.bytes_moved for d in decisions)
    result(
        "rescale-large",
        extra_ms=max(d.outcome.extra_seconds for d in decisions) * 1000,
        settled_s=max(_settled(snapshots, epoch) for epoch in switched),
        fetched_ratio=fetched / moved,
        wrong_rows=wrong,
        extra_ms_of_each=[round(d.outcome.extra_seconds * 1000) for d in decisions],
        state_bytes=state["state_bytes"],
        state_rows=state["state_rows"],
        moved_bytes=moved,
        fetched_bytes=fetched,
        usual_epoch_s=statistics.median(s.seconds for s in snapshots),
        closing_epoch_s=snapshots[-1].seconds,
        server=name,
    )


def _query(make: Make, total: int, folder: Path) -> st.Query:
    rows = st.source("rows", st.generate(make, rate=None, total=total), ts="ts")
    totals = rows.aggregate(
        by="key",
        window=st.tumbling("365d"),
        n=st.count(),
        total=st.sum("x"),
        low=st.min("x"),
        high=st.max("x"),
        mean=st.mean("y"),
        name="totals",
    )
    return st.Query("rescale", totals.to(st.parquet_sink(folder / "out")))


def _accepted(run: Any) -> int:
    return int(run.status()["sources"].get("rows", {"accepted": 0})["accepted"])


def _done(run: Any, instances: int) -> bool:
    return any(d.instruction.after.instances == instances and d.outcome for d in run.decisions(1))


def _until(run: Any, condition: Callable[[], bool]) -> None:
    while not condition():
        if not run.active:
            run.wait(0)  # raises what went wrong
            raise RuntimeError(f"the query has ended: {run.events()}")
        time.sleep(0.05)


def _settled(snapshots: list[st.Snapshot], epoch: int) -> float:
    """Return the seconds from a switch until epochs are as short as before."""
    usual = statistics.median(s.seconds for s in snapshots if epoch - STEADY <= s.epoch < epoch)
    after = [s for s in snapshots if s.epoch >= epoch]
    began = after[0].time - after[0].seconds
    for i in range(len(after) - 5):
        if all(s.seconds <= 1.2 * usual for s in after[i : i + 5]):
            return after[i].time - after[i].seconds - began
    return after[-1].time - began


def _wrong(make: Make, total: int, out: Path) -> int:
    """Count the rows that should not be there or are missing."""
    names = ["key", "n", "total", "low", "high"]
    wrong, found = 0, pl.scan_parquet(out / "*.parquet").select(names)
    for part in range(8):  # by parts, for memory
        chosen = pl.col("key").str.slice(-3).cast(pl.Int64) % 8 == part
        right = pl.concat([make(0, at, min(2_000_000, total - at)).filter(chosen) for at in range(0, total, 2_000_000)])
        sums = right.group_by("key").agg(
            n=pl.len().cast(pl.Int64), total=pl.col("x").sum(), low=pl.col("x").min(), high=pl.col("x").max()
        )
        mine = found.filter(chosen).collect().cast(dict(sums.schema))
        wrong += sums.join(mine, on=names, how="anti").height + mine.join(sums, on=names, how="anti").height
        wrong += mine.height - mine["key"].n_unique()
    return wrong
