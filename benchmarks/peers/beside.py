"""The same files in, the same rows out, exactly once, on the same two cores: Springtide, Flink, Spark's own operators, and plain Polars as the limit.

    make bench NAME=peers
    make bench NAME=peers ARGS="--queries q5 q7 --records 1000000 --rounds 5"

Flink runs in one JVM with parallelism 2 and exactly-once checkpoints every second, each query in SQL and as a DataStream program written by hand for it, each
with state on the heap and in RocksDB. All sides are started once, each in a JVM of its own, and stay warm. One run of each on a tenth of the records goes before and is not counted; its
rows are compared too. Then all take turns, in another order every round. A run is timed as a whole, from the query that is handed over to the last row that is
committed; reading and writing Parquet is part of it on every side. Our epochs are as large as they are if nothing is said.

A form that has used `--seconds` on a query is not run again (its `n` says how often it was), and a run that takes more than `--longest` is ended: the rate
that it stayed below is kept as `below`. What was found is kept after every query, and one that fails does not end the others. Queries that are not asked for keep
what was found for them before; each has the revision that it was measured at.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

import springtide as st
from benchmarks.measure import kept, result, revision, say, scratch, session, summary
from benchmarks.peers import data, flink, ratios, rows
from benchmarks.peers import spark as spark_side
from benchmarks.peers.queries import QUERIES

FLINK = {
    "flink-sql-heap": ("sql", "hashmap"),
    "flink-sql-rocksdb": ("sql", "rocksdb"),
    "flink-hand-heap": ("datastream", "hashmap"),
    "flink-hand-rocksdb": ("datastream", "rocksdb"),
}
SIDES = ("springtide", *FLINK, "spark", "polars")
Runner = Callable[[str, Path, Path], float]
"""Runs a query (its name) over a folder and writes below another one; gives the seconds."""


def main(*args: str) -> None:
    """Run all queries on all sides, or some."""
    parser = argparse.ArgumentParser(prog="peers")
    parser.add_argument("--records", type=int, help="of every query; else each has its own number")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=list(QUERIES))
    parser.add_argument(
        "--sides",
        nargs="+",
        choices=SIDES,
        default=SIDES,
        help="plain Polars always runs: it says which rows are right",
    )
    parser.add_argument("--seconds", type=float, default=300, help="after which a form is not run again")
    parser.add_argument("--longest", type=float, default=1200, help="seconds of a run after which it is ended")
    given = parser.parse_args(args)
    with _runners(given.sides, given.longest) as runners, scratch() as folder:
        failed = [name for name in given.queries if not _kept(name, runners, given, folder)]
    if failed:
        raise SystemExit(f"peers: no result for {', '.join(failed)}; see what was said above")


def _kept(name: str, runners: Mapping[str, Runner], given: argparse.Namespace, folder: Path) -> bool:
    """Measure one query, and keep what was found; return whether it could be measured."""
    try:
        found = _beside(name, runners, given, folder)
    except Exception:
        say(f"{name}:\n{traceback.format_exc()}")
        return False
    _keep({name: found})
    return True


def _beside(name: str, runners: Mapping[str, Runner], given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure one query on all sides that have it."""
    query = QUERIES[name]
    wanted = given.records or query.records
    sides = [side for side in runners if side != "spark" or name in spark_side.FORMS]
    right: dict[int, pl.DataFrame] = {}
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    ended: dict[str, float] = {}
    compared: dict[str, int] = {}
    for number in range(-1, given.rounds):
        records = wanted if number >= 0 else max(1, wanted // 10)
        for side in _order(sides, number):
            if side in ended or sum(seconds[side]) > given.seconds:
                continue
            place = folder / f"{name}-{side}-{number + 1}"  # a new one each time: Spark remembers where state was
            files = data.files(query.kind, records)
            try:
                took = runners[side](name, files, place)
            except flink.TooLong:
                ended[side] = records / given.longest
                say(f"{name}, {side}: ended after {given.longest:.0f} s")
                continue
            finally:
                _clean(place, ("checkpoint", "checkpoints", "in"))
            say(
                f"{name}, {side}: {records / took / 1e3:,.0f} k rows/s, {took:.1f} s{'' if number >= 0 else ' (warm-up)'}"
            )
            if records not in right:
                limit = place if side == "polars" else folder / "right"
                if limit != place:
                    _polars(name, files, limit)
                right[records] = rows.read(query, limit / "out")
                _clean(folder / "right")
            compared[side] = rows.compare(query, f"{name}, {side}", rows.read(query, place / "out"), right[records])
            _clean(place)
            if number >= 0:
                seconds[side].append(took)
    say(f"{name}: {max(compared.values())} rows are the same on all sides")
    rates = {side: summary([wanted / s for s in found]) for side, found in seconds.items() if found}
    rates |= {side: {"below": rate} for side, rate in ended.items()}
    return ratios.of_query(rates) | {
        "records": wanted,
        "rows_compared": max(compared.values()),
        "rates": rates,
        "revision": revision(),
    }


def _keep(found: dict[str, Any]) -> None:
    """Keep what was found, with what is known of the other queries, and draw it."""
    together = kept("peers").get("queries", {}) | found
    queries = {name: together[name] for name in QUERIES if name in together}
    result("peers", **ratios.of_all(queries), flink=flink.VERSION, queries=queries)


# ── the sides ─────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _runners(sides: list[str], longest: float) -> Iterator[dict[str, Runner]]:
    """Start what the sides need; stop it at the end."""
    runners: dict[str, Runner] = {}
    cluster: flink.Flink | None = None
    if any(side in FLINK for side in sides):
        if reason := flink.absent():
            raise SystemExit(f"peers: {reason}; or leave Flink out with --sides springtide spark polars")
        cluster = flink.Flink()
        runners |= {side: _flink(cluster, *FLINK[side], longest) for side in sides if side in FLINK}
    if "springtide" in sides:
        spark = session()
        runners["springtide"] = lambda name, files, place: _springtide(spark, name, files, place, longest)
    # Spark's own operators have a JVM of their own: theirs are compiled for minutes, at the cost of whoever comes next in it.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
        if "spark" in sides:
            runners["spark"] = lambda name, files, place: other.submit(
                spark_side.run, name, files, place, longest
            ).result()
        try:
            yield {side: runners[side] for side in SIDES if side in runners} | {"polars": _polars}
        finally:
            if cluster is not None:
                cluster.stop()


def _springtide(spark: Any, name: str, files: Path, place: Path, longest: float) -> float:
    slots = spark.sparkContext.defaultParallelism
    spark.sparkContext.parallelize(range(slots), slots).foreachPartition(_ready)
    begun = time.perf_counter()
    query = QUERIES[name].springtide(files, st.parquet_sink(place / "out"))
    run = query.start(spark, checkpoint=place / "checkpoint", instances=2)
    if not run.wait(longest):
        run.stop()
        raise flink.TooLong
    return time.perf_counter() - begun


def _ready(_: Any) -> None:
    """Have a worker ready: Spark ends those that were idle for a minute while others ran, and Flink's do not end."""
    importlib.import_module("springtide.runtime.spark.job")


def _flink(cluster: flink.Flink, form: str, state: str, longest: float) -> Runner:
    def run(name: str, files: Path, place: Path) -> float:
        if (
            cluster.has_ended
        ):  # its JVM was ended with a run that took too long: whoever comes next must not pay for a cold one
            small = data.files(QUERIES[name].kind, 1_000_000)
            cluster.run(place / "warm", longest, query=name, form=form, state=state, **{"in": str(small)})
            _clean(place)
        return cluster.run(place, longest, query=name, form=form, state=state, **{"in": str(files)})

    return run


def _polars(name: str, files: Path, place: Path) -> float:
    (place / "out").mkdir(parents=True)
    begun = time.perf_counter()
    QUERIES[name].polars(files).sink_parquet(place / "out" / "all.parquet")
    return time.perf_counter() - begun


# ── small things ──────────────────────────────────────────────────────────────────────────────────────────────────


def _order(sides: list[str], number: int) -> list[str]:
    """Let another side begin in every round."""
    first = (number + 1) % len(sides)
    return sides[first:] + sides[:first]


def _clean(place: Path, below: tuple[str, ...] = ("",)) -> None:
    for name in below:
        shutil.rmtree(place / name, ignore_errors=True)
