"""Rows that Spark reads, on Spark: streams that come later or fall silent, records that are gone, streams in several tasks."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.testing import PAUSE, at, compare, idle
from tests.machine import LONG
from tests.spark.test_run import accepted, put, until

pytestmark = pytest.mark.spark

FIELDS = "partition long, offset long, ts timestamp"
SCHEMA = {"partition": pl.Int64, "offset": pl.Int64, "ts": st.TIME}


def rows(partition: int, *seconds: int, first: int = 0) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "partition": [partition] * len(seconds),
            "offset": range(first, first + len(seconds)),
            "ts": [at(f"{s}s") for s in seconds],
        },
        schema=SCHEMA,
    )


def frame_of(spark: Any, folder: Path, **options: Any) -> Any:
    folder.mkdir(exist_ok=True)
    return spark.readStream.schema(FIELDS).options(**options).parquet(str(folder))


def counting(*sources: st.Stream) -> tuple[st.Query, Any]:
    sink = st.memory_sink()
    stream = st.union(*sources) if len(sources) > 1 else sources[0]
    counts = stream.aggregate(by="partition", window=st.tumbling("10s"), n=st.count(), name="counts")
    return st.Query("rows", counts.to(sink, name="out")), sink


def source(spark: Any, folder: Path, name: str = "rows", **more: Any) -> st.Stream:
    return st.source(name, st.spark(frame_of(spark, folder), stream="partition", position="offset"), ts="ts", **more)


def height(sink: Any) -> int:
    found: int = sink.rows().height
    return found


def test_streams_that_come_later_fall_silent_and_lose_spark_s_records(spark: Any, tmp_path: Path) -> None:
    """A partition that was empty begins at the time of the source; one that is silent holds nothing back; then the records are gone."""
    files, checkpoint = tmp_path / "in", tmp_path / "ckpt"
    query, sink = counting(source(spark, files, idle_after="3s"))
    put(files_of(files) / "0.parquet", rows(0, 1, 12, 13), age=30)
    run = query.start(spark, checkpoint=checkpoint, instances=2)
    until(run, lambda: height(sink) == 1)
    put(files / "1.parquet", rows(1, 3, 14), age=20)
    until(run, lambda: run.status()["sources"]["rows"]["late"] == 1)
    put(files / "2.parquet", rows(0, 45, first=3), age=10)
    until(run, lambda: height(sink) == 3)  # partition 1 says nothing any more
    batch = run.epochs()[-1].batch
    assert batch == 2
    assert run.status()["epoch"] > batch, "time moved on without a micro-batch"
    run.stop()
    inputs = {"0": rows(0, 1, 12, 13, 45), "1": [idle(to="13s"), *rows(1, 3, 14).to_dicts(), idle(to="45s")]}
    compare(sink.rows(), query.run_reference({"rows": inputs}, bounded=False).rows())
    shutil.move(checkpoint / "spark", tmp_path / "aside")
    with pytest.raises(st.CheckpointError, match=r"up to 2, .*Spark's records .* gone; .*folder spark"):
        query.start(spark, checkpoint=checkpoint)
    shutil.move(tmp_path / "aside", checkpoint / "spark")
    put(files / "3.parquet", rows(0, 46, first=4))
    again = query.start(spark, checkpoint=checkpoint)
    until(again, lambda: accepted(again, "rows") == 6)
    again.stop()


def files_of(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def test_a_silent_source_of_spark_stops_no_other(spark: Any, tmp_path: Path) -> None:
    """A source that Python reads goes on though Spark has nothing; with `idle_after` time goes on too, to the end."""
    native = [
        *rows(7, 1, 12).to_dicts(),
        PAUSE,
        *rows(7, 25, first=2).to_dicts(),
        PAUSE,
        *rows(7, 60, first=3).to_dicts(),
    ]
    silent = source(spark, tmp_path / "silent", "silent", idle_after="1s")
    query, sink = counting(silent, st.source("native", st.memory(native, schema=SCHEMA), ts="ts"))
    run = query.start(spark, checkpoint=tmp_path / "ckpt", instances=1, trigger="50 milliseconds")
    until(run, lambda: accepted(run, "native") == 4)
    assert run.epochs()[-1].batch is None
    put(tmp_path / "silent" / "0.parquet", rows(0, 70))
    until(run, lambda: accepted(run, "silent") == 1)
    until(run, lambda: height(sink) == 4)
    run.stop()


def test_a_stream_in_several_tasks_is_judged_as_one(spark: Any, tmp_path: Path) -> None:
    """`minPartitions` and the like: found by the reports, brought together, and the epoch run again."""
    files = files_of(tmp_path / "in")
    put(files / "0.parquet", rows(0, 50, 51), age=20)
    put(files / "1.parquet", rows(0, 10, 52, first=2), age=10)
    query, sink = counting(source(spark, files))
    run = query.start(spark, checkpoint=tmp_path / "ckpt", instances=2, trigger="available now")
    assert run.wait(LONG)
    assert run.status()["sources"]["rows"] == {"accepted": 3, "late": 1, "rejected": 0, "ended": False}
    assert ["brought together first" in text for _, text in run.events()] == [True]
    expected = query.run_reference({"rows": {"0": rows(0, 50, 51, 10, 52)}}, bounded=False)
    compare(sink.rows() if sink.rows().width else expected.rows().clear(), expected.rows())


def test_what_spark_does_for_its_rows_is_work(spark: Any, tmp_path: Path) -> None:
    """Reading and parsing is in the busy time of the prefix, and the stage is as long as it takes."""
    from pyspark.sql import functions as sf

    def slow(number: int) -> int:
        time.sleep(2)  # Spark begins with that a moment before our task can look at its clock
        return number

    files = files_of(tmp_path / "in")
    put(files / "0.parquet", rows(0, 1))
    frame = frame_of(spark, files).withColumn("offset", sf.udf(slow, "long", useArrow=False)("offset"))
    query, _ = counting(st.source("rows", st.spark(frame), ts="ts"))
    with pytest.raises(st.QueryError, match="rows_per_epoch=5 does not bound what Spark reads"):
        query.start(spark, checkpoint=tmp_path / "ckpt", rows_per_epoch=5)
    run = query.start(spark, checkpoint=tmp_path / "ckpt", instances=2, trigger="available now")
    assert run.wait(LONG)
    snapshot = run.last_snapshot
    assert snapshot is not None
    assert sum(snapshot.subqueries["rows"].busy) >= 0.5
    assert snapshot.span("rows") >= 0.5
    assert len(snapshot.subqueries["rows"].busy) == 2


def test_offsets_of_spark_go_along_with_a_checkpoint_in_a_store(
    spark: Any, tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node, which has nothing but the address, goes on where the first one was lost; no jar knows the store."""
    files, checkpoint = files_of(tmp_path / "in"), s3.replace("?", "/ckpt?")
    query, sink = counting(source(spark, files))
    for node in range(3):
        monkeypatch.setenv("SPRINGTIDE_CACHE", str(tmp_path / f"node-{node}"))
        put(files / f"{node}.parquet", rows(0, 20 * node, 20 * node + 11, first=2 * node), age=30 - node)
        run = query.start(spark, checkpoint=checkpoint, instances=1 + node, trigger="available now")
        run.wait(LONG)
        assert accepted(run, "rows") == 2 * (node + 1)
        shutil.rmtree(tmp_path / f"node-{node}")  # and it is gone
    everything = pl.concat([rows(0, 20 * n, 20 * n + 11, first=2 * n) for n in range(3)])
    compare(sink.rows(), query.run_reference({"rows": everything}, bounded=False).rows())
    place, secret = s3.partition("?")[0], "hush-hush"
    assert not [line for line in spark.sparkContext.getConf().getAll() if place in line[1] or secret in line[1]]
