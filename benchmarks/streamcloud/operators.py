"""Single operators under growing load, with 1 and 2 instances on two cores: throughput, processor and queues (StreamCloud, figures 16 and 18; SC-13, SC-14).

    aggregate    calls and mean duration by district, 60 s every 10 s                     rows/s
    map          the duration of each call                                                rows/s
    join         calls of one caller within 60 s, and how far apart they were made        comparisons/s: calls of one caller within 60 s of each other
    cartesian    calls that overlap, any two of them, within 60 s                         comparisons/s: calls within 60 s of each other

An instance has one thread. First each operator takes all calls as fast as it goes, whose rows are compared with DuckDB's. Then calls come at 25, 50, 75, 100, 125 and 150 % of that rate in real time,
some seconds each, with at most `MOST_WAITING` seconds of calls waiting: the paper's three stages. Rates are those of what came out in a step, the processor is that of all processes over two
cores, the queue is what waited at the end of the step.

The join is also measured with 4 instances, more than there are cores (figure 18). What 4 to 40 instances could do with a core each is modelled, not measured: the
simulator's costs of a row, an epoch and an instance, found in the run of 2. A second picture has what was measured by the number of instances and, dashed, what was modelled.
"""

import argparse
import bisect
import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl

import springtide as st
from benchmarks.cdr.data import make
from benchmarks.cdr.joins import KM
from benchmarks.elastic.reconfigure import different
from benchmarks.joins.cartesian import WITHIN, overlap
from benchmarks.joins.data import comparisons
from benchmarks.measure import DATA, processor_seconds, result, say, scratch, session
from benchmarks.pictures import picture
from springtide.charts import COLOURS, PALE
from springtide.elastic.simulator.calibration import calibrated
from springtide.elastic.snapshot import Snapshot

LOADS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
MODELLED = (4, 8, 20, 40)
MOST_WAITING = 3.0
CORES = 2
COLUMNS = ("src", "dst", "start", "end", "district", "lat", "lon")
OTHER = 60_000_000
"""Microseconds: within a minute."""


