"""Sinks on Spark: they stay in the driver, whatever they hold."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

import springtide as st
from springtide.runtime import inprocess
from springtide.runtime.engine import Options
from springtide.sinks.folder import Folder
from springtide.sinks.rolling import Layout
from tests.machine import LONG
from tests.unit.sinks.test_rolling import OWNER, Clock, published

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def test_functions_may_hold_what_cannot_be_sent(spark: SparkSession, tmp_path: Path) -> None:
    """A lock, a file and the session itself: nothing of a sink goes to the workers."""
    lock, log = threading.Lock(), open(tmp_path / "log", "w")  # noqa: SIM115
    seen: list[int] = []

    def keep(rows: pl.DataFrame, epoch: int) -> None:
        with lock:
            seen.extend(rows["x"].to_list())
            log.write(f"{epoch}\n")

    def count(df: DataFrame, epoch: int) -> None:
        with lock:
            log.write(f"{spark.createDataFrame(df.rdd, df.schema).count()}\n")

    source = st.source("numbers", st.memory(pl.DataFrame({"x": range(10)})))
    query = st.Query("held", source.to(st.callback(keep), name="kept"), source.to(st.spark_sink(count), name="counted"))
    with log:
        assert query.start(spark, checkpoint=tmp_path / "ckpt", instances=2, rows_per_epoch=5).wait(LONG)
    assert sorted(seen) == list(range(10))
    assert (tmp_path / "log").read_text().split() == ["0", "5", "1", "5"]


def test_an_error_of_spark_in_a_sink_names_the_sink_and_the_cause(spark: SparkSession, tmp_path: Path) -> None:
    def save(df: DataFrame, epoch: int) -> None:
        df.selectExpr("raise_error('no such customer')").collect()

    source = st.source("numbers", st.memory(pl.DataFrame({"x": range(3)})))
    query = st.Query("failing", source.to(st.spark_sink(save), name="customers"))
    run = query.start(spark, checkpoint=tmp_path / "ckpt", patience="1ms")
    with pytest.raises(st.UnavailableError, match=r"step customers \(sink\): .*no such customer"):
        run.wait(LONG)


def test_spark_reads_parquet_files_and_passes_over_what_is_held_back(spark: SparkSession, tmp_path: Path) -> None:
    held, parted, clock = tmp_path / "held", tmp_path / "parted", Clock()
    (tmp_path / "outbox").mkdir()
    published(Folder(held, OWNER, Layout(seconds=60, clock=clock)), tmp_path / "outbox", range(70), clock)
    assert sorted(row.x for row in spark.read.parquet(str(held)).collect()) == list(range(61))
    towns = ["a b", "c/d", None, "é=1", "50%"]
    rows = [{"ts": n * 1_000_000, "town": towns[n % 5], "x": n} for n in range(15)]
    source = st.source("rows", st.memory(rows, schema={"ts": pl.Int64, "town": pl.String, "x": pl.Int64}), ts="ts")
    query = st.Query("folders", source.to(st.parquet_sink(parted, partition_by="town")))
    inprocess.run(query.plan(buckets=2), tmp_path / "ckpt", Options(1, rows_per_epoch=6))
    found = spark.read.parquet(str(parted)).orderBy("x").collect()
    assert [(row.town, row.x) for row in found] == [(row["town"], row["x"]) for row in rows]
