"""Lengths of time that no time can be computed with are refused when a query is built."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

import springtide as st

LONG = "110000000d"
"""300,000 years."""
SCHEMA = {"ts": st.TIME, "x": pl.Int64}


def source(**options: str) -> st.Stream:
    return st.source("s", st.memory(schema=SCHEMA), ts="ts", **options)  # type: ignore[arg-type]


ALL: dict[str, Callable[[], object]] = {
    "size": lambda: source().aggregate(window=st.tumbling(LONG), n=st.count()),
    "every": lambda: source().aggregate(window=st.sliding(LONG, every=LONG), n=st.count()),
    "gap": lambda: source().aggregate(window=st.session(LONG), n=st.count()),
    "within of a join": lambda: source().join(source(), on="x", within=LONG),
    "within of a theta join": lambda: source().theta_join(source(), pl.lit(True), within=LONG),
    "max_disorder": lambda: source(max_disorder=LONG),
    "idle_after": lambda: source(idle_after=LONG),
}


@pytest.mark.parametrize("what", ALL)
def test_lengths_that_are_longer_than_time_are_refused(what: str) -> None:
    with pytest.raises(st.QueryError, match="10000 years"):
        ALL[what]()
