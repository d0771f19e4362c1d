"""Apache DataSketches as partial results: the bytes of one sketch per group, made from values, merged, and queried at the end.

Polars counts values before a sketch sees them, so that each distinct value is added once. Values of any type go into a sketch
of strings: they are written so that different values differ, and read back when a sketch returns values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import datasketches
import polars as pl

WEIGHT = "__weight"
"""In a struct of values to rank: the weight of each."""

_VALUE, _COUNT = "value", "count"


def distinct_add(k: int) -> Callable[[pl.Series], bytes]:
    """Put values into a theta sketch."""

    def add(values: pl.Series) -> bytes:
        sketch = datasketches.update_theta_sketch(lg_k=_exponent(k))
        for text in rows_as_text(values.drop_nulls().unique().to_frame()):
            sketch.update(text)
        sketch.trim()  # how many more than k it holds depends on the order of arrival
        return bytes(sketch.compact().serialize())

    return add


def distinct_merge(k: int) -> Callable[[pl.Series], bytes]:
    """Merge theta sketches."""

    def merge(sketches: pl.Series) -> bytes:
        union = datasketches.theta_union(lg_k=_exponent(k))
        for sketch in sketches:
            union.update(datasketches.compact_theta_sketch.deserialize(sketch))
        return bytes(union.get_result().serialize())

    return merge


def distinct_finish(sketch: bytes) -> int:
    """Estimate the number of distinct values."""
    estimate: float = datasketches.compact_theta_sketch.deserialize(sketch).get_estimate()
    return round(estimate)


def heavy_add(map_size: int) -> Callable[[pl.Series], bytes]:
    """Put values, or structs of values with a weight, into a frequent-items sketch."""

    def add(values: pl.Series) -> bytes:
        frame = values.struct.unnest() if values.dtype == pl.Struct else values.drop_nulls().alias(_VALUE).to_frame()
        weight = pl.col(WEIGHT).sum() if WEIGHT in frame.columns else pl.len().cast(pl.Int64)
        columns = [c for c in frame.columns if c != WEIGHT]
        counted = frame.group_by(columns).agg(weight.alias(WEIGHT)).sort(columns)
        sketch = datasketches.frequent_strings_sketch(_exponent(map_size))
        for text, count in zip(rows_as_text(counted.drop(WEIGHT)), counted[WEIGHT].to_list(), strict=True):
            sketch.update(text, count)
        return bytes(sketch.serialize())

    return add


def heavy_merge(map_size: int) -> Callable[[pl.Series], bytes]:
    """Merge frequent-items sketches."""

    def merge(sketches: pl.Series) -> bytes:
        joined = datasketches.frequent_strings_sketch(_exponent(map_size))
        for sketch in sketches.sort():  # its estimates depend on the order, which must not be that of arrival
            joined.merge(datasketches.frequent_strings_sketch.deserialize(sketch))
        return bytes(joined.serialize())

    return merge


def heavy_finish(schema: pl.Schema, n: int, count: str = _COUNT) -> Callable[[bytes], list[dict[str, Any]]]:
    """Estimate the total weight of each value that a sketch still holds; return the n heaviest, ties going to the smaller value."""

    def finish(sketch: bytes) -> list[dict[str, Any]]:
        kind = datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES
        found = datasketches.frequent_strings_sketch.deserialize(sketch).get_frequent_items(kind, 0)
        weights = pl.Series(count, [estimate for _, estimate, _, _ in found], dtype=pl.Int64)
        rows = values_of([text for text, *_ in found], schema).with_columns(weights)
        descending = [True, *(False for _ in schema)]
        return rows.sort([count, *schema], descending=descending, nulls_last=False).head(n).to_dicts()

    return finish


def rows_as_text(values: pl.DataFrame) -> list[str]:
    """Write each row as a string."""
    plain = values.select(_written(pl.col(n), t) for n, t in values.schema.items())
    return [json.dumps(row) for row in plain.rows()]


def values_of(written: Sequence[str], schema: pl.Schema) -> pl.DataFrame:
    """Read what `rows_as_text` wrote."""
    rows = [json.loads(text) for text in written]
    columns = []
    for i, (name, dtype) in enumerate(schema.items()):
        plain = [row[i] for row in rows]
        if dtype == pl.Binary:
            columns.append(pl.Series(name, plain, dtype=pl.String).str.decode("hex"))
        else:
            physical = pl.String() if isinstance(dtype, pl.Decimal) else pl.Series(dtype=dtype).to_physical().dtype
            columns.append(pl.Series(name, plain, dtype=physical).cast(dtype))
    return pl.DataFrame(columns)


def _written(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if dtype == pl.Binary:
        return column.bin.encode("hex")
    return column.cast(pl.String) if isinstance(dtype, pl.Decimal) else column.to_physical()


def _exponent(power_of_two: int) -> int:
    return power_of_two.bit_length() - 1
