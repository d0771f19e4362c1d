"""A query from Parquet to Parquet that is replaced while it runs, and killed meanwhile. No pytest here: a child process is to start fast."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import polars as pl

import springtide as st
from springtide.runtime.backfilling import plan_of
from springtide.runtime.engine import Engine, Options
from springtide.runtime.inprocess import execute, run
from tests.unit.runtime.crashing import SCHEMA

AFTER = 1
"""The query is replaced after this epoch."""


def first(folder: Path, rows: str = "in") -> st.Query:
    """Make the form that it begins with."""
    source = st.source("numbers", st.parquet(folder / rows, schema=SCHEMA), ts="ts")
    sums = source.aggregate(
        by="key", window=st.sliding("9s", every="3s"), total=st.sum("x"), all=st.collect("x"), name="sums-of"
    )
    counts = sums.aggregate(window=st.tumbling("6s"), n=st.count(), name="counts-of")
    return st.Query(
        "files",
        source.map(double=pl.col("x") * 2).to(st.parquet_sink(folder / "copy"), name="copy"),
        sums.to(st.parquet_sink(folder / "sums"), name="sums"),
        counts.to(st.parquet_sink(folder / "counts"), name="counts"),
    )


def replaced(folder: Path) -> st.Query:
    """Make the other form: what is copied is three times as much, the second aggregate is gone, and another one is there, with a sink."""
    source = st.source("numbers", st.parquet(folder / "in", schema=SCHEMA), ts="ts")
    sums = source.aggregate(
        by="key", window=st.sliding("9s", every="3s"), total=st.sum("x"), all=st.collect("x"), name="sums-of"
    )
    per_minute = source.aggregate(window=st.tumbling("1m"), n=st.count(), name="per-minute")
    return st.Query(
        "files",
        source.map(double=pl.col("x") * 3).to(st.parquet_sink(folder / "copy"), name="copy"),
        sums.to(st.parquet_sink(folder / "sums"), name="sums"),
        per_minute.to(st.parquet_sink(folder / "minutes"), name="minutes"),
    )


def run_and_replace(
    folder: Path, fail: str | None, *, history: bool = False, before: Callable[[Engine], None] = lambda _: None
) -> None:
    """Run the query, and replace it on its way, with the history of what is new or without; this is what the child does. `before` is called then."""
    if fail is not None:
        os.environ["SPRINGTIDE_FAIL"] = fail
    old, new = first(folder).plan(buckets=8), replaced(folder).plan(buckets=8)

    def between(engine: Engine) -> bool:
        if engine.manifest.epoch == AFTER:
            before(engine)
            backfill = None
            if history:
                part = plan_of(new, ["per-minute"])
                backfill = engine.backfill(["per-minute"], new, part, lambda epoch: execute(part, epoch))
            engine.replace(new, lambda epoch: execute(new, epoch), None, backfill)
        return not engine.manifest.ended

    run(old, folder / "checkpoint", Options(2, rows_per_epoch=10), between=between)


def run_on(folder: Path, *, is_replaced: bool) -> None:
    """Go on to the end with one form."""
    query = replaced(folder) if is_replaced else first(folder)
    run(query.plan(buckets=8), folder / "checkpoint", Options(3, rows_per_epoch=10))
