"""Fig. 20 of the StreamCloud paper: keys whose popularity moves, with and without balancing.

10,000 keys on 15 instances: first all alike, then normally distributed around 2,000, 4,000, 6,000 and 8,000 with a deviation of 100 (fig. 20.a),
then with deviations of 75, 50 and 25 (fig. 20.b). In-process, on the engine itself: real tasks measure their time and count the rows of
every bucket, the real manager decides after every epoch. Every row takes the same time (it waits, as if for a service). What is compared is
the load of instances in rows. How many rows each bucket gets does not depend on who owns it: the load without balancing is that of the
same rows under the first map. Rows are drawn at random, so a load is never quite what it was: `cv_chance_pct` is the deviation that this
alone makes.
"""

import statistics
import time
from pathlib import Path

import numpy as np
import polars as pl

import springtide as st
from benchmarks.measure import result, say, scratch, summary
from benchmarks.pictures import picture
from springtide.charts import COLOURS, PALE
from springtide.runtime.engine import Engine, Options
from springtide.runtime.inprocess import run

KEYS = 10_000
INSTANCES = 15
PERIODS = [None, (2000, 100), (4000, 100), (6000, 100), (8000, 100), (8000, 75), (8000, 50), (8000, 25)]
"""Mean and deviation of the keys, one after the other; None: all alike."""
EPOCHS = 9
"""Of a period."""
SETTLED = 4
"""Epochs of a period in which balancing may still be at work."""
ROWS = 100_000
SERVICE = 0.000_003
"""Seconds that each row takes."""
SEEDS = (1, 2, 3)


def main() -> None:
    ratios, after, before = [], [], []
    for seed in SEEDS:
        loads = _loads(seed)
        settled = [e for e in range(len(loads["balanced"])) if e % EPOCHS >= SETTLED]
        cvs = {name: [float(np.std(load) / np.mean(load)) for load in found] for name, found in loads.items()}
        deviations = {name: statistics.fmean(float(np.std(load)) for load in found) for name, found in loads.items()}
        ratios.append(deviations["plain"] / deviations["balanced"])
        after.append(100 * statistics.median(cvs["balanced"][e] for e in settled))
        before.append(100 * statistics.median(cvs["plain"][e] for e in settled))
        say(f"seed {seed}: deviation {ratios[-1]:.1f} × smaller, cv {before[-1]:.1f} % → {after[-1]:.2f} %")
        if seed == SEEDS[0]:
            _draw(cvs)
    result(
        "imbalance",
        ratio=statistics.median(ratios),
        cv_pct=statistics.median(after),
        ratios=summary(ratios),
        cv_balanced_pct=summary(after),
        cv_plain_pct=summary(before),
        cv_chance_pct=100 / (ROWS / INSTANCES) ** 0.5,
        instances=INSTANCES,
        keys=KEYS,
        rows_per_epoch=ROWS,
    )


def _draw(cvs: dict[str, list[float]]) -> None:
    with picture("imbalance", (1.4,), title="keys whose popularity moves: how uneven the load of 15 instances is") as (
        axes,
    ):
        axes.plot([100 * cv for cv in cvs["plain"]], color=COLOURS[1], label="without balancing")
        axes.plot([100 * cv for cv in cvs["balanced"]], color=COLOURS[0], label="with balancing")
        for i, period in enumerate(PERIODS):
            axes.axvline(i * EPOCHS, color=PALE, linestyle=":")
            text = f"μ {period[0]:,}\nσ {period[1]}" if period else "uniform"
            axes.text(i * EPOCHS + 0.5, 0.98, text, transform=axes.get_xaxis_transform(), fontsize=7, va="top")
        axes.set(xlabel="epoch", ylabel="deviation, % of the mean", xlim=(0, len(cvs["plain"]) - 1))
        axes.set_ylim(0, 125 * max(cvs["plain"]))


def _loads(seed: int) -> dict[str, list[np.ndarray]]:
    """Run the query; give the rows of each instance in each epoch, and what they would have been under the first map."""
    found: dict[str, list[np.ndarray]] = {"plain": [], "balanced": []}
    first: list[int] = []

    def between(engine: Engine) -> bool:
        if engine.snapshot is not None:
            own = engine.snapshot.subqueries["counts"]
            first.extend([] if first else own.map.owners)
            for name, owners in (("plain", first), ("balanced", own.map.owners)):
                found[name].append(np.bincount(owners, own.bucket_rows, INSTANCES))
        return True

    # Tasks run one after the other in this process: nobody is busy for more than his part of the time, so UIT is as small a part.
    balancing = st.Balancing(uit=0.02 / INSTANCES)
    elastic = st.Elastic(policy=st.Manual(), balancing=balancing, every=0.0, grace=0.0)
    with scratch() as folder:
        counts = (
            st.source("rows", _source(seed, folder / "in"), ts="ts")
            .aggregate(by="key", window=st.last_n(1), n=st.count(), name="counts")
            .map(n=pl.col("n").map_batches(_served, return_dtype=pl.Int64))
            .filter(pl.col("n") == 0)
        )
        query = st.Query("imbalance", counts.to(st.memory_sink()))
        run(query.plan(buckets=1024), folder / "checkpoint", Options(INSTANCES, ROWS, elastic=elastic), between=between)
    return found


def _served(rows: pl.Series) -> pl.Series:
    time.sleep(SERVICE * len(rows))
    return rows


def _source(seed: int, folder: Path) -> object:
    """Write one file per epoch, and one more: what is seen between two epochs is the one before."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    for epoch in range(len(PERIODS) * EPOCHS + 1):
        period = PERIODS[min(epoch // EPOCHS, len(PERIODS) - 1)]
        keys = rng.integers(0, KEYS, ROWS) if period is None else np.round(rng.normal(*period, ROWS)).astype(np.int64)
        micros = epoch * 1_000_000 + np.sort(rng.integers(0, 1_000_000, ROWS))
        pl.DataFrame({"key": keys, "ts": pl.Series(micros).cast(st.TIME)}).write_parquet(
            folder / f"{epoch:04d}.parquet"
        )
    return st.parquet(folder)
