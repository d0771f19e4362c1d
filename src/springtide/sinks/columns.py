"""Types of columns, for sinks that cannot hold them all."""

from __future__ import annotations

from collections.abc import Iterator

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


def leaves(column: pl.Series) -> Iterator[pl.Series]:
    """Return what is in a column when all lists and structs are taken apart.

    >>> [part.to_list() for part in leaves(pl.Series([[{"a": 1, "b": "x"}], []]))]
    [[1], ['x']]
    """
    if isinstance(column.dtype, pl.List | pl.Array):
        yield from leaves(column.explode())
    elif isinstance(column.dtype, pl.Struct):
        for name in column.struct.fields:
            yield from leaves(column.struct.field(name))
    else:
        yield column
