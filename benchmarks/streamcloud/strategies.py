"""One query cut in three ways (StreamCloud, figures 14 and 15; SC-5, SC-14): query-cloud, operator-cloud, operator-set-cloud.

    calls → map → filter → JOIN → map → filter → AGGREGATE → map → AGGREGATE → filter

Three stateful operators and six stateless ones, two of these in front; the text of the paper that we have leaves its own query, figure 13, to a picture, but says that it has three stateful operators.
Calls of one caller within 10 s are paired; the pairs that are near enough are counted per district, 60 s every 10 s, and the districts' counts summed up per area.

    query-cloud          every instance has the whole query: each of the four subqueries has N instances
    operator-cloud       a subcluster for each of the nine operators, together N instances; where there is no stateful operator, rows are dealt to the next subcluster and passed on (`hop.py`)
    operator-set-cloud   a subcluster for each of the four subqueries, together N instances. What Springtide does

Subclusters get instances in proportion to the work that was measured, at least one each. Two cores run all of them, stage after stage, so throughput is that of two cores however many instances there
are, and falls with what it costs to have them: this is what is measured. The processor time of all processes is divided into the processing of rows, which is what one instance of everything in one
process takes without its blobs; the distribution, which is all the rest; and what nobody used. A least-squares fit of the paper's own cost model c = γ + α·f + β·ρ·h to the distribution gives α, for a
channel in an epoch, β, for a row and hop, and γ, for an epoch. `modelled` has the throughput of up to 60 instances with a core each that follows from α, β and the measured work of each operator, rounded to whole
instances: a model, not a measurement, and without γ, which the driver pays.
"""

import argparse
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl

import springtide as st
from benchmarks.cdr.data import ROWS_PER_FILE, make
from benchmarks.cdr.joins import KM
from benchmarks.elastic.reconfigure import different
from benchmarks.measure import DATA, processor_seconds, result, say, scratch, session, summary
from benchmarks.pictures import picture
from benchmarks.streamcloud.hop import hop
from springtide.charts import COLOURS, PALE
from springtide.compiler.plan import Plan
from springtide.exchange.blob import Blob
from springtide.runtime import inprocess, tasks
from springtide.runtime.options import Options

STRATEGIES = ("query-cloud", "operator-cloud", "operator-set-cloud")
INSTANCES = (9, 18, 36)
MODELLED = (10, 20, 30, 40, 50, 60)
CORES = 2
LEAST_MS, WITHIN, NEAR_KM, AREAS = 30_000, 10, 10_000, 16


def main(*args: str) -> None:
    parser = argparse.ArgumentParser(prog="strategies")
    parser.add_argument("--files", type=int, default=5, help="of 500,000 calls each; the first is warm-up")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--instances", type=int, nargs="+", default=INSTANCES)
    given = parser.parse_args(args)
    data = make(DATA / f"cdr-{given.files}", given.files)
    with scratch() as folder:
        processing = _processing(data, folder / "plain")
        spark = session()
        found: dict[str, dict[int, list[dict[str, float]]]] = {s: {n: [] for n in given.instances} for s in STRATEGIES}
        shares: dict[str, dict[str, float]] = {}
        plans: dict[str, Plan] = {}
        right = None
        wrong = 0
        for name in STRATEGIES:  # warm-up, and how much work there is in each subquery
            query = query_of(data, folder / f"warm-{name}", hops=name == "operator-cloud")
            plans[name] = query.plan()
            ones = {s.name: 2 for s in plans[name].subqueries}
            run = _run(spark, query, ones, folder / f"warm-{name}")
            shares[name] = {n: run[f"busy {n}"] for n in ones}
            rows = pl.read_parquet(folder / f"warm-{name}" / "out" / "*.parquet")
            if right is None:
                right, compared = rows, same_as_duckdb(rows, data)
            wrong += different(right, rows)
        assert right is not None
        for i in range(given.rounds):
            for n in given.instances if i % 2 else reversed(given.instances):
                for name in STRATEGIES:
                    place = folder / f"{name}-{n}-{i}"
                    query = query_of(data, place, hops=name == "operator-cloud")
                    one = _run(spark, query, allocated(name, shares[name], n), place)
                    wrong += different(right, pl.read_parquet(place / "out" / "*.parquet"))
                    found[name][n].append(one)
                    say(
                        f"{name}, {n} instances: {one['rate'] / 1e3:.0f} k rows/s, {one['channels']:.0f} channels, {one['used']:.2f} cores"
                    )
    runs = [one for by in found.values() for many in by.values() for one in many]
    fit = fitted(runs, processing)
    broken = {s: {str(n): _breakdown(many, processing) for n, many in by.items()} for s, by in found.items()}
    rates = {s: {str(n): summary([one["rate"] for one in many]) for n, many in by.items()} for s, by in found.items()}
    modelled = {s: {str(n): model(s, plans[s], shares[s], n, processing, fit) for n in MODELLED} for s in STRATEGIES}
    most = str(max(given.instances))
    ours = rates["operator-set-cloud"][most]["median"]
    _draw(rates, broken[STRATEGIES[0]].keys(), broken, modelled)
    result(
        "strategies",
        instances=int(most),
        over_query_cloud=ours / rates["query-cloud"][most]["median"],
        over_operator_cloud=ours / rates["operator-cloud"][most]["median"],
        wrong_rows=wrong,
        rows_compared=right.height,
        rows_compared_with_duckdb=compared,
        rates=rates,
        breakdown_pct=broken,
        processing_us_per_row=processing * 1e6,
        alpha_ms_per_channel=fit["alpha"] * 1e3,
        beta_us_per_row_and_hop=fit["beta"] * 1e6,
        gamma_s_per_epoch=fit["gamma"],
        modelled=modelled,
        paper={
            "distribution_pct": {"query-cloud": 40, "operator-cloud": 30, "operator-set-cloud": 10},
            "over_query_cloud": 5,
            "over_operator_cloud": 2.5,
        },
    )


