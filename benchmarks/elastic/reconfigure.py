"""What a change of degree costs: heavy callers with 10⁶ pane rows of state, under steady load, and Spark's own way beside it.

Every epoch takes one minute of calls and closes one window of an hour. The extra time of the epoch in which a change takes effect is its
time less the median of the four epochs before and the four after it; of each change the median of the runs, of these the worst. An epoch's time is from its planning until its rows
are published and what is old is removed; the end of a micro-batch of Spark, once a second, is between epochs. More instances than cores take longer, so that a change from 2 to 8 on two
cores has half of the difference between 2 and 8 in it: `over_those_after_ms` has it without. `cold_extra_ms` is 1 → 2 in a session of its own where every part, the reading of calls
too, had one instance before: no two tasks ever ran at once, so that the second instance needs a second Python worker. Spark's own operator has to be stopped, its state written anew for another
number of partitions by Spark's own tool, and started again; counted from the stop to the first batch behind it, less a usual batch.

`flink_ms` is how long nothing comes out of Flink when its adaptive scheduler goes from 1 to 2, with as many rows of state under load (see `benchmarks.peers.rescale`): the better of its two kinds of state, and of each the
median of `FLINK_ROUNDS` runs. `--alone` leaves Flink out.
"""

import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
from pyspark.sql import functions as sf

import springtide as st
from benchmarks.measure import DATA, result, say, scratch, session, summary
from benchmarks.pictures import picture, thinned
from springtide.charts import COLOURS, INK, PALE

CALLERS = 18_000
PER_SECOND = 1_000
PANE = 60 * PER_SECOND
FULL = 60
"""Panes of a full window."""
CHANGES = ((1, 2), (2, 8), (8, 3), (16, 17))
STEADY = 10
"""Epochs before and after a change."""
REPEATS = 5
FLINK_ROUNDS = 3


def main(*args: str) -> None:
    flink = {} if "--alone" in args else _flink_stops()
    steps = 4 + len(CHANGES)
    data = calls(FULL + steps * STEADY + 2)
    cold = [_cold(data) for _ in range(REPEATS)]
    spark = session()
    extras: dict[str, list[float]] = {f"{a} → {b}": [] for a, b in CHANGES}
    beside: dict[str, list[float]] = {name: [] for name in extras}
    epochs: list[float] = []
    wrong = 0
    with scratch() as folder:
        still, before = _springtide(spark, data, folder / "still", [])
        state = round(statistics.median(m["state_rows"] for m in before))
        for i in range(REPEATS):
            rows, metrics = _springtide(spark, data, folder / f"run{i}", list(CHANGES))
            wrong += different(still, rows)
            seconds = [m["whole_seconds"] for m in metrics]
            degrees = [len(m["subqueries"]["windows"]["busy"]) for m in metrics]
            assert metrics[-1]["rows"] > 0
            for a, b in CHANGES:
                at, near = _around(seconds, degrees, a, b)
                extras[f"{a} → {b}"].append((seconds[at] - statistics.median(near)) * 1000)
                beside[f"{a} → {b}"].append((seconds[at] - statistics.median(seconds[at + 1 : at + 5])) * 1000)
                epochs += near
            drawn = (seconds, degrees)
            say(f"run {i}: " + ", ".join(f"{name}: {e[-1]:.0f} ms" for name, e in extras.items()))
        worst = [max(e[i] for e in extras.values()) for i in range(REPEATS)]
        theirs = spark_restarts(spark, data, folder / "spark")
    result(
        "reconfigure",
        extra_ms=max(statistics.median(e) for e in extras.values()),
        wrong_rows=wrong,
        cold_extra_ms=statistics.median(cold),
        **flink,
        spark_ms=theirs["total_ms"],
        cold_ms=summary(cold),
        worst_of_four_ms=summary(worst),
        by_change_ms={name: summary(e) for name, e in extras.items()},
        over_those_after_ms={name: summary(e) for name, e in beside.items()},
        usual_epoch_ms=summary([s * 1000 for s in epochs]),
        spark=theirs,
        rows_compared=still.height,
        state_pane_rows=state,
        drawn={"epoch_ms": thinned(1000 * s for s in drawn[0]), "instances": thinned(drawn[1])},
    )


