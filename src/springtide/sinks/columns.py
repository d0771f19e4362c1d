"""Types of columns, for sinks that cannot hold them all."""

from __future__ import annotations

from collections.abc import Iterable

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


def twins(names: Iterable[str]) -> tuple[str, str] | None:
    """Return two names that differ in capitals only; None if there are none.

    >>> twins(["x", "y", "X"])
    ('x', 'X')
    """
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(name.lower(), name)) != name:
            return other, name
    return None
