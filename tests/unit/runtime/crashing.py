"""A query from Parquet to Parquet that tests kill. No pytest here: a child process is to start fast."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import polars as pl

import springtide as st
from springtide.runtime.engine import Options
from springtide.runtime.inprocess import run
from springtide.testing import compare

SCHEMA = {"ts": st.TIME, "key": pl.String, "x": pl.Int64}


def numbers(count: int) -> pl.DataFrame:
    """Make rows, one per second."""
    return pl.DataFrame(
        {
            "ts": pl.Series(range(count)) * 1_000_000,
            "key": [f"k{i * i % 7}" for i in range(count)],
            "x": range(count),
        }
    ).with_columns(pl.col("ts").cast(st.TIME))


def write_input(folder: Path) -> None:
    """Write 60 rows: three files, of three row groups each."""
    (folder / "in").mkdir()
    rows = numbers(60)
    for i in range(3):
        rows[20 * i : 20 * i + 20].write_parquet(folder / "in" / f"{i}.parquet", row_group_size=7)


def files_to_files(folder: Path) -> st.Query:
    """Make the query that is killed: Parquet → aggregate → aggregate → Parquet, and a copy of the input."""
    source = st.source("numbers", st.parquet(folder / "in", schema=SCHEMA), ts="ts")
    sums = source.aggregate(by="key", window=st.sliding("9s", every="3s"), total=st.sum("x"), all=st.collect("x"))
    counts = sums.aggregate(window=st.tumbling("6s"), n=st.count())
    return st.Query(
        "files",
        source.map(double=pl.col("x") * 2).to(st.parquet_sink(folder / "copy"), name="copy"),
        sums.to(st.parquet_sink(folder / "sums"), name="sums"),
        counts.to(st.parquet_sink(folder / "counts"), name="counts"),
    )


def run_files(folder: Path, instances: int, fail: str | None) -> None:
    """Run that query, with a failure point; this is what the child does."""
    if fail is not None:
        os.environ["SPRINGTIDE_FAIL"] = fail
    run(files_to_files(folder).plan(buckets=8), folder / "checkpoint", Options(instances, rows_per_epoch=10))


def every_row_is_there_once(folder: Path) -> None:
    """Compare what the sinks hold with the reference."""
    expected = files_to_files(folder).run_reference()
    for sink in ("copy", "sums", "counts"):
        compare(pl.read_parquet(folder / sink / "*.parquet"), expected.rows(sink))


def run_with_small_files(folder: Path, limit: int) -> None:
    """Run the query in a process that may write files of at most `limit` bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    run_files(folder, 2, None)
