"""Parquet files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl


@dataclass(frozen=True)
class ParquetSink:
    """A folder of Parquet files."""

    path: str

    def check(self, schema: pl.Schema) -> str | None:
        """Refuse what a Parquet file cannot hold."""
        for name, dtype in schema.items():
            if any(isinstance(t, pl.Object) for t in _nested(dtype)):
                return f"{name!r} holds Python objects"
            if any(isinstance(t, pl.Struct) and not t.fields for t in _nested(dtype)):
                return f"{name!r} is a struct without fields"
        return None

    def describe(self) -> str:
        """Say where."""
        return f"parquet {self.path}"


def parquet_sink(path: str | Path) -> ParquetSink:
    """Write rows to a folder of Parquet files, each row exactly once.

    >>> st.parquet_sink("out/").describe()
    'parquet out/'
    """
    return ParquetSink(str(path))


def _nested(dtype: pl.DataType) -> list[pl.DataType]:
    inner: list[pl.DataType] = []
    if isinstance(dtype, pl.List | pl.Array):
        inner = [dtype.inner if isinstance(dtype.inner, pl.DataType) else dtype.inner()]
    elif isinstance(dtype, pl.Struct):
        inner = [f.dtype if isinstance(f.dtype, pl.DataType) else f.dtype() for f in dtype.fields]
    return [dtype, *(t for i in inner for t in _nested(i))]
