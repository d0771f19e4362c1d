"""Latency at a low rate: 1,000 rows/s in real time, tumbling windows of a second, from the end of a window to its rows in an exactly-once Parquet folder; beside Flink.

Row number i is due, and has the time, i milliseconds after the start. So the row that ends a window is due at that window's end. A reader in a process of its own notes when each file of the
folder can first be seen. A window counts once, by its last file; those of the first seconds are warm-up. Every window must have a row for each key, and what they count and sum up is compared with what it must be.

Flink runs a DataStream program that is set for the shortest latency, with state on the heap and a checkpoint every 200 ms; the sides take turns. Its rows can be seen after a checkpoint, and
200 ms divide a second: so all windows of a run wait about as long for one. How long that is, Flink leaves to chance when a job starts; so there are many short runs.
"""

import math
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

import springtide as st
from benchmarks.measure import result, say, scratch, session, summary
from benchmarks.peers import flink

RATE = 1_000
KEYS = 17
WARM_UP = 15
"""Seconds, and so windows, that do not count."""
SECONDS = 25
"""Windows of a run that count."""
ROUNDS = 12
Sums = tuple[int, int, int]
"""The rows of a window, the rows of the input that they count, and the sum of their totals."""
CHECKPOINT_MS = 200
"""Between two checkpoints of Flink."""
AHEAD = 6.0
"""Seconds from when the query is written until its first row is due."""


def main(*args: str) -> None:
    """Measure; `--small` tries it out, `--alone` leaves Flink out."""
    rounds, seconds = (1, 10) if "--small" in args else (ROUNDS, SECONDS)
    beside = "--alone" not in args
    if beside and (reason := flink.absent()):
        raise SystemExit(f"latency: {reason}; or leave Flink out with --alone")
    spark = session()
    cluster = flink.Flink()
    ours, theirs = Found(), Found()
    for _ in range(rounds):
        ours.add("Springtide", seconds, springtide(spark, seconds))
        if beside:
            theirs.add("Flink", seconds, by_flink(cluster, seconds))
    cluster.stop()
    p99 = percentile(ours.latencies, 99)
    found = {
        "p50_ms": percentile(ours.latencies, 50),
        "p99_ms": p99,
        "wrong_windows": ours.wrong,
        "latency_ms": summary(ours.latencies),
        "epoch_ms": summary(ours.epochs),
        "rows_per_s": RATE,
    }
    if beside:
        found |= {
            "ratio_vs_flink_p99": p99 / percentile(theirs.latencies, 99),
            "flink": flink.VERSION,
            "flink_p50_ms": percentile(theirs.latencies, 50),
            "flink_p99_ms": percentile(theirs.latencies, 99),
            "flink_wrong_windows": theirs.wrong,
            "flink_latency_ms": summary(theirs.latencies),
            "flink_checkpoint_ms": CHECKPOINT_MS,
        }
    result("latency", **found)


@dataclass
class Run:
    """What one run of a side gave."""

    latencies: list[float]
    """Milliseconds, of each window that counts and was seen."""
    wrong: int
    """Windows that are missing, or that do not count the rows that they must."""
    epochs: list[float] = field(default_factory=list)
    """Milliseconds, of our side."""


@dataclass
class Found:
    """What all runs of a side gave."""

    latencies: list[float] = field(default_factory=list)
    epochs: list[float] = field(default_factory=list)
    wrong: int = 0

    def add(self, side: str, seconds: int, run: Run) -> None:
        """Take in one more run."""
        self.latencies += run.latencies
        self.epochs += run.epochs
        self.wrong += run.wrong
        p50, p99 = percentile(run.latencies, 50), percentile(run.latencies, 99)
        say(f"{side}: p50 {p50:.0f} ms, p99 {p99:.0f} ms of {seconds} windows; {run.wrong} wrong")


def springtide(spark: Any, seconds: int) -> Run:
    """Run the query in real time."""
    begin = datetime.fromtimestamp(math.ceil(time.time() + AHEAD), UTC)
    total = RATE * (WARM_UP + seconds) + 1
    with scratch() as folder:
        out, notes = folder / "out", folder / "seen"
        out.mkdir()
        query = _query(begin, total, out)
        with reading(out, notes):
            run = query.start(spark, checkpoint=folder / "checkpoint", instances=2)
            run.wait()
        return _judged(out, notes, begin, seconds, [s.seconds * 1000 for s in run.snapshots()])


