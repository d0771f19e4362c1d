"""Latency at a low rate: 1,000 rows/s in real time, tumbling windows of a second, from the end of a window to its rows in an exactly-once Parquet folder.

Row number i is due, and has the time, i milliseconds after the start. So the row that ends a window is due at that window's end. A reader in a process of its own notes when each file of the
folder can first be seen. A window counts once, by its last file; those of the first seconds are warm-up. Every window's rows are compared with what they must be.
"""

import math
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

import springtide as st
from benchmarks.measure import result, say, scratch, session, summary

RATE = 1_000
KEYS = 17
WARM_UP = 15
"""Seconds, and so windows, that do not count."""
SECONDS = 60
"""Windows of a run that count."""
ROUNDS = 3
AHEAD = 6.0
"""Seconds from when the query is written until its first row is due."""


def main(*args: str) -> None:
    """Measure; `--small` tries it out."""
    rounds, seconds = (1, 10) if "--small" in args else (ROUNDS, SECONDS)
    spark = session()
    latencies: list[float] = []
    epochs: list[float] = []
    wrong = 0
    for _ in range(rounds):
        found, took, mistakes = springtide(spark, seconds)
        latencies += found
        epochs += took
        wrong += mistakes
        say(
            f"p50 {percentile(found, 50):.0f} ms, p99 {percentile(found, 99):.0f} ms of {len(found)} windows; {wrong} wrong"
        )
    result(
        "latency",
        p50_ms=percentile(latencies, 50),
        p99_ms=percentile(latencies, 99),
        wrong_windows=wrong,
        latency_ms=summary(latencies),
        epoch_ms=summary(epochs),
        rows_per_s=RATE,
    )


def springtide(spark: Any, seconds: int) -> tuple[list[float], list[float], int]:
    """Run the query in real time; return the milliseconds of every window and of every epoch, and how many windows were wrong."""
    begin = datetime.fromtimestamp(math.ceil(time.time() + AHEAD), UTC)
    total = RATE * (WARM_UP + seconds) + 1
    with scratch() as folder:
        out, reader = folder / "out", folder / "seen"
        out.mkdir()
        query = _query(begin, total, out)
        with reading(out, reader):
            run = query.start(spark, checkpoint=folder / "checkpoint", instances=2)
            run.wait()
        seen, counts = windows(out, times(reader))
        took = [s.seconds * 1000 for s in run.snapshots()]
    ends = [begin + timedelta(seconds=i + 1) for i in range(WARM_UP, WARM_UP + seconds)]
    wrong = sum(counts.get(end) != RATE for end in ends)
    return [(seen[end] - end.timestamp()) * 1000 for end in ends if end in seen], took, wrong


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


def windows(folder: Path, seen: Mapping[str, float]) -> tuple[dict[datetime, float], dict[datetime, int]]:
    """Return when the last rows of each window, by its end, could be seen, and how many rows of the input they count."""
    last: defaultdict[datetime, float] = defaultdict(float)
    counts: defaultdict[datetime, int] = defaultdict(int)
    for path in folder.glob("*.parquet"):
        for end, n in pl.read_parquet(path).group_by("window_end").agg(pl.col("n").sum()).iter_rows():
            last[end] = max(last[end], seen[path.name])
            counts[end] += n
    return last, counts
