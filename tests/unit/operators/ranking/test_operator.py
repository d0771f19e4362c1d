"""Exact rankings: counted by value, merged by group; the state is gone at the end (SM-10)."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.operators import operator_of
from springtide.operators.ranking.operator import RankingMergeOperator, RankingOperator
from springtide.query.steps import Sink
from springtide.runtime.engine import Engine, Options
from springtide.runtime.inprocess import run
from springtide.testing import MemorySink, compare

COLUMNS = {"k": pl.String, "x": pl.Int64, "w": pl.Int64, "ts": st.TIME}


def query_of(window: Any, rows: int = 0, **more: Any) -> st.Query:
    random = Random(1)
    made = [
        (random.choice(["a", "b", None]), random.randint(0, 30), random.choice([None, 1, 5, -2]), i)
        for i in range(rows)
    ]
    frame = pl.DataFrame(made, schema=COLUMNS | {"ts": pl.Int64}, orient="row").with_columns(pl.col("ts").cast(st.TIME))
    source = st.source("s", st.memory(frame, schema=COLUMNS), ts="ts")
    top = source.top_k(3, "x", window=window, name="top", **more).filter(pl.col("rank") != 2)
    return st.Query("q", top.to(st.memory_sink()))


def test_the_head_depends_on_the_subquery() -> None:
    plan = query_of(st.tumbling("10us")).plan(buckets=16)
    assert isinstance(operator_of(plan, "top"), RankingOperator)
    assert isinstance(operator_of(plan, "top.merge"), RankingMergeOperator)
    assert operator_of(plan, "top.merge").tables == {}


@pytest.mark.parametrize("more", [{}, {"per": "k"}, {"weight": "w"}, {"per": "k", "weight": "w"}], ids=str)
@pytest.mark.parametrize("window", [st.tumbling("50us"), st.sliding("60us", every="25us")], ids=str)
def test_rankings_are_those_of_the_reference_and_leave_nothing(window: Any, more: Any, tmp_path: Path) -> None:
    query = query_of(window, 300, **more)
    sink = query.of_kind(Sink)["sink"].connector
    assert isinstance(sink, MemorySink)

    def between(engine: Engine) -> bool:
        engine.scale("top", engine.manifest.epoch % 4 + 1)
        return not engine.manifest.state or not engine.manifest.state["top.merge"].segments

    engine = run(query.plan(buckets=16), tmp_path, Options(3, rows_per_epoch=20), between=between)
    assert engine.manifest.ended
    compare(sink.rows(), query.run_reference().rows())
    assert engine.manifest.state["top"].segments == ()
