"""A windowed aggregate as a head: what goes over its exchange."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.compiler.plan import Plan
from springtide.exchange import order
from springtide.exchange.hashing import BUCKET
from springtide.exchange.routing import Numbering
from springtide.operators import operator_of
from springtide.operators.aggregates.partials import ROWS
from springtide.operators.sliding.kernel import PANE


def plan_of(by: Any, **aggregates: Any) -> Plan:
    source = st.source("s", st.memory(schema={"k": pl.String, "x": pl.Int64, "ts": st.TIME}), ts="ts")
    stream = source.aggregate(by=by, window=st.sliding("10us", every="5us"), name="agg", **aggregates)
    return st.Query("q", stream.to(st.memory_sink())).plan(buckets=16)


def tuples() -> pl.LazyFrame:
    rows = {"k": ["a", "b", "a", "a"], "x": [1, 2, 3, 4], "ts": [0, 1, 4, 5]}
    return pl.LazyFrame(rows).with_columns(pl.col("ts").cast(st.TIME))


def test_partial_results_per_key_and_pane_with_their_bucket() -> None:
    plan = plan_of("k", s=st.sum("x"))
    sent = operator_of(plan, "agg").send(plan.exchanges[0], tuples(), Numbering()).collect()
    assert sorted(sent.select("k", PANE, ROWS, "0.s0").rows()) == [("a", 0, 2, 4), ("a", 1, 1, 4), ("b", 0, 1, 2)]
    assert sent.group_by("k").agg(pl.col(BUCKET).n_unique())[BUCKET].to_list() == [1, 1]
    assert sent[BUCKET].max() < 16  # type: ignore[operator]


def test_without_keys_one_bucket() -> None:
    plan = plan_of([], s=st.sum("x"))
    sent = operator_of(plan, "agg").send(plan.exchanges[0], tuples(), Numbering()).collect()
    assert sent[BUCKET].unique().to_list() == [0]
    assert sorted(sent.select(PANE, "0.s0").rows()) == [(0, 6), (1, 4)]


@pytest.mark.parametrize("rows", [0, 4])
def test_tuples_of_an_ordered_exchange_have_their_content_too(rows: int) -> None:
    plan = plan_of("k", f=st.first("x"))
    assert plan.exchanges[0].ordered
    placed = tuples().head(rows).with_columns(order.of_source(0, "0", 0))
    sent = operator_of(plan, "agg").send(plan.exchanges[0], placed, Numbering()).collect()
    assert sorted(sent.select("k", PANE, pl.col("0.v").struct.field("value")).rows()) == (
        [("a", 0, 1), ("a", 1, 4), ("b", 0, 2)] if rows else []
    )
