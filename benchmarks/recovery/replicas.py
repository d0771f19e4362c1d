"""`replicas`: two replicas of a query, each with a Spark and a core of its own. One is killed under load: is that felt in the sink? And what does the second one cost the first?

**Gap.** Sums by key and second, from Parquet files that keep coming to Parquet. The replica that published last is killed, with its JVM and its workers, at any moment. Beside each kill stand the times between two
files in the sink in the ten seconds before it: `gap_ratio` is the longest time without a new file around the kill over the median of those. A new replica comes in its place before the next kill. In the end all rows are compared with a plain group-by.

**Throughput.** Sums over generated rows, as fast as they are taken, in the same two processes: both as replicas, and one of them alone without a group, on the same core; turn about.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median

import polars as pl

import springtide as st
from benchmarks.measure import ROOT, result, say, scratch, summary
from benchmarks.recovery.failover import _load, _rows, until
from springtide.runtime.replicas.group import Group
from springtide.state.stores import Store

NAMES = ("a", "b")
BEFORE, AROUND = 10.0, 6.0
"""Seconds before a kill that say what is usual, and seconds after it in which a gap would show."""


def main(kills: str = "5", rounds: str = "5", rows: str = "6000000") -> None:
    with scratch() as folder:
        runs = {name: start(folder, name, 0) for name in NAMES}
        try:
            ratios = throughput(folder, int(rounds), int(rows))
            gaps, compared = _kills(folder, runs, int(kills))
        finally:
            for run in runs.values():
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()
    found = {"gap_ratio": summary([g[0] / g[1] for g in gaps]), "throughput_ratio": summary(ratios)}
    result(
        "replicas",
        gap_ratio=found["gap_ratio"]["median"],
        wrong_rows=0,  # else the comparison would have ended this
        throughput_ratio=found["throughput_ratio"]["median"],
        rows_compared=compared,
        gaps_s=[[round(s, 3) for s in gap] for gap in gaps],
        spread=found,
    )


def start(folder: Path, name: str, number: int) -> subprocess.Popen[bytes]:
    """Start a process with a Spark of its own, on a core of its own."""
    command = [sys.executable, "-m", "benchmarks.recovery.replicas", str(folder), name, str(number)]
    with open(folder / f"{name}-{number}.log", "wb") as log:
        return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)


# ── throughput ────────────────────────────────────────────────────────────────────────────────────────────────────────


def throughput(folder: Path, rounds: int, rows: int) -> list[float]:
    """Return the throughput of two replicas over that of one run alone, for each round; the first, which warms up, does not count."""
    ratios = []
    for number in range(rounds + 1):
        alone = _timed(folder, number, ("a",), rows)
        both = _timed(folder, number, NAMES, rows)
        say(f"alone {alone:.2f} s, two replicas {both:.2f} s")
        ratios.append(alone / both)
    return ratios[1:]


def _timed(folder: Path, number: int, names: tuple[str, ...], rows: int) -> float:
    """Have the processes run the query; return how long it took until the first of them was done."""
    what = f"round{number}-{len(names)}"
    for name in NAMES:
        told = json.dumps({"what": what, "rows": rows, "replicas": len(names) > 1, "takes": name in names})
        (folder / f"{name}.told").write_text(told)
        (folder / f"{name}.told").rename(folder / f"{name}.{what}")
    until(lambda: all((folder / f"{n}.{what}.done").exists() for n in NAMES), what)
    return min(float((folder / f"{n}.{what}.done").read_text()) for n in names)


def _generated(stream: int, first: int, count: int) -> pl.DataFrame:
    number = pl.int_range(first, first + count, dtype=pl.Int64)
    return pl.select(key=number * 7919 % 1_000, x=number, ts=(number * 100).cast(st.TIME))


# ── kills ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _kills(folder: Path, runs: dict[str, subprocess.Popen[bytes]], kills: int) -> tuple[list[tuple[float, ...]], int]:
    """Kill the last publisher so often; return the longest gap around each kill, the usual one and the longest usual one, and how many rows were compared."""
    (folder / "in").mkdir()
    group, found = Group(Store.at(folder / "group")), []
    for name in NAMES:
        (folder / f"{name}.follow").touch()
    with _load(folder) as written, _seen(folder / "out") as seen:
        for number in range(1, kills + 1):
            until(lambda: _together(group), "both replicas at work")
            time.sleep(BEFORE + 0.37 * number)  # not always at the same point of an epoch
            last = group.done(group.newest())
            assert last is not None
            struck = time.monotonic()
            os.killpg(runs[last.by].pid, signal.SIGKILL)
            time.sleep(AROUND)
            usual = _gaps([t for t in seen() if struck - BEFORE <= t <= struck])
            around = _gaps([t for t in seen() if struck - BEFORE <= t], after=struck)
            found.append((max(around), median(usual), max(usual)))
            say(f"{max(around):.2f} s around the kill, usually {median(usual):.2f} s, at most {max(usual):.2f} s")
            runs[last.by].wait()
            runs[last.by] = start(folder, last.by, number)
            (folder / f"{last.by}.follow").touch()
        until(lambda: _together(group), "both replicas at work")
    files = written()
    last_row = _rows(files).head(1).with_columns(ts=pl.lit(10**15).cast(st.TIME), x=pl.lit(0, pl.Int64))
    last_row.write_parquet(folder / "last.partial")
    (folder / "last.partial").rename(folder / "in" / "last.parquet")  # closes all windows but its own
    rows = pl.concat([_rows(n) for n in range(files)])
    right = rows.group_by("key", window_start=pl.col("ts").dt.truncate("1s")).agg(total=pl.col("x").sum())
    until(lambda: _out(folder).height >= right.height, "all rows")
    out, keys = _out(folder), ["key", "window_start"]
    assert out.sort(keys).equals(right.select(out.columns).cast(dict(out.schema)).sort(keys)), "other rows"
    return found, right.height


def _together(group: Group) -> bool:
    """Tell whether both replicas are at work, and nearly as far."""
    members, newest = group.members(), group.newest()
    return len(members) == 2 and all(m.running and m.epoch >= newest - 8 for m in members) and newest >= 10


def _out(folder: Path) -> pl.DataFrame:
    return pl.read_parquet(folder / "out" / "*.parquet", columns=["key", "window_start", "total"])


class _seen:  # noqa: N801 - a context manager
    """Notes when files come into a folder; called, it says when."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._over, self._times, self._count = folder, threading.Event(), list[float](), 0

    def __enter__(self) -> "_seen":
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def __call__(self) -> list[float]:
        return list(self._times)

    def _watch(self) -> None:
        while not self._over.wait(0.005):
            count = sum(not n.startswith(".") for n in os.listdir(self._folder)) if self._folder.exists() else 0
            if count != self._count:
                self._count = count
                self._times.append(time.monotonic())