def by_flink(cluster: flink.Flink, seconds: int) -> Run:
    """Run it on Flink."""
    begin = datetime.fromtimestamp(math.ceil(time.time() + AHEAD), UTC)
    task = {
        "query": "latency",
        "form": "datastream",
        "state": "hashmap",
        "interval_ms": CHECKPOINT_MS,
        "begin": round(begin.timestamp() * 1000),
        "total": RATE * (WARM_UP + seconds) + 1,
        "keys": KEYS,
    }
    with scratch() as folder:
        out, notes = folder / "out", folder / "seen"
        out.mkdir()
        with reading(out, notes):
            cluster.run(folder, AHEAD + WARM_UP + seconds + 120, **task)
        return _judged(out, notes, begin, seconds)


def _judged(out: Path, notes: Path, begin: datetime, seconds: int, epochs: Sequence[float] = ()) -> Run:
    """Say how long each window's rows took, and which windows are wrong."""
    seen, sums = windows(out, times(notes))
    ends = [begin + timedelta(seconds=i + 1) for i in range(WARM_UP, WARM_UP + seconds)]
    wrong = sum(sums.get(end) != wanted(WARM_UP + i) for i, end in enumerate(ends))
    return Run([(seen[end] - end.timestamp()) * 1000 for end in ends if end in seen], wrong, list(epochs))


def percentile(values: Sequence[float], share: int) -> float:
    """Return the smallest value that so many per cent of all are not above.

    >>> percentile([3.0, 1.0, 2.0], 50), percentile([3.0, 1.0, 2.0], 99)
    (2.0, 3.0)
    """
    return sorted(values)[max(0, math.ceil(len(values) * share / 100) - 1)]


def _query(begin: datetime, total: int, out: Path) -> st.Query:
    def rows(stream: int, first: int, count: int) -> pl.DataFrame:
        number = pl.int_range(first, first + count, dtype=pl.Int64)
        at = pl.lit(begin).cast(st.TIME) + pl.duration(milliseconds=number)
        return pl.select(key=number % KEYS, x=number, ts=at.cast(st.TIME))

    events = st.source("events", st.generate(rows, rate=RATE, total=total, start=begin), ts="ts")
    totals = events.aggregate(by="key", window=st.tumbling("1s"), n=st.count(), total=st.sum("x"), name="totals")
    return st.Query("latency", totals.to(st.parquet_sink(out)))


@contextmanager
def reading(folder: Path, notes: Path) -> Iterator[None]:
    """Have a process of its own note when files of a folder can be seen."""
    with open(notes, "w") as file:
        reader = subprocess.Popen([sys.executable, Path(__file__).with_name("reader.py"), folder], stdout=file)
        while not notes.stat().st_size:
            time.sleep(0.01)
        try:
            yield
        finally:
            reader.terminate()
            reader.wait()


def times(notes: Path) -> dict[str, float]:
    """Return when each file could first be seen."""
    lines = [line.split(" ", 1) for line in notes.read_text().splitlines()[1:]]
    return {name: float(when) for when, name in reversed(lines)}


def wanted(second: int) -> Sums:
    """Return what the rows of a window must add up to: each key has one, and the numbers of the rows of that second are in their totals.

    >>> wanted(0)
    (17, 1000, 499500)
    """
    first = second * RATE
    return KEYS, RATE, sum(range(first, first + RATE))


def windows(folder: Path, seen: Mapping[str, float]) -> tuple[dict[datetime, float], dict[datetime, Sums]]:
    """Return when the last rows of each window, by its end, could be seen, and what they add up to."""
    last: defaultdict[datetime, float] = defaultdict(float)
    sums: defaultdict[datetime, Sums] = defaultdict(lambda: (0, 0, 0))
    for path in (folder / name for name in seen if name[0] not in "._"):
        rows = (
            pl.read_parquet(path, glob=False)
            .group_by("window_end")
            .agg(pl.len().alias("rows"), pl.col("n", "total").sum())
        )
        if rows.schema["window_end"] == pl.Int64:  # Flink's are milliseconds
            rows = rows.with_columns(pl.from_epoch("window_end", "ms").dt.replace_time_zone("UTC"))
        for end, *found in rows.iter_rows():
            last[end] = max(last[end], seen[path.name])
            a, b, c = sums[end]
            sums[end] = (a + found[0], b + found[1], c + found[2])
    return last, sums
