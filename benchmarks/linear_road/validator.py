"""Judges answers: every row for its value, rows that are missing or too many, and rows that came too late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import polars as pl

from benchmarks.linear_road.oracle import Answers

NAMES = {
    "tolls": ("vid", "time", "lav", "toll"),
    "alerts": ("vid", "time", "accident"),
    "balances": ("qid", "time", "vid", "balance"),
    "expenditures": ("qid", "time", "vid", "spent"),
}
WITHIN = {"tolls": 5, "alerts": 5, "balances": 5, "expenditures": 10}
"""Seconds that an answer may take."""


@dataclass(frozen=True)
class Verdict:
    """What is wrong with the answers."""

    rows: int
    missing: int
    unexpected: int
    late: int

    @property
    def right(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.missing or self.unexpected or self.late)


def judge(given: Mapping[str, pl.DataFrame], expected: Answers) -> Verdict:
    """Compare answers with the oracle's, as bags of rows; `seconds`, where there is such a column, is how long an answer took."""
    return compare(given, frames(expected))


def frames(expected: Answers) -> dict[str, pl.DataFrame]:
    """Give the oracle's answers as frames."""
    return {
        f.name: pl.DataFrame(getattr(expected, f.name), schema=dict.fromkeys(NAMES[f.name], pl.Int64), orient="row")
        for f in fields(Answers)
    }


def compare(given: Mapping[str, pl.DataFrame], expected: Mapping[str, pl.DataFrame]) -> Verdict:
    """Compare answers with those that are expected: see `judge`."""
    rows = missing = unexpected = late = 0
    for name, wanted in expected.items():
        columns = list(NAMES[name])
        have = given[name].select(pl.col(columns).cast(pl.Int64))
        rows += have.height
        counted = (
            wanted.group_by(columns)
            .len("wanted")
            .join(have.group_by(columns).len("have"), on=columns, how="full", coalesce=True)
        )
        difference = pl.col("wanted").fill_null(0).cast(pl.Int64) - pl.col("have").fill_null(0).cast(pl.Int64)
        found = counted.select(d=difference)["d"]
        missing += int(found.clip(lower_bound=0).sum())
        unexpected += int((-found).clip(lower_bound=0).sum())
        if "seconds" in given[name].columns:
            late += given[name].filter(pl.col("seconds") > WITHIN[name]).height
    return Verdict(rows, missing, unexpected, late)
