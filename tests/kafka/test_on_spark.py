"""From Kafka to Kafka on Spark, end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.testing import compare
from tests.kafka.broker import Topics

pytestmark = pytest.mark.spark

SCHEMA = {"src": pl.String, "n": pl.Int64, "ts": st.TIME}


def test_from_a_topic_to_a_topic(spark: Any, topics: Topics, tmp_path: Path) -> None:
    name, out = topics.new(partitions=4), topics.new(partitions=2)
    for p in range(4):
        rows = [
            {"src": f"s{i % 7}", "n": i, "ts": f"2024-05-01T00:{i // 60:02d}:{i % 60:02d}Z"} for i in range(p, 600, 4)
        ]
        topics.put(name, [json.dumps(row).encode() for row in rows], p)
    calls = st.source("calls", st.kafka(topics.servers, name, schema=SCHEMA, end="now"), ts="ts")
    counts = calls.aggregate(by="src", window=st.tumbling("1m"), total=st.sum("n"), name="counts")
    query = st.Query("counts", counts.to(st.kafka_sink(topics.servers, out, key="src"), name="out"))
    for stop in (True, False):  # the second run goes on where the first was stopped
        run = query.start(spark, checkpoint=tmp_path / "ckpt", instances=2, buckets=8, rows_per_epoch=150)
        if stop:
            run.scale("counts", 3)
            run.stop()
        else:
            run.wait()
    expected = query.run_reference().rows()
    found = st.kafka(topics.servers, out, schema=expected.schema, end="now").read_all()
    compare(pl.concat([rows for rows in found.values() if isinstance(rows, pl.DataFrame)]), expected)
