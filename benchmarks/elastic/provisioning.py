"""Fig. 21 of the StreamCloud paper: a ramp of load, load-aware provisioning against individual provisioning, live on Spark.

A latency-bound operator (it waits for each row as if for a service outside) in `local[32]`: so that 15 instances are of use on two cores, and both sides can run at the same time. The
load goes up steadily from one instance's worth to fifteen and down again, with the paper's thresholds: 50 %, 90 %, target 60 %. Load-aware
provisioning asks for as many instances as the load needs; individual provisioning for one more or one fewer at a time. Counted are the changes
of degree, and how far from the target the utilisation was after each of them (`target_error`; the paper: "each provisioning step achieves
the target utilization threshold"). Between two changes it goes its way from the target to a threshold, which is three times as far above
as below: `target_error_all_the_time` has that in it.
"""

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

import springtide as st
from benchmarks.measure import result, say, scratch
from benchmarks.pictures import picture
from springtide.charts import COLOURS, INK, PALE
from springtide.elastic.decisions import Decision

SERVICE = 0.004
"""Seconds that each row takes."""
TARGET = 0.6
LOW, HIGH = 150, 2250
"""Rows per second at the foot and at the top: one instance at the target does 150."""
MOST = 16
HALF = 300.0
"""Seconds up, and as many down."""
STEPS = 300
PACE = 2.0
"""Seconds between two epochs."""
AFTER = 2
"""Epochs after a change: then the next one may come."""
WARM = 10.0
"""Seconds at the foot before it goes up, which do not count: the first epochs start workers."""


def main() -> None:
    spark = st.spark_session("local[32,4]", spark_driver_memory="4g", spark_sql_shuffle_partitions="2")
    _warm_up(spark)
    with scratch() as folder:
        runs = {how: _ramp(spark, how, folder / how) for how in ("load-aware", "individual")}
        for run in runs.values():
            run.wait()
        figures = {how: _figures(run) for how, run in runs.items()}
        seen = {how: run.snapshots() for how, run in runs.items()}
    for how, found in figures.items():
        say(f"{how}: {found}")
    _draw(seen)
    result(
        "provisioning",
        reconfigurations=figures["load-aware"]["reconfigurations"],
        target_error=figures["load-aware"]["target_error"],
        individual_reconfigurations=figures["individual"]["reconfigurations"],
        individual_target_error=figures["individual"]["target_error"],
        target_error_all_the_time=figures["load-aware"]["target_error_all_the_time"],
        individual_target_error_all_the_time=figures["individual"]["target_error_all_the_time"],
        load_aware=figures["load-aware"],
        individual=figures["individual"],
    )


def _draw(seen: dict[str, list[st.Snapshot]]) -> None:
    with picture("provisioning", (1, 1.2, 1.2), title="a ramp of load: load-aware and individual provisioning") as axes:
        load, instances, used = axes
        for (how, snapshots), colour in zip(seen.items(), COLOURS, strict=False):
            times = [s.time - snapshots[0].time for s in snapshots]
            if how == "load-aware":
                load.plot(times, [s.rate for s in snapshots], color=INK, label="arriving")
            degrees = [s.subqueries["served"].instances for s in snapshots]
            instances.step(times, degrees, where="pre", color=colour, label=how)
            used.plot(times, [s.mean_utilisation("served") for s in snapshots], color=colour, linewidth=1, label=how)
        used.axhline(TARGET, color=PALE, linestyle=":")
        load.set(ylabel="rows per second", ylim=(0, None))
        instances.set(ylabel="instances", ylim=(0, None))
        used.set(ylabel="utilisation", xlabel="seconds", ylim=(0, 1.1))


def _served(rows: pl.Series) -> pl.Series:
    """Wait for an answer to every row."""
    time.sleep(SERVICE * len(rows))
    return rows


def _rows(stream: int, first: int, count: int) -> pl.DataFrame:
    number = np.arange(first, first + count, dtype=np.int64)
    key = (number * np.int64(2654435761)) % 4096
    return pl.DataFrame({"key": key, "ts": pl.Series(number * 100).cast(st.TIME)})


def _query(source: Any, folder: Path) -> st.Query:
    served = (
        st.source("rows", source, ts="ts")
        .aggregate(by="key", window=st.last_n(1), n=st.count(), name="served")
        .map(n=pl.col("n").map_batches(_served, return_dtype=pl.Int64))
    )
    return st.Query("ramp", served.to(st.parquet_sink(folder / "out")))


def _warm_up(spark: Any) -> None:
    """Start as many Python workers as there can be instances, as a pool of ready instances has them."""
    with scratch() as folder:
        query = _query(st.generate(_rows, rate=None, total=60 * MOST, streams=1), folder)
        query.start(spark, checkpoint=folder / "checkpoint", instances=2 * MOST, rows_per_epoch=20 * MOST).wait()


def _ramp(spark: Any, how: Literal["load-aware", "individual"], folder: Path) -> Any:
    rates = np.linspace(LOW, HIGH, STEPS).tolist()
    parts = [(WARM, float(LOW)), *((HALF / STEPS, rate) for rate in [*rates, *rates[::-1]])]
    total = int(sum(seconds * rate for seconds, rate in parts))
    query = _query(st.generate(_rows, rate=st.steps(parts), total=total, streams=1), folder)
    policy = st.Threshold(lut=0.5, uut=0.9, tut=TARGET, provisioning=how)
    elastic = st.Elastic(policy=policy, limits={"served": (1, MOST), "rows": (1, 1)}, every=PACE, grace=PACE)
    trigger = f"{PACE:g} seconds"
    return query.start(spark, checkpoint=folder / "checkpoint", instances=1, elastic=elastic, trigger=trigger)


def _figures(run: Any) -> dict[str, Any]:
    snapshots = run.snapshots()
    changes = [d for d in run.decisions() if d.instruction.subquery == "served" and d.instruction.kind == "scale"]
    start = snapshots[0].time
    counted = [s for s in snapshots if s.time - start > WARM]
    waits = [s.latency.p95 for s in counted if s.latency]
    errors = [(d.change, _after(d, snapshots)) for d in changes if d.outcome]
    return {
        "reconfigurations": len(changes),
        "target_error": round(statistics.fmean(error for _, error in errors), 4),
        "by_change": {f"{i}: {change}": round(error, 3) for i, (change, error) in enumerate(errors)},
        "target_error_all_the_time": round(_error(counted), 4),
        "most_instances": max(s.subqueries["served"].instances for s in counted),
        "worst_p95_s": round(max(waits), 2),
        "seconds": round(snapshots[-1].time - start, 1),
    }


def _after(decision: Decision, snapshots: Sequence[st.Snapshot]) -> float:
    """Give the distance of the utilisation from its target in the first epochs after a change."""
    version = decision.instruction.after.version
    epochs = [s for s in snapshots if s.subqueries["served"].map.version == version][:AFTER]
    used = sum(s.mean_utilisation("served") * s.period for s in epochs) / sum(s.period for s in epochs)
    return abs(used - TARGET)


def _error(snapshots: Sequence[st.Snapshot]) -> float:
    """Give the mean distance of the utilisation from its target, over time."""
    distances = [(abs(s.mean_utilisation("served") - TARGET), s.period) for s in snapshots]
    return sum(d * period for d, period in distances) / sum(period for _, period in distances)
