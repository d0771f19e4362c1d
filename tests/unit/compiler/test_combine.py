from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

import springtide as st
from springtide.compiler.explain import explain
from springtide.compiler.passes.combine import combine, combines
from springtide.compiler.plan import Plan
from springtide.query.windows import Window

SUM_OF_SQUARES = st.user_aggregate(
    init={"s": 0}, add={"s": (pl.col("x") ** 2).sum()}, merge={"s": pl.col("s").sum()}, finish=pl.col("s")
)


def test_golden_plan(every_kind: st.Query, up_to: Callable[..., Plan], golden: Callable[[str, str], None]) -> None:
    golden("compiler/5-combine", explain(up_to(combine, every_kind)))


@pytest.mark.parametrize(
    ("window", "aggregate", "expected"),
    [
        (st.tumbling("1m"), st.count(), True),
        (st.sliding("1h", every="7m"), st.mean("x"), True),
        (st.tumbling("1m"), st.first("x"), True),
        (st.tumbling("1m"), st.approx_quantile("x", 0.5), True),
        (st.tumbling("1m"), SUM_OF_SQUARES, True),
        (st.tumbling("1m"), st.collect("x"), False),
        (st.session("1m"), st.count(), True),
        (st.session("1m"), st.collect("x"), False),
        (st.last_n(5), st.count(), False),
    ],
    ids=str,
)
def test_aggregates(stream: Callable[..., st.Stream], window: Window, aggregate: st.Aggregate, expected: bool) -> None:
    assert combines(stream("s", x=pl.Int64).aggregate(window=window, a=aggregate).step) is expected


def test_one_function_that_does_not_combine_is_enough(stream: Callable[..., st.Stream]) -> None:
    mixed = stream("s", x=pl.Int64).aggregate(window=st.tumbling("1m"), n=st.count(), all=st.collect("x"))
    assert not combines(mixed.step)


@pytest.mark.parametrize("sketch", [None, 64])
def test_rankings(stream: Callable[..., st.Stream], sketch: int | None) -> None:
    assert combines(stream("s", x=pl.Int64).top_k(3, "x", window=st.tumbling("1m"), sketch=sketch).step)


def test_joins_do_not(stream: Callable[..., st.Stream]) -> None:
    s = stream("s", x=pl.Int64)
    assert not combines(s.join(s, on="x", within="1m").step)
