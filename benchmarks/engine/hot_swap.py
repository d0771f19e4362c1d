"""What it costs to replace a query while it runs: heavy callers with 10⁶ pane rows of state, under steady load, and Spark's own way beside it.

Every epoch takes one minute of calls and closes one window of an hour. After every ten epochs the query is replaced by one with another filter and other code in a user's aggregate, and
back. The extra time of the epoch in which that happens is its time less the median of the four epochs before and the four after it. An epoch's time is from its planning until its
rows are published and what is old is removed; for one in which the query is replaced it begins with the change itself, when what could be prepared while epochs went on has been. All rows are
compared with those of a run without a change, whose filter and aggregate go by the time of each call. Spark's own operator is started again with another filter: counted from there to the end of
the first batch, less a usual one; the stop is not in it.
"""

import itertools
import statistics
import time
from pathlib import Path
from typing import Any

import polars as pl

import springtide as st
from benchmarks.elastic.reconfigure import FULL, PANE, STEADY, calls, different, epochs_more, spark_restarts
from benchmarks.measure import result, say, scratch, session, summary

SWAPS = 4
LEAST = (0, 30)
"""Seconds of the calls that each form lets in, at least."""
WEIGHT = (1, 3)
"""What a call counts in each form's aggregate."""


def main(repeats: str = "3") -> None:
    data = calls(FULL + (SWAPS + 1) * STEADY + 2)
    spark = session()
    extras: list[float] = []
    usual: list[float] = []
    wrong = compared = 0
    with scratch() as folder:
        for i in range(int(repeats)):
            run, rows = _run(spark, data, folder / f"swapped{i}", swaps=SWAPS)
            took = {s.epoch: s.seconds for s in run.snapshots()}
            epochs = run.epochs()
            state = sum(s.rows for s in epochs[-20].state["windows"].segments)
            bounds = []
            for before, now in itertools.pairwise(epochs):
                if before.form != now.form:
                    bounds.append(before.sources["calls"].accepted // PANE)
                    near = [took[now.epoch + d] for d in (-4, -3, -2, -1, 1, 2, 3, 4) if now.epoch + d in took]
                    extras.append((took[now.epoch] - statistics.median(near)) * 1000)
                    usual += near
            assert len(bounds) == SWAPS, bounds
            say(f"run {i}: {[round(e) for e in extras[-SWAPS:]]} ms, state {state:,} rows, replaced at panes {bounds}")
            still = _run(spark, data, folder / f"still{i}", bounds=bounds)[1]
            wrong += different(still, rows)
            compared += still.height
        theirs = spark_restarts(spark, data, folder / "spark", repartitioned=False)
    result(
        "hot-swap",
        extra_ms=statistics.median(extras),
        wrong_rows=wrong,
        spark_ms=theirs["total_ms"],
        by_swap_ms=summary(extras),
        usual_epoch_ms=summary([s * 1000 for s in usual]),
        spark=theirs,
        rows_compared=compared,
        state_pane_rows=state,
    )


def _run(
    spark: Any, data: Path, folder: Path, *, swaps: int = 0, bounds: list[int] | None = None
) -> tuple[Any, pl.DataFrame]:
    """Fill the state, then go on a pane at a time, with a change of form after every few epochs."""
    ckpt = folder / "checkpoint"
    query = _query(data, folder, 0, bounds)
    run = query.start(spark, checkpoint=ckpt, instances=2, rows_per_epoch=20 * PANE)
    while run.active and run.status()["sources"].get("calls", {"accepted": 0})["accepted"] < FULL * PANE:
        time.sleep(0.01)
    run.stop()
    run = query.start(spark, checkpoint=ckpt, instances=2, rows_per_epoch=PANE)
    for n in range(swaps):
        epochs_more(run, STEADY)
        run.replace(_query(data, folder, (n + 1) % 2))
    run.wait()
    return run, pl.read_parquet(folder / "out" / "*.parquet")


def _query(data: Path, folder: Path, form: int, bounds: list[int] | None = None) -> st.Query:
    """Make a form; with `bounds` the form of each call goes by its minute: the number of bounds that are not behind it, odd or even."""
    least, weight = pl.lit(LEAST[form]), pl.lit(WEIGHT[form])
    if bounds is not None:
        minute = (pl.col("ts").to_physical() - _first(data)) // 60_000_000
        odd = pl.sum_horizontal([(minute >= b).cast(pl.Int64) for b in bounds]) % 2 == 1
        least, weight = (pl.when(odd).then(pl.lit(of[1])).otherwise(pl.lit(of[0])) for of in (LEAST, WEIGHT))
    rows = st.source("calls", st.parquet(data), ts="ts").map(duration=pl.col("end") - pl.col("start"))
    kept = rows.filter(pl.col("duration").dt.total_seconds() >= least)
    own = st.user_aggregate(
        init={"w": 0},
        add={"w": weight.cast(pl.Int64).sum() if bounds is not None else pl.len().cast(pl.Int64) * weight},
        merge={"w": pl.col("w").sum()},
        finish=pl.col("w"),
    )
    windows = kept.aggregate(by="src", window=st.sliding("1h", every="1m"), n=st.count(), weighed=own, name="windows")
    return st.Query("heavy", windows.to(st.parquet_sink(folder / "out")))


def _first(data: Path) -> int:
    """Return the beginning of the first minute."""
    ts: int = pl.read_parquet(data / "0000.parquet", columns=["ts"])["ts"].to_physical().min()  # type: ignore[assignment]
    return ts // 60_000_000 * 60_000_000
