"""Samples of rows that are in no result: a few of those that were late or rejected, with the reason, for people who ask which they were.

They are in the checkpoint's history, as text. All of the rows, and as rows, are at `source.late` and at `.rejected`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import polars as pl

from springtide.connectors.rejected import rows_as_json
from springtide.query.types import TS
from springtide.runtime.epoch import TaskReport

MOST = 3
"""Samples of a kind from one task."""
OF_EPOCH = 8
"""Samples of one epoch."""
EVERY = 1.0
"""Seconds between two epochs of which samples are kept."""
_LONGEST = 500
"""Characters of a row."""

Sample = Mapping[str, str]


def of_late(source: str, stream: str, late: pl.DataFrame, time: int | None) -> list[Sample]:
    """Return samples of rows that were late; `time` is the stream time after their slice."""
    found = late.head(MOST)
    stamps = found[TS].cast(pl.Int64).to_list() if TS in found.columns else [None] * found.height
    return [
        _sample(source, "late", f"its time is {_told(at)}, and the physical stream {stream} was at {_told(time)}", row)
        for at, row in zip(stamps, rows_as_json(found), strict=True)
    ]


def of_rejected(place: str, rejected: pl.DataFrame) -> list[Sample]:
    """Return samples of rows that do not fit, or of groups whose sum does not; `place` is the source or the step."""
    if "row" in rejected.columns:
        found = rejected.head(MOST)
        rows = found["row"]
    else:  # groups, which come in any order: the same ones are chosen when the task runs again
        found = rejected[rejected.hash_rows().arg_sort()[:MOST].to_list()]
        rows = rows_as_json(found.drop("reason"))
    return [_sample(place, "rejected", reason, row) for reason, row in zip(found["reason"], rows, strict=True)]


def gathered(reports: Sequence[TaskReport]) -> list[Sample]:
    """Return the samples of an epoch: as many of each kind as there is room for."""
    found = [sample for report in reports for sample in report.samples]
    kinds = dict.fromkeys((s["source"], s["outcome"]) for s in found)
    each = max(1, OF_EPOCH // max(1, len(kinds)))
    return [s for kind in kinds for s in _first((s for s in found if (s["source"], s["outcome"]) == kind), each)][
        :OF_EPOCH
    ]


def _first(samples: Iterable[Sample], count: int) -> list[Sample]:
    return list(samples)[:count]


def _sample(source: str, outcome: str, reason: str | None, row: str | None) -> Sample:
    return {"source": source, "outcome": outcome, "reason": (reason or "")[:_LONGEST], "row": (row or "")[:_LONGEST]}


def _told(micros: int | None) -> str:
    if micros is None:
        return "unknown"
    try:
        return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros):%F %T}"
    except OverflowError:
        return "the end of time" if micros > 0 else "the beginning of time"
