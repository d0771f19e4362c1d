"""What heads share whose result depends on the total order: tuples wait in state until they are ready (the gate's hold-back, SC-7, ST-3)."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from springtide.kernels import gate
from springtide.query.types import TS
from springtide.runtime.heads.head import TIME_MARK as TIME_MARK
from springtide.runtime.heads.head import Clock, Kind, Shelf

HELD = Kind(slot=TS)
"""Tuples that are not ready, as they arrived: with their buckets and their places in the total order."""


def ready_before(shelf: Shelf) -> int:
    """Give the time up to which tuples were processed in earlier epochs."""
    return shelf.marks.get(TIME_MARK, gate.BEGINNING)


def release(
    shelf: Shelf, kind: str, arrived: pl.DataFrame | None, clock: Clock, *, buckets: Sequence[int] | None = None
) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
    """Give the tuples that have become ready, in no order, and those that arrived and have to wait: they are to be written as `kind`.

    With `buckets`, those of these buckets, whoever owns them.
    """
    ready, held = [], None
    before = ready_before(shelf)
    if clock.time > before:
        for old in shelf.read(kind, before, clock.time, buckets=buckets):
            ts = old[TS].to_physical()
            ready.append(old.filter((ts >= before) & (ts < clock.time)))
    if arrived is not None:
        now = arrived[TS].to_physical() < clock.time
        ready.append(arrived.filter(now))
        held = arrived.filter(~now)
    ready = [r.select(ready[-1].columns) for r in ready if r.height]
    return pl.concat(ready) if ready else None, held
