"""Hidden columns that carry a tuple's place in the total order, for steps that need it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from springtide.query.steps import Source, Step
from springtide.query.types import TS

ORIGIN: Final = "__origin"
"""Rank of the name of the source or stateful step that made the tuple."""
STREAM: Final = "__stream"
"""Its physical stream; null if a stateful step made the tuple."""
POSITION: Final = "__position"  # as sources call it
"""Its place in the physical stream; null if a stateful step made the tuple."""
PLACE: Final = "__place"
"""After an explode: the place among the tuples made from the same one."""
CONTENT: Final = "__content"
"""All columns, to order tuples that have no position."""

PLACES: Final = (ORIGIN, STREAM, POSITION, PLACE)
ORDER: Final = (TS, *PLACES, CONTENT)
"""What tuples are ordered by, first to last."""


def of_source(origin: int, stream: str, position: int | None) -> list[pl.Expr]:
    """Return the columns for rows of a physical stream that begin at `position`, or that have no positions."""
    row = (
        pl.lit(None, dtype=pl.Int64)
        if position is None
        else pl.int_range(position, position + pl.len(), dtype=pl.Int64)
    )
    return [*_made(origin), pl.lit(stream).alias(STREAM), row.alias(POSITION), pl.lit(0, dtype=pl.UInt64).alias(PLACE)]


def of_step(origin: int) -> list[pl.Expr]:
    """Return the columns for rows that a stateful step made."""
    empty = [pl.lit(None, dtype=pl.String).alias(STREAM), pl.lit(None, dtype=pl.Int64).alias(POSITION)]
    return [*_made(origin), *empty, pl.lit(0, dtype=pl.UInt64).alias(PLACE)]


def _made(origin: int) -> list[pl.Expr]:
    return [pl.lit(origin, dtype=pl.UInt16).alias(ORIGIN)]


def content(columns: list[str]) -> pl.Expr:
    """Return the column that orders by content."""
    return pl.struct(columns).alias(CONTENT)


def needs_content(step: Step) -> bool:
    """Return whether tuples that come to a step can have the same place, so that only their content tells them apart.

    Those of a source with positions cannot, as long as no union brings two tuples made from the same one together again, and no two rows of
    the source share a position (`repeats`).
    """
    if len(step.inputs) != 1:
        return True
    before = step.inputs[0].step
    if isinstance(before, Source):
        return not before.connector.positions or before.connector.repeats
    return before.stateful or needs_content(before)


def arrange(rows: pl.DataFrame, content: Sequence[str], side: str | None = None) -> pl.DataFrame:
    """Put tuples with places into the total order: by time and place, then by side and, where all of these are equal, by content."""
    by = [TS, *(c for c in PLACES if not _constant(rows[c])), *([side] if side else [])]
    rows = rows.sort(by)
    if not _has_ties(rows, by):
        return rows
    return rows.sort([*by, *content])


def _constant(column: pl.Series) -> bool:
    return bool(column.null_count() == column.len() or (column.null_count() == 0 and (column == column[0]).all()))


def _has_ties(rows: pl.DataFrame, by: Sequence[str]) -> bool:
    same = pl.all_horizontal([pl.col(c).eq_missing(pl.col(c).shift(1)) for c in by])
    return bool(rows.head(1).height and rows.select(same).to_series()[1:].any())
