"""Long windows of functions that cannot be taken back: blocks in state, merged once, gone when no window has all of them any more."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.operators import operator_of
from springtide.operators.sliding.long import LongSlidingOperator
from springtide.query.steps import Sink
from springtide.runtime.engine import Engine, Options
from springtide.runtime.inprocess import run
from springtide.testing import MemorySink, compare

COLUMNS = {"k": pl.String, "x": pl.Int64, "ts": st.TIME}
FUNCTIONS: dict[str, Any] = {"low": st.min("x"), "all": st.collect("x"), "n": st.count(), "last": st.last("x")}


def query_of(size: str, every: str, rows: int = 0, jump: int = 0, **aggregates: Any) -> st.Query:
    random = Random(5)
    made = [(random.choice(["a", "b", None]), i, i + (jump if i > rows // 2 else 0)) for i in range(rows)]
    frame = pl.DataFrame(made, schema=COLUMNS | {"ts": pl.Int64}, orient="row").with_columns(pl.col("ts").cast(st.TIME))
    source = st.source("s", st.memory(frame, schema=COLUMNS), ts="ts")
    window = st.sliding(size, every=every)
    return st.Query("q", source.aggregate(by="k", window=window, name="agg", **aggregates).to(st.memory_sink()))


@pytest.mark.parametrize(
    ("size", "every", "aggregates", "long"),
    [
        ("8us", "1us", {"v": st.min("x")}, True),
        ("7us", "1us", {"v": st.min("x")}, False),
        ("64us", "8us", {"v": st.min("x")}, True),
        ("60us", "60us", {"v": st.min("x")}, False),
        ("60us", "1us", {"v": st.sum("x")}, False),  # totals are kept
        ("61us", "60us", {"v": st.collect("x")}, True),
    ],
)
def test_blocks_are_kept_where_they_help(size: str, every: str, aggregates: Any, long: bool) -> None:
    head = operator_of(query_of(size, every, **aggregates).plan(), "agg")
    assert isinstance(head, LongSlidingOperator) is long


@pytest.mark.parametrize("jump", [0, 1000, 10**9])
@pytest.mark.parametrize(("size", "every"), [("16us", "1us"), ("40us", "8us"), ("33us", "4us")])
@pytest.mark.parametrize("rows_per_epoch", [3, 29, 1000])
def test_windows_are_those_of_the_reference(
    size: str, every: str, jump: int, rows_per_epoch: int, tmp_path: Path
) -> None:
    query = query_of(size, every, 150, jump, **FUNCTIONS)
    sink = query.of_kind(Sink)["sink"].connector
    assert isinstance(sink, MemorySink)

    def between(engine: Engine) -> bool:
        engine.scale("agg", engine.manifest.epoch % 3 + 1)
        return True

    engine = run(query.plan(buckets=16), tmp_path, Options(2, rows_per_epoch=rows_per_epoch), between=between)
    compare(sink.rows(), query.run_reference().rows())
    assert engine.manifest.state["agg"].segments == ()


def test_blocks_are_forgotten_in_time(tmp_path: Path) -> None:
    query = query_of("40us", "1us", 400, low=st.min("x"))
    kept: list[dict[str, int]] = []

    def between(engine: Engine) -> bool:
        rows: dict[str, int] = {}
        for s in engine.manifest.state["agg"].segments if engine.manifest.state else ():
            rows[s.kind] = rows.get(s.kind, 0) + s.rows
        kept.append(rows)
        return True

    run(query.plan(buckets=16), tmp_path, Options(1, rows_per_epoch=4), between=between)
    assert {kind for rows in kept for kind in rows} == {"panes", *(f"blocks{level}" for level in range(1, 6))}
    # One tuple in each pane and at most one row per key in each block; segments go as a whole.
    assert max(rows.get("panes", 0) for rows in kept) <= 2 * 40
    assert max(rows.get("blocks1", 0) for rows in kept) <= 2 * 40
    assert max(rows.get("blocks4", 0) for rows in kept) <= 4 * 40 // 16 * 3
