"""Savepoints of a run on Spark, and a changed query that starts from one; Spark's own offsets go along."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide import state
from springtide.testing import compare
from tests.spark.test_run import accepted, counting, frame, until, write

pytestmark = pytest.mark.spark


def test_a_changed_query_goes_on_from_a_savepoint(spark: Any, tmp_path: Path) -> None:
    """SE-2: rows that Spark read before the savepoint come once, those behind it come to the new query, and once too."""
    files = tmp_path / "in"
    files.mkdir()
    for i in range(3):
        write(files, i)
    schema = spark.read.parquet(str(files)).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(files))
    query, sink = counting(st.source("rows", st.spark(stream), ts="ts", max_disorder="60s"))
    run = query.start(spark, checkpoint=tmp_path / "ckpt", instances=2, durability="1h")
    until(run, lambda: accepted(run, "rows") == 75)
    place = run.savepoint("one")
    write(files, 3)
    saved = state.checkpoint(place)
    assert sink.rows().height > 0
    state.backup(run, tmp_path / "node")
    run.stop()
    for epoch in [e for e in sink.epochs if e > saved.epoch]:
        del sink.epochs[epoch]

    write(files, 4)
    source = st.source("rows", st.spark(stream), ts="ts", max_disorder="60s")
    counts = source.filter(pl.col("value") >= 0).aggregate(
        by="key", window=st.tumbling("10s"), n=st.count(), total=st.sum("value"), name="counts"
    )
    changed = st.Query("changed", counts.to(sink, name="out"))
    with pytest.raises(st.CheckpointError, match=r"256 buckets .* 64; start with buckets=256"):
        changed.start(spark, checkpoint=tmp_path / "new", savepoint=place, buckets=64)
    run = changed.start(spark, checkpoint=tmp_path / "new", savepoint=place, instances=3)
    until(run, lambda: accepted(run, "rows") == 125)
    run.stop()
    compare(sink.rows(), query.run_reference({"rows": frame(0, 125)}, bounded=False).rows())
    assert state.checkpoint(tmp_path / "node").epoch >= saved.epoch
