"""The band join of ScaleJoin and STRETCH (ST-6) on two instances, beside the paper's one-thread program, re-made plainly in NumPy.

    R(x int, y float) ⋈ S(a int, b float, c double, d bool)     a - 10 ≤ x ≤ a + 10,  b - 10 ≤ y ≤ b + 10,  within 5 minutes

All of x, y, a, b are uniform over 1 … 10,000: one pair in 250,000 is a match. Both streams have `rate` tuples a second, 2,000 unless told: then a window holds
600,000 tuples of each side, and a tuple is compared with as many. Comparisons are pairs within the window, whether anybody looked at them or not: the engine
leaves most out by sorting, the program does not. An epoch is a minute of input. Rates are those of the epochs after the first window is full.

The program takes tuples one by one in the order of their times, and compares each with the stored window of the other side: one vector comparison per attribute. It is
measured on the first tuples after the first window is full, as many as take some seconds, with window and tuples in memory: no source, no sink, no state on disk. Their matches
are compared with the engine's rows.
"""

import statistics
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import springtide as st
from benchmarks.joins.data import Columns, comparisons, write
from benchmarks.measure import DATA, result, say, scratch, session, summary

WITHIN = 300
FULL = 6
"""Minutes after which a window is full."""
SECONDS = 5.0
"""As long does the one-thread program run."""


def scalejoin(rate: str = "2000", minutes: str = "12", rounds: str = "3") -> None:
    """Run all; another rate, fewer minutes or rounds are for trying it out."""
    files = int(minutes)
    r = write(DATA / f"scalejoin-r-{rate}", files, 60, int(rate), _r)
    s = write(DATA / f"scalejoin-s-{rate}", files, 60, int(rate), _s)
    counts = comparisons(_times(r, files), _times(s, files), WITHIN * 1_000_000)
    spark = session()
    ours: dict[str, list[float]] = {"broadcast": [], "grid": []}
    plain: list[float] = []
    with scratch() as folder:
        _springtide(spark, r, s, folder / "warm-up", "broadcast", counts, int(rate))
        for i in range(int(rounds)):  # turn about, so that a busy minute of the machine hits all
            found, rows = _program(r, s, files)
            plain.append(found)
            for routing, rates in ours.items():
                rates += _springtide(spark, r, s, folder / f"{routing}{i}", routing, counts, int(rate))
            shown = ", ".join(f"{k} {statistics.median(v):.3g}" for k, v in ours.items())
            say(f"comparisons/s: {shown}, one thread of NumPy {plain[-1]:.3g}")
        compared = [_same_rows(folder / f"{routing}{int(rounds) - 1}", rows) for routing in ours]
    median = statistics.median(ours["broadcast"])
    result(
        "scalejoin",
        comparisons_per_s=median,
        ratio_vs_numpy=median / statistics.median(plain),
        grid_comparisons_per_s=statistics.median(ours["grid"]),
        numpy_comparisons_per_s=statistics.median(plain),
        springtide={routing: summary(rates) for routing, rates in ours.items()},
        numpy=summary(plain),
        tuples_per_s_per_stream_in_event_time=int(rate),
        window_tuples=WITHIN * int(rate),
        rows_compared=compared[0],
    )


def _r(rng: np.random.Generator, ts: np.ndarray) -> Columns:
    x, y = rng.uniform(1, 10_000, (2, ts.size))
    return {"x": x.astype(np.int32), "y": y.astype(np.float32)}


def _s(rng: np.random.Generator, ts: np.ndarray) -> Columns:
    a, b = rng.uniform(1, 10_000, (2, ts.size))
    return {
        "a": a.astype(np.int32),
        "b": b.astype(np.float32),
        "c": rng.random(ts.size),
        "d": rng.random(ts.size) < 0.5,
    }


def _times(folder: Path, files: int) -> list[np.ndarray]:
    return [pl.read_parquet(folder / f"{i:03d}.parquet")["ts"].to_physical().to_numpy() for i in range(files)]


