"""A standalone cluster, 1 → 4 executors and back under load, several times: are the rows right, and how soon are new executors in use?

Four executors of one core on two hosts of the loopback. `seconds` is from the decision to the end of the first epoch that ran on the new
executors: the start of their JVMs and of their Python workers, while epochs go on as before (`waited_s`), and that epoch. Rows are compared
with a plain group-by over everything that was fed. Four JVMs on one small machine start slower than on four machines.
"""

import os
import statistics
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

import springtide as st
from benchmarks.elastic.standalone import SETTINGS, executors_of, standalone
from benchmarks.measure import result, say, scratch, summary
from benchmarks.pictures import picture
from springtide.charts import COLOURS, PALE

ROWS = 20_000
"""In a file, of ten minutes; there are up to four files in a second."""
SCHEMA = {"key": pl.Int64, "value": pl.Int64, "ts": st.TIME}
PATIENCE = 600.0
"""Seconds after which something must be wrong."""


def main(repeats: str = "3") -> None:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    out, waited, extra, back = [], [], [], []
    with scratch() as folder, standalone(folder / "cluster") as master:
        say("starting Spark")
        spark = st.spark_session(master, **SETTINGS)
        application = spark.sparkContext.applicationId
        feed = Feed(folder / "in")
        run = _start(spark, folder)
        _until(run, lambda: run.status()["epoch"] > 5 and len(executors_of(application)) == 1)
        for i in range(int(repeats)):
            decision = _scale(run, 4)
            out.append(decision.took)
            waited.append(decision.waited)
            extra.append(decision.outcome.extra_seconds)
            time.sleep(3)
            decided = time.time()
            _scale(run, 1)
            _until(run, lambda: len(executors_of(application)) == 1)
            back.append(time.time() - decided)
            time.sleep(3)
            say(f"run {i}: out in {out[-1]:.1f} s, back in {back[-1]:.1f} s")
        feed.stop()
        _until(run, lambda: run.status()["sources"]["rows"]["accepted"] == feed.files * ROWS)
        run.stop()
        snapshots = run.snapshots()
        usual = [s.seconds for s in snapshots]
        _draw(snapshots)
        wrong = _wrong(feed, pl.read_parquet(folder / "out" / "*.parquet"))
        spark.stop()
    result(
        "cluster",
        wrong_rows=wrong,
        seconds=statistics.median(out),
        seconds_spread=summary(out),
        waited_s=summary(waited),
        switching_epoch_extra_s=summary(extra),
        back_s=summary(back),
        epoch_s=summary(usual),
        epochs=len(usual),
        rows=feed.files * ROWS,
    )


def _draw(snapshots: list[st.Snapshot]) -> None:
    with picture("cluster", (1.2, 1), title="a standalone cluster: 1 → 4 executors and back, under load") as axes:
        counts, epochs = axes
        times = [s.time - snapshots[0].time for s in snapshots]
        executors = [s.executors or 0 for s in snapshots]
        counts.step(times, executors, where="pre", color=PALE, linewidth=3, label="executors")
        instances = [s.subqueries["totals"].instances for s in snapshots]
        counts.step(times, instances, where="pre", color=COLOURS[0], label="instances")
        counts.set(ylabel="number", ylim=(0, max(executors) + 1))
        epochs.plot(times, [s.seconds for s in snapshots], color=COLOURS[0], linewidth=1)
        changed = [i for i in range(1, len(times)) if instances[i] != instances[i - 1]]
        marks = [times[i] for i in changed], [snapshots[i].seconds for i in changed]
        epochs.plot(*marks, "o", color=COLOURS[1], markersize=4, label="first with a new map")
        epochs.set(ylabel="seconds of an epoch", xlabel="seconds", ylim=(0, None))


class Feed:
    """Writes one file after the other, until it is stopped."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files, self._over = folder, 0, threading.Event()
        folder.mkdir()
        self._write()
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._thread.start()

    def rows(self, file: int) -> pl.DataFrame:
        begin = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp() * 1e6)
        number = pl.int_range(file * ROWS, (file + 1) * ROWS, dtype=pl.Int64)
        return pl.select(
            key=number * 7919 % 500, value=number, ts=(number * 30_000 + begin).cast(st.TIME)
        )  # 30 ms apart

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _go_on(self) -> None:
        while not self._over.wait(0.25):
            self._write()

    def _write(self) -> None:
        hidden, path = (self.folder / f"{self.files:06d}.{ending}" for ending in ("tmp", "parquet"))
        self.rows(self.files).write_parquet(hidden)
        hidden.rename(path)
        self.files += 1


def _start(spark: Any, folder: Path) -> Any:
    rows = st.source("rows", st.parquet(folder / "in", schema=SCHEMA, follow=True), ts="ts")
    totals = rows.aggregate(by="key", window=st.tumbling("7m"), n=st.count(), total=st.sum("value"), name="totals")
    query = st.Query("cluster", totals.to(st.parquet_sink(folder / "out")))
    elastic = st.Elastic(policy=st.Manual(), balancing=None, executors=st.Executors(warm=0, wait=PATIENCE))
    return query.start(spark, checkpoint=folder / "checkpoint", instances=1, elastic=elastic)


def _scale(run: Any, instances: int) -> Any:
    """Scale, wait until an epoch has run so, and give the decision with what it cost."""
    run.scale("totals", instances)
    done: list[Any] = []

    def is_done() -> bool:
        done[:] = [d for d in run.decisions(1) if d.instruction.after.instances == instances and d.outcome]
        return bool(done)

    _until(run, is_done)
    return done[0]


def _until(run: Any, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if not run.active or time.monotonic() > end:
            run.wait(0)  # raises what went wrong
            raise TimeoutError(f"it did not happen in time: {run.events()}")
        time.sleep(0.05)


def _wrong(feed: Feed, found: pl.DataFrame) -> int:
    """Count the rows that should not be there or are missing; the last window is still open."""
    everything = pl.concat([feed.rows(i) for i in range(feed.files)])
    start = pl.col("ts").dt.truncate("7m")
    right = everything.group_by("key", window_start=start).agg(n=pl.len().cast(pl.Int64), total=pl.col("value").sum())
    last = right["window_start"].max()
    right = right.filter(pl.col("window_start") < last)
    say(f"{right.height} rows should be there, {found.height} are")
    columns = ["key", "window_start", "n", "total"]
    a, b = (f.select(columns).group_by(columns).len("times") for f in (right, found.cast(dict(right.schema))))
    on = [*columns, "times"]
    return a.join(b, on=on, how="anti").height + b.join(a, on=on, how="anti").height
