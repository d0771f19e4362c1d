"""The Cartesian product over windows of 20,000 tuples, by the number of instances (StreamCloud, figure 17; SC-14).

Tuples have 12 bytes, as in the paper: three integers. Two streams are compared, each new tuple with the last 20,000 of the other, by a predicate that nothing can be sorted or hashed for:
(a + b + c + a' + b' + c') mod 100,003 = 0.

The paper's point: an instance has only its part of the window, so a tuple takes less time in each of N instances. In ours every instance sees every tuple and keeps one in N, so each compares 1/N of what
one instance compares. In the paper a tuple goes to √N instances, each of which compares it with 1/√N of the window: per instance that is 1/N of the comparisons too. Both divide the work by N, and throughput can grow with N; the N² that the paper measured
does not follow from either. Two cores run all instances; what they could do with a core each is the rows over the work of the busiest one, as measured (`by_work`). Nothing else is modelled.
The rows of every run are compared with those of a plain NumPy program.
"""

import argparse
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import springtide as st
from benchmarks.elastic.reconfigure import different
from benchmarks.joins.data import Columns, write
from benchmarks.measure import DATA, result, say, scratch, session, summary
from benchmarks.pictures import picture
from springtide.charts import COLOURS, PALE

WINDOW = 20_000
RATE, SECONDS = 1_000, 10
"""Tuples a second of event time of both streams together, and seconds of an epoch."""
INSTANCES = (1, 2, 4, 8)
MODULUS = 100_003
FULL = 5
"""Epochs after which both windows are full."""


def main(*args: str) -> None:
    parser = argparse.ArgumentParser(prog="cartesian-last-n")
    parser.add_argument("--instances", type=int, nargs="+", default=INSTANCES)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=8)
    given = parser.parse_args(args)
    sides = [write(DATA / f"last-n-{s}", given.epochs, SECONDS, RATE // 2, _tuples) for s in ("left", "right")]
    expected = program(*(pl.concat([pl.read_parquet(f) for f in sorted(side.glob("*.parquet"))]) for side in sides))
    spark = session()
    rates: dict[int, list[float]] = {n: [] for n in given.instances}
    work: dict[int, list[float]] = {n: [] for n in given.instances}
    wrong = 0
    with scratch() as folder:
        for i in range(given.rounds + 1):  # the first is warm-up
            for n in given.instances if i % 2 else reversed(given.instances):
                place = folder / f"{n}-{i}"
                all_rates, by_work = _run(spark, *sides, place, n)
                rows = pl.read_parquet(place / "out" / "*.parquet").select(expected.columns)
                wrong += different(rows, expected)
                if i:
                    rates[n] += all_rates
                    work[n] += by_work
                    say(
                        f"{n} instances: {statistics.median(all_rates):,.0f} tuples/s on two cores, {statistics.median(by_work):,.0f} by work; {wrong} wrong"
                    )
    least = min(given.instances)
    gain = {str(n): statistics.median(work[n]) / statistics.median(work[least]) for n in given.instances}
    result(
        "cartesian-last-n",
        tuples_per_s={str(n): summary(r) for n, r in rates.items()},
        by_work={str(n): summary(r) for n, r in work.items()},
        gain={n: round(g, 2) for n, g in gain.items()},
        exponent=_exponent({int(n): g for n, g in gain.items()}),
        comparisons_per_s={str(n): statistics.median(r) * WINDOW for n, r in rates.items()},
        wrong_rows=wrong,
        rows_compared=expected.height,
        paper={"exponent": 2, "window": WINDOW},
    )


def _tuples(rng: np.random.Generator, ts: np.ndarray) -> Columns:
    a, b, c = rng.integers(0, 2**29, (3, ts.size)).astype(np.int32)
    return {"a": a, "b": b, "c": c}


def query_of(left: Path, right: Path, out: Path) -> st.Query:
    """Write the query."""
    one, other = st.source("one", st.parquet(left), ts="ts"), st.source("other", st.parquet(right), ts="ts")
    total = sum((pl.col(f"{n}{s}").cast(pl.Int64) for n in "abc" for s in ("", "_right")), pl.lit(0))
    pairs = one.theta_join(other, total % MODULUS == 0, within=st.last_n(WINDOW), name="pairs")
    return st.Query("last-n", pairs.to(st.parquet_sink(out)))


def _run(spark: Any, left: Path, right: Path, folder: Path, instances: int) -> tuple[list[float], list[float]]:
    """Give tuples per second of the epochs with full windows: by the clock, and by the work of the busiest instance."""
    query = query_of(left, right, folder / "out")
    run = query.start(
        spark,
        checkpoint=folder / "checkpoint",
        instances={"one+other": 2, "pairs": instances},
        rows_per_epoch=RATE // 2 * SECONDS,
    )
    run.wait()
    snapshots = [s for s in run.snapshots() if s.rows][FULL:]
    epochs = {e["epoch"]: e for e in run.metrics()}
    rates = [s.rows / (epochs[s.epoch]["at"] - epochs[s.epoch - 1]["at"]) for s in snapshots]
    return rates, [s.rows / max(s.subqueries["pairs"].busy) for s in snapshots]


def program(left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    """Compare each tuple with the last ones of the other side, one after the other."""
    sums = [
        side.select(sum((pl.col(n).cast(pl.Int64) for n in "abc"), pl.lit(0))).to_series().to_numpy() % MODULUS
        for side in (left, right)
    ]
    times = [side["ts"].to_physical().to_numpy() for side in (left, right)]
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for side in (0, 1):
        counts = np.searchsorted(times[1 - side], times[side], side="right" if side else "left")
        for i, count in enumerate(counts.tolist()):
            first = max(0, count - WINDOW)
            hit = first + np.flatnonzero((sums[1 - side][first:count] + sums[side][i]) % MODULUS == 0)
            mine = np.full(hit.size, i)
            found.append((mine, hit) if side == 0 else (hit, mine))
    rows, others = (np.concatenate([pair[k] for pair in found]) for k in (0, 1))
    of_left, of_right = left[rows], right[others]
    named = of_right.rename({n: f"{n}_right" for n in of_right.columns})
    both = pl.concat([of_left, named], how="horizontal").with_columns(ts=pl.max_horizontal("ts", "ts_right"))
    return both.drop("ts_right")


def _exponent(gain: Mapping[int, float]) -> float:
    """Fit gain = N^k; give k."""
    if len(gain) < 2:
        return 0.0
    n, g = np.log(list(gain)), np.log(list(gain.values()))
    return round(float(np.polyfit(n, g, 1)[0]), 3)


def draw(figures: Mapping[str, Any]) -> None:
    """Draw throughput by instances."""
    rates, work = ({int(i): r["median"] for i, r in figures[name].items()} for name in ("tuples_per_s", "by_work"))
    with picture("cartesian-last-n", (1.5,), title="Cartesian product over windows of 20,000 tuples") as (axes,):
        n = list(rates)
        first = work[n[0]]
        axes.plot(n, [rates[i] for i in n], color=COLOURS[0], marker="o", label="on two cores")
        axes.plot(n, [work[i] for i in n], color=COLOURS[1], marker="o", label="by the busiest one's work")
        axes.plot(n, [first * i / n[0] for i in n], color=PALE, linestyle="--", label="N")
        axes.plot(n, [first * (i / n[0]) ** 2 for i in n], color=PALE, linestyle=":", label="N²")
        axes.set(xlabel="instances", ylabel="tuples/s", xscale="log", yscale="log")
        axes.set_xticks(n, [str(i) for i in n])