def _gaps(times: list[float], after: float = 0.0) -> list[float]:
    return [b - a for a, b in itertools.pairwise(times) if b >= after]


# ── in a process of its own ───────────────────────────────────────────────────────────────────────────────────────────


def child(folder: Path, name: str) -> None:
    """Do what the parent says, on one core."""
    os.sched_setaffinity(0, {NAMES.index(name) % (os.cpu_count() or 1)})
    spark = st.spark_session("local[1,4]", spark_driver_memory="1g", spark_sql_shuffle_partitions="1")
    done = set[Path]()
    while not (folder / f"{name}.follow").exists():
        for told in sorted(set(folder.glob(f"{name}.round*")) - done):
            if told.suffix != ".done":
                done.add(told)
                _run_round(spark, folder, name, json.loads(told.read_text()))
        time.sleep(0.02)
    (folder / f"{name}.follow").unlink()
    events = st.source("events", st.parquet(folder / "in", follow=True, schema=dict(_rows(0).schema)), ts="ts")
    totals = events.aggregate(by="key", window=st.tumbling("1s"), total=st.sum("x"), name="totals")
    query = st.Query("replicas", totals.to(st.parquet_sink(folder / "out"), name="out"))
    replica = st.Replicated(folder / "group", name)
    query.start(spark, checkpoint=folder / f"checkpoint-{name}", instances=1, replicas=replica).wait()


def _run_round(spark: object, folder: Path, name: str, told: dict[str, object]) -> None:
    what, place = str(told["what"]), folder / f"{told['what']}-{name}"
    seconds = 0.0
    if told["takes"]:
        source = st.source("rows", st.generate(_generated, rate=None, total=int(str(told["rows"]))), ts="ts")
        totals = source.aggregate(by="key", window=st.sliding("60s", every="10s"), total=st.sum("x"), name="totals")
        query = st.Query("replicas", totals.to(st.parquet_sink(folder / f"{what}-out"), name="out"))
        replica = st.Replicated(folder / f"{what}-group", name) if told["replicas"] else None
        began = time.monotonic()
        run = query.start(spark, checkpoint=place, instances=1, rows_per_epoch=200_000, replicas=replica)  # type: ignore[arg-type]
        run.wait()
        seconds = time.monotonic() - began
    partial = folder / f"{name}.partial"
    partial.write_text(str(seconds))
    partial.rename(folder / f"{name}.{what}.done")


if __name__ == "__main__":
    child(Path(sys.argv[1]), sys.argv[2])
