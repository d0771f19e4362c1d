"""Shared by operators whose result depends on the total order: tuples that the gate holds back wait in state (SC-7, ST-3)."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from springtide.exchange import gate
from springtide.operators.operator import TIME_MARK as TIME_MARK
from springtide.operators.operator import Clock
from springtide.operators.state_view import StateView
from springtide.operators.tables import StateTable
from springtide.query.ids import Micros
from springtide.query.types import TS

HELD = StateTable(slot=TS)
"""Tuples that are not ready yet, as they arrived: with their buckets and their places in the total order."""


def ready_before(view: StateView) -> Micros:
    """Return the time up to which tuples were processed in earlier epochs."""
    return Micros(view.marks.get(TIME_MARK, gate.BEGINNING))


def release(
    view: StateView, table: str, arrived: pl.DataFrame | None, clock: Clock, *, buckets: Sequence[int] | None = None
) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
    """Return the tuples that have become ready, in no particular order, and the new arrivals that must wait and be written to `table`.

    With `buckets`, only tuples of these buckets, regardless of who owns them.
    """
    before = ready_before(view)
    waiting = view.read(table, before, clock.time, buckets=buckets) if clock.time > before else []
    return gate.hold_back(waiting, arrived, before, clock.time)
