"""What the tests of the kernels share: aggregate steps made by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.query.steps import Aggregate

COLUMNS = {"k": pl.String, "x": pl.Int64, "f": pl.Float64, "ts": st.TIME}
Step = Callable[..., Aggregate]


@pytest.fixture
def aggregate() -> Step:
    """`aggregate("10us", "5us", n=st.count())` makes the step of an aggregate by k over x and f."""

    def make(size: str, every: str, *, by: Any = "k", columns: Any = None, **aggregates: Any) -> Aggregate:
        source = st.source("rows", st.memory(schema=columns or COLUMNS), ts="ts")
        step = source.aggregate(by=by, window=st.sliding(size, every=every), **aggregates).step
        assert isinstance(step, Aggregate)
        return step

    return make
