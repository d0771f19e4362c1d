"""What the tests of the reference share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import springtide as st

RowsOf = Callable[..., pl.DataFrame]


@pytest.fixture
def rows_of() -> RowsOf:
    """`rows_of(stream, inputs)` runs a query that ends with this stream, and gives its rows."""

    def run(stream: st.Stream, inputs: Any = None, **options: Any) -> pl.DataFrame:
        return st.Query("q", stream.to(st.memory_sink())).run_reference(inputs, **options).rows()

    return run
