"""Sums in the engine: the same to the bit for every cut and every number of instances, and nothing wraps in silence."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.operators.aggregates.partials import Partials
from springtide.query import steps
from springtide.query.errors import QueryError
from springtide.runtime import inprocess
from springtide.runtime.engine import Options
from springtide.testing import MemorySink, compare

START = datetime(2024, 1, 1, tzinfo=UTC)
WINDOWS = {
    "tumbling": st.tumbling("20s"),
    "sliding": st.sliding("20s", every="2s"),
    "session": st.session("3s"),
    "count": st.last_n(8, every=4),
    "long count": st.last_n(18, every=2),
}


def floats(seed: int) -> list[float]:
    """Numbers whose sum depends on the order, if it is rounded on the way."""
    random = Random(seed)
    return [random.choice([1e16, -1e16, 0.1, 0.2, random.gauss(0, 1), 1e-20, 3.0]) for _ in range(60)]


def source(values: list[Any], dtype: Any) -> st.Stream:
    rows = [{"ts": START + timedelta(seconds=i // 2), "k": "ab"[i % 3 == 0], "x": x} for i, x in enumerate(values)]
    return st.source("s", st.memory(rows, schema={"ts": st.TIME, "k": pl.String, "x": dtype}), ts="ts")


def run(query: st.Query, folder: Path, instances: int, rows_per_epoch: int) -> None:
    inprocess.run(query.plan(buckets=8), folder, Options(instances, rows_per_epoch))


@pytest.mark.parametrize("name", WINDOWS)
def test_a_sum_that_decides_on_a_filter_gives_the_same_rows_for_every_cut(name: str, tmp_path: Path) -> None:
    """Issue 11, line 18."""
    values = floats(3)
    for number, (instances, rows_per_epoch) in enumerate([(1, 1000), (3, 9)]):
        sink = st.memory_sink()
        sums = source(values, pl.Float64).aggregate(
            by="k", window=WINDOWS[name], s=st.sum("x"), m=st.mean("x"), v=st.var("x"), d=st.std("x")
        )
        query = st.Query("q", sums.filter(pl.col("s") > 0.3).to(sink))
        run(query, tmp_path / str(number), instances, rows_per_epoch)
        compare(sink.rows(), query.run_reference().rows(), float_tolerance=0)


def test_the_sum_of_floats_is_that_of_fsum(tmp_path: Path) -> None:
    values, sink = floats(4), st.memory_sink()
    query = st.Query("q", source(values, pl.Float64).aggregate(window=st.tumbling("1h"), s=st.sum("x")).to(sink))
    run(query, tmp_path, 3, 12)
    assert sink.rows()["s"].to_list() == [math.fsum(values)]


@pytest.mark.parametrize("name", WINDOWS)
def test_a_group_whose_sum_does_not_fit_is_rejected(name: str, tmp_path: Path) -> None:
    """Issue 11, line 18: found and said."""
    values = [2**62 if i % 3 == 0 and i < 30 else i for i in range(60)]
    sums = source(values, pl.Int64).aggregate(by="k", window=WINDOWS[name], s=st.sum("x"), m=st.mean("x"), name="sums")
    sinks: dict[str, MemorySink] = {"good": st.memory_sink(), "bad": st.memory_sink()}
    query = st.Query("q", sums.to(sinks["good"], name="good"), sums.rejected.to(sinks["bad"], name="bad"))
    run(query, tmp_path, 2, 12)
    expected = query.run_reference()
    for sink, rows in sinks.items():
        compare(rows.rows(), expected.rows(sink), float_tolerance=0)
    bad = sinks["bad"].rows()
    assert bad.columns == ["ts", "k", "window_start", "window_end", "reason"]
    assert bad.height > 0
    assert sinks["good"].rows().height > 0
    assert all(r.startswith("s=sum(x) is ") and r.endswith("which does not fit i64") for r in bad["reason"])


def test_a_mean_of_large_integers_does_not_wrap(tmp_path: Path) -> None:
    """Issue 11, line 18."""
    sink = st.memory_sink()
    means = source([2**63 - 1] * 10, pl.Int64).aggregate(window=st.sliding("4s", every="2s"), m=st.mean("x"))
    run(st.Query("q", means.to(sink)), tmp_path, 2, 3)
    assert set(sink.rows()["m"]) == {2.0**63}


def test_rejected_groups_need_a_column_for_the_reason() -> None:
    renamed = (
        source([1], pl.Int64).rename({"k": "reason"}).aggregate(by="reason", window=st.tumbling("1s"), n=st.count())
    )
    with pytest.raises(QueryError, match="rename it before the aggregate"):
        _ = renamed.rejected


# ── state of older versions ───────────────────────────────────────────────────────────────────────────────────────


def partials(dtype: Any, aggregate: st.Aggregate) -> Partials:
    step = source([], dtype).aggregate(by="k", window=st.tumbling("1s"), v=aggregate).step
    assert isinstance(step, steps.Aggregate)
    return Partials(step.aggregates)


@pytest.mark.parametrize(
    ("dtype", "aggregate", "old", "value"),
    [
        (pl.Int64, st.sum("x"), {"0.s": -5}, -5),
        (pl.UInt64, st.sum("x"), {"0.s": pl.Series([2**64 - 1], dtype=pl.UInt64)}, 2**64 - 1),
        (pl.Int8, st.sum("x"), {"0.s": 7}, 7),
        (pl.Duration("us"), st.mean("x"), {"0.s": -(2**40), "0.n": 3}, timedelta(microseconds=-(2**40 // 3))),
        (pl.Float64, st.sum("x"), {"0.s": 0.1}, 0.1),
        (pl.Float64, st.mean("x"), {"0.s": 1e300, "0.n": 4}, 2.5e299),
        (pl.Decimal(38, 2), st.sum("x"), {"0.s": pl.Series(["12.50"]).cast(pl.Decimal(38, 2))}, "12.50"),
        (pl.Float64, st.var("x"), {"0.n": 3, "0.m": 1e9 + 0.1, "0.q": 2.5}, 1.25),
    ],
)
def test_partial_results_of_older_versions_are_taken_up(
    dtype: Any, aggregate: st.Aggregate, old: dict[str, Any], value: Any
) -> None:
    now = partials(dtype, aggregate)
    rows = pl.DataFrame(
        {"k": ["a"], "__rows": [3], **{n: v if isinstance(v, pl.Series) else [v] for n, v in old.items()}}
    )
    adapted = now.adapted(rows)
    assert set(adapted.columns) == {"k", *now.columns}
    merged = now.merge(adapted.select("k", *now.columns).lazy(), ["k"])
    found = now.finish(merged, ["k"]).collect()["v"].item()
    assert str(found) == str(value)