@dataclass(frozen=True)
class Calls:
    """Makes the calls of a file over and over again, so many per second of event time."""

    file: Path
    per_second: int

    def __call__(self, stream: int, first: int, count: int) -> pl.DataFrame:
        """Make `count` calls from position `first` on."""
        number = np.arange(first, first + count, dtype=np.int64)
        whole, found, wanted = _calls_of(self.file), [], count
        while wanted:
            begin = (first + count - wanted) % whole.height
            found.append(whole.slice(begin, wanted))
            wanted -= found[-1].height
        calls = pl.concat(found) if found else whole.clear()
        at = number * 1_000 // self.per_second
        ago = (calls["end"] - calls["start"]).to_numpy()
        ts = pl.Series("ts", 1_700_000_000_000_000 + number * 1_000_000 // self.per_second).cast(st.TIME)
        return calls.with_columns(ts, start=pl.Series(at - ago), end=pl.Series(at))


@lru_cache(maxsize=1)
def _calls_of(file: Path) -> pl.DataFrame:
    """Read them once in every process: they are not sent along with the query."""
    return pl.read_parquet(file, columns=list(COLUMNS))


@dataclass(frozen=True)
class Case:
    """An operator, and how it is measured."""

    query: Callable[[st.Stream], st.Stream]
    sql: str
    per_second: int
    """Calls per second of event time: how full windows are."""
    rows: int
    """Calls of the run that is as fast as it goes."""
    epoch: int
    pairs: str = ""
    """What calls must share to be compared: "src", or "all"; empty if it compares none."""


def _map(calls: st.Stream) -> st.Stream:
    return calls.select("ts", "src", duration=pl.col("end") - pl.col("start"))


def _aggregate(calls: st.Stream) -> st.Stream:
    timed = calls.map(duration=pl.col("end") - pl.col("start"))
    return timed.aggregate(
        by="district", window=st.sliding("60s", every="10s"), n=st.count(), ms=st.sum("duration"), name="operator"
    ).select("ts", "district", "n", "ms")


def _join(calls: st.Stream) -> st.Stream:
    pairs = calls.join(calls, on="src", within="60s", where=pl.col("start") < pl.col("start_right"), name="operator")
    return pairs.map(km=KM).filter(pl.col("km") < 500).select("ts", "src", "start", "start_right")


def _cartesian(calls: st.Stream) -> st.Stream:
    pairs = calls.theta_join(calls, overlap(), within=f"{WITHIN}s", suffix="_other", name="operator")
    return pairs.select("ts", "src", "start", "src_other", "start_other")


_NEAR = "b.us BETWEEN a.us - 60000000 AND a.us + 60000000"
_OVERLAP = '(a."start" < b."start" AND b."start" < a."end" OR b."start" < a."start" AND a."start" < b."end")'
_ENDS = [f"{one} = {other}" for one in ("a.src", "a.dst") for other in ("b.src", "b.dst")]
CASES = {
    "aggregate": Case(
        _aggregate,
        """SELECT (slot + k + 1) * 10000000 - 1 AS ts, district, count(*) AS n, sum("end" - "start")::BIGINT AS ms
           FROM (SELECT *, us // 10000000 AS slot FROM calls), range(6) AS r(k) GROUP BY ALL""",
        per_second=2_000,
        rows=3_000_000,
        epoch=250_000,
    ),
    "map": Case(
        _map,
        'SELECT us AS ts, src, "end" - "start" AS duration FROM calls',
        per_second=2_000,
        rows=3_000_000,
        epoch=250_000,
    ),
    "join": Case(
        _join,
        f"""SELECT greatest(a.us, b.us) AS ts, a.src, a."start", b."start" AS start_right
            FROM calls a JOIN calls b ON a.src = b.src AND a."start" < b."start" AND {_NEAR}
            AND 2 * 6371.0 * asin(sqrt(pow(sin((radians(b.lat) - radians(a.lat)) / 2), 2)
                + cos(radians(a.lat)) * cos(radians(b.lat)) * pow(sin((radians(b.lon) - radians(a.lon)) / 2), 2))) < 500""",
        per_second=1_400,
        rows=1_200_000,
        epoch=100_000,
        pairs="src",
    ),
    "cartesian": Case(
        _cartesian,
        "SELECT greatest(us, other) AS ts, * EXCLUDE (us, other) FROM ("
        + " UNION ".join(
            'SELECT a.us AS us, b.us AS other, a.src, a."start", b.src AS src_other, b."start" AS start_other '
            f"FROM calls a JOIN calls b ON {same} AND {_NEAR} AND {_OVERLAP}"
            for same in _ENDS
        )
        + ")",
        per_second=500,
        rows=120_000,
        epoch=10_000,
        pairs="all",
    ),
}


def main(*args: str) -> None:
    parser = argparse.ArgumentParser(prog="operators")
    parser.add_argument("--operators", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seconds", type=float, default=3, help="of each load")
    parser.add_argument("--share", type=float, default=1.0, help="of the calls, to try it out")
    given = parser.parse_args(args)
    file = make(DATA / "cdr", 1) / "000.parquet"
    spark = session()
    found: dict[str, Any] = {}
    with scratch() as folder:
        for name in given.operators:
            found[name] = _operator(spark, CASES[name], name, file, folder, given)
    result(
        "operators",
        speedup={name: f["speedup"] for name, f in found.items()},
        wrong_rows=sum(f["wrong_rows"] for f in found.values()),
        operators=found,
        paper={"aggregate": 400_000, "map": 450_000, "cartesian": 4e9, "instances": 40},
    )


def _operator(spark: Any, case: Case, name: str, file: Path, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    total = max(int(case.rows * given.share), 8 * case.epoch)
    calls = Calls(file, case.per_second)
    per_row = _comparisons(case, calls, total)
    whole: dict[int, float] = {}
    wrong = rows = 0
    degrees = (1, 2, 4) if name == "join" else (1, 2)
    modelled: dict[str, int] = {}
    for i, n in enumerate((2, *degrees)):  # the first is warm-up, whose rows are compared
        place = folder / f"{name}-{i}"
        run = _start(spark, case, st.generate(calls, rate=None, total=total), place, n)
        run.wait()
        epochs = run.metrics()
        times = [after["at"] - before["at"] for before, after in itertools.pairwise(epochs)]
        whole[n] = statistics.median(e["rows"] / t for e, t in zip(epochs[1:], times, strict=True) if e["rows"])
        if not i:
            wrong, rows = compared(case, calls, total, place / "out")
        if n == 2:
            modelled = _modelled(run.snapshots(), per_row)
        say(f"{name}, {n} instances: {whole[n] / 1e3:.0f} k rows/s as fast as it goes; {wrong} rows wrong of {rows:,}")
    loaded = {
        str(n): _under_load(spark, case, calls, whole[n], folder / f"{name}-load-{n}", n, given.seconds) for n in (1, 2)
    }
    return {
        "unit": "comparisons/s" if case.pairs else "rows/s",
        "per_row": per_row,
        "as_fast_as_it_goes": {str(n): rate * per_row for n, rate in whole.items()},
        "speedup": round(whole[2] / whole[1], 3),
        "under_load": loaded,
        "modelled": modelled,
        "wrong_rows": wrong,
        "rows_compared": rows,
    }


def _modelled(snapshots: Sequence[Snapshot], per_row: float) -> dict[str, int]:
    """Say what more instances with a core each could do in epochs of a second: the work of a row divided by them, and the fixed cost of the epoch and of each instance."""
    model = calibrated(snapshots)
    rows = model.rows()
    work = sum(rows[name] * step.cost for name, step in model.steps.items())
    time_left = {n: max(0.0, 1 - model.fixed(n * len(model.steps))) for n in MODELLED}
    return {str(n): round(left * n / work * per_row) for n, left in time_left.items()}


def query_of(case: Case, source: Any, out: Path) -> st.Query:
    """Write the query with one operator."""
    stream = case.query(st.source("calls", source, ts="ts"))
    return st.Query("operators", stream.to(st.parquet_sink(out)))


def _start(spark: Any, case: Case, source: Any, folder: Path, instances: int) -> Any:
    return query_of(case, source, folder / "out").start(
        spark,
        checkpoint=folder / "checkpoint",
        instances=instances,
        rows_per_epoch=case.epoch,
        trigger="50 milliseconds",
    )


def _under_load(
    spark: Any, case: Case, calls: Calls, able: float, folder: Path, instances: int, seconds: float
) -> list[dict[str, float]]:
    """Let calls come faster and faster; measure each step without its first quarter."""
    profile = st.steps([(2 * seconds, able * LOADS[0]), *((seconds, able * load) for load in LOADS[1:])])
    source = st.generate(calls, rate=profile, max_backlog=int(able * MOST_WAITING))
    with _sampled() as samples:
        run = _start(spark, case, source, folder, instances)
        begun = time.time()
        time.sleep(seconds * (len(LOADS) + 1))
        run.stop()
    epochs = run.metrics()
    found = []
    for i, load in enumerate(LOADS):
        low, high = begun + seconds * (i + 1.25), begun + seconds * (i + 2)
        inside = [e for e in epochs if low < e["at"] <= high]
        before = [e["at"] for e in epochs if e["at"] <= low]
        rate = sum(e["rows"] for e in inside) / (inside[-1]["at"] - before[-1]) if inside and before else 0.0
        found.append(
            {
                "load": load,
                "came_per_s": round(able * load),
                "rows_per_s": round(rate),
                "processor_pct": round(100 * _used(samples, low, high) / CORES, 1),
                "waiting": inside[-1]["backlog"] if inside else 0,
            }
        )
    say(
        f"{instances} instances: "
        + ", ".join(
            f"{f['load']:.0%} {f['rows_per_s'] / 1e3:.0f} k/s {f['processor_pct']:.0f} % {f['waiting']:,}"
            for f in found
        )
    )
    return found


@contextmanager
def _sampled() -> Iterator[list[tuple[float, float]]]:
    """Note the processor time of all processes every half second."""
    samples: list[tuple[float, float]] = []
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(0.5):
            samples.append((time.time(), processor_seconds()))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


def _used(samples: Sequence[tuple[float, float]], low: float, high: float) -> float:
    first = max(0, bisect.bisect_left(samples, (low, 0.0)) - 1)
    last = min(len(samples) - 1, bisect.bisect_left(samples, (high, 0.0)))
    (began, before), (ended, after) = samples[first], samples[last]
    return (after - before) / (ended - began) if ended > began else 0.0


def _comparisons(case: Case, calls: Calls, total: int) -> float:
    """Count, per call, the pairs that an operator has to compare once its window is full; 1 if it compares none."""
    if not case.pairs:
        return 1.0
    some = min(total, 5 * case.per_second * 60)
    made = calls(0, 0, some)
    groups = made.partition_by(case.pairs) if case.pairs != "all" else [made]
    times = [g["ts"].to_physical().to_numpy() for g in groups]
    found = sum(comparisons([t], [t], OTHER)[0] for t in times)
    ends = 2 * 60 * case.per_second / 4  # rows near the ends of what was made have half a window
    return found / (some - ends)


def compared(case: Case, calls: Calls, total: int, folder: Path) -> tuple[int, int]:
    """Count the rows that are not DuckDB's, and all."""
    given = pl.read_parquet(folder / "*.parquet")
    frame = calls(0, 0, total).with_columns(us=pl.col("ts").to_physical()).drop("ts")  # noqa: F841
    duckdb.sql("CREATE OR REPLACE TABLE calls AS SELECT * FROM frame")
    wanted = duckdb.sql(case.sql).pl().with_columns(pl.col("ts").cast(st.TIME))
    wanted = wanted.select(given.columns).cast(dict(given.schema))  # type: ignore[arg-type]
    if not wanted.height:
        raise AssertionError("there is not one row to compare")
    return different(given, wanted), wanted.height


def draw(figures: Mapping[str, Any]) -> None:
    """Draw both pictures."""
    _draw(figures["operators"])
    _draw_modelled(figures["operators"])


def _draw_modelled(found: dict[str, Any]) -> None:
    """Draw throughput by instances: what was measured on these cores, and, dashed, what is modelled for a core each."""
    title = "single operators by instances: measured on two cores, and (dashed) modelled for a core each"
    with picture("operators-modelled", [1.0] * len(found), title=title) as panels:
        for axes, (name, by) in zip(panels, found.items(), strict=True):
            measured = {int(n): rate for n, rate in sorted(by["as_fast_as_it_goes"].items())}
            modelled = {int(n): rate for n, rate in by["modelled"].items()}
            axes.plot(list(measured), list(measured.values()), color=COLOURS[0], marker="o", label="measured")
            axes.plot(
                list(modelled),
                list(modelled.values()),
                color=COLOURS[1],
                marker="o",
                linestyle="--",
                fillstyle="none",
                label="modelled",
            )
            axes.set(ylabel=f"{name}\n{by['unit']}", ylim=(0, None))
        panels[-1].set(xlabel="instances")


def _draw(found: dict[str, Any]) -> None:
    heights = [1.0] * len(found)
    with picture(
        "operators", heights, title="single operators as their load grows: throughput, and (dotted) the queue"
    ) as panels:
        for axes, (name, by) in zip(panels, found.items(), strict=True):
            unit = by["per_row"]
            queue = axes.twinx()
            for i, (n, steps) in enumerate(by["under_load"].items()):
                x = [100 * s["load"] for s in steps]
                label = f"{n} instance{'s' if n != '1' else ''}"
                axes.plot(x, [s["rows_per_s"] * unit for s in steps], color=COLOURS[i], marker="o", label=label)
                queue.plot(x, [s["waiting"] for s in steps], color=COLOURS[i], linestyle=":")
            axes.set(ylabel=f"{name}\n{by['unit']}", ylim=(0, None))
            queue.set_ylim(0, None)
            queue.tick_params(colors=PALE)
        panels[-1].set(xlabel="load, % of what it can do")
