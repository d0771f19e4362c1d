"""Connections that are cut in the middle of an answer: all that clients and the broker say goes through somebody who drops it."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import springtide as st
from springtide.runtime import inprocess
from springtide.runtime.engine import Options
from springtide.topics import records
from tests.kafka.broker import Topics, absent, broker
from tests.servers.cutter import cutter


def test_connections_are_cut_half_way(tmp_path: Path) -> None:
    """Rows are written once each, whichever requests and answers are cut off, of the source and of the sink."""
    if (why := absent()) is not None:
        pytest.skip(why)
    with cutter() as between, broker(between=between) as server:
        topics = Topics(server.servers)
        source, out = topics.new(partitions=2), topics.new()
        for p in range(2):
            rows = [{"n": 500 * p + i, "ts": f"2024-05-01T00:{i // 60:02d}:{i % 60:02d}Z"} for i in range(500)]
            topics.put(source, [json.dumps(row).encode() for row in rows], p)
        schema = {"n": pl.Int64, "ts": st.TIME}
        calls = st.source("calls", st.kafka(topics.servers, source, schema=schema, end="now"), ts="ts")
        query = st.Query("cut", calls.to(st.kafka_sink(topics.servers, out), name="out"))
        between.cutting = True
        inprocess.run(query.plan(), tmp_path / "ckpt", Options(2, rows_per_epoch=250, patience=300))
        between.cutting = False
        found = sorted(json.loads(m.value())["n"] for m in Topics(server.servers).get(out))
        assert found == list(range(1000))
        assert between.cuts == between.most_cuts
        records.forget()
