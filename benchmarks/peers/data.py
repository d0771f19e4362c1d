"""The files that all sides read: call records, clicks and NEXMark's events, each in the order of time, cut into at least four files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl

from benchmarks.cdr import data as cdr
from benchmarks.clickstream import data as clicks
from benchmarks.measure import DATA, say
from benchmarks.peers import nexmark

MOST_PER_FILE, LEAST_FILES = 500_000, 4
Rows = Callable[[int, int], pl.DataFrame]
"""Records from a number on, so many."""


def files(kind: str, records: int) -> Path:
    """Give the folder with so many records of a kind; it is made if it is not there."""
    folder = DATA / f"peers-{kind}-{records}"
    if not folder.exists():
        say(f"making {records:,} {kind}")
        part = folder.with_suffix(".partial")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        per_file = per_file_of(records)
        rows = _ROWS[kind](records)
        for number, first in enumerate(range(0, records, per_file)):
            rows(first, min(per_file, records - first)).write_parquet(
                part / f"{number:04d}.parquet", row_group_size=125_000
            )
        part.rename(folder)
    return folder


def per_file_of(records: int) -> int:
    """Say how many records are in a file."""
    return max(1, min(MOST_PER_FILE, -(-records // LEAST_FILES)))


def _calls(first: int, count: int) -> pl.DataFrame:
    size = cdr.ROWS_PER_FILE
    numbers = range(first // size, -(-(first + count) // size))
    return pl.concat([cdr.calls(number) for number in numbers]).slice(first % size, count)


def _clicks(records: int) -> Rows:
    rows = clicks.requests(records)
    return lambda first, count: rows.slice(first, count)


_ROWS: dict[str, Callable[[int], Rows]] = {
    "calls": lambda _: _calls,
    "clicks": _clicks,
    "events": lambda _: nexmark.events,
}
