"""AUTOSCALE's evaluation (AS-7) live on Spark: its topologies and streams, with operators that wait for each row as if for a service outside.

Such operators need slots and hardly any processor, so `local[32]` on two cores runs them like a small cluster. Everything is quicker than in the paper: the
streams take a fifth of the time, and so do the times of the policies; a row takes a twentieth, and there are twenty times as many of them.
"""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import springtide as st
from benchmarks.measure import DATA, say, scratch
from springtide.elastic.decisions import Decision, decisions_of
from springtide.elastic.forecast import Linear, Trend
from springtide.elastic.policies.policy import Policy
from springtide.elastic.simulator import traces
from springtide.elastic.snapshot import Snapshot
from springtide.state.history import History

QUICK, SLOW = 0.0001, 0.004
"""Seconds for a row of an intermediate operator, and of one at the end: 2 and 80 ms in table III, over twenty."""
SHORTER = 5
"""By this all times of the policies are shorter than in the paper, and the 3-step stream."""
STREAMS = {"3-step": SHORTER, "5-step": 8}
"""By this the streams are; the 5-step stream is for who can follow sudden peaks, and there it may be harder still."""
LEISURE = 3.0
"""Seconds between two epochs of who does not change anyway: it is to leave the two cores to others."""
SLOTS = 32
WARM = 24
"""Workers that are started before the runs: on two cores each takes about a second of everybody's time to start."""
PACE = 1.0
"""Seconds between two epochs, if there is time."""
AHEAD = 3.0
"""An epoch takes as many rows as come in so many seconds at the peak, and no more: the rest waits."""
KEYS = 1024
KEPT = DATA / "live"
"""Where the history of each run is kept: `springtide simulate --from` can read it."""

FORESIGHT = st.Learned(
    st.Foresight(forecast=Trend(window=120 / SHORTER, lookback=600 / SHORTER), delay=PACE, drain=15),
    again=600 / SHORTER,
)
AUTOSCALE = st.Predictive(forecast=Linear(60 / SHORTER), window=60 / SHORTER)
STATIC = st.Manual()


def elastic(policy: Policy) -> st.Elastic:
    """Say how elastic a run is: reports of an epoch or two, and the grace period in proportion.

    In so short a time the few rows of a bucket are uneven by chance: nothing is balanced for that.
    """
    return st.Elastic(policy=policy, max=12, balancing=st.Balancing(uit=0.2), every=PACE, grace=10 / SHORTER)


@contextmanager
def session() -> Iterator[Any]:
    """Start Spark with slots for all instances, and workers that stand ready, as in a pool (SE-6)."""
    say("starting Spark")
    spark = st.spark_session(f"local[{SLOTS},4]", spark_driver_memory="3g", spark_sql_shuffle_partitions="2")
    spark.sparkContext.parallelize(range(WARM), WARM).foreachPartition(_warm)
    try:
        yield spark
    finally:
        spark.stop()


def _warm(_: Any) -> None:
    import springtide.runtime.tasks  # noqa: F401

    time.sleep(10)  # so that no worker gets two of these


# ── topologies ────────────────────────────────────────────────────────────────────────────────────────────────────────


def served(stream: st.Stream, seconds: float, name: str) -> st.Stream:
    """Wait for an answer to every row, one after the other; rows are dealt to instances by key."""
    last = stream.aggregate(by="key", window=st.last_n(1), n=st.count(), name=name)
    return last.select("ts", key=pl.col("key").map_batches(partial(_answered, seconds), return_dtype=pl.Int64))


def _answered(seconds: float, keys: pl.Series) -> pl.Series:
    time.sleep(seconds * len(keys))
    return keys


def linear(source: Callable[[str, float], st.Stream]) -> st.Stream:
    return served(served(source("source", 1.0), QUICK, "intermediate"), SLOW, "sink")


def diamond(source: Callable[[str, float], st.Stream]) -> st.Stream:
    left, right = source("source", 1.0).split(left=pl.col("key") % 2 == 0, rest="right")
    return served(st.union(served(left, QUICK, "left"), served(right, QUICK, "right")), SLOW, "sink")


def star(source: Callable[[str, float], st.Stream]) -> tuple[st.Stream, ...]:
    middle = served(st.union(source("source-1", 0.5), source("source-2", 0.5)), QUICK, "middle")
    ends = middle.split(one=pl.col("key") % 2 == 0, rest="other")
    return tuple(served(end, SLOW, f"sink-{i + 1}") for i, end in enumerate(ends))


def advertising(source: Callable[[str, float], st.Stream]) -> tuple[st.Stream, ...]:
    """Fig. 11: what has no state is one subquery, the compiler sees to that; a third of the events pass the filter."""
    events = source("events", 1.0).map(
        key=pl.col("key").map_batches(partial(_answered, QUICK), return_dtype=pl.Int64), name="deserialize"
    )
    views = events.filter(pl.col("key") % 3 == 0, name="filter")
    ips = views.select("ts", key=pl.col("key") * 7 % KEYS, name="ip-projection")
    ads = views.select("ts", key=pl.col("key") * 5 % KEYS, name="ad-projection")
    return served(ips, SLOW, "ip-processor"), served(served(ads, QUICK, "join"), SLOW, "campaign-processor")


