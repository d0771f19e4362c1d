"""Calls of the same caller within 60 s, and how far apart they were made: Springtide beside Spark's own stream-stream join (SC-13).

Both sides join the stream of call records with itself, by caller and time; a pair is wanted once, the call that began first on its left. The distance on the
earth's surface is computed of every pair (about 8 per record); those below 500 km are written, to Parquet. Two cores each, same files, same rows out.

The files are small, 50,000 records each, because Spark's own join goes through all that it has of a key for every record, and it forgets only between
batches: large ones make it slower. It runs on the first files, with each of its state stores, then with batches of 4 and 10 files on the better one; the best
of all is run again and is what we compare with. Rates are those of the steady state: epochs (or micro-batches) after the first, which starts with empty
state; ours with the last epoch.
"""

import statistics
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from pyspark.sql import functions as sf

import springtide as st
from benchmarks.cdr.data import FILES, ROWS_PER_FILE, make, split
from benchmarks.measure import DATA, result, say, scratch, session, summary

REPEATS = 3
PARTS = 10
"""Small files of one of those that the other benchmarks read."""
OUR_FILES, SPARK_FILES = FILES * PARTS, 20
PER_EPOCH = 40
RADIUS, NEAR = 6371.0, 500.0
"""Kilometres."""
_LAT, _LON, _OTHER_LAT, _OTHER_LON = (pl.col(c).radians() for c in ("lat", "lon", "lat_right", "lon_right"))
_ACROSS = _LAT.cos() * _OTHER_LAT.cos() * ((_OTHER_LON - _LON) / 2).sin() ** 2
KM = 2 * RADIUS * (((_OTHER_LAT - _LAT) / 2).sin() ** 2 + _ACROSS).sqrt().arcsin()
"""How far apart the two calls of a pair were made."""

STORES = {"rocksdb": "RocksDBStateStoreProvider", "memory": "HDFSBackedStateStoreProvider"}


class Way(NamedTuple):
    """How Spark's own join is run."""

    store: str
    per_batch: int

    def __str__(self) -> str:
        return f"{self.store}, {self.per_batch} files per batch"


def cdr_join(files: str = str(OUR_FILES), spark_files: str = str(SPARK_FILES)) -> None:
    """Run all; fewer files are for trying it out."""
    ours_on, theirs_on = int(files), int(spark_files)
    data = split(make(DATA / "cdr"), DATA / "cdr-small", PARTS)
    spark = session()
    ours: list[float] = []
    tried: dict[Way, list[float]] = {}
    with scratch() as folder:
        inputs = {n: _first(data, n, folder / f"files-{n}") for n in {ours_on, theirs_on}}

        def try_spark(way: Way) -> None:
            rates = _spark(
                spark, inputs[theirs_on], folder / f"{way.store}-{way.per_batch}-{len(tried.get(way, ()))}", way
            )
            say(f"spark, {way}: {[f'{r / 1e3:.1f} k rows/s' for r in rates]}")
            tried.setdefault(way, []).extend(rates)

        def best() -> Way:
            return max((way for way in tried if tried[way]), key=lambda way: statistics.median(tried[way]))

        _springtide(spark, inputs[ours_on], folder / "warm-up")
        for store in STORES:
            try_spark(Way(store, 1))
        for per_batch in (4, 10):
            try_spark(Way(best().store, per_batch))
        way = best()
        rows = _same_rows(
            folder / "warm-up" / "out", folder / f"{way.store}-{way.per_batch}-0" / "out", inputs[theirs_on]
        )
        for i in range(REPEATS):  # turn about, so that a busy minute of the machine hits both
            rates = _springtide(spark, inputs[ours_on], folder / f"ours-{i}")
            say(f"springtide: {[f'{r / 1e6:.2f} M rows/s' for r in rates]}")
            ours += rates
            if i > 0:
                try_spark(way)
    result(
        "cdr-join",
        ratio_vs_spark=statistics.median(ours) / statistics.median(tried[way]),
        rows_per_s=statistics.median(ours),
        spark_rows_per_s=statistics.median(tried[way]),
        springtide=summary(ours),
        spark=summary(tried[way]),
        spark_tried={str(one): summary(rates) for one, rates in tried.items() if rates},
        spark_best=str(way),
        rows_compared=rows,
        spark_prefix_rows=theirs_on * ROWS_PER_FILE // PARTS,
    )


