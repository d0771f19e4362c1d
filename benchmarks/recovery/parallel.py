"""`recovery-parallel` (SE-3, fig. 13): lost state made anew by one instance, by two, by four.

A word counter in plain Python, a dictionary of words and their counters, at one instance. What the splitter sent since the last checkpoint is kept (buffer state) and sent again:
5, 10 and 30 seconds of it. Seconds are from the loss of the counter's state until it is whole again. There are two cores, so four instances cannot be
faster than two. Every side must give the same rows.
"""

import shutil
import statistics
import time
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

import springtide as st
from benchmarks.measure import result, say, scratch, session, summary
from benchmarks.pictures import picture
from benchmarks.recovery import words
from benchmarks.recovery.failures import lose, until, whole_again
from springtide.charts import COLOURS

RATE = 5_000
DICTIONARY = 10_000
INTERVALS = (5, 10, 30)
DEGREES = (1, 2, 4)
FULL = 5
"""Seconds of the stream before the checkpoint."""
EACH = 1_000
"""A word is given out whenever it came so many times again."""


class Counter(st.BucketOperator[dict]):
    """How often each word came."""

    output: ClassVar = {"word": pl.String, "n": pl.Int64, "ts": st.TIME}

    def init(self) -> dict:
        return {}

    def process(self, state: dict, tuples: pl.DataFrame, ready_ts: int) -> pl.DataFrame:
        rows = []
        for word, ts in tuples.select("word", "ts").iter_rows():
            state[word] = n = state.get(word, 0) + 1
            if n % EACH == 0:
                rows.append((word, n, ts))
        return pl.DataFrame(rows, schema=dict(self.output), orient="row")


def main(repeats: str = "3") -> None:
    spark = session(spark_driver_memory="2g")
    found: dict[int, dict[int, list[float]]] = {c: {d: [] for d in DEGREES} for c in INTERVALS}
    compared = 0
    with scratch() as folder:
        _lose(spark, folder / "warm-up", 5, 2)
        for i in range(int(repeats)):
            for c in INTERVALS:
                rows: dict[int, pl.DataFrame] = {}
                for degree in DEGREES:
                    place = folder / f"{c}-{degree}-{i}"
                    seconds, rows[degree] = _lose(spark, place, c, degree)
                    found[c][degree].append(seconds)
                    shutil.rmtree(place)
                    say(f"{c} s by {degree}: {seconds:.2f} s")
                assert all(rows[1].equals(other) for other in rows.values()), "other rows"
                compared += rows[1].height * (len(DEGREES) - 1)
    spark.stop()
    medians = {c: {d: statistics.median(s) for d, s in sides.items()} for c, sides in found.items()}
    _draw(found)
    longest = INTERVALS[-1]
    result(
        "recovery-parallel",
        ratio=min(medians[longest][d] for d in DEGREES[1:]) / medians[longest][1],
        ratios={str(c): {str(d): round(m[d] / m[1], 3) for d in DEGREES[1:]} for c, m in medians.items()},
        seconds={str(c): {str(d): summary(s) for d, s in sides.items()} for c, sides in found.items()},
        rows_compared=compared,
        rate=RATE,
    )


def _lose(spark: Any, folder: Path, interval: int, degree: int) -> tuple[float, pl.DataFrame]:
    """Fill the state, make it durable, go on for an interval, lose what is not durable; give the time of the recovery and all rows."""
    feed, ckpt = folder / "in", folder / "checkpoint"
    feed.mkdir(parents=True)
    _write(feed, 0, FULL)
    fragments = st.source("fragments", st.parquet(feed, follow=True), ts="ts")
    counts = words.words_of(fragments).operator(Counter(), keys="word", name="counter")
    run = st.Query("words", counts.to(st.parquet_sink(folder / "out"))).start(
        spark,
        checkpoint=ckpt,
        instances=1,
        rows_per_epoch=RATE,
        durability=st.Durability(every="1h", degree=degree, buffer=True),
    )
    _taken(run, FULL)
    run.checkpoint_now()
    _write(feed, FULL, interval)
    _taken(run, FULL + interval)
    lost = time.time()
    lose(ckpt)
    _write(feed, FULL + interval, 1)  # with these it is noticed
    seconds = whole_again(run, lost)
    _taken(run, FULL + interval + 1)
    assert run.status()["subqueries"]["counter"]["instances"] == degree
    run.stop()
    return seconds, pl.read_parquet(folder / "out" / "*.parquet").sort("ts", "word", "n")


def _write(folder: Path, first: int, seconds: int) -> None:
    for second in range(first, first + seconds):
        rows = words.rows(RATE, DICTIONARY, 0, second * RATE, RATE)
        hidden, path = (folder / f"{second:06d}.{ending}" for ending in ("tmp", "parquet"))
        rows.write_parquet(hidden)
        hidden.rename(path)


def _taken(run: Any, seconds: int) -> None:
    until(run, lambda: run.status()["sources"].get("fragments", {"accepted": 0})["accepted"] == seconds * RATE)


def _draw(found: dict[int, dict[int, list[float]]]) -> None:
    title = "seconds until lost state is whole again, by one instance and by several on 2 cores"
    with picture("recovery-parallel", (1.4,), title=title) as (axes,):
        for i, degree in enumerate(DEGREES):
            medians = [statistics.median(found[c][degree]) for c in INTERVALS]
            axes.plot(INTERVALS, medians, "o-", color=COLOURS[i], label=f"degree {degree}")
            for c in INTERVALS:
                axes.plot([c] * len(found[c][degree]), found[c][degree], ".", color=COLOURS[i], alpha=0.5)
        axes.set(ylabel="seconds", xlabel="seconds of the stream since the checkpoint", ylim=(0, None))
