"""One query with every kind of step, and the plan that each pass makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import polars as pl
import pytest

import springtide as st
from springtide.compiler.pipeline import PASSES, Pass
from springtide.compiler.plan import BUCKETS, Plan

CALL = {"src": pl.String, "dst": pl.String, "duration": pl.Int64, "tags": pl.List(pl.String), "ts": st.TIME}


class Tags(st.BucketOperator[dict[str, int]]):
    output: ClassVar[Mapping[str, Any]] = {"tag": pl.String, "n": pl.Int64, "ts": st.TIME}

    def init(self) -> dict[str, int]:
        return {}

    def process(self, state: dict[str, int], tuples: pl.DataFrame, ready_ts: int) -> None:
        return None


@pytest.fixture
def stream() -> Callable[..., st.Stream]:
    """`stream("calls", x=pl.Int64)` makes a source with ts and these columns; without columns, those of a call."""

    def make(name: str, *, ts: str | None = "ts", **columns: Any) -> st.Stream:
        schema = {**columns, "ts": st.TIME} if columns else CALL
        return st.source(name, st.memory(schema=schema), ts=ts)

    return make


@pytest.fixture
def every_kind(stream: Callable[..., st.Stream]) -> st.Query:
    """A query with every kind of step.

    calls ─ clean ─ split ─short─┬─ hourly ─┬─ both ─ top ─ ranking        calls.late ─ late
                         long ───┼─ daily ──┘
                                 ├─ overlap (self join) ─ pairs
    accounts ────────────────────┴─ paid ─ tags ─ tagged
    prices ─ cheap (unrelated)
    """
    calls, accounts, prices = (
        stream("calls"),
        stream("accounts", src=pl.String, rate=pl.Int64),
        stream("prices", p=pl.Float64),
    )
    clean = calls.map(minutes=pl.col("duration") // 60, name="minutes").filter(pl.col("duration") > 0, name="clean")
    short, long = clean.split(short=pl.col("minutes") < 5, rest="long", name="split")
    hourly = short.aggregate(
        by="dst", window=st.sliding("1h", every="1m"), n=st.count(), last=st.last("src"), name="hourly"
    )
    daily = long.aggregate(by="dst", window=st.session("30m"), n=st.count(), last=st.max("src"), name="daily")
    both = st.union(hourly, daily, name="both")
    overlap = long.theta_join(long, pl.col("src") != pl.col("src_right"), within=st.last_n(100), name="overlap")
    paid = long.join(accounts, on="src", within="1d", how="left", name="paid")
    return st.Query(
        "every-kind",
        both.top_k(3, "dst", window=st.tumbling("1d"), weight="n", name="top").to(st.memory_sink(), name="ranking"),
        calls.late.to(st.memory_sink(), name="late"),
        overlap.select("src", "src_right", name="ends").to(st.memory_sink(), name="pairs"),
        paid.operator(Tags(), keys="tags", name="tags").to(st.memory_sink(), name="tagged"),
        prices.filter(pl.col("p") < 1, name="cheap").to(st.memory_sink(), name="bargains"),
        prices.aggregate(window=st.tumbling("1h"), p=st.min("p"), name="best").to(st.memory_sink(), name="lowest"),
    )


@pytest.fixture
def up_to() -> Callable[..., Plan]:
    """`up_to(split, query)` runs the passes up to and with that one."""

    def run(last: Pass, query: st.Query, buckets: int = BUCKETS) -> Plan:
        plan = Plan(query, buckets)
        for step in PASSES[: PASSES.index(last) + 1]:
            plan = step(plan)
        return plan

    return run