def _springtide(spark: Any, r: Path, s: Path, folder: Path, routing: Any, counts: list[int], rate: int) -> list[float]:
    left, right = st.source("r", st.parquet(r), ts="ts"), st.source("s", st.parquet(s), ts="ts")
    x, y, a, b = (pl.col(n) for n in ("x", "y", "a", "b"))
    band = x.is_between(a - 10, a + 10) & y.is_between(b - 10, b + 10)
    pairs = left.theta_join(right, band, within=f"{WITHIN}s", routing=routing, name="band")
    query = st.Query("scalejoin", pairs.to(st.parquet_sink(folder / "out")))
    run = query.start(spark, checkpoint=folder / "checkpoint", instances=2, rows_per_epoch=60 * rate)
    run.wait()
    epochs = [e for e in run.metrics() if e["rows"]]
    if [e["rows"] for e in epochs] != [2 * 60 * rate] * len(counts):
        raise AssertionError(f"epochs are not what they should be: {[e['rows'] for e in epochs]} rows")
    seconds = [after["at"] - before["at"] for before, after in pairwise(epochs)]
    return [count / time for count, time in list(zip(counts[1:], seconds, strict=True))[FULL - 1 :]]


def _program(r: Path, s: Path, files: int) -> tuple[float, pl.DataFrame]:
    """Compare tuples one by one with the window of the other side; give comparisons per second, and the matches."""
    sides = [pl.concat([pl.read_parquet(f / f"{i:03d}.parquet") for i in range(files)]) for f in (r, s)]
    times = [side["ts"].to_physical().to_numpy() for side in sides]
    x, y, a, b = (sides[k][n].to_numpy() for k, n in ((0, "x"), (0, "y"), (1, "a"), (1, "b")))
    bounds = a - 10, a + 10, b - np.float32(10), b + np.float32(10)
    begin = int(times[0][0]) + FULL * 60_000_000
    ends = [int(np.searchsorted(t, begin)) for t in times]
    order = sorted(
        (t, side, ends[side] + i)
        for side in (0, 1)
        for i, t in enumerate(times[side][ends[side] : ends[side] + 50_000].tolist())
    )
    compared, matches, started = 0, [], time.perf_counter()
    for t, side, i in order:
        other = 1 - side
        window = slice(int(np.searchsorted(times[other], t - WITHIN * 1_000_000)), ends[other])
        if side == 0:
            low_a, high_a, low_b, high_b = (values[window] for values in bounds)
            held = (low_a <= x[i]) & (high_a >= x[i]) & (low_b <= y[i]) & (high_b >= y[i])
        else:
            low_a, high_a, low_b, high_b = (values[i] for values in bounds)
            held = (x[window] >= low_a) & (x[window] <= high_a) & (y[window] >= low_b) & (y[window] <= high_b)
        matches += [(t, side, i, window.start + int(j)) for j in np.flatnonzero(held)]
        compared += held.size
        ends[side] = i + 1
        if time.perf_counter() - started > SECONDS:
            break
    taken = time.perf_counter() - started
    left = [i if side == 0 else j for _, side, i, j in matches]
    right = [j if side == 0 else i for _, side, i, j in matches]
    rows = pl.concat([sides[0][left].drop("ts"), sides[1][right].drop("ts")], how="horizontal")
    ts = pl.Series("ts", [t for t, *_ in matches], dtype=pl.Int64).cast(st.TIME)
    upto = pl.lit(t).cast(st.TIME)
    found = rows.select(ts, pl.all()).with_columns(pl.lit(begin).cast(st.TIME).alias("from"), upto.alias("to"))
    return compared / taken, found


def _same_rows(folder: Path, wanted: pl.DataFrame) -> int:
    low, high = wanted["from"][0], wanted["to"][0]
    wanted = wanted.drop("from", "to")
    given = pl.read_parquet(folder / "out" / "*.parquet").filter(pl.col("ts").is_between(low, high))
    given, wanted = (f.select(wanted.columns).sort(wanted.columns) for f in (given, wanted))
    if not given.equals(wanted):
        raise AssertionError(f"{given.height} rows of the engine, {wanted.height} of the program:\n{given}\n{wanted}")
    say(f"{given.height} rows are the same on both sides")
    return given.height