def query_to(data: Path, sink: Any) -> st.Query:
    """Write the query for Springtide."""
    calls = st.source("calls", st.parquet(data), ts="ts")
    pairs = calls.join(calls, on="src", within="60s", where=pl.col("start") < pl.col("start_right"), name="pairs")
    near = pairs.map(km=KM).filter(pl.col("km") < NEAR)
    return st.Query("cdr-join", near.select("src", "start", "start_right", "km").to(sink))


def _first(data: Path, files: int, folder: Path) -> Path:
    folder.mkdir()
    for file in sorted(data.glob("*.parquet"))[:files]:
        (folder / file.name).symlink_to(file)
    return folder


def _springtide(spark: Any, data: Path, folder: Path) -> list[float]:
    run = query_to(data, st.parquet_sink(folder / "out")).start(
        spark, checkpoint=folder / "checkpoint", instances=2, rows_per_epoch=PER_EPOCH * ROWS_PER_FILE // PARTS
    )
    run.wait()
    epochs = run.metrics()
    return [e["rows"] / (e["at"] - before["at"]) for before, e in pairwise(epochs) if e["rows"]]


def _spark(spark: Any, data: Path, folder: Path, way: Way) -> list[float]:
    provider = f"org.apache.spark.sql.execution.streaming.state.{STORES[way.store]}"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    near = spark_pairs(spark, data, way.per_batch)
    writer = near.writeStream.outputMode("append").format("parquet").option("path", str(folder / "out"))
    running = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    running.awaitTermination()
    batches = []
    for progress in running.recentProgress:
        rows = max(source["numInputRows"] for source in progress["sources"])  # both sides read all of it
        if rows:
            batches.append(rows / progress["durationMs"]["triggerExecution"] * 1000)
    return batches[1:]


def spark_pairs(spark: Any, data: Path, per_batch: int) -> Any:
    """Write the query for Spark's own stream-stream join."""
    columns = ["src", "start", "lat", "lon", "ts"]

    def calls() -> Any:
        stream = spark.readStream.schema(spark.read.parquet(str(data)).schema).option("maxFilesPerTrigger", per_batch)
        # With no delay it drops records of the last millisecond of the batch before.
        return stream.parquet(str(data)).select(*columns).withWatermark("ts", "1 second")

    left, right = calls(), calls().toDF(*(f"{c}_right" for c in columns))
    minute = sf.expr("INTERVAL 60 SECONDS")
    within = (sf.col("ts_right") >= sf.col("ts") - minute) & (sf.col("ts_right") <= sf.col("ts") + minute)
    same = (sf.col("src") == sf.col("src_right")) & within & (sf.col("start") < sf.col("start_right"))
    lat, lon, other_lat, other_lon = (sf.radians(c) for c in ("lat", "lon", "lat_right", "lon_right"))
    across = sf.cos(lat) * sf.cos(other_lat) * sf.pow(sf.sin((other_lon - lon) / 2), 2)
    square = sf.pow(sf.sin((other_lat - lat) / 2), 2) + across
    return (
        left.join(right, same)
        .withColumn("km", 2 * RADIUS * sf.asin(sf.sqrt(square)))
        .filter(sf.col("km") < NEAR)
        .select(sf.greatest("ts", "ts_right").alias("ts"), "src", "start", "start_right", "km")
    )


def _same_rows(ours: Path, theirs: Path, read: Path) -> int:
    """Compare all pairs of calls that are in the files that Spark read: the later call decides."""
    end = pl.scan_parquet(read / "*.parquet").select(pl.col("ts").max()).collect().item()
    by = ["ts", "src", "start", "start_right"]
    given, wanted = (
        pl.concat([pl.read_parquet(f) for f in folder.glob("*.parquet")])
        .with_columns(pl.col("ts").cast(st.TIME))
        .filter(pl.col("ts") < end)  # the next file may begin at that very time
        .select(*by, "km")
        .sort(*by, "km")
        for folder in (ours, theirs)
    )
    if given.height != wanted.height or not given.height:
        raise AssertionError(f"{given.height} rows of ours, {wanted.height} of Spark's")
    wrong = (given["km"] - wanted["km"]).abs() > 1e-6
    if wrong.any() or not given.select(by).equals(wanted.select(by)):
        raise AssertionError(f"rows differ:\n{given.filter(wrong).head()}\n{wanted.filter(wrong).head()}")
    say(f"{given.height} rows are the same on both sides")
    return given.height