def query_of(data: Path, folder: Path, *, hops: bool) -> st.Query:
    """Write the query; with hops before those stateless operators that follow another operator."""

    def cut(stream: st.Stream, by: str, name: str) -> st.Stream:
        return hop(stream, by, name) if hops else stream

    calls = st.source("calls", st.parquet(data), ts="ts").select("ts", "src", "start", "end", "district", "lat", "lon")
    calls = calls.map(duration=pl.col("end") - pl.col("start"))
    long = cut(calls, "src", "to-long").filter(pl.col("duration") >= LEAST_MS)
    pairs = long.join(long, on="src", within=f"{WITHIN}s", where=pl.col("start") < pl.col("start_right"), name="pairs")
    apart = cut(pairs, "src", "to-apart").map(km=KM).select("ts", "src", "district", "duration", "km")
    near = cut(apart, "src", "to-near").filter(pl.col("km") < NEAR_KM)
    districts = near.aggregate(
        by="district", window=st.sliding("60s", every="10s"), n=st.count(), ms=st.sum("duration"), name="districts"
    )
    area = cut(districts, "district", "to-area").select("ts", "n", "ms", area=pl.col("district") % AREAS)
    areas = area.aggregate(by="area", window=st.tumbling("60s"), n=st.sum("n"), ms=st.sum("ms"), name="areas")
    busy = cut(areas, "area", "to-busy").filter(pl.col("n") > 0)
    return st.Query("strategies", busy.to(st.parquet_sink(folder / "out")))


def allocated(strategy: str, work: Mapping[str, float], instances: int) -> dict[str, int]:
    """Divide instances among the subclusters: each one more goes to the subcluster with the most work per instance.

    >>> allocated("operator-set-cloud", {"a": 1.0, "b": 5.0}, 4), allocated("query-cloud", {"a": 1.0, "b": 5.0}, 4)
    ({'a': 1, 'b': 3}, {'a': 4, 'b': 4})
    """
    if strategy == "query-cloud":
        return dict.fromkeys(work, instances)
    found = dict.fromkeys(work, 1)
    for _ in range(instances - len(found)):
        found[max(found, key=lambda name: work[name] / found[name])] += 1
    return found


def channels(plan: Plan, instances: Mapping[str, int]) -> int:
    """Count the pairs of instances that send to each other."""
    return sum(instances[e.origin] * instances[e.target] for e in plan.exchanges)


def hops(plan: Plan) -> int:
    """Count how often a row goes to another subcluster."""
    return len(plan.subqueries) - 1


