"""The Cartesian Product of StreamCloud (SC-13) on two instances: calls of one number, as caller or as called, that overlap in time.

    (src or dst of one = src or dst of the other)  and  (start < start' < end  or  start' < start < end')       within 60 s of each other

A stream of call records is joined with itself: as in the paper's setup every call stands on both sides, and an overlap of two calls is found from both. 2,000
calls a second unless told, of 100,000 numbers, one second to ten minutes long: a call meets 240,000 calls. Comparisons are pairs (of a left and a right call)
within the window, whether anybody looked at them or not. An epoch is 20 s of input. Rates are those of the epochs after the first window is full, 120 s.

The rows are compared with those of a plain NumPy program that compares some calls with all of their window; its rate is given beside, one thread and
everything in memory.
"""

import statistics
import time
from functools import reduce
from itertools import pairwise
from operator import or_
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import springtide as st
from benchmarks.joins.data import Columns, comparisons, write
from benchmarks.measure import DATA, result, say, scratch, session, summary

NUMBERS = 100_000
WITHIN = 60
EPOCH = 20
FULL = 7
"""Files after which a window is full."""
SECONDS = 5.0
COLUMNS = ["src", "dst", "start", "end"]


def cartesian(rate: str = "2000", files: str = "15", rounds: str = "3") -> None:
    """Run all; another rate, fewer files or rounds are for trying it out."""
    data = write(DATA / f"cartesian-{rate}", int(files), EPOCH, int(rate), _calls)
    frames = [pl.read_parquet(data / f"{i:03d}.parquet") for i in range(int(files))]
    times = [f["ts"].to_physical().to_numpy() for f in frames]
    counts = comparisons(times, times, WITHIN * 1_000_000)
    spark = session()
    ours: list[float] = []
    plain: list[float] = []
    with scratch() as folder:
        _springtide(spark, data, folder / "warm-up", counts, int(rate))
        for i in range(int(rounds)):  # turn about, so that a busy minute of the machine hits both
            found, rows, asked = _program(pl.concat(frames))
            plain.append(found)
            ours += _springtide(spark, data, folder / f"ours{i}", counts, int(rate))
            say(f"comparisons/s: {statistics.median(ours):.3g}, one thread of NumPy {plain[-1]:.3g}")
        compared = _same_rows(folder / "warm-up" / "out", rows, asked)
    result(
        "cartesian",
        comparisons_per_s=statistics.median(ours),
        ratio_vs_numpy=statistics.median(ours) / statistics.median(plain),
        numpy_comparisons_per_s=statistics.median(plain),
        springtide=summary(ours),
        numpy=summary(plain),
        calls_per_s_in_event_time=int(rate),
        rows_compared=compared,
    )


def overlap() -> pl.Expr:
    """Say which two calls overlap: they have a number in common, and a time at which both are going on."""
    src, dst, start, end = (pl.col(n) for n in COLUMNS)
    other_src, other_dst, other_start, other_end = (pl.col(f"{n}_other") for n in COLUMNS)
    same = (src == other_src) | (src == other_dst) | (dst == other_src) | (dst == other_dst)
    return same & (((start < other_start) & (other_start < end)) | ((other_start < start) & (start < other_end)))


def _calls(rng: np.random.Generator, ts: np.ndarray) -> Columns:
    def phone() -> pl.Series:
        return pl.Series(rng.integers(0, NUMBERS, ts.size)).cast(pl.String).str.zfill(9)

    end = ts // 1000  # a record is written when the call ends
    return {"src": phone(), "dst": phone(), "start": end - rng.integers(1000, 600_000, ts.size), "end": end}


def _springtide(spark: Any, data: Path, folder: Path, counts: list[int], rate: int) -> list[float]:
    calls = st.source("calls", st.parquet(data), ts="ts")
    pairs = calls.theta_join(calls, overlap(), within=f"{WITHIN}s", suffix="_other", name="overlap")
    query = st.Query("cartesian", pairs.to(st.parquet_sink(folder / "out")))
    run = query.start(spark, checkpoint=folder / "checkpoint", instances=2, rows_per_epoch=EPOCH * rate)
    run.wait()
    epochs = [e for e in run.metrics() if e["rows"]]
    if [e["rows"] for e in epochs] != [EPOCH * rate] * len(counts):
        raise AssertionError(f"epochs are not what they should be: {[e['rows'] for e in epochs]} rows")
    seconds = [after["at"] - before["at"] for before, after in pairwise(epochs)]
    return [count / time for count, time in list(zip(counts[1:], seconds, strict=True))[FULL - 1 :]]


def _program(calls: pl.DataFrame) -> tuple[float, pl.DataFrame, pl.DataFrame]:
    """Compare calls one by one with all of their window; give comparisons per second, the rows, and which calls it came to."""
    numbers = calls.select(pl.col("src", "dst").cast(pl.Int32)).to_numpy().T
    ts, start, end = (calls[n].to_physical().to_numpy() for n in ("ts", "start", "end"))
    chosen = np.linspace(calls.height // 3, calls.height * 2 // 3, 5000).astype(np.int64)
    compared, matches, started = 0, [], time.perf_counter()
    for i in chosen.tolist():
        low, high = np.searchsorted(ts, [ts[i] - WITHIN * 1_000_000, ts[i] + WITHIN * 1_000_000 + 1]).tolist()
        window = slice(low, high)
        same = reduce(or_, (mine[i] == others[window] for mine in numbers for others in numbers))
        began, ended = start[window], end[window]
        both = ((start[i] < began) & (began < end[i])) | ((began < start[i]) & (start[i] < ended))
        matches += [(i, low + int(j)) for j in np.flatnonzero(same & both)]
        compared += high - low
        if time.perf_counter() - started > SECONDS:
            break
    taken = time.perf_counter() - started
    left, right = (calls[[pair[k] for pair in matches]] for k in (0, 1))
    other = right.rename({n: f"{n}_other" for n in right.columns})
    rows = pl.concat([left, other], how="horizontal").with_columns(pl.max_horizontal("ts", "ts_other"))
    return compared / taken, rows.drop("ts_other"), calls[chosen[chosen <= i]].select(COLUMNS)


def _same_rows(folder: Path, wanted: pl.DataFrame, asked: pl.DataFrame) -> int:
    """Compare the rows of those left calls that the program came to."""
    given = pl.read_parquet(folder / "*.parquet").join(asked, on=COLUMNS, how="semi").select(wanted.columns)
    given, wanted = (f.sort(f.columns) for f in (given, wanted))
    if not given.equals(wanted):
        raise AssertionError(f"{given.height} rows of the engine, {wanted.height} of the program:\n{given}\n{wanted}")
    say(f"{given.height} rows are the same on both sides")
    return given.height
