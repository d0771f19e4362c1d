"""The road and its messages: what the benchmark's specification fixes, and its file format of 15 integers a line."""

from __future__ import annotations

from pathlib import Path

import polars as pl

COLUMNS = (
    "type",
    "time",
    "vid",
    "spd",
    "xway",
    "lane",
    "dir",
    "seg",
    "pos",
    "qid",
    "s_init",
    "s_end",
    "dow",
    "tod",
    "day",
)
SCHEMA = pl.Schema({name: pl.Int32() for name in COLUMNS})
ABSENT = -1
"""What a message says in a column that its type does not have."""

REPORT, BALANCE, EXPENDITURE = 0, 2, 3
"""Types of messages. Type 4, travel time estimation, is left out, as by everybody who published results."""

SEGMENTS = 100
FEET = 5_280
"""The length of a segment."""
ENTRY, EXIT = 0, 4
"""Lanes; 1 to 3 are for travelling."""
EAST, WEST = 0, 1
EVERY = 30
"""Seconds between two reports of a car."""
HOURS = 3
SECONDS = HOURS * 3_600
DAYS = 69
"""Days of history that a driver can ask for; day 0 is today."""

BUSY = 50
"""A segment with more cars than that in a minute may cost something."""
FLOWING = 40
"""Miles per hour: from this average on, driving is free."""
AHEAD = 5
"""An accident in so many segments, the car's own and those that it drives to, makes driving free."""

BEGIN = 1_700_000_040
"""The second of the Unix epoch at which a run begins, a whole minute; the specification counts from 0."""


def spent(vid: pl.Expr, day: pl.Expr, xway: pl.Expr) -> pl.Expr:
    """Give what a car spent on an expressway on a past day.

    The specification has a table of random tolls from 0 to 99 for every car, day and expressway: a billion rows for 50 expressways. Here the
    table is a formula, with the same content for everybody.
    """
    mixed = vid.cast(pl.Int64) * 2_654_435_761 + day.cast(pl.Int64) * 40_503 + xway.cast(pl.Int64) * 7_919
    return ((mixed // 64) % 100).cast(pl.Int32)


def write(messages: pl.DataFrame, path: Path) -> None:
    """Write messages in the benchmark's own format."""
    messages.select(COLUMNS).write_csv(path, include_header=False)


def read(path: Path) -> pl.DataFrame:
    """Read messages in the benchmark's own format, such as other people's generators write."""
    return pl.read_csv(path, has_header=False, new_columns=list(COLUMNS), schema_overrides=dict(SCHEMA))


def shifted(messages: pl.DataFrame, copy: int, vids: int, qids: int, xways: int = 1) -> pl.DataFrame:
    """Make more expressways with the same traffic: the same cars and requests under other numbers, as SEEP did. Copy 0 is what is there; `xways` is how many expressways it has."""
    return messages.with_columns(
        vid=pl.col("vid") + copy * vids,
        xway=pl.when(pl.col("xway") == ABSENT).then(ABSENT).otherwise(pl.col("xway") + copy * xways).cast(pl.Int32),
        qid=pl.when(pl.col("qid") == ABSENT).then(ABSENT).otherwise(pl.col("qid") + copy * qids).cast(pl.Int32),
    ).cast(SCHEMA)  # type: ignore[arg-type]
