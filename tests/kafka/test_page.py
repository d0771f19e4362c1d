"""The page about Kafka: its code runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import springtide as st
from springtide.runtime.engine import Options
from springtide.runtime.inprocess import run
from tests.kafka.broker import Topics
from tests.unit.test_docs import ROOT, blocks

CODE = [body for language, body in blocks((ROOT / "docs" / "kafka.md").read_text("utf-8")) if language == "python"]


def test_the_page(topics: Topics, tmp_path: Path) -> None:
    topics.new("calls", partitions=2)
    topics.new("minutes")
    topics.new("dead-letters")
    for p in range(2):
        rows = [{"src": f"s{i % 3}", "seconds": i, "ts": f"2024-05-01T00:{i:02d}:00"} for i in range(60)]
        topics.put("calls", [*(json.dumps(row).encode() for row in rows), b"?"], p)
    found: dict[str, Any] = {}
    for body in CODE:
        exec(compile(body.replace("localhost:9092", topics.servers), "kafka.md", "exec"), found)
    query: st.Query = found["query"]
    run(query.plan(), tmp_path / "ckpt", Options(2, rows_per_epoch=50))
    rows_out = [json.loads(m.value()) for m in topics.get("minutes")]
    expected = query.run_reference().rows("minutes")
    order = ["window_start", "src"]
    assert sorted((r["src"], r["seconds"], r["calls"]) for r in rows_out) == sorted(
        expected.select("src", "seconds", "calls").rows()
    )
    assert expected.select(order).is_unique().all()
    assert len(topics.get("dead-letters")) == 2
