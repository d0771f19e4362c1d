"""Sketches as partial results: exact while they are small, within their error beyond, and mergeable in any order."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as some

import springtide as st
from springtide.kernels.partials import Partials


def of_parts(function: st.Aggregate, parts: list[pl.Series]) -> Any:
    """Compute an aggregate of the values of several parts, each added apart, then merged two by two."""
    schema = pl.Schema({"k": pl.Int64(), "x": parts[0].dtype})
    partials = Partials([function.bind("", "a", schema)])
    frames = [pl.DataFrame({"k": 0, "x": part}, schema=schema) for part in parts]
    rows = [partials.add(frame.lazy(), ["k"]).collect() for frame in frames if frame.height]
    while len(rows) > 1:
        rows = [partials.merge(pl.concat(rows[:2]).lazy(), ["k"]).collect(), *rows[2:]]
    return partials.finish(rows[0].lazy(), ["k"]).collect()["a"].to_list()[0]


numbers = some.lists(some.lists(some.none() | some.integers(-9, 9), min_size=1, max_size=30), min_size=1, max_size=5)


def series_of(parts: list[list[Any]], dtype: Any = pl.Int64) -> list[pl.Series]:
    return [pl.Series(part, dtype=dtype) for part in parts]


def present(parts: list[list[int | None]]) -> list[int]:
    return [x for part in parts for x in part if x is not None]


# ── exact while small ─────────────────────────────────────────────────────────────────────────────────────────────────


@given(numbers)
def test_few_different_values_are_counted(parts: list[list[int | None]]) -> None:
    assert of_parts(st.approx_distinct("x", k=32), series_of(parts)) == len(set(present(parts)))


@given(numbers, some.sampled_from([0.0, 0.07, 0.25, 0.5, 0.75, 0.99, 1.0]))
def test_quantiles_of_few_values_are_values(parts: list[list[int | None]], q: float) -> None:
    """The smallest value with at least the share q of values not above it."""
    xs = sorted(present(parts))
    expected = float(xs[max(0, math.ceil(q * len(xs)) - 1)]) if xs else None
    assert of_parts(st.approx_quantile("x", q, k=200), series_of(parts)) == expected


@given(numbers, some.integers(1, 5))
def test_frequent_values_of_few_are_counted(parts: list[list[int | None]], n: int) -> None:
    """Larger counts first, ties to the smaller value."""
    counts = sorted(Counter(present(parts)).items(), key=lambda item: (-item[1], item[0]))[:n]
    expected = [{"value": value, "count": count} for value, count in counts]
    assert of_parts(st.approx_frequent("x", n, map_size=32), series_of(parts)) == expected


def test_quantiles_skip_nan() -> None:
    parts = series_of([[4.0, math.nan, 1.0], [math.nan], [None, 2.0]], pl.Float64)
    assert of_parts(st.approx_quantile("x", 0.5), parts) == 2.0
    assert of_parts(st.approx_quantile("x", 0.5), parts[1:2]) is None


@pytest.mark.parametrize(
    "values",
    [
        pl.Series([1, -1, 2**63 - 1]),
        pl.Series(["", "ä", "=1", "null"]),
        pl.Series([True, False]),
        pl.Series([b"", b"\x00\xff"]),
        pl.Series([Decimal("1.10"), Decimal("-0.01")]),
        pl.Series([datetime(2024, 1, 1, tzinfo=UTC), datetime(1969, 1, 1, tzinfo=UTC)], dtype=pl.Datetime("us", "UTC")),
        pl.Series([date(2024, 1, 1)]),
        pl.Series([timedelta(microseconds=-1), timedelta(days=9)]),
    ],
    ids=lambda values: str(values.dtype),
)
def test_values_of_every_type(values: pl.Series) -> None:
    parts = [values.extend_constant(None, 2), values.head(1)]
    assert of_parts(st.approx_distinct("x"), parts) == values.n_unique()
    best, *rest = of_parts(st.approx_frequent("x", 9), parts)
    assert best == {"value": values[0], "count": 2}
    assert [v["value"] for v in rest] == values.drop_nulls().slice(1).sort().to_list()


def test_groups_without_values_have_results_too() -> None:
    frame = pl.DataFrame({"k": [1, 2, 2, 3], "x": [None, 5, 7, None]}, schema={"k": pl.Int64, "x": pl.Int64})
    functions = [st.approx_distinct("x"), st.approx_quantile("x", 0.5), st.approx_frequent("x", 2), st.count()]
    partials = Partials([f.bind("", str(i), frame.schema) for i, f in enumerate(functions)])
    rows = partials.add(frame.lazy(), ["k"]).collect()
    merged = partials.merge(pl.concat([rows, rows]).lazy(), [(pl.col("k") % 3).alias("k")])
    found = partials.finish(merged, ["k"]).collect().sort("k")
    twice = [{"value": 5, "count": 2}, {"value": 7, "count": 2}]
    assert found.rows() == [(0, 0, None, [], 2), (1, 0, None, [], 2), (2, 2, 5.0, twice, 4)]


# ── within their error beyond ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("k", [64, 1024])
def test_many_different_values_are_estimated(k: int) -> None:
    """Within 2/√k in 95 of 100 cases: of 20 about one is out."""
    errors = []
    for seed in range(20):
        values = pl.int_range(seed * 10**6, seed * 10**6 + 10_000, eager=True)
        values = values.cast(pl.String) if seed % 2 else values * 4096
        errors.append(abs(of_parts(st.approx_distinct("x", k=k), [values[i::3] for i in range(3)]) / 10_000 - 1))
    assert sum(error > 2 / math.sqrt(k) for error in errors) <= 4
    assert max(errors) < 5 / math.sqrt(k)


def test_the_estimate_of_different_values_does_not_depend_on_the_parts() -> None:
    values = pl.int_range(0, 5_000, eager=True)
    cuts = [[values], [values[i::7] for i in range(7)], [values[4_000:], values[:4_500], values[100:200]]]
    assert len({of_parts(st.approx_distinct("x", k=64), parts) for parts in cuts}) == 1


@pytest.mark.parametrize("q", [0.01, 0.5, 0.9])
def test_quantiles_of_many_values_are_near(q: float) -> None:
    values = pl.Series(np.random.default_rng(1).normal(size=20_000))
    found = of_parts(st.approx_quantile("x", q, k=200), [values[i::9] for i in range(9)] + [values.head(3)])
    rank = (values <= found).mean()
    assert isinstance(rank, float)
    assert abs(rank - q) < 2 * 1.7 / 200


def test_frequent_values_of_many_are_not_missed() -> None:
    """With room for m values no estimate is further above the truth than the m-th part of all, and none is below."""
    values = pl.Series((np.random.default_rng(1).pareto(1.0, 30_000) * 4).astype(np.int64))
    found = of_parts(st.approx_frequent("x", 48, map_size=64), [values[i::5] for i in range(5)])
    truth = dict(values.value_counts().rows())
    assert all(truth[v["value"]] <= v["count"] <= truth[v["value"]] + 30_000 / 48 for v in found)
    given_values = {v["value"] for v in found}
    assert all(value in given_values for value, count in truth.items() if count > 30_000 / 48)


def test_when_all_values_weigh_the_same_none_stays() -> None:
    assert of_parts(st.approx_frequent("x", 3, map_size=8), [pl.int_range(0, 7, eager=True)]) == []
    found = of_parts(st.approx_frequent("x", 3, map_size=8), [pl.int_range(0, 7, eager=True), pl.Series([9, 9])])
    assert found == [{"value": 9, "count": 3}]  # it may have been among those that went: not below the truth, one above
