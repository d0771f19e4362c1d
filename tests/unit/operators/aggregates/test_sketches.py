"""Sketches as partial results: exact while they are small, within their error beyond, and mergeable in any order."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import polars as pl
import pytest

from springtide.operators.aggregates import quantiles, sketches


def test_different_values_of_parts_are_counted_once() -> None:
    add, merge = sketches.distinct_add(64), sketches.distinct_merge(64)
    parts = [add(pl.Series([1, 2, None])), add(pl.Series([2, 3, 3])), add(pl.Series([], dtype=pl.Int64))]
    for order in (parts, parts[::-1]):
        assert sketches.distinct_finish(merge(pl.Series(order, dtype=pl.Binary))) == 3


def test_many_different_values_are_estimated() -> None:
    add, merge = sketches.distinct_add(4096), sketches.distinct_merge(4096)
    parts = [add(pl.int_range(i * 5_000, i * 5_000 + 10_000, eager=True)) for i in range(20)]
    found = sketches.distinct_finish(merge(pl.Series(parts, dtype=pl.Binary)))
    assert found == pytest.approx(105_000, rel=2 * 2 / 64)


def test_quantiles_of_parts() -> None:
    add, merge = quantiles.quantile_add(200), quantiles.quantile_merge(200)
    parts = [add(pl.Series([4.0, float("nan"), 1.0])), add(pl.Series([3, 2, None]))]
    merged = merge(pl.Series(parts, dtype=pl.Binary))
    assert [quantiles.quantile_finish(q)(merged) for q in (0.0, 0.5, 0.75, 1.0)] == [1.0, 2.0, 3.0, 4.0]
    assert quantiles.quantile_finish(0.5)(add(pl.Series([], dtype=pl.Float64))) is None


def test_the_heaviest_of_parts_with_ties_to_the_smaller_value() -> None:
    add, merge = sketches.heavy_add(8), sketches.heavy_merge(8)
    merged = merge(pl.Series([add(pl.Series(["b", "a", "c"])), add(pl.Series(["c", None]))], dtype=pl.Binary))
    finish = sketches.heavy_finish(pl.Schema({"value": pl.String()}), 2)
    assert finish(merged) == [{"value": "c", "count": 2}, {"value": "a", "count": 1}]


def test_weights_of_values_in_several_columns() -> None:
    rows = pl.DataFrame({"k": ["x", "y", "x"], "i": [1, None, 1], sketches.WEIGHT: [5, 7, 4]})
    sketch = sketches.heavy_add(8)(rows.to_struct())
    finish = sketches.heavy_finish(pl.Schema({"k": pl.String(), "i": pl.Int64()}), 3)
    assert finish(sketch) == [{"k": "x", "i": 1, "count": 9}, {"k": "y", "i": None, "count": 7}]


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
def test_values_of_every_type_are_read_back(values: pl.Series) -> None:
    frame = pl.DataFrame({"v": values.extend_constant(None, 1)})
    assert sketches.values_of(sketches.rows_as_text(frame), frame.schema).equals(frame)