# ── measured ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _run(spark: Any, query: st.Query, instances: dict[str, int], folder: Path) -> dict[str, float]:
    """Run it over all files, a file an epoch; rates and processor time are those after the first epoch."""
    plan = query.plan()
    run = query.start(spark, checkpoint=folder / "checkpoint", instances=instances, rows_per_epoch=ROWS_PER_FILE)
    while run.active and not run.epochs():
        time.sleep(0.005)
    at, cpu, done = time.perf_counter(), processor_seconds(), len(run.epochs())
    run.wait()
    seconds, used = time.perf_counter() - at, processor_seconds() - cpu
    epochs, snapshots = run.metrics()[done:], run.snapshots()[done:]
    rows = sum(e["rows"] for e in epochs)
    busy = {f"busy {n}": sum(sum(s.subqueries[n].busy) for s in snapshots) / rows for n in instances}
    return busy | {
        "rate": rows / seconds,
        "rows": rows / sum(e["rows"] > 0 for e in epochs),
        "cpu": used / rows,
        "used": used / seconds,
        "channels": channels(plan, instances),
        "hops": hops(plan),
    }


def _processing(data: Path, folder: Path) -> float:
    """Give the processor seconds that a row takes where nothing is sent: in one process, one instance of everything, without the time for blobs."""
    spent = 0.0
    inside = False
    originals = Blob.encode, Blob.decode, tasks.split_by_instance

    def timed(function: Any) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            nonlocal spent, inside
            if inside:
                return function(*args, **more)
            inside, begun = True, time.process_time()
            try:
                found = function(*args, **more)
                return found if isinstance(found, bytes | Blob) else list(found)
            finally:
                spent, inside = spent + time.process_time() - begun, False

        return call

    costs = []
    Blob.encode, Blob.decode = timed(originals[0]), staticmethod(timed(originals[1]))  # type: ignore[assignment, method-assign]
    tasks.split_by_instance = timed(originals[2])
    try:
        for i in range(3):
            query, spent = query_of(data, folder / str(i), hops=False), 0.0
            begun = time.process_time()
            engine = inprocess.run(query.plan(), folder / str(i) / "checkpoint", Options(1, ROWS_PER_FILE))
            rows = sum(s.accepted for s in engine.manifest.sources.values())
            costs.append((time.process_time() - begun - spent) / rows)
    finally:
        Blob.encode, Blob.decode, tasks.split_by_instance = originals[0], staticmethod(originals[1]), originals[2]  # type: ignore[assignment, method-assign]
    say(f"processing: {[round(c * 1e6, 2) for c in costs]} µs per row, and {spent / rows * 1e6:.2f} for blobs")
    return statistics.median(costs)


def _breakdown(runs: list[dict[str, float]], processing: float) -> dict[str, float]:
    """Divide the time of the cores, in per cent."""
    rows = statistics.median(one["rate"] for one in runs) * processing / CORES * 100
    used = min(100.0, statistics.median(one["used"] for one in runs) / CORES * 100)
    return {
        "processing": round(min(rows, used), 1),
        "distribution": round(max(0.0, used - rows), 1),
        "idle": round(100 - used, 1),
    }


