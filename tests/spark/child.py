"""What tests run in a process of its own, with a small Spark session of its own: python -m tests.spark.child WHAT FOLDER ….

`whole` runs the query of `tests.unit.runtime.crashing` to its end; `stopped` runs one without end and stops it twice, after its
epoch and at once; `chaos` runs one of `tests.chaos.queries` until it is stopped; `standby` runs one without end, or waits while another does; `replica` and `several` run one of several. What Spark says while it starts is not ours:
everything after the line STARTED is.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl

import springtide as st
from benchmarks.elastic.standalone import SETTINGS
from tests.chaos import queries
from tests.unit.runtime.crashing import SCHEMA, files_to_files

STARTED = "--- started"


def main(what: str, folder: Path, *more: str) -> None:
    master = more[-1] if what in ("chaos", "replica") else "local[2,4]"
    spark = st.spark_session(master, **SETTINGS | {"spark_executorEnv_PYTHONPATH": os.environ.get("PYTHONPATH", "")})
    print(STARTED, file=sys.stderr, flush=True)
    if what == "standby":
        stand_by(spark, folder, *more)
    elif what == "replica":
        name, instances, _ = more
        replicate(spark, endless(folder, "sums"), folder, name, instances)
    elif what == "several":
        one_of_several(spark, folder, *more)
    elif what == "chaos":
        (folder / "application").write_text(spark.sparkContext.applicationId)
        torment(spark, folder, *more)
    elif what == "whole":
        run = files_to_files(folder).start(
            spark, checkpoint=folder / "checkpoint", instances=2, buckets=8, rows_per_epoch=10
        )
        run.wait()
    else:
        for at_once in (False, True):
            checkpoint = folder / f"checkpoint-{at_once}"
            run = endless(folder, f"sums-{at_once}").start(
                spark, checkpoint=checkpoint, instances=2, buckets=8, rows_per_epoch=5
            )
            while run.status()["epoch"] < 1:
                time.sleep(0.01)
            run.stop(at_once=at_once)
    spark.stop()


def stand_by(spark: Any, folder: Path, name: str, lease: str = "") -> None:
    """Run a query, or stand by for another run of it, until there is a file `end`; files tell how far it has come."""
    standby = st.Standby("2s", lease or None, told=lambda what: (folder / f"{name}-waits").write_text(what))
    run = endless(folder, "sums").start(
        spark, checkpoint=folder / "checkpoint", instances=2, buckets=8, rows_per_epoch=5, standby=standby
    )
    (folder / f"{name}-leads").touch()
    until_the_end(run, folder)


def replicate(spark: Any, query: st.Query, folder: Path, name: str, instances: str, savepoint: str = "") -> None:
    """Run a replica of a query until there is a file `end`; it says where."""
    print(f"Spark {spark.version} at {spark.sparkContext.master}", file=sys.stderr, flush=True)
    run = query.start(
        spark,
        checkpoint=folder / name,
        savepoint=savepoint or None,
        instances=int(instances),
        buckets=16,
        rows_per_epoch=60,
        replicas=st.Replicated(folder / "group", name),
    )
    until_the_end(run, folder)


def one_of_several(
    spark: Any, folder: Path, name: str, how: str, who: str, instances: str, savepoint: str = ""
) -> None:
    """Run a query of the chaos runner as a replica, or with others that stand by, until there is a file `end`."""
    query = queries.query(name, folder)
    if how == "replicas":
        return replicate(spark, query, folder, who, instances, savepoint)
    standby = st.Standby("2s", told=lambda _: (folder / f"{who}-waits").touch())
    place, number = folder / "checkpoint", int(instances)
    run = query.start(spark, checkpoint=place, instances=number, buckets=16, rows_per_epoch=60, standby=standby)
    (folder / f"{who}-leads").touch()
    return until_the_end(run, folder)


def until_the_end(run: Any, folder: Path) -> None:
    """Wait until somebody wants it to stop; an error of the run ends this too."""
    while run.active and not (folder / "end").exists():
        run.wait(0.1)
    run.stop()


def torment(spark: Any, folder: Path, name: str, instances: str, durability: str, _: str) -> None:
    """Run a query of the chaos runner until it is stopped; everything that it needs is in a backup too."""
    kept = st.Durability(every=durability, backup=folder / "backup", shared_memory=folder / "memory")
    run = queries.query(name, folder).start(
        spark,
        checkpoint=folder / "checkpoint",
        instances=int(instances),
        buckets=16,
        rows_per_epoch=60,
        durability=kept,
    )
    run.wait()


def endless(folder: Path, sums_to: str) -> st.Query:
    """Make a query that waits for more files, slow enough to be met at work."""
    source = st.source("numbers", st.parquet(folder / "in", schema=SCHEMA, follow=True), ts="ts")

    def slow(x: int) -> int:
        time.sleep(0.02)
        return x

    sums = source.map(pl.col("x").map_elements(slow, return_dtype=pl.Int64)).aggregate(
        by="key", window=st.tumbling("5s"), total=st.sum("x")
    )
    return st.Query("endless", sums.to(st.parquet_sink(folder / sums_to), name="sums"))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