TOPOLOGIES: Mapping[str, Callable[..., Any]] = {
    "linear": linear,
    "diamond": diamond,
    "star": star,
    "advertising": advertising,
}


def _rows(step: int, stream: int, first: int, count: int) -> pl.DataFrame:
    number = np.arange(first, first + count, dtype=np.int64)
    key = number * np.int64(2654435761) % (3 * KEYS)
    return pl.DataFrame({"key": key, "ts": pl.Series(number * step).cast(st.TIME)})


# ── runs ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Case:
    """One run: a topology under a stream, from some instances on, with a policy."""

    name: str
    topology: str
    stream: str
    peak: float
    instances: int | Mapping[str, int]
    policy: Policy

    @property
    def rates(self) -> np.ndarray:
        """Give the rates second by second: the stream in a fifth of its time, with noise."""
        return traces.trace(self.stream, self.peak).rates[:: STREAMS[self.stream]]


@dataclass(frozen=True)
class Lived:
    """What a run was like."""

    case: Case
    snapshots: tuple[Snapshot, ...]
    decisions: tuple[Decision, ...]

    @property
    def rows(self) -> int:
        return sum(s.rows for s in self.snapshots)

    @property
    def instance_seconds(self) -> float:
        return self.used(lambda name: 1.0)

    def used(self, weight: Callable[[str], float]) -> float:
        """Give instances by seconds, each with the weight of its subquery."""
        return sum(s.period * weight(name) * q.instances for s in self.snapshots for name, q in s.subqueries.items())

    @property
    def congested(self) -> bool:
        """Tell whether the backlog was growing at the end: in the last fifth of the stream."""
        last = [s for s in self.snapshots if s.time > self.snapshots[-1].time - len(self.case.rates) / 5]
        waiting = np.array([s.backlog for s in last], dtype=np.float64)
        slope = float(np.polyfit([s.time for s in last], waiting, 1)[0])
        return bool(slope > 0 and waiting[-1] > self.case.rates[-1] * PACE)

    def figures(self) -> dict[str, Any]:
        """Sum up."""
        latencies = [s.latency.p99 for s in self.snapshots if s.latency]
        return {
            "rows": self.rows,
            "instance_seconds": round(self.instance_seconds),
            "waiting_at_end": self.snapshots[-1].backlog,
            "p99_latency_s": round(float(np.median(latencies)), 2),
            "worst_latency_s": round(max(latencies), 2),
            "changes": len(self.decisions),
            "most": max(sum(q.instances for q in s.subqueries.values()) for s in self.snapshots),
        }


def live(spark: Any, *cases: Case) -> dict[str, Lived]:
    """Run some cases side by side, each for as long as its stream takes."""
    with scratch() as folder:
        runs = {case.name: _started(spark, case, folder / case.name) for case in cases}
        begin = time.monotonic()
        for case in cases:
            time.sleep(max(0.0, begin + len(case.rates) - time.monotonic()))
            runs[case.name].stop()
        for case in cases:
            _keep(folder / case.name, KEPT / case.name)
    found = {case.name: lived(case) for case in cases}
    for name, run in found.items():
        assert run is not None
        say(f"{name}: {run.figures()}")
    return found  # type: ignore[return-value]


def lived(case: Case) -> Lived | None:
    """Give a run that was kept, if it was."""
    if not KEPT.joinpath(case.name).exists():
        return None
    past = History(KEPT / case.name)
    snapshots = tuple(Snapshot.from_json(record) for record in past.read("snapshots"))
    return Lived(case, snapshots, tuple(decisions_of(past.read("decisions"))))


def _started(spark: Any, case: Case, folder: Path) -> Any:
    step = round(1e6 / case.peak)

    def source(name: str, share: float) -> st.Stream:
        rate = st.trace([float(r) * share for r in case.rates])
        return st.source(name, st.generate(partial(_rows, step), rate=rate), ts="ts")

    ends = TOPOLOGIES[case.topology](source)
    ends = ends if isinstance(ends, tuple) else (ends,)
    query = st.Query(case.name, *(end.to(st.parquet_sink(folder / f"out-{i}")) for i, end in enumerate(ends)))
    return query.start(
        spark,
        checkpoint=folder,
        instances=case.instances,
        rows_per_epoch=round(AHEAD * case.peak),
        trigger=f"{LEISURE if case.policy is STATIC else PACE:g} seconds",
        elastic=elastic(case.policy),
    )


def _keep(checkpoint: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copytree(checkpoint / "history", folder / "history")
