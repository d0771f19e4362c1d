"""Aggregates over windows of time: panes in state, running totals where they can be kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from springtide.compiler.plan import Exchange, Hash
from springtide.exchange import gate, order
from springtide.exchange.hashing import bucket_of
from springtide.exchange.routing import Numbering
from springtide.operators.aggregates.partials import divided
from springtide.operators.operator import Clock, Operator, OperatorResult, earlier
from springtide.operators.sliding.kernel import PANE, SlidingAggregate, between
from springtide.operators.state_view import StateView
from springtide.operators.tables import StateTable
from springtide.query import steps
from springtide.query.types import END_OF_TIME, WINDOW_START
from springtide.state.manifest import Marks, SubqueryState

PANES = "panes"
TOTALS = "totals"
CLOSED = "window"
"""The mark: the number of the last window that was closed."""
TOTALED = "totals"
"""The mark that there are totals of functions for which older versions kept none."""
FIRST = "first window"
"""The mark of a new owner that has closed nothing yet: windows before this one belong to the old owner."""


def block_table(level: int) -> str:
    """Return the name of the table of merged blocks of 2^level panes."""
    return f"blocks{level}" if level else PANES


class SlidingOperator(Operator):
    """A windowed aggregate."""

    windowed = True

    def __init__(self, step: steps.Aggregate, buckets: int) -> None:
        """Prepare the kernel."""
        self.kernel, self._buckets, self._step = SlidingAggregate(step), buckets, step
        self._columns = list(step.inputs[0].schema)
        self.tables = {
            PANES: StateTable(slot=PANE, fold=self.kernel.merge),
            TOTALS: StateTable(whole=True, derived=True),
        }

    def adapted(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Convert partial results of an older version to digits."""
        return self.kernel.partials.adapted(rows)

    def send(self, exchange: Exchange, tuples: pl.LazyFrame, numbering: Numbering) -> pl.LazyFrame:
        """Send partial results per key and pane."""
        if exchange.ordered:
            tuples = tuples.with_columns(order.content(self._columns))
        keys = exchange.routing.keys if isinstance(exchange.routing, Hash) else ()
        return self.kernel.combine(tuples).with_columns(bucket_of(keys, self._buckets))

    def run(self, view: StateView, arrived: Sequence[pl.DataFrame | None], clock: Clock) -> OperatorResult:
        """Add partial results to panes, and close the windows that have ended by now."""
        kernel, before = self.kernel, view.marks.get(CLOSED)
        new = arrived[0]
        if new is not None:  # a pane that is a window by itself is merged when it is closed
            new = new.select(kernel.columns) if kernel.panes.size == 1 else kernel.merge(new)
        rows, marks = kernel.no_windows(), dict(view.marks)
        writes: dict[str, pl.DataFrame] = {}
        upto = kernel.panes.last_closed(clock.time) if clock.time != gate.BEGINNING else None
        first, last = marks.get(FIRST), view.last_window
        if upto is not None and last is not None:
            upto = min(upto, last)
        if upto is not None and (upto > before if before is not None else first is None or upto >= first):
            marks |= {CLOSED: upto} | ({TOTALED: 1} if kernel.totals_are_new else {})
            marks.pop(FIRST, None)
            rows, writes = self._close(view, new, before, upto)
            if first is not None:  # earlier ones belong to the old owner
                rows = rows.filter(pl.col(WINDOW_START).to_physical() >= kernel.panes.start(first))
        if new is not None:
            writes[PANES] = new
        oldest = self.oldest(marks)
        kept = {n: between(w, oldest[n], END_OF_TIME + 1) if n in oldest else w for n, w in writes.items()}
        if PANES in kept and kernel.panes.size == 1:
            kept[PANES] = kernel.merge(kept[PANES])
        rows, rejected = divided(self._step, rows)
        return OperatorResult(rows, marks, kept, rejected)

    def within(self, windows: tuple[int | None, int | None]) -> pl.Expr:
        """Return an expression that selects the panes needed for some windows."""
        low, high = self.kernel.panes.range_of(*windows)
        return (pl.col(PANE) >= low) & (pl.col(PANE) < high)

    def beginning(self, first: int) -> Marks:
        """Return the marks of a new owner."""
        return {FIRST: first}

    def last_begun(self, state: SubqueryState) -> int | None:
        """Return the last window that has a pane in state."""
        panes = [s.high for s in state.segments if s.kind == PANES]
        return self.kernel.panes.last_window(max(panes)) if panes else None

    def expired(self, marks: Marks, arrived: Sequence[pl.DataFrame | None]) -> int:
        """Count the partial results whose panes belong to a closed window."""
        closed = marks.get(CLOSED)
        if closed is None or closed == END_OF_TIME:
            return 0
        return earlier(arrived[0], PANE, self.kernel.panes.range_of(closed, closed)[1])

    def oldest(self, marks: Marks) -> Mapping[str, int]:
        """Return what is still needed: panes from the first open window on."""
        if CLOSED not in marks:
            return {}
        closed = marks[CLOSED]
        first = END_OF_TIME if closed == END_OF_TIME else self.kernel.panes.first_pane_after(closed)
        blocks = range(1, self.kernel.panes.size.bit_length()) if self.kernel.totals_are_new else ()
        return {PANES: first} | {block_table(level): first for level in blocks}

    def _close(
        self, view: StateView, new: pl.DataFrame | None, closed: int | None, upto: int
    ) -> tuple[pl.DataFrame, dict[str, pl.DataFrame]]:
        """Close the windows after `closed` up to `upto`; return their rows and the state to be written."""
        rows, totals = self.kernel.close(closed, upto, *self._needed(view, new, closed, upto))
        return rows, {TOTALS: totals if totals is not None else pl.DataFrame()}

    def _needed(
        self, view: StateView, new: pl.DataFrame | None, before: int | None, upto: int
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Read the panes and totals that are needed to close windows."""
        kernel, parts = self.kernel, []
        for low, high in kernel.panes_to_close(before, upto):
            found = [*view.read(PANES, low, high), *([new] if new is not None else [])]
            parts += [between(f, low, high) for f in found]
        parts = [p[kernel.columns] for p in parts if p.height]
        panes = pl.concat(parts) if parts else kernel.no_panes()
        if before is None:
            return panes, None
        if kernel.totals_are_new and TOTALED not in view.marks:
            low, high = kernel.panes_in_totals(before)
            parts = [between(f, low, high)[kernel.columns] for f in view.read(PANES, low, high)]
            return panes, kernel.totals_of(pl.concat(parts)) if parts else None
        totals = view.read(TOTALS)
        return panes, pl.concat(totals) if totals else None
