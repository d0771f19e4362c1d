"""Windows of n tuples as a head: what goes over its exchange, what waits, what is kept and when it is gone (SC-2, SC-7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.compiler.plan import Plan
from springtide.exchange import order
from springtide.exchange.hashing import BUCKET, HASH
from springtide.exchange.routing import Numbering
from springtide.operators import operator_of
from springtide.query.steps import Sink
from springtide.runtime.engine import Engine, Options
from springtide.runtime.inprocess import run
from springtide.testing import MemorySink, compare

COLUMNS = {"k": pl.String, "x": pl.Int64, "y": pl.Int64, "ts": st.TIME}


def query_of(window: Any, rows: int = 0, **aggregates: Any) -> st.Query:
    frame = pl.DataFrame(
        {
            "k": [f"k{i * 7 % 5}" for i in range(rows)],
            "x": range(rows),
            "y": range(rows),
            "ts": [i // 2 for i in range(rows)],
        },
        schema=COLUMNS | {"ts": pl.Int64},
    ).with_columns(pl.col("ts").cast(st.TIME))
    source = st.source("s", st.memory(frame, schema=COLUMNS), ts="ts")
    made = source.filter(pl.col("x") >= 0).aggregate(by="k", window=window, name="agg", **aggregates)
    return st.Query("q", made.to(st.memory_sink()))


def plan_of(*args: Any, **more: Any) -> Plan:
    return query_of(*args, **more).plan(buckets=16)


def test_the_columns_that_are_needed_with_hash_bucket_and_place() -> None:
    plan = plan_of(st.last_n(5), pages=st.collect("x"))
    assert plan.exchanges[0].ordered
    tuples = pl.LazyFrame(
        {"k": ["a", "b"], "x": [1, 2], "y": [0, 0], "ts": [0, 1]}, schema=COLUMNS | {"ts": pl.Int64}
    ).with_columns(pl.col("ts").cast(st.TIME), *order.of_source(0, "0", 0))
    sent = operator_of(plan, "agg").send(plan.exchanges[0], tuples, Numbering()).collect()
    assert sent.columns == ["ts", "k", "x", *order.PLACES, HASH, BUCKET]
    assert (
        operator_of(plan, "agg").tables["panes"].versions
    )  # later panes of a key say which ones are not needed any more
    assert sent[BUCKET].max() < 16  # type: ignore[operator]


@pytest.mark.parametrize("window", [st.last_n(4), st.last_n(6, every=4), st.last_n(3, every=3)], ids=str)
def test_state_is_small_on_the_way_and_gone_at_the_end(window: Any, tmp_path: Path) -> None:
    query = query_of(window, 200, all=st.collect("x"), n=st.count())
    sink = query.of_kind(Sink)["sink"].connector
    assert isinstance(sink, MemorySink)
    kept: list[dict[str, int]] = []

    def between(engine: Engine) -> bool:
        rows: dict[str, int] = {}
        for segment in engine.manifest.state["agg"].segments if engine.manifest.state else ():
            rows[segment.kind] = rows.get(segment.kind, 0) + segment.rows
        kept.append(rows)
        return True

    engine = run(query.plan(buckets=16), tmp_path, Options(3, rows_per_epoch=5), between=between)
    compare(sink.rows(), query.run_reference().rows())
    assert engine.manifest.state["agg"].segments == ()
    assert max(rows.get("held", 0) for rows in kept) <= 10  # a few tuples at the latest time, gone with the next epochs
    # At most four segments of a size, each with what five keys need: that does not grow.
    assert max(rows.get("panes", 0) for rows in kept[20:]) <= 5 * 6 * 12
