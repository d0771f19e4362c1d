"""The queries with Spark's own streaming operators, with batch sizes and state stores chosen by hand.

Spark keeps what is open when its input ends. So that it gives all rows, as the others do, it reads a few rows more, a day later, whose windows
never end and which are in no result. There is no form of `clickstream`: nobody has written one yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
from pyspark.sql import functions as sf

from benchmarks.cdr.aggregates import spark_windows
from benchmarks.cdr.joins import spark_pairs
from benchmarks.measure import session
from benchmarks.peers.flink import TooLong
from benchmarks.peers.nexmark import AUCTION, BID, PERSON

ROCKSDB, MEMORY = "RocksDBStateStoreProvider", "HDFSBackedStateStoreProvider"
LAST = 50
"""Rows that come a day after all others: as many as have every kind of NEXMark's events among them."""


@dataclass(frozen=True)
class Form:
    """How a query is written, and how it is run."""

    frame: Callable[[Any, Path], Any]
    rows_per_batch: int = 1_000_000
    store: str = ROCKSDB


@cache
def _session() -> Any:
    return session()


def run(name: str, data: Path, folder: Path, longest: float) -> float:
    """Run a query over the files in the session of this process; give its seconds."""
    spark, form = _session(), FORMS[name]
    files = _files(data, folder / "in", form.rows_per_batch)
    provider = f"org.apache.spark.sql.execution.streaming.state.{form.store}"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    begun = time.perf_counter()
    rows = form.frame(spark, files)
    writer = rows.writeStream.outputMode("append").format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    if not query.awaitTermination(longest):
        query.stop()
        raise TooLong
    return time.perf_counter() - begun


def _files(data: Path, folder: Path, rows_per_batch: int) -> Path:
    """Cut the files so that one is a batch, and add the last rows; Spark takes files by their time."""
    folder.mkdir(parents=True)
    rows = pl.scan_parquet(data / "*.parquet")
    count = rows.select(pl.len()).collect().item()
    for number, first in enumerate(range(0, count, rows_per_batch)):
        rows.slice(first, rows_per_batch).collect().write_parquet(folder / f"{number:04d}.parquet")
        time.sleep(0.01)
    rows.tail(LAST).with_columns(pl.col("ts") + timedelta(days=1)).collect().write_parquet(folder / "last.parquet")
    return folder


def _stream(spark: Any, files: Path) -> Any:
    reader = spark.readStream.schema(spark.read.parquet(str(files)).schema).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(files))


def _windows(size: int, every: int, key: str) -> Callable[[Any, Path], Any]:
    def frame(spark: Any, files: Path) -> Any:
        return spark_windows(_stream(spark, files), size, every, key).withColumnRenamed("avg", "avg_duration")

    return frame


def _events(spark: Any, files: Path, *kinds: int) -> Any:
    return _stream(spark, files).withWatermark("ts", "0 seconds").filter(sf.col("kind").isin(*kinds))


def _q5(spark: Any, files: Path) -> Any:
    window = sf.window("ts", "10 seconds", "2 seconds")
    counts = _events(spark, files, BID).groupBy(window, "bid_auction").agg(sf.count("*").alias("n"))
    of_window = counts.groupBy("window").agg(
        sf.max("n").alias("most"), sf.collect_list(sf.struct("bid_auction", "n")).alias("all")
    )
    hot = of_window.select("window", "most", sf.explode("all").alias("one")).filter("one.n = most")
    return hot.select(
        sf.col("window.start").alias("window_start"),
        sf.col("one.bid_auction").alias("auction"),
        sf.col("one.n").alias("n"),
    )


def _q7(spark: Any, files: Path) -> Any:
    bid = sf.struct("bid_auction", "bid_bidder", sf.col("ts").alias("at"))
    by_price = (
        _events(spark, files, BID)
        .groupBy(sf.window("ts", "10 seconds"), "bid_price")
        .agg(sf.collect_list(bid).alias("bids"))
    )
    highest = by_price.groupBy("window").agg(
        sf.max("bid_price").alias("price"), sf.max_by("bids", "bid_price").alias("bids")
    )
    return highest.select("price", sf.explode("bids").alias("bid")).select(
        sf.col("bid.bid_auction").alias("auction"), sf.col("bid.bid_bidder").alias("bidder"), "price", "bid.at"
    )


def _q8(spark: Any, files: Path) -> Any:
    seen = _events(spark, files, PERSON, AUCTION).withColumn("id", sf.coalesce("person_id", "auction_seller"))
    who = seen.groupBy(sf.window("ts", "10 seconds"), "id").agg(
        sf.max("person_name").alias("name"), sf.max(sf.col("kind") == AUCTION).alias("sells")
    )
    found = who.filter("name IS NOT NULL AND sells")
    return found.select("id", "name", sf.col("window.start").alias("window_start"))


def _q11(spark: Any, files: Path) -> Any:
    session = sf.session_window("ts", "9999 milliseconds").alias("session")
    sessions = _events(spark, files, BID).groupBy(session, "bid_bidder").agg(sf.count("*").alias("n"))
    return sessions.select(
        sf.col("bid_bidder").alias("bidder"),
        "n",
        sf.col("session.start").alias("first_bid"),
        (sf.col("session.end") - sf.expr("INTERVAL '9.999' SECOND")).alias("last_bid"),
    )


FORMS = {
    "heavy-callers": Form(_windows(3600, 60, "src")),
    "district": Form(_windows(60, 10, "district"), 5_000_000),
    "cdr-join": Form(lambda spark, files: spark_pairs(spark, files, 1), 50_000, MEMORY),
    "q5": Form(_q5),
    "q7": Form(_q7),
    "q8": Form(_q8, 5_000_000),
    "q11": Form(_q11),
}
