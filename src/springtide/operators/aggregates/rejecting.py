"""Groups without a valid result: they go to the side output of their step, with the reason."""

from __future__ import annotations

import polars as pl

from springtide.operators.aggregates.partials import WHY
from springtide.query import steps


def divided(step: steps.Aggregate, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Return the rows that are results, and those that are rejected (None if there are none)."""
    if WHY not in rows.columns:
        return rows, None
    good = rows.drop(WHY)
    if rows[WHY].null_count() == rows.height:
        return good, None
    bad = rows[WHY].is_not_null()
    wrong = rows.filter(bad).with_columns(pl.col(WHY).alias(steps.REASON))
    return good.filter(~bad), wrong.select(step.rejected.names())
