"""Stateful heads at work: blobs and old state in, rows and new segments out."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from springtide.compiler.plan import Plan, Subquery
from springtide.kernels import gate
from springtide.kernels.blob import Blob
from springtide.kernels.hashing import BUCKET
from springtide.kernels.partials import knows
from springtide.kernels.sliding import PANE, Panes, SlidingAggregate, sliding_kernel
from springtide.query import steps
from springtide.query.errors import QueryError
from springtide.query.types import END_OF_TIME
from springtide.query.windows import Sliding
from springtide.runtime.epoch import Epoch
from springtide.state.manifest import BucketMap, SubqueryState
from springtide.state.segment import Segment, read_segment, write_segment

PANES = "panes"
TOTALS = "totals"


@dataclass(frozen=True)
class HeadResult:
    """What a head gives, and what it has put into state."""

    rows: pl.DataFrame
    closed: int | None
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class Shelf:
    """The state of one instance: reads what it owns, writes new segments."""

    epoch: Epoch
    subquery: str
    instance: int

    @property
    def map(self) -> BucketMap:
        """The bucket map in force."""
        return self.epoch.maps[self.subquery]

    @property
    def state(self) -> SubqueryState:
        """What the last manifest says."""
        return self.epoch.state.get(self.subquery, SubqueryState())

    def read(self, kind: str, low: int, high: int, files: Sequence[str] | None = None) -> list[pl.DataFrame]:
        """Read this instance's rows of a kind from the segments that reach into slots `low` ≤ … < `high`."""
        found = []
        buckets: list[int] | None = None
        for segment in self.state.segments:
            if (
                segment.kind != kind
                or segment.low >= high
                or segment.high < low
                or (files is not None and segment.file not in files)
            ):
                continue
            path = Path(self.epoch.root) / segment.file
            if segment.version == self.map.version:
                if segment.instance == self.instance:
                    found.append(read_segment(path))
            else:
                buckets = self.map.buckets_of(self.instance) if buckets is None else buckets
                found.append(read_segment(path, buckets))
        return [f for f in found if f.height]

    def write(self, kind: str, rows: pl.DataFrame, slot: str | None) -> tuple[Segment, ...]:
        """Write rows as a segment; nothing for no rows."""
        if not rows.height:
            return ()
        file = f"state/{self.subquery}/{self.epoch.number:09d}-{self.instance}-{kind}-{uuid.uuid4().hex[:8]}.arrow"
        size = write_segment(Path(self.epoch.root) / file, rows, BUCKET)
        low, high = (rows[slot].min(), rows[slot].max()) if slot else (-(2**63), END_OF_TIME)
        assert isinstance(low, int)
        assert isinstance(high, int)
        return (Segment(file, kind, self.epoch.number, self.instance, self.map.version, rows.height, size, low, high),)


def check_runs(plan: Plan) -> None:
    """Refuse a plan with a step that the engine does not run yet, before anything is started."""
    for subquery in plan.subqueries:
        if subquery.head is None:
            continue
        head, where = plan.step(subquery.head), f"{subquery.head} ({plan.step(subquery.head).kind})"
        if not isinstance(head, steps.Aggregate):
            raise QueryError(where, "the engine does not run this kind of step yet", "query.run_reference() does")
        if not isinstance(head.window, Sliding):
            raise QueryError(
                where, f"the engine does not run the window {head.window} yet", "query.run_reference() does"
            )
        for bound in head.aggregates:
            if not knows(bound):
                raise QueryError(where, f"the engine does not run {bound.aggregate} yet", "query.run_reference() does")


def run_head(
    plan: Plan, epoch: Epoch, subquery: Subquery, instance: int, blobs: Sequence[Blob], merged: int
) -> HeadResult:
    """Run the stateful step of a subquery on the blobs of one instance."""
    head = plan.step(subquery.name)
    shelf = Shelf(epoch, subquery.name, instance)
    tuples = [b.tuples for b in blobs if b.tuples is not None]
    if isinstance(head, steps.Aggregate) and isinstance(head.window, Sliding):
        return _sliding(sliding_kernel(head), shelf, tuples, merged)
    raise TypeError(f"{head.kind} is not a step that the engine runs")


def _sliding(kernel: SlidingAggregate, shelf: Shelf, tuples: list[pl.DataFrame], merged: int) -> HeadResult:
    panes, before = kernel.panes, shelf.state.closed
    new = kernel.merge(pl.concat(tuples)) if tuples else None
    closed, rows, totals, oldest = before, pl.DataFrame(schema=kernel.schema), None, None
    upto = panes.last_closed(merged) if merged != gate.BEGINNING else None
    if upto is not None and (before is None or upto > before):
        closed, oldest = upto, END_OF_TIME if upto == END_OF_TIME else panes.first_pane_after(upto)
        rows, totals = kernel.close(before, upto, *_needed(kernel, shelf, new, before, upto))
        if new is not None:
            new = new.filter(pl.col(PANE) >= oldest) if oldest != END_OF_TIME else new.clear()
    files = shelf.epoch.compact.get(shelf.subquery, {}).get(shelf.instance, ())
    if files:
        low = -(2**63) if closed is None else END_OF_TIME if closed == END_OF_TIME else panes.first_pane_after(closed)
        old = [f.filter(pl.col(PANE) >= low) for f in shelf.read(PANES, low, END_OF_TIME, files)]
        parts = [f for f in (*old, new) if f is not None and f.height]
        new = kernel.merge(pl.concat([p.select(parts[0].columns) for p in parts])) if parts else new
    segments = shelf.write(PANES, new, PANE) if new is not None else ()
    if totals is not None:
        segments += shelf.write(TOTALS, totals, None)
    return HeadResult(rows, closed, segments)


def _needed(
    kernel: SlidingAggregate, shelf: Shelf, new: pl.DataFrame | None, before: int | None, upto: int
) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Read the panes and totals that closing windows needs."""
    ranges = kernel.panes_to_close(before, upto)
    parts = []
    for low, high in ranges:
        within = (pl.col(PANE) >= low) & (pl.col(PANE) < high)
        found = [*shelf.read(PANES, low, high), *([new] if new is not None else [])]
        parts += [f.filter(within) for f in found]
    columns = kernel.columns
    parts = [p.select(columns) for p in parts if p.height]
    panes = pl.concat(parts) if parts else kernel.no_panes()
    totals = shelf.read(TOTALS, -(2**63), END_OF_TIME) if before is not None else []
    return panes, pl.concat(totals) if totals else None


def oldest_slot(plan: Plan, subquery: str, closed: int | None) -> int:
    """Give the first time slot that a head still needs once windows up to `closed` are closed."""
    head = plan.step(subquery)
    if closed is None or not isinstance(head, steps.Aggregate) or not isinstance(head.window, Sliding):
        return -(2**63)
    return END_OF_TIME if closed == END_OF_TIME else Panes.of(head.window).first_pane_after(closed)
