"""The kind `retry`: every task runs twice, and each reader gets either attempt; behind steps whose rows come in any order stand those that number,
distribute, take the first, or break ties.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import polars as pl

import springtide as st
from springtide.operators import chunks
from springtide.runtime import inprocess
from springtide.runtime.engine import Engine, Options
from springtide.testing import compare
from tests.properties.retries import Retries
from tests.properties.steps.operators import Digests, Fold

EPOCH = datetime(2024, 5, 1, tzinfo=UTC)
SCHEMA = {"ts": st.TIME, "k": pl.Int64, "x": pl.Int64}
ELSEWHERE = 0.02
"""Cases of which a third of the second attempts run in another process."""

CUT = "often"
"""Estimates that depend on the cut into epochs, but not on the attempt."""


def run_case(seed: int, folder: Path) -> str | None:
    """Run a case to its end; its attempts are compared with each other, its rows with the reference's."""
    r = Random(seed)
    sink = st.memory_sink()
    query = st.Query("retried", _second(r, _first(r, _source(r, "s"))).to(sink, name="out"))
    expected = query.run_reference().rows("out")
    plan = query.plan(buckets=r.choice([2, 16, 16, 256]))
    retries = Retries(r, elsewhere=0.3 if r.random() < ELSEWHERE else 0.0)
    restless = r.choice([0, 0, 0.5])

    def between(engine: Engine) -> bool:
        for subquery in plan.subqueries:
            if r.random() < restless:
                engine.scale(subquery.name, r.randint(1, 4))
        return True

    degrees = {q.name: r.choice([1, 2, 2, 3]) for q in plan.subqueries}
    with (
        patch.object(inprocess, "execute", retries.execute),
        patch.object(chunks, "PIECE", r.choice([3, 30, *[500_000] * 4])),
    ):
        inprocess.run(plan, folder / "ckpt", Options(degrees, r.choice([15, 1000, 1000])), between=between)
    compare(sink.rows().drop(CUT, strict=False), expected.drop(CUT, strict=False))
    return None


def _source(r: Random, name: str) -> st.Stream:
    streams = {}
    values = r.choice([2, 5, 1000])
    for stream in "abc"[: r.choice([1, 2, 2, 3])]:
        times = sorted(r.randint(0, 12) for _ in range(r.choice([2, 3, 4, 5, 6, 8, 15])))
        rows = [(EPOCH + timedelta(seconds=t), r.randint(0, 5), r.randint(0, values)) for t in times]
        streams[stream] = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    return st.source(name, st.memory(streams, schema=SCHEMA), ts="ts")


def _first(r: Random, stream: st.Stream) -> st.Stream:
    """A step whose rows come in any order; often with few columns, so that many of them are alike."""
    steps: list[Callable[[], st.Stream]] = [
        lambda: stream.aggregate(by="k", window=st.tumbling("1s"), x=st.count()),
        lambda: stream.aggregate(by="k", window=st.sliding("5s", every="1s"), x=st.sum("x")),
        lambda: stream.aggregate(by=["k", "x"], window=st.tumbling("4s"), n=st.count()),
        lambda: stream.aggregate(by="k", window=st.session("2s"), x=st.count()),
        lambda: stream.aggregate(by="k", window=st.last_n(3), x=st.max("x")),
        lambda: stream.join(stream, on="k", within="1s"),
        lambda: stream.join(stream.filter(pl.col("x") > 1), on="x", within="1s", how="left"),
        lambda: stream.join(stream, on="k", within=st.last_n(2)),
        lambda: stream.top_k(3, "x", per="k", window=st.tumbling("3s")).rename({"count": "n"}),
    ]
    made = r.choice(steps)()
    return made.select("k", "x") if r.random() < 0.5 else made.select("x") if r.random() < 0.2 else made


def _second(r: Random, stream: st.Stream) -> st.Stream:
    """A step to which it matters where its tuples are, or in which order they come."""
    by = ["k"] if "k" in stream.schema else []
    within: Any = r.choice(["0s", "2s", "10s", st.last_n(3), st.last_n(20)])
    routing: Any = r.choice(["grid", "grid", "broadcast", None] if isinstance(within, str) else [None, "broadcast"])
    near = (pl.col("x") - pl.col("x_other")).abs() <= 1
    predicate = r.choice([near, pl.col("x") < pl.col("x_other"), pl.lit(True)])
    other = r.choice([stream, stream.filter(pl.col("x") > 1)])
    window = r.choice([st.tumbling("5s"), st.session("3s"), st.last_n(4, every=2)])
    steps: list[Callable[[], st.Stream]] = [
        *[lambda: stream.theta_join(other, predicate, within=within, routing=routing, suffix="_other")] * 6,
        lambda: stream.aggregate(by=by, window=window, **_functions(r)),
        lambda: stream.aggregate(by=by, window=window, **_functions(r)),
        lambda: stream.operator(r.choice([Fold, Digests] if by else [Digests])(by, False, 1, False), keys=by),
        lambda: stream.join(other, on="x", within="2s", how="left", suffix="_other"),
        lambda: stream.join(other, on="x", within=st.last_n(2), how="left", suffix="_other"),
        lambda: stream.top_k(2, "x", window=st.tumbling("4s"), sketch=r.choice([None, 1024])),
    ]
    return r.choice(steps)()


def _functions(r: Random) -> dict[str, Any]:
    x = pl.col("x")
    functions = {
        "first": st.first("x"),
        "last": st.last("x"),
        "all": st.collect("x"),
        "different": st.count_distinct("x"),
        "some": st.approx_quantile("x", r.choice([0, 0.3, 0.5, 0.9, 1]), k=8),
        "about": st.approx_distinct("x", k=32),
        "often": st.approx_frequent("x", 3, map_size=8),
        "sum": st.sum(x.cast(pl.Float64) / 10),
        "own": st.user_aggregate(
            init={"n": 5, "most": -1},
            add={"n": x.count().cast(pl.Int64), "most": x.max().cast(pl.Int64)},
            merge={"n": pl.col("n").sum(), "most": pl.col("most").max()},
            finish=pl.col("most") * 1000 + pl.col("n"),
        ),
    }
    return {name: functions[name] for name in r.sample(sorted(functions), 2)}
