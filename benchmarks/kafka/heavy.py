"""JSON call records in a topic → windows of 1 h every minute by caller → Parquet: `st.kafka`, Spark's own source and aggregate, Spark's source with `st.spark`.

The broker (KRaft, from Maven Central's jars) is on the same machine and shares its two cores with each side. 8 partitions, not compressed, about 190 bytes
a record: caller, callee, begin, end, district, latitude, longitude, time; all of them are parsed by all sides. Rates are those of the steady state: epochs
(or micro-batches) after the first quarter of the records; ours with the last epoch, which flushes every open window. Spark's own aggregate runs with the
RocksDB state store and change logs, and, as it is the slowest by far, on the first tenth of the records unless told otherwise, in a topic of its own.

Spark's connector is the newest that there is, 4.2.0, which works with Spark 4.3 (4.0.0 does not). What it needs is named one by one: one part of it is on Maven Central
as 4.0.0 only, so that Spark's own resolver does not find it.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
from pyspark.sql import functions as sf

import springtide as st
from benchmarks.cdr.data import ROWS_PER_FILE, make
from benchmarks.measure import DATA, result, say, scratch, session, summary
from tests.kafka.broker import Topics, broker

PARTITIONS = 8
CENTRAL = "https://repo1.maven.org/maven2"
JARS = (
    "org/apache/spark/spark-sql-kafka-0-10_2.13/4.2.0/spark-sql-kafka-0-10_2.13-4.2.0.jar",
    "org/apache/spark/spark-token-provider-kafka-0-10_2.13/4.0.0/spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
    "org/apache/kafka/kafka-clients/3.9.2/kafka-clients-3.9.2.jar",
    "org/apache/commons/commons-pool2/2.13.1/commons-pool2-2.13.1.jar",
)
SCHEMA = {
    "src": pl.String,
    "dst": pl.String,
    "start": pl.Int64,
    "end": pl.Int64,
    "district": pl.Int32,
    "lat": pl.Float64,
    "lon": pl.Float64,
    "ts": st.TIME,
}
STRUCT = "src STRING, dst STRING, start LONG, end LONG, district INT, lat DOUBLE, lon DOUBLE, ts TIMESTAMP"
SIDES = ("springtide", "st_spark", "spark")


def main(*args: str) -> None:
    """Run all sides, or some."""
    parser = argparse.ArgumentParser(prog="kafka")
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument(
        "--spark-records", type=int, help="for Spark's own aggregate; a tenth of the records if not given"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epoch", type=int, default=2_000_000, help="records in an epoch or a micro-batch")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    given = parser.parse_args(args)
    few = given.spark_records or given.records // 10
    with scratch() as folder, broker(heap="1g") as server:
        topics = Topics(server.servers)
        _fill(topics, "calls", given.records)
        if "spark" in given.sides:
            _fill(topics, "few", few)
        jars = {"spark_jars": ",".join(f"{CENTRAL}/{jar}" for jar in JARS)}
        spark = session(**(jars if {"spark", "st_spark"} & set(given.sides) else {}))
        runs: dict[str, Callable[[Path], list[float]]] = {
            "springtide": lambda out: _springtide(spark, topics.servers, out, given.records, given.epoch),
            "st_spark": lambda out: _st_spark(spark, topics.servers, out, given.records, given.epoch),
            "spark": lambda out: _spark(spark, topics.servers, out, few, min(given.epoch, max(1, few // 5))),
        }
        rates: dict[str, list[float]] = {side: [] for side in given.sides}
        for number in range(-1, given.rounds):  # the first one warms up; turn about, so that a busy minute hits all
            for side in given.sides:
                if side != "springtide" and number < 0 < given.rounds:
                    continue
                found = runs[side](folder / f"{side}{number}")
                say(f"{side}: {[f'{r / 1e3:.0f} k rows/s' for r in found]}")
                if number >= 0 or not given.rounds:
                    rates[side] += found
        outs = {side: folder / f"{side}{given.rounds - 1}" / "out" for side in given.sides}
        compared = {side: _same_rows(outs["springtide"], out) for side, out in outs.items() if side != "springtide"}
    medians = {side: statistics.median(found) for side, found in rates.items()}
    result(
        "kafka",
        rows_per_s=medians["springtide"],
        **{f"ratio_vs_{side}": medians["springtide"] / medians[side] for side in medians if side != "springtide"},
        **{f"{side}_rows_per_s": medians[side] for side in medians if side != "springtide"},
        rates={side: summary(found) for side, found in rates.items()},
        records=given.records,
        spark_records=few,
        rows_compared=compared,
        connector=Path(JARS[0]).name,
    )


def _fill(topics: Topics, name: str, records: int) -> None:
    """Write call records to a topic, in the order of their times in every partition."""
    files = -(-records // ROWS_PER_FILE)
    data, left = make(DATA / "cdr", max(files, 1)), records
    topics.new(name, PARTITIONS)
    producer = topics.producer(linger_ms=50, queue_buffering_max_messages=2_000_000, batch_size=1 << 20)
    began, number = time.monotonic(), 0
    for file in sorted(data.glob("*.parquet"))[:files]:
        rows = pl.read_parquet(file).head(left)
        times = pl.col("ts").dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ")
        values = rows.with_columns(times).select(pl.struct(pl.all()).struct.json_encode()).to_series().to_list()
        for value in values:
            while True:
                try:
                    producer.produce(name, value, partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
            number += 1
        producer.poll(0)
        left -= rows.height
    assert producer.flush(300) == 0
    say(f"{number} records are in the topic {name}, after {time.monotonic() - began:.0f} s")


def _windows(calls: Any, folder: Path) -> st.Query:
    windows = calls.map(duration=pl.col("end") - pl.col("start")).aggregate(
        by="src", window=st.sliding("1h", every="1m"), n=st.count(), avg=st.mean("duration"), name="windows"
    )
    return st.Query("heavy", windows.to(st.parquet_sink(folder / "out")))


def _steady(epochs: list[dict[str, Any]], records: int) -> list[float]:
    rates, done = [], 0
    for before, epoch in pairwise(epochs):
        done += before["rows"]
        if epoch["rows"] and done >= records // 4:
            rates.append(epoch["rows"] / (epoch["at"] - before["at"]))
    return rates or [sum(e["rows"] for e in epochs[1:]) / (epochs[-1]["at"] - epochs[0]["at"])]


def _springtide(spark: Any, servers: str, folder: Path, records: int, epoch: int) -> list[float]:
    calls = st.source("calls", st.kafka(servers, "calls", schema=SCHEMA, end="now"), ts="ts")
    run = _windows(calls, folder).start(
        spark, checkpoint=folder / "checkpoint", instances=2, rows_per_epoch=min(epoch, max(1, records // 5))
    )
    run.wait()
    return _steady(run.metrics(), records)


def _records(spark: Any, servers: str, topic: str, batch: int) -> Any:
    stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", batch).load()
    parsed = sf.from_json(sf.col("value").cast("string"), STRUCT).alias("call")
    return stream.select("partition", "offset", parsed).select("partition", "offset", "call.*")


def _st_spark(spark: Any, servers: str, folder: Path, records: int, epoch: int) -> list[float]:
    frame = _records(spark, servers, "calls", min(epoch, max(1, records // 5)))
    calls = st.source("calls", st.spark(frame, stream="partition", position="offset"), ts="ts")
    run = _windows(calls, folder).start(spark, checkpoint=folder / "checkpoint", instances=2)
    until = time.monotonic() + 3600
    while sum(e["rows"] for e in run.metrics()) < records and time.monotonic() < until:
        run.wait(0.2)
    run.stop()
    return _steady(run.metrics(), records)


def _spark(spark: Any, servers: str, folder: Path, records: int, batch: int) -> list[float]:
    store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", store)
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    windows = (
        _records(spark, servers, "few", batch)
        .withWatermark("ts", "0 seconds")
        .withColumn("duration", sf.col("end") - sf.col("start"))
        .groupBy(sf.window("ts", "1 hour", "1 minute"), "src")
        .agg(sf.count("*").alias("n"), sf.avg("duration").alias("avg"))
        .select(
            "src", sf.col("window.start").alias("window_start"), sf.col("window.end").alias("window_end"), "n", "avg"
        )
    )
    writer = windows.writeStream.outputMode("append").format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    rates, done = [], 0
    for progress in query.recentProgress:
        rows = progress["numInputRows"]
        if rows and done >= records // 4:
            rates.append(rows / progress["durationMs"]["triggerExecution"] * 1000)
        done += rows
    return rates


def _same_rows(ours: Path, theirs: Path) -> int:
    """Compare every window that the other side gave with ours; it keeps the last ones, which are open when its input stops."""
    files = [pl.read_parquet(f) for f in theirs.rglob("*.parquet")]
    if not files or not sum(f.height for f in files):
        return 0
    found = pl.concat(files).with_columns(pl.col("window_start", "window_end").cast(st.TIME))
    mine = pl.read_parquet(ours / "**/*.parquet").filter(pl.col("window_end") <= found["window_end"].max())
    both = mine.join(found, on=["src", "window_start", "window_end"], how="full", suffix="_other")
    wrong = both.filter(
        pl.col("n").ne_missing(pl.col("n_other"))
        | ((pl.col("avg") - pl.col("avg_other")).abs() > 1e-9 * pl.col("avg").abs())
    )
    if wrong.height:
        raise AssertionError(f"{wrong.height} of {both.height} rows differ:\n{wrong.head()}")
    say(f"{both.height} rows are the same on both sides")
    return both.height
