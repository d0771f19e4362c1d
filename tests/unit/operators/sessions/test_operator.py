"""Sessions as a head: pieces go over its exchange, each is looked at when it is due, and all are gone at the end (SC-2)."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import polars as pl

import springtide as st
from springtide.exchange.hashing import BUCKET, HASH
from springtide.exchange.routing import Numbering
from springtide.operators import operator_of
from springtide.operators.sessions.kernel import DUE
from springtide.query.steps import Sink
from springtide.runtime.engine import Engine, Options
from springtide.runtime.inprocess import run
from springtide.testing import MemorySink, compare

COLUMNS = {"k": pl.String, "x": pl.Int64, "ts": st.TIME}


def query_of(gap: str, rows: list[tuple[str | None, int, int]], **aggregates: Any) -> st.Query:
    frame = pl.DataFrame(rows, schema=COLUMNS | {"ts": pl.Int64}, orient="row")
    source = st.source("s", st.memory(frame.with_columns(pl.col("ts").cast(st.TIME)), schema=COLUMNS), ts="ts")
    made = source.aggregate(by="k", window=st.session(gap), name="sessions", **aggregates)
    return st.Query("q", made.to(st.memory_sink()))


def test_pieces_go_over_the_exchange() -> None:
    plan = query_of("10us", [], n=st.count()).plan(buckets=16)
    assert plan.combines(plan.exchanges[0])
    tuples = pl.LazyFrame(
        {"k": ["a", "a", "b"], "x": [1, 2, 3], "ts": [0, 9, 9]}, schema=COLUMNS | {"ts": pl.Int64}
    ).with_columns(pl.col("ts").cast(st.TIME))
    sent = operator_of(plan, "sessions").send(plan.exchanges[0], tuples, Numbering()).collect()
    assert sorted(sent.select("k", DUE, "__rows").rows()) == [("a", 19, 2), ("b", 19, 1)]
    assert {HASH, BUCKET} <= set(sent.columns)


def test_state_is_small_on_the_way_and_gone_at_the_end(tmp_path: Path) -> None:
    random = Random(3)
    rows = [
        (random.choice(["a", "b", "c", None]), random.randint(0, 9), 3 * i + random.randint(0, 2)) for i in range(300)
    ]
    rows = [row for row in rows if row[0] != "b" or row[2] // 100 % 2]  # b pauses now and then
    query = query_of("25us", rows, n=st.count(), all=st.collect("x"), s=st.sum("x"))
    sink = query.of_kind(Sink)["sink"].connector
    assert isinstance(sink, MemorySink)
    kept: list[int] = []

    def between(engine: Engine) -> bool:
        engine.scale("sessions", engine.manifest.epoch % 3 + 1)
        kept.append(sum(s.rows for s in engine.manifest.state["sessions"].segments) if engine.manifest.state else 0)
        return True

    engine = run(query.plan(buckets=16), tmp_path, Options(3, rows_per_epoch=4), between=between)
    compare(sink.rows(), query.run_reference().rows())
    assert engine.manifest.state["sessions"].segments == ()
    assert max(kept) <= 4 * 25  # a key has a piece for each of the last epochs and one for all that was before
