"""Shared by the tests and by the doctests in src; what only tests need is in tests/conftest.py."""

from typing import Any

import polars as pl
import pytest

import springtide as st


@pytest.fixture(autouse=True)
def doctest_names(doctest_namespace: dict[str, Any]) -> None:
    """Every doctest may use `pl` and `st` without importing them, and the stream `calls`."""
    columns = {"src": pl.String, "dst": pl.String, "duration": pl.Int64, "ts": st.TIME}
    calls = st.source("calls", st.memory(schema=columns), ts="ts")
    doctest_namespace.update(pl=pl, st=st, calls=calls)