def same_as_duckdb(rows: pl.DataFrame, data: Path) -> int:
    """Compare the areas of windows that the first file decides with those of DuckDB."""
    first = sorted(data.glob("*.parquet"))[0]
    end = pl.read_parquet(first)["ts"].max()
    wanted = duckdb.sql(f"""
        SET TimeZone = 'UTC';
        WITH calls AS (SELECT ts, src, "start", district, lat, lon, "end" - "start" AS duration FROM '{first}' WHERE "end" - "start" >= {LEAST_MS}),
        pairs AS (
            SELECT greatest(a.ts, b.ts) AS ts, a.district AS district, a.duration AS duration,
                2 * 6371.0 * asin(sqrt(pow(sin((radians(b.lat) - radians(a.lat)) / 2), 2)
                    + cos(radians(a.lat)) * cos(radians(b.lat)) * pow(sin((radians(b.lon) - radians(a.lon)) / 2), 2))) AS km
            FROM calls a JOIN calls b ON a.src = b.src AND a."start" < b."start"
                AND epoch_us(b.ts) BETWEEN epoch_us(a.ts) - {WITHIN}000000 AND epoch_us(a.ts) + {WITHIN}000000
        ),
        near AS (SELECT epoch_us(ts) // 10000000 AS slot, district, duration FROM pairs WHERE km < {NEAR_KM}),
        districts AS (
            SELECT slot + k AS last, district, count(*) AS n, sum(duration) AS ms FROM near, range(6) AS r(k) GROUP BY ALL
        )
        SELECT (last + 1) * 10 - 1 AS second, district % {AREAS} AS area, n, ms FROM districts
    """).pl()
    wanted = (
        wanted.with_columns(
            window_start=pl.from_epoch((pl.col("second") // 60) * 60).dt.replace_time_zone("UTC").cast(st.TIME)
        )
        .group_by("window_start", "area")
        .agg(pl.col("n").sum().cast(pl.Int64), pl.col("ms").sum().cast(pl.Int64))
    )
    whole = pl.col("window_start") + pl.duration(seconds=60) <= end
    names = ["window_start", "area", "n", "ms"]
    given, right = (f.select(names).cast({"area": pl.Int64}).filter(whole) for f in (rows, wanted))
    if (wrong := different(given, right)) or not right.height:
        raise AssertionError(f"{wrong} rows are not DuckDB's:\n{given.sort(names)}\n{right.sort(names)}")
    say(f"{right.height} rows are the same as DuckDB's")
    return right.height


# ── modelled ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def fitted(runs: list[dict[str, float]], processing: float) -> dict[str, float]:
    """Fit the cost model to the processor time of an epoch that is not processing; no coefficient is below 0."""
    known = np.array([[one["channels"], one["rows"] * one["hops"], 1.0] for one in runs])
    spent = np.array([(one["cpu"] - processing) * one["rows"] for one in runs])
    left, fit = [0, 1, 2], np.zeros(3)
    while left:
        solved = np.linalg.lstsq(known[:, left], spent, rcond=None)[0]
        if solved.min() >= 0:
            fit[left] = solved
            break
        del left[int(solved.argmin())]
    off = np.abs(known @ fit - spent) / np.maximum(spent, 1e-9)
    return {"alpha": float(fit[0]), "beta": float(fit[1]), "gamma": float(fit[2]), "off": float(np.median(off))}


def model(
    strategy: str, plan: Plan, work: Mapping[str, float], instances: int, processing: float, fit: Mapping[str, float]
) -> dict[str, float]:
    """Say what so many instances with a core each could do in epochs of a second: rows per second, and in per cent what the cores are used for."""
    if strategy != "query-cloud" and instances < len(work):
        return {}
    parts = allocated(strategy, work, instances)
    hopping, channels_cost = fit["beta"] * hops(plan), fit["alpha"] * channels(plan, parts)
    row = processing + hopping
    total = sum(work.values())
    if strategy == "query-cloud":
        rate = max(0.0, instances - channels_cost) / row
    else:
        rate = min(parts[n] * total / work[n] for n in work) * max(0.0, 1 - channels_cost / instances) / row
    used = rate * row + channels_cost
    return {
        "rows_per_s": round(rate),
        "processing": round(100 * rate * processing / instances, 1),
        "distribution": round(100 * (used - rate * processing) / instances, 1),
        "idle": round(100 * max(0.0, 1 - used / instances), 1),
    }


def _draw(rates: Any, counts: Any, broken: Any, modelled: Any) -> None:
    title = "one query cut in three ways, on two cores"
    with picture("strategies", (1.2, 1.2), title=title) as (above, below):
        for i, name in enumerate(STRATEGIES):
            x = [int(n) for n in counts]
            above.plot(x, [rates[name][str(n)]["median"] / 1e3 for n in x], color=COLOURS[i], marker="o", label=name)
            bottom = np.zeros(len(x))
            for part, shade in (("processing", 1.0), ("distribution", 0.45)):
                heights = np.array([broken[name][str(n)][part] for n in x])
                below.bar(np.array(x) + (i - 1) * 2.2, heights, 2.0, bottom=bottom, color=COLOURS[i], alpha=shade)
                bottom += heights
        above.set(ylabel="thousand rows/s", ylim=(0, None))
        below.axhline(100, color=PALE, linestyle=":")
        below.set(ylabel="processing, and (paler)\ndistribution, % of two cores", xlabel="instances on two cores")
    with picture("strategies-modelled", (1.4,), title="the same, by the fitted model: a core for each instance") as (
        axes,
    ):
        for i, name in enumerate(STRATEGIES):
            known = {int(n): m["rows_per_s"] / 1e6 for n, m in modelled[name].items() if m}
            axes.plot(list(known), list(known.values()), color=COLOURS[i], marker="o", label=name)
        axes.set(ylabel="million rows/s", xlabel="instances", ylim=(0, None))
