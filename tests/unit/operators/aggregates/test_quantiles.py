"""Sketches whose answers depend on no order: every cut of the values, merged in every order, gives the same bytes, and the reference's answer."""

from __future__ import annotations

from collections.abc import Callable

import datasketches
import numpy as np
import polars as pl
import pytest

from springtide.operators.aggregates.quantiles import quantile_add, quantile_finish, quantile_merge
from springtide.operators.aggregates.sketches import (
    distinct_add,
    distinct_finish,
    distinct_merge,
    heavy_add,
    heavy_merge,
)
from springtide.runtime.reference import sketches as reference

EXTREMES = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e308, -1e308, 5e-324]


def numbers(random: np.random.Generator, n: int) -> list[np.ndarray]:
    """Numbers of every shape."""
    return [
        random.normal(size=n),
        random.integers(-50, 50, n).astype(float),
        np.exp(random.normal(0, 30, n)),
        1.7e9 + random.uniform(0, 3600, n),
        random.choice(EXTREMES, n),
    ]


def merged(
    random: np.random.Generator,
    values: pl.Series,
    add: Callable[[pl.Series], bytes],
    merge: Callable[[pl.Series], bytes],
) -> bytes:
    """Cut values anywhere, make a sketch of each part, merge some at a time in any order."""
    shuffled = values.sample(fraction=1, shuffle=True, seed=int(random.integers(1000)))
    cuts = sorted(random.integers(0, len(values) + 1, random.integers(0, 7)))
    bounds = zip([0, *cuts], [*cuts, len(values)], strict=True)
    sketches = [add(shuffled[int(low) : int(high)]) for low, high in bounds]
    while len(sketches) > 1:
        random.shuffle(sketches)
        some = int(random.integers(2, 4))
        sketches = [merge(pl.Series(sketches[:some], dtype=pl.Binary)), *sketches[some:]]
    return sketches[0]


@pytest.mark.parametrize("shape", range(5))
def test_a_quantile_is_the_same_for_every_cut_and_order_and_that_of_the_reference(shape: int) -> None:
    random = np.random.default_rng(shape)
    for _ in range(15):
        k, q = int(random.integers(8, 60)), float(random.choice([0, 0.1, 0.5, 0.99, 1]))
        values = pl.Series(numbers(random, int(random.integers(0, 400)))[shape])
        whole = quantile_add(k)(values)
        assert merged(random, values, quantile_add(k), quantile_merge(k)) == whole
        assert quantile_finish(q)(whole) == reference.quantile(values.to_list(), q=q, k=k)


def test_many_values_make_the_sketch_that_their_parts_make() -> None:
    random = np.random.default_rng(7)
    for values in map(pl.Series, numbers(random, 20_000)):
        parts = pl.Series([quantile_add(50)(values[i : i + 1000]) for i in range(0, 20_000, 1000)], dtype=pl.Binary)
        assert quantile_merge(50)(parts) == quantile_add(50)(values)


@pytest.mark.parametrize("low", [1.0, 1e-9, 3e9])
def test_a_quantile_is_as_near_as_its_bucket_is_narrow(low: float) -> None:
    """Between a number and its double there are k/2 buckets at least; the k of the default is 200."""
    values = np.random.default_rng(1).uniform(low, 2 * low, 10_000)
    sketch = quantile_add(200)(pl.Series(values))
    for q in (0.01, 0.25, 0.5, 0.9, 0.999):
        exact = np.sort(values)[int(np.ceil(q * 10_000)) - 1]
        assert abs(quantile_finish(q)(sketch) / exact - 1) < 1 / 100  # type: ignore[operator]


def test_up_to_k_different_values_are_counted_exactly() -> None:
    values = pl.Series([1.5, 2.5, None, 9.0, float("nan")] * 1000)
    sketch = quantile_add(8)(values)
    assert [quantile_finish(q)(sketch) for q in (0, 0.33, 0.34, 0.67, 1)] == [1.5, 1.5, 2.5, 9.0, 9.0]
    assert quantile_finish(0.5)(quantile_add(8)(pl.Series([None], dtype=pl.Int64))) is None


def test_sketches_of_older_versions_are_read() -> None:
    old = datasketches.kll_doubles_sketch(k=200)
    old.update(np.arange(100, dtype=np.float64))
    both = quantile_merge(200)(pl.Series([bytes(old.serialize()), quantile_add(200)(pl.Series([500.0]))]))
    assert [quantile_finish(q)(both) for q in (0, 0.5, 1)] == [0, 50, 500]


def test_an_estimated_number_of_different_values_is_the_same_for_every_cut_and_order() -> None:
    random = np.random.default_rng(3)
    for _ in range(20):
        values = pl.Series([f"v{i}" for i in random.integers(0, 400, random.integers(0, 600))], dtype=pl.String)
        found = distinct_finish(merged(random, values, distinct_add(32), distinct_merge(32)))
        assert found == distinct_finish(distinct_add(32)(values))
        assert found == reference.distinct(values.to_list(), pl.String(), k=32)


def test_frequent_items_do_not_depend_on_which_sketch_came_first() -> None:
    random = np.random.default_rng(3)
    sketches = [heavy_add(8)(pl.Series(random.integers(0, 40, 100))) for _ in range(5)]
    one, other = (heavy_merge(8)(pl.Series(s, dtype=pl.Binary)) for s in (sketches, sketches[::-1]))
    assert one == other
