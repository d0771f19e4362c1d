"""Plain Python values of one-row frames, and their order.

Times, dates and lengths of time become integers in the column's own unit: Python's `datetime` would cut off nanoseconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import polars as pl

from springtide.query.types import instance

Plain = dict[str, Any]
"""One row: column → None, bool, int, float, str, bytes, Decimal, list or dict."""


@lru_cache(maxsize=4096)
def plain_type(dtype: pl.DataType) -> pl.DataType:
    """Return the type with an integer in place of every time.

    >>> plain_type(pl.List(pl.Datetime("ns")))
    List(Int64)
    """
    if dtype.is_temporal():
        return pl.Int64()
    if isinstance(dtype, pl.List):
        return pl.List(plain_type(instance(dtype.inner)))
    if isinstance(dtype, pl.Array):
        return pl.Array(plain_type(instance(dtype.inner)), dtype.size)
    if isinstance(dtype, pl.Struct):
        return pl.Struct({f.name: plain_type(instance(f.dtype)) for f in dtype.fields})
    return dtype


def plain_rows(frame: pl.DataFrame) -> list[Plain]:
    """Return the plain values of every row.

    >>> plain_rows(pl.DataFrame({"d": [5]}, schema={"d": pl.Duration("ns")}))
    [{'d': 5}]
    """
    columns = [(c.name, c.cast(plain_type(c.dtype)).to_list()) for c in frame.get_columns()]
    return [{name: values[i] for name, values in columns} for i in range(frame.height)]


def frame_of(rows: Sequence[Mapping[str, Any]], schema: pl.Schema) -> pl.DataFrame:
    """Return the frame that `plain_rows` took the values from.

    >>> frame_of([{"d": 5}], pl.Schema({"d": pl.Duration("ns")}))["d"].dtype
    Duration(time_unit='ns')
    """
    columns = []
    for name, dtype in schema.items():
        plain = pl.Series(name, [row[name] for row in rows], dtype=plain_type(dtype), strict=True)
        columns.append(plain if plain.dtype == dtype else plain.cast(dtype))
    return pl.DataFrame(columns)


def order_key(value: Any) -> Any:
    """Return a key by which values of one column sort: nulls first, NaN last, lists element by element.

    >>> sorted([2.0, float("nan"), None, 1.0], key=order_key)
    [None, 1.0, 2.0, nan]
    >>> sorted([[2], [1, 5], None, []], key=order_key)
    [None, [], [1, 5], [2]]
    """
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, True, 0.0) if math.isnan(value) else (1, False, value)
    if isinstance(value, list):
        return (1, [order_key(v) for v in value])
    if isinstance(value, dict):
        return (1, [order_key(v) for v in value.values()])
    return (1, value)


def content_key(values: Plain) -> list[Any]:
    """Return a key by which rows sort: column by column in the order of the schema."""
    return [order_key(v) for v in values.values()]
