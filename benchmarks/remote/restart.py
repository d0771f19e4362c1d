"""`restart-remote`: the driver and its node are lost with 10⁷ rows of state; another node goes on from the object store. Beside it Spark's own operator.

As `restart`, with both checkpoints in one S3-compatible server and nothing else that is left: for each start the server has what the killed process left there, and caches are empty. Spark's own
goes through s3a (hadoop-aws, by Spark's own resolver) with RocksDB and its change logs. Seconds are from the start of the query, in a session that has run a job, to the first commit in the store.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import functions as sf

import springtide as st
from benchmarks.measure import DATA, ROOT, result, say, session, summary
from benchmarks.recovery import restart as local
from benchmarks.remote.server import Server, server
from springtide.state.checkpoint import Checkpoint

SIDES = ("springtide", "spark")
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def main(repeats: str = "3", keys: str = "10000000") -> None:
    local.KEYS = int(keys)
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    for side in SIDES:
        _fill(side)
    for _ in range(int(repeats)):
        for side in SIDES:
            folder = _put_back(side)
            with server(folder) as s3:
                found = json.loads(_child("start", side, s3, keys).splitlines()[-1])
                name = s3.name
            assert found["state"] >= local.KEYS, f"{side} has {found['state']} rows of state"
            seconds[side].append(found["seconds"])
            say(f"{side}: {found['seconds']:.2f} s")
    medians = {side: statistics.median(s) for side, s in seconds.items()}
    result(
        "restart-remote",
        seconds=medians["springtide"],
        spark_s=medians["spark"],
        ratio=medians["springtide"] / medians["spark"],
        spread={side: summary(s) for side, s in seconds.items()},
        state_rows=local.KEYS,
        server=name,
    )


def _folder(side: str) -> Path:
    return DATA / f"restart-remote-{local.KEYS}" / side


def _fill(side: str) -> None:
    """Have a process fill the state, and kill it; what the server has then is kept, for the next time too."""
    folder = _folder(side)
    if (folder / "killed").exists():
        return
    say(f"filling the state of {side}")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "in").mkdir(parents=True)
    for n in range(local.FILES):
        size = local.KEYS // local.FILES
        local._rows(n * size, size).write_parquet(folder / "in" / f"{n:04d}.parquet")
    with server(folder) as s3:
        if s3.folder is None:
            raise SystemExit(
                "restart-remote needs versitygw (with Go it is built by itself): moto keeps its files in memory"
            )
        _child("fill", side, s3, str(local.KEYS))
    shutil.move(folder / "s3", folder / "killed")


def _put_back(side: str) -> Path:
    """Let the server have what it had after the kill, and everything else be gone; there is one file of new rows."""
    folder = _folder(side)
    for part in ("s3", "cache", "out"):
        shutil.rmtree(folder / part, ignore_errors=True)
    subprocess.run(["cp", "-a", str(folder / "killed"), str(folder / "s3")], check=True)  # extended attributes too
    local._more().write_parquet(folder / "in" / "8888.parquet")
    return folder


def _child(what: str, side: str, s3: Server, keys: str) -> str:
    """Run this module in a process of its own; one that fills is killed when it says so."""
    command = [sys.executable, "-m", "benchmarks.remote.restart", what, side, keys, str(s3.port), str(s3.folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = ""
        for line in child.stdout:
            said += line
            if line.strip() == local.FILLED:
                for process in (psutil.Process(child.pid), *psutil.Process(child.pid).children(recursive=True)):
                    process.kill()
    assert child.returncode == (-9 if what == "fill" else 0), f"{what} {side} failed"
    return said


# ── in a process of its own ───────────────────────────────────────────────────────────────────────────────────────────


def child(what: str, side: str, keys: str, port: str, files: str) -> None:
    """Fill the state and wait to be killed, or start again and print how long it took."""
    local.KEYS = int(keys)
    s3, folder = Server("versitygw", int(port), Path(files)), _folder(side)
    os.environ["SPRINGTIDE_CACHE"] = str(folder / "cache")
    more = s3.for_spark() | {"spark.jars.packages": f"org.apache.hadoop:hadoop-aws:{_hadoop()}"}
    spark = session(spark_driver_memory="8g", **(more if side == "spark" else {}))
    spark.range(1000).repartition(2).count()
    spark.sparkContext.parallelize(range(2), 2).map(local._imported).collect()
    assert s3.folder is not None
    before, began = _commits(s3.folder, side), time.time()
    rows, state, stop = (_springtide if side == "springtide" else _spark)(spark, folder, s3)
    if what == "fill":
        while rows() < local.KEYS:
            time.sleep(0.1)
        if side == "springtide":  # with "5s" the last segments are still on their way
            time.sleep(15)
        print(local.FILLED, flush=True)
        time.sleep(60)
    while not _commits(s3.folder, side) - before:
        time.sleep(0.005)
    took = time.time() - began
    while rows() < local.MORE:
        time.sleep(0.01)
    print(json.dumps({"seconds": took, "state": state()}))
    stop()
    spark.stop()


def _hadoop() -> str:
    """Return the version of Hadoop that Spark brings along."""
    import pyspark

    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    return jar.stem.rpartition("-")[2]


def _commits(files: Path, side: str) -> set[str]:
    """Return the epochs that are committed, by a look into the server's own folder."""
    if side == "springtide":
        folder = files / side
        return {str(epoch) for epoch in Checkpoint(folder).epochs()} if folder.exists() else set()
    commits = files / side / "commits"
    return {f.name for f in commits.iterdir() if f.name.isdigit()} if commits.exists() else set()


Watched = tuple[Callable[[], int], Callable[[], int], Callable[[], None]]
"""Counts the rows that were taken, counts those of the state, stops."""


def _springtide(spark: Any, folder: Path, s3: Server) -> Watched:
    events = st.source("events", st.parquet(folder / "in", follow=True), ts="ts")
    totals = events.aggregate(by="key", window=st.tumbling("1d"), n=st.count(), total=st.sum("x"), name="totals")
    query = st.Query("restart", totals.to(st.parquet_sink(folder / "out")))
    run = query.start(spark, checkpoint=s3.at("springtide"), instances=2, durability="5s")

    def rows() -> int:
        return int(run.status()["sources"].get("events", {"accepted": 0})["accepted"])

    return rows, lambda: int(run.status()["subqueries"]["totals"]["state_rows"]), run.stop


def _spark(spark: Any, folder: Path, s3: Server) -> Watched:
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", _ROCKSDB)
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    # that of our sessions renames files, which a store cannot do in one step
    spark.conf.unset("spark.sql.streaming.checkpointFileManagerClass")
    stream = spark.readStream.schema("key bigint, x bigint, ts timestamp").option("maxFilesPerTrigger", 1)
    days = stream.parquet(str(folder / "in")).groupBy(sf.window("ts", "1 day"), "key")
    totals = days.agg(sf.count("*").alias("n"), sf.sum("x").alias("total"))
    writer = totals.writeStream.outputMode("update").format("noop")
    query = writer.option("checkpointLocation", s3.for_s3a("spark")).start()

    def rows() -> int:
        if query.exception() is not None:
            raise query.exception()
        return sum(p["numInputRows"] for p in query.recentProgress)

    def state() -> int:
        return max(int(p["stateOperators"][0]["numRowsTotal"]) for p in query.recentProgress)

    return rows, state, query.stop


if __name__ == "__main__":
    child(*sys.argv[1:])
