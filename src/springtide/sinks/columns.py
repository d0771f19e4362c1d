"""Types of columns, for sinks that cannot hold them all."""

from __future__ import annotations

import polars as pl


def nested(dtype: pl.DataType) -> list[pl.DataType]:
    """Return a type, and all types inside it.

    >>> nested(pl.List(pl.Int64()))
    [List(Int64), Int64]
    """
    inner: list[pl.DataType] = []
    if isinstance(dtype, pl.List | pl.Array):
        inner = [dtype.inner if isinstance(dtype.inner, pl.DataType) else dtype.inner()]
    elif isinstance(dtype, pl.Struct):
        inner = [f.dtype if isinstance(f.dtype, pl.DataType) else f.dtype() for f in dtype.fields]
    return [dtype, *(t for i in inner for t in nested(i))]