def _flink_stops() -> dict[str, Any]:
    """Measure Flink's stop beside it."""
    from benchmarks.peers import flink, rescale  # which has this benchmark's load

    if reason := flink.absent():
        raise SystemExit(f"reconfigure: {reason}; or leave Flink out with --alone")
    found = {side: summary(gaps) for side, gaps in rescale.stops(FLINK_ROUNDS).items()}
    return {"flink_ms": min(s["median"] for s in found.values()), "flink_stops_ms": found, "flink": flink.VERSION}


def _around(seconds: list[float], degrees: list[int], before: int, after: int) -> tuple[int, list[float]]:
    """Return the epoch in which a change took effect, and how long its neighbours took."""
    at = next(j for j in range(1, len(degrees)) if degrees[j - 1 : j + 1] == [before, after])
    return at, seconds[at - 4 : at] + seconds[at + 1 : at + 5]


def _cold(data: Path) -> float:
    """Go from 1 to 2 where no two tasks ever ran at once; return the extra time of the epoch in which that takes effect."""
    spark = session()
    with scratch() as folder:
        _, metrics = _springtide(spark, data, folder, [(1, 2)], alone=True)
    spark.stop()
    seconds = [m["whole_seconds"] for m in metrics]
    at, near = _around(seconds, [len(m["subqueries"]["windows"]["busy"]) for m in metrics], 1, 2)
    extra = (seconds[at] - statistics.median(near)) * 1000
    say(f"a new worker: {extra:.0f} ms")
    return extra


def draw(figures: Mapping[str, Any]) -> None:
    """Draw the epochs of one run: how long each took, and with how many instances."""
    if "drawn" not in figures:  # older results have no curve
        return
    millis, degrees = figures["drawn"]["epoch_ms"], figures["drawn"]["instances"]
    with picture("reconfigure", title="epochs of heavy callers with 10⁶ rows of state, as instances change") as (axes,):
        axes.bar(range(len(millis)), millis, color=COLOURS[0], width=0.7)
        switched = [i for i in range(1, len(degrees)) if degrees[i] != degrees[i - 1]]
        axes.bar(switched, [millis[i] for i in switched], color=COLOURS[1], width=0.7, label="first with a new map")
        for i in switched:
            axes.axvline(i - 0.5, color=PALE, linestyle=":")
            at = axes.get_xaxis_transform()
            axes.text(i - 0.3, 0.97, f"{degrees[i - 1]} → {degrees[i]}", color=INK, transform=at, fontsize=8, va="top")
        axes.set(xlabel="epoch", ylabel="milliseconds", xlim=(-1, len(millis)))
        axes.set_ylim(0, 1.25 * max(millis))


def calls(panes: int) -> Path:
    folder = DATA / f"reconfigure-{CALLERS}-{PER_SECOND}-{panes}"
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        make = st.call_records(callers=CALLERS, per_second=PER_SECOND)
        for i in range(panes):
            rows = make(0, i * PANE, PANE).select("src", "start", "end", "ts")
            rows.write_parquet(folder / f"{i:04d}.parquet", compression="lz4")
        (folder / "done").touch()
    return folder


def _query(data: Path, folder: Path) -> st.Query:
    calls = st.source("calls", st.parquet(data), ts="ts").map(duration=pl.col("end") - pl.col("start"))
    windows = calls.aggregate(
        by="src", window=st.sliding("1h", every="1m"), n=st.count(), avg=st.mean("duration"), name="windows"
    )
    return st.Query("heavy", windows.to(st.parquet_sink(folder / "out")))


