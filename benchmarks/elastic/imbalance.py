"""Fig. 20 of the StreamCloud paper: keys whose popularity moves, with and without balancing.

10,000 keys, normally distributed; every few seconds the mean wanders on to another place, so that other buckets are hot. In-process, on the engine
itself: real tasks count the rows of every bucket, the real manager decides after every epoch. What is compared is the load of
instances in rows: time measured on a shared machine with two cores would say more about the machine.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import polars as pl

import springtide as st
from benchmarks.measure import result, say, scratch
from springtide.elastic.snapshot import Snapshot
from springtide.runtime.engine import Engine, Options
from springtide.runtime.inprocess import run

KEYS = 10_000
INSTANCES = 15
EPOCHS = 120
ROWS = 20_000
MOVES = 30
"""Epochs after which the distribution moves on."""
SETTLED = 6
"""Epochs after a move in which balancing may still be at work."""
SEEDS = (1, 2, 3, 4, 5)


def main() -> None:
    ratios, after, before = [], [], []
    for seed in SEEDS:
        loads = {name: _loads(seed, balanced=name == "balanced") for name in ("plain", "balanced")}
        settled = [e for e in range(EPOCHS) if e % MOVES >= SETTLED]
        cv = {n: [float(np.std(x[e]) / np.mean(x[e])) for e in settled] for n, x in loads.items()}
        deviation = {n: statistics.fmean(float(np.std(x[e])) for e in range(EPOCHS)) for n, x in loads.items()}
        ratios.append(deviation["plain"] / deviation["balanced"])
        after.append(100 * statistics.median(cv["balanced"]))
        before.append(100 * statistics.median(cv["plain"]))
        say(f"seed {seed}: deviation {ratios[-1]:.1f} × smaller, cv {before[-1]:.1f} % → {after[-1]:.2f} %")
    result(
        "imbalance",
        ratio=statistics.median(ratios),
        cv_pct=statistics.median(after),
        ratios=summary_of(ratios),
        cv_balanced_pct=summary_of(after),
        cv_plain_pct=summary_of(before),
        instances=INSTANCES,
        keys=KEYS,
    )


def summary_of(values: Sequence[float]) -> dict[str, float]:
    """Give median and spread."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


def _loads(seed: int, *, balanced: bool) -> list[np.ndarray]:
    """Run the query; give the rows of each instance in each epoch."""
    found: list[np.ndarray] = []

    def between(engine: Engine) -> bool:
        if isinstance(engine.snapshot, Snapshot):
            own = engine.snapshot.subqueries["counts"]
            loads = np.zeros(own.instances)
            np.add.at(loads, list(own.map.owners), own.bucket_rows)
            found.append(loads)
        return True

    # a policy that leaves the degree alone, and balancing after every epoch
    elastic = st.Elastic(
        policy=st.Manual(),
        balancing=st.Balancing(uit=0.02, mit=0.01),
        every=0.0,
        grace=0.0,
        min=INSTANCES,
        max=INSTANCES,
    )
    with scratch() as folder:
        counts = (
            st.source("rows", _source(seed, folder / "in"), ts="ts")
            .operator(_Passing(), keys="key", name="counts")
            .filter(pl.lit(False))
        )
        query = st.Query("imbalance", counts.to(st.memory_sink()))
        options = Options(INSTANCES, ROWS, elastic=elastic if balanced else None)
        run(query.plan(buckets=1024), folder / "checkpoint", options, between=between)
    return found[:EPOCHS]


class _Passing(st.BucketOperator[dict]):
    """Takes every tuple and keeps nothing: what counts is how many come to whom."""

    output: ClassVar = {"ts": st.TIME}

    def init(self) -> dict:
        return {}

    def process(self, state: dict, tuples: pl.DataFrame, ready_ts: int) -> None:
        return None


def _source(seed: int, folder: Path) -> object:
    """Write one file per epoch: keys around a mean that moves."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    mean = KEYS / 2
    for epoch in range(EPOCHS + 1):
        if epoch % MOVES == 0:
            mean = rng.uniform(0, KEYS)
        keys = np.round(rng.normal(mean, KEYS / 20, ROWS)).astype(np.int64) % KEYS
        micros = epoch * 1_000_000 + np.sort(rng.integers(0, 1_000_000, ROWS))
        pl.DataFrame({"key": keys, "ts": pl.Series(micros).cast(st.TIME)}).write_parquet(
            folder / f"{epoch:04d}.parquet"
        )
    return st.parquet(folder)
