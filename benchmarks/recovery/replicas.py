"""`replicas`: two replicas of a query, each with a Spark and a core of its own. One is killed under load: is that felt in the sink? And what does the second one cost the first?

**Gap.** Sums by key and second, and some of the rows as they are, from Parquet files that keep coming to Parquet: two sinks, one that has new rows once a second and one that has them in every epoch. The replica
that published last is killed, with its JVM, at any moment. Beside each kill stand the times between two files in a sink in the ten seconds before it: `gap_ratio` is the longest time without a new file
around the kill, the time until the watching ends included, over the median of those; `gap_ratio_every_epoch` is that of the other sink, in which a short stall shows too. A new replica comes in the place of the
killed one before the next kill. In the end all rows are compared with a plain group-by and a plain filter.

**Throughput.** Sums over generated rows, as fast as they are taken, in the same two processes: both as replicas; both without a group, each for itself, so that each has the same half of the machine as a
replica (`throughput_ratio`); and one of them while the other half of the machine has nothing to do (`throughput_ratio_idle`: a core is faster while its neighbour is idle). They take turns.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl

import springtide as st
from benchmarks.latency.windows import reading, times
from benchmarks.measure import ROOT, result, say, scratch, summary
from benchmarks.recovery.failover import _load, _rows, until
from springtide.runtime.replicas.group import Group
from springtide.state.stores import Store

NAMES = ("a", "b")
BEFORE, AROUND = 10.0, 6.0
"""Seconds before a kill that say what is usual, and seconds after it in which a gap would show."""
SINKS = {"out": "gap_ratio", "every": "gap_ratio_every_epoch"}
"""The folders of both sinks, and what is said of them: one has rows when a window ends, the other in every epoch."""
CHOSEN = pl.col("x") % 100 == 1
"""Of every file some rows, but not the last one of all."""


def main(kills: str = "5", rounds: str = "5", rows: str = "30000000") -> None:
    with scratch() as folder:
        runs = {name: start(folder, name, 0) for name in NAMES}
        try:
            ratios = throughput(folder, int(rounds), int(rows))
            gaps, compared = _kills(folder, runs, int(kills))
        finally:
            for run in runs.values():
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()
    found = {name: summary([gap.ratio for gap in gaps[sink]]) for sink, name in SINKS.items()}
    found |= {name: summary(each) for name, each in ratios.items()}
    result(
        "replicas",
        gap_ratio=found["gap_ratio"]["median"],
        gap_ratio_every_epoch=found["gap_ratio_every_epoch"]["median"],
        wrong_rows=0,  # else the comparison would have ended this
        throughput_ratio=found["throughput_ratio"]["median"],
        throughput_ratio_idle=found["throughput_ratio_idle"]["median"],
        rows_compared=compared,
        gaps_s={name: [asdict(gap) for gap in gaps[sink]] for sink, name in SINKS.items()},
        spread=found,
    )


@dataclass(frozen=True)
class Gap:
    """How long nothing new was in a sink, in seconds."""

    longest: float
    """Around a kill."""
    usual: float
    """The median of the times before it."""
    most: float
    """The longest of those."""

    @property
    def ratio(self) -> float:
        """The longest time around the kill over the usual one."""
        return self.longest / self.usual


def gap_of(moments: Sequence[float], struck: float) -> Gap:
    """Say how long nothing new came around a kill, of the times when something came.

    >>> gap_of([90.0, 91.0, 92.5, 93.5, 99.0], struck=94.0)
    Gap(longest=5.5, usual=1.0, most=1.5)
    >>> gap_of([97.0, 98.0, 99.0, 104.0], struck=104.5)
    Gap(longest=6.5, usual=1.0, most=5.0)
    """
    usual = _gaps([t for t in moments if struck - BEFORE <= t <= struck])
    if not usual:
        raise AssertionError(f"in the {BEFORE:.0f} s before the kill hardly anything came: there is no usual time")
    around = [t for t in moments if struck - BEFORE <= t <= struck + AROUND]
    longest = max(b - a for a, b in itertools.pairwise([*around, struck + AROUND]) if b >= struck)
    return Gap(*(round(s, 3) for s in (longest, median(usual), max(usual))))


def start(folder: Path, name: str, number: int) -> subprocess.Popen[bytes]:
    """Start a process with a Spark of its own, on a core of its own."""
    command = [sys.executable, "-m", "benchmarks.recovery.replicas", str(folder), name, str(number)]
    with open(folder / f"{name}-{number}.log", "wb") as log:
        return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)


# ── throughput ────────────────────────────────────────────────────────────────────────────────────────────────────────


FORMS = {"replicas": (True, NAMES), "throughput_ratio": (False, NAMES), "throughput_ratio_idle": (False, NAMES[:1])}
"""Whether the processes that run the query are replicas, and which these are; by what the throughput of replicas over theirs is called."""


def throughput(folder: Path, rounds: int, rows: int) -> dict[str, list[float]]:
    """Return the throughput of two replicas over that of runs without a group, for each round; the first, which warms up, does not count."""
    ratios: dict[str, list[float]] = {name: [] for name in FORMS if name != "replicas"}
    for number in range(rounds + 1):
        order = [*FORMS][number % 3 :] + [*FORMS][: number % 3]
        seconds = {form: _timed(folder, number, form, rows) for form in order}
        say(
            f"two replicas {seconds['replicas']:.2f} s, two for themselves {seconds['throughput_ratio']:.2f} s, "
            f"one alone {seconds['throughput_ratio_idle']:.2f} s{'' if number else ' (warm-up)'}"
        )
        for name in ratios if number else ():
            ratios[name].append(seconds[name] / seconds["replicas"])
    return ratios


def _timed(folder: Path, number: int, form: str, rows: int) -> float:
    """Have the processes run the query; return how long it took until the first of them was done."""
    what = f"round{number}-{form}"
    replicas, names = FORMS[form]
    for name in NAMES:
        told = json.dumps({"what": what, "rows": rows, "replicas": replicas, "takes": name in names})
        (folder / f"{name}.told").write_text(told)
        (folder / f"{name}.told").rename(folder / f"{name}.{what}")
    until(lambda: all((folder / f"{n}.{what}.done").exists() for n in NAMES), what)
    return min(float((folder / f"{n}.{what}.done").read_text()) for n in names)


def _generated(stream: int, first: int, count: int) -> pl.DataFrame:
    number = pl.int_range(first, first + count, dtype=pl.Int64)
    return pl.select(key=number * 7919 % 1_000, x=number, ts=(number * 100).cast(st.TIME))


# ── kills ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _kills(folder: Path, runs: dict[str, subprocess.Popen[bytes]], kills: int) -> tuple[dict[str, list[Gap]], int]:
    """Kill the last publisher so often; return the gaps of each sink, and how many rows were compared."""
    for name in ("in", *SINKS):
        (folder / name).mkdir()
    group, found = Group(Store.at(folder / "group")), dict[str, list[Gap]]()
    for name in NAMES:
        (folder / f"{name}.follow").touch()
    with ExitStack() as stack:
        written = stack.enter_context(_load(folder))
        for sink in SINKS:
            stack.enter_context(reading(folder / sink, folder / f"{sink}.seen"))
        for number in range(1, kills + 1):
            until(lambda: _together(group), "both replicas at work")
            time.sleep(BEFORE + 0.37 * number)  # not always at the same point of an epoch
            last = group.done(group.newest())
            assert last is not None
            struck = time.time()
            os.killpg(runs[last.by].pid, signal.SIGKILL)
            time.sleep(AROUND)
            for sink in SINKS:
                gap = gap_of(_seen(folder / f"{sink}.seen"), struck)
                found.setdefault(sink, []).append(gap)
                say(f"{sink}: {gap.longest} s around the kill, usually {gap.usual} s, at most {gap.most} s")
            runs[last.by].wait()
            runs[last.by] = start(folder, last.by, number)
            (folder / f"{last.by}.follow").touch()
        until(lambda: _together(group), "both replicas at work")
    files = written()
    last_row = _rows(files).head(1).with_columns(ts=pl.lit(10**15).cast(st.TIME), x=pl.lit(0, pl.Int64))
    last_row.write_parquet(folder / "last.partial")
    (folder / "last.partial").rename(folder / "in" / "last.parquet")  # closes all windows but its own
    rows = pl.concat([_rows(n) for n in range(files)])
    sums = rows.group_by("key", window_start=pl.col("ts").dt.truncate("1s")).agg(total=pl.col("x").sum())
    rights = dict(zip(SINKS, (sums, rows.filter(CHOSEN).select("key", "x", "ts")), strict=True))
    for sink, right in rights.items():
        until(lambda sink=sink, right=right: _out(folder / sink, right).height >= right.height, f"all rows of {sink}")
        keys, out = right.columns, _out(folder / sink, right)
        assert out.sort(keys).equals(right.cast(dict(out.schema)).sort(keys)), f"other rows in {sink}"  # type: ignore[arg-type]
    return found, sum(right.height for right in rights.values())


def _together(group: Group) -> bool:
    """Tell whether both replicas are at work, and nearly as far."""
    members, newest = group.members(), group.newest()
    return len(members) == 2 and all(m.running and m.epoch >= newest - 8 for m in members) and newest >= 10


def _out(folder: Path, right: pl.DataFrame) -> pl.DataFrame:
    return pl.read_parquet(folder / "*.parquet", columns=right.columns).select(right.columns)


def _seen(notes: Path) -> list[float]:
    """Say when files came."""
    return sorted(when for name, when in times(notes).items() if name[0] not in "._")


def _gaps(moments: Sequence[float]) -> list[float]:
    return [b - a for a, b in itertools.pairwise(moments)]


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
    files = st.parquet(folder / "in", follow=True, schema=dict(_rows(0).schema))
    query, replica = query_of(files, folder), st.Replicated(folder / "group", name)
    query.start(spark, checkpoint=folder / f"checkpoint-{name}", instances=1, replicas=replica).wait()


def query_of(files: Any, folder: Path) -> st.Query:
    """Write the query whose sinks are looked at."""
    events = st.source("events", files, ts="ts")
    totals = events.aggregate(by="key", window=st.tumbling("1s"), total=st.sum("x"), name="totals")
    sums, every = (st.parquet_sink(folder / sink) for sink in SINKS)
    return st.Query("replicas", totals.to(sums, name="sums"), events.filter(CHOSEN).to(every, name="chosen"))


def _run_round(spark: object, folder: Path, name: str, told: dict[str, object]) -> None:
    what, place = str(told["what"]), folder / f"{told['what']}-{name}"
    seconds = 0.0
    if told["takes"]:
        source = st.source("rows", st.generate(_generated, rate=None, total=int(str(told["rows"]))), ts="ts")
        totals = source.aggregate(by="key", window=st.sliding("60s", every="10s"), total=st.sum("x"), name="totals")
        out = f"{what}-out" if told["replicas"] else f"{what}-{name}-out"
        query = st.Query("replicas", totals.to(st.parquet_sink(folder / out), name="out"))
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