def _springtide(
    spark: Any, data: Path, folder: Path, changes: list[tuple[int, int]], *, alone: bool = False
) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    """Fill the state, then go on a pane at a time, with a change after every few epochs; with `alone` by one instance of everything, and no longer than is needed."""
    prefix = 1 if alone else 2
    query, ckpt = _query(data, folder), folder / "checkpoint"
    run = query.start(spark, checkpoint=ckpt, instances=prefix, rows_per_epoch=20 * PANE)
    while run.active and run.status()["sources"].get("calls", {"accepted": 0})["accepted"] < FULL * PANE:
        time.sleep(0.01)
    run.stop()
    first = changes[0][0] if changes else 2
    run = query.start(spark, checkpoint=ckpt, instances={"calls": prefix, "windows": first}, rows_per_epoch=PANE)
    degree, wanted = first, [n for a, b in changes for n in (a, b)][1:]
    for n in wanted:
        if n != degree:
            epochs_more(run, STEADY)
            run.scale("windows", n)
            degree = n
    if alone:
        epochs_more(run, STEADY)
        run.stop()
    run.wait()
    states = [sum(s.rows for s in m.state["windows"].segments) for m in run.epochs()]
    took = {s.epoch: s.seconds for s in run.snapshots()}
    metrics = [
        m | {"state_rows": rows, "whole_seconds": took[epoch.epoch]}
        for epoch, m, rows in zip(run.epochs(), run.metrics(), states, strict=True)
    ]
    return pl.read_parquet(folder / "out" / "*.parquet"), metrics


def epochs_more(run: Any, count: int, longest: float = 300.0) -> None:
    """Wait until a run has made so many more epochs, or has ended."""
    limit, made, last = time.monotonic() + longest, 0, _newest(run)
    while run.active and made < count:
        if time.monotonic() > limit:
            raise TimeoutError(f"{made} of {count} epochs in {longest:.0f} s; what happened last: {run.events()[-3:]}")
        time.sleep(0.005)
        newest = _newest(run)
        made += newest - last if last >= 0 else int(newest >= 0)
        last = newest


def _newest(run: Any) -> int:
    """Return the number of the last epoch; a run remembers only so many of them."""
    epochs = run.epochs()
    return int(epochs[-1].epoch) if epochs else -1


def different(one: pl.DataFrame, other: pl.DataFrame) -> int:
    """Count the rows that are in one of them only."""
    keys = one.columns
    a, b = (f.group_by(keys).len("times") for f in (one, other))
    return a.join(b, on=[*keys, "times"], how="anti").height + b.join(a, on=[*keys, "times"], how="anti").height


def spark_restarts(spark: Any, data: Path, folder: Path, *, repartitioned: bool = True) -> dict[str, Any]:
    """Have Spark's own operator stopped and started again, for another number of partitions, or with another filter before it."""
    files = folder / "files"
    files.mkdir(parents=True)
    paths = sorted(data.glob("*.parquet"))
    for path in paths[:FULL]:  # one call of each caller makes the same state in less time
        pl.read_parquet(path).unique("src", keep="last", maintain_order=True).write_parquet(files / path.name)
    store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", store)
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    schema = spark.read.parquet(str(data)).schema

    def start(per_batch: int, least: int = 0) -> Any:
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", per_batch).parquet(str(files))
        windows = (
            stream.filter(sf.col("end").cast("double") - sf.col("start").cast("double") >= least)
            .withWatermark("ts", "0 seconds")
            .withColumn("duration", sf.col("end").cast("double") - sf.col("start").cast("double"))
            .groupBy(sf.window("ts", "3600 seconds", "60 seconds"), "src")
            .agg(sf.count("*").alias("n"), sf.avg("duration").alias("avg"))
        )
        writer = windows.writeStream.outputMode("append").format("noop")
        return writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()

    say("spark fills its state")
    start(20).awaitTermination()
    for path in paths[FULL : FULL + 4]:
        (files / path.name).symlink_to(path)
    query = start(1)
    query.awaitTermination()
    usual = statistics.median(p["durationMs"]["triggerExecution"] for p in query.recentProgress if p["numInputRows"])
    (files / paths[FULL + 4].name).symlink_to(paths[FULL + 4])
    began = time.monotonic()
    if repartitioned:
        spark._streamingCheckpointManager.repartition(str(folder / "checkpoint"), 8, False)
    changed = time.monotonic()
    start(1, 0 if repartitioned else 1).awaitTermination()
    ended = time.monotonic()
    return {
        "total_ms": round((ended - began) * 1000 - usual),
        "repartition_ms": round((changed - began) * 1000),
        "restart_and_batch_ms": round((ended - changed) * 1000),
        "usual_batch_ms": usual,
        "change": "2 → 8 partitions" if repartitioned else "another filter",
    }
