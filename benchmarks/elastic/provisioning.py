"""Fig. 21 of the StreamCloud paper: a ramp of load, load-aware provisioning against individual provisioning, live on Spark.

A latency-bound operator (it waits for each row as if for a service outside) in `local[32]`: so that 15 instances are of use on two cores. The
load goes up from one instance's worth to about fifteen and down again. Load-aware provisioning asks for as many instances as the load needs; individual
provisioning for one more or one fewer at a time. Counted are the changes of degree, and how far the utilisation was from its target.
"""

import statistics
import time
from typing import Any, ClassVar, Literal

import numpy as np
import polars as pl

import springtide as st
from benchmarks.measure import result, say, scratch

SERVICE = 0.004
"""Seconds that each row takes."""
TARGET = 0.6
LOW, HIGH = 100, 2100
"""Rows per second at the foot and at the top: one instance at the target does 150."""
HALF = 60.0
"""Seconds up, and as many down."""
STEPS = 12
WARM = 15.0


def main() -> None:
    spark = st.spark_session("local[32,4]", spark_driver_memory="4g", spark_sql_shuffle_partitions="2")
    figures: dict[str, dict[str, Any]] = {}
    for how in ("load-aware", "individual"):
        figures[how] = _ramp(spark, how)
        say(f"{how}: {figures[how]}")
    result(
        "provisioning",
        reconfigurations=figures["load-aware"]["reconfigurations"],
        target_error=figures["load-aware"]["target_error"],
        individual_reconfigurations=figures["individual"]["reconfigurations"],
        individual_target_error=figures["individual"]["target_error"],
        load_aware=figures["load-aware"],
        individual=figures["individual"],
    )


class Service(st.BucketOperator[dict]):
    """Waits for an answer to every tuple."""

    output: ClassVar = {"key": pl.Int64, "ts": st.TIME}

    def init(self) -> dict:
        return {}

    def process(self, state: dict, tuples: pl.DataFrame, ready_ts: int) -> pl.DataFrame:
        time.sleep(SERVICE * tuples.height)
        return tuples.select("key", "ts")


def _rows(stream: int, first: int, count: int) -> pl.DataFrame:
    number = np.arange(first, first + count, dtype=np.int64)
    key = (number * np.int64(2654435761)) % 4096
    return pl.DataFrame({"key": key, "ts": pl.Series(number * 100).cast(st.TIME)})


def _ramp(spark: Any, how: Literal["load-aware", "individual"]) -> dict[str, Any]:
    rates = np.linspace(LOW, HIGH, STEPS)
    ramp = [*rates, *rates[::-1]]
    parts = [(f"{2 * HALF / len(ramp):g}s", float(r)) for r in ramp]
    total = int(sum(2 * HALF / len(ramp) * r for r in ramp))
    with scratch() as folder:
        source = st.generate(_rows, rate=st.steps(*parts), total=total, streams=1)
        served = st.source("rows", source, ts="ts").operator(Service(), keys="key", name="served")
        query = st.Query("ramp", served.to(st.parquet_sink(folder / "out")))
        policy = st.Threshold(provisioning=how, tut=TARGET)
        elastic = st.Elastic(policy=policy, limits={"served": (1, 24), "rows": (1, 1)}, every=2.0, grace=2.0)
        run = query.start(
            spark, checkpoint=folder / "checkpoint", instances=1, elastic=elastic, trigger="500 milliseconds"
        )
        run.wait()
        snapshots = run.snapshots()
        changes = [d for d in _decisions(run) if d["subquery"] == "served" and d["kind"] == "scale"]
    start = snapshots[0].time
    warm = [s for s in snapshots if s.time - start > WARM]
    errors = [abs(s.mean_utilisation("served") - TARGET) for s in warm]
    degrees = [s.subqueries["served"].instances for s in warm]
    return {
        "reconfigurations": len(changes),
        "target_error": round(statistics.fmean(errors), 4),
        "most_instances": max(degrees),
        "seconds": round(snapshots[-1].time - start, 1),
    }


def _decisions(run: Any) -> list[dict[str, Any]]:
    return [d for d in run._engine.history.read("decisions") if "kind" in d]
