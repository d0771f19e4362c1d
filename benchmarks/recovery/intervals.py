"""`recovery-interval` (SE-4, figs. 12 and 15): the checkpointing interval c, from one second to thirty: how long recovery takes, and how long rows take.

Windowed word frequency on two slots, live. Halfway between two checkpoints everything in the shared memory is removed: all state that was not made durable.
Seconds are from there to the moment when it is whole again. Latency is that of rows, from when they were due until the epoch that took them was committed, without
the seconds behind a recovery or a checkpoint by hand; beside it that with state durable in every epoch.
"""

import itertools
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import result, say, scratch, session, summary
from benchmarks.pictures import picture
from benchmarks.recovery import words
from benchmarks.recovery.failures import files, lose, until, whole_again
from springtide.charts import COLOURS

INTERVALS = (1, 2, 5, 10, 20, 30)
RATE = 20_000
DICTIONARY = 100_000
LOSSES = 3
LONG = 10
"""Nobody waits for the checkpoint before a loss at such intervals: it is made by hand."""
LEAST = 15.0
"""Seconds of a run at least, for its latency."""
SETTLED = 3.0
"""Seconds from a start or a recovery until latency is measured again."""


def main() -> None:
    spark = session(spark_driver_memory="2g")
    seconds: dict[int, list[float]] = {}
    latencies: dict[int, np.ndarray] = {}
    wrong = compared = 0
    with scratch() as folder:
        _live(spark, folder / "warm-up", 0)
        for c in (0, *INTERVALS):
            place = folder / str(c)
            seconds[c], latencies[c] = _live(spark, place, c)
            bad, rows = words.wrong(place / "out", RATE, DICTIONARY)
            wrong, compared = wrong + bad, compared + rows
            shutil.rmtree(place)
            p95 = float(np.quantile(latencies[c], 0.95))
            say(
                f"c = {c} s: {[f'{s:.2f}' for s in seconds[c]]} s, p95 {p95 * 1000:.0f} ms, {bad} of {rows:,} rows wrong"
            )
    spark.stop()
    p95s = {c: float(np.quantile(found, 0.95)) for c, found in latencies.items()}
    _draw(seconds, p95s)
    result(
        "recovery-interval",
        recovery_s={str(c): statistics.median(seconds[c]) for c in INTERVALS},
        p95_latency_ms={str(c) if c else "epoch": round(1000 * p95s[c], 1) for c in p95s},
        recovery_30_over_1=statistics.median(seconds[30]) / statistics.median(seconds[1]),
        latency_30_over_1=p95s[30] / p95s[1],
        latency_30_over_epoch=p95s[30] / p95s[0],
        spread={str(c): summary(seconds[c]) for c in INTERVALS},
        p50_latency_ms={
            str(c) if c else "epoch": round(1000 * float(np.median(found)), 1) for c, found in latencies.items()
        },
        wrong_rows=wrong,
        rows_compared=compared,
        rate=RATE,
        dictionary=DICTIONARY,
    )


def _live(spark: Any, folder: Path, c: int) -> tuple[list[float], np.ndarray]:
    """Run the query, lose state a few times, and give how long each recovery took, and the latencies of the rest."""
    ckpt, lost, disturbed = folder / "checkpoint", [], []
    began = time.time()
    run = words.frequencies(words.fragments(RATE, DICTIONARY, ahead=words.WINDOW), folder / "out").start(
        spark, checkpoint=ckpt, instances=1, durability=f"{c}s" if c else "epoch"
    )
    until(run, lambda: len(run.metrics()) > 3 and run.metrics()[-1]["rows"] < RATE)
    disturbed.append((began, time.time() + SETTLED))
    for _ in range(LOSSES if c else 0):
        if c < LONG:
            time.sleep(c / 4)
            durable = files(ckpt)
            until(run, lambda durable=durable: files(ckpt) - durable)
        else:
            disturbed.append((time.time(), time.time() + SETTLED))
            run.checkpoint_now()
        time.sleep(c / 2)
        at = time.time()
        lose(ckpt)
        lost.append(whole_again(run, at))
        disturbed.append((at - 0.5, at + lost[-1] + SETTLED))
    time.sleep(max(SETTLED + 2, began + LEAST - time.time()))
    run.stop()
    return lost, _latencies(run.metrics(), disturbed)


def _latencies(epochs: list[dict[str, Any]], disturbed: list[tuple[float, float]]) -> np.ndarray:
    """Give latencies of rows: they came evenly from when the epoch before took its rows until this one did."""
    found = []
    for before, epoch in itertools.pairwise(epochs):
        first, last = before["at"] - before["seconds"], epoch["at"] - epoch["seconds"]
        if not any(a <= epoch["at"] and first <= b for a, b in disturbed):
            found.append(epoch["at"] - np.linspace(first, last, 50))
    return np.concatenate(found)


def _draw(seconds: dict[int, list[float]], p95s: dict[int, float]) -> None:
    with picture("recovery-interval", (1.2, 1.2), title="the checkpointing interval: recovery against latency") as axes:
        above, below = axes
        above.plot(
            INTERVALS, [statistics.median(seconds[c]) for c in INTERVALS], "o-", color=COLOURS[0], label="median"
        )
        for c in INTERVALS:
            above.plot([c] * len(seconds[c]), seconds[c], ".", color=COLOURS[0], alpha=0.5)
        above.set(ylabel="recovery, seconds", ylim=(0, None))
        below.plot(INTERVALS, [1000 * p95s[c] for c in INTERVALS], "o-", color=COLOURS[1], label="every c seconds")
        below.axhline(1000 * p95s[0], color=COLOURS[2], linestyle="--", label="every epoch")
        below.set(ylabel="p95 latency, ms", xlabel="c, seconds", ylim=(0, None))
