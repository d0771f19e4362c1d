"""Leaders that move: two brokers, of which one dies and comes back, and one has to give its partitions away."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.runtime import inprocess
from springtide.runtime.engine import Options
from springtide.topics import records
from tests.kafka.broker import Topics, absent, broker
from tests.machine import LONG

_TWICE = {
    "default.replication.factor": 2,  # of the sink's ledger too
    "transaction.state.log.replication.factor": 2,
    "offsets.topic.replication.factor": 2,
    "broker.session.timeout.ms": 3000,  # then a broker that says nothing is dead to the others
    "broker.heartbeat.interval.ms": 500,
    "leader.imbalance.check.interval.seconds": 1,  # a broker that is back gets its partitions back
    "leader.imbalance.per.broker.percentage": 0,
}


def test_leaders_move_while_a_query_reads_and_writes(tmp_path: Path) -> None:
    """A leader is killed, comes back, and gets its partitions again: every row is written once."""
    if (why := absent()) is not None:
        pytest.skip(why)
    with broker(**_TWICE) as one, broker(beside=one, **_TWICE) as other:
        topics = Topics(f"{one.servers},{other.servers}")
        until(lambda: len(topics.admin.list_topics(timeout=10).brokers) == 2)
        source, out = topics.new(partitions=4, replicas=2), topics.new(partitions=2, replicas=2)
        for p in range(4):
            rows = [{"n": 100 * p + i, "ts": f"2024-05-01T00:00:{i % 60:02d}Z"} for i in range(60)]
            topics.put(source, [json.dumps(row).encode() for row in rows], p)
        calls = st.source(
            "calls",
            st.kafka(topics.servers, source, schema={"n": pl.Int64, "ts": st.TIME}, end="now"),
            ts="ts",
        )
        query = st.Query("leaders", calls.to(st.kafka_sink(topics.servers, out), name="out"))
        assert {*topics.leaders(source)} == {*topics.leaders(out)} == {1, 2}
        epochs = 0

        def move(engine: Any) -> bool:
            nonlocal epochs
            epochs += 1
            if epochs == 2:
                other.kill()
                until(lambda: {*topics.leaders(source), *topics.leaders(out)} == {1})
            if epochs == 4:
                other.start()
                until(lambda: {*topics.leaders(source)} == {*topics.leaders(out)} == {1, 2})
            return True

        inprocess.run(query.plan(), tmp_path / "ckpt", Options(2, rows_per_epoch=40, patience=LONG), between=move)
        assert epochs > 4
        assert sorted(json.loads(m.value())["n"] for m in topics.get(out)) == sorted(
            100 * p + i for p in range(4) for i in range(60)
        )
        records.forget()


def until(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)
