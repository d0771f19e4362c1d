"""Aggregates over long windows of time whose functions cannot be subtracted (min, max, collect, …): panes and blocks of panes in state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from springtide.operators.operator import Operator
from springtide.operators.sliding.blocks import LEAST, Blocks, Range
from springtide.operators.sliding.kernel import FIRST, LAST, PANE
from springtide.operators.sliding.operator import PANES, SlidingOperator, block_table
from springtide.operators.state_view import StateView
from springtide.operators.tables import StateTable
from springtide.query import steps
from springtide.query.types import END_OF_TIME
from springtide.state.manifest import Marks


def sliding_operator(step: steps.Aggregate, buckets: int) -> Operator:
    """Return the operator for a window of time: with totals where these can be kept, with blocks where these help."""
    plain = SlidingOperator(step, buckets)
    return (
        LongSlidingOperator(step, buckets)
        if not plain.kernel.totals_kept and plain.kernel.panes.size >= LEAST
        else plain
    )


class LongSlidingOperator(SlidingOperator):
    """A windowed aggregate with blocks."""

    def __init__(self, step: steps.Aggregate, buckets: int) -> None:
        """Prepare the kernel."""
        super().__init__(step, buckets)
        self._blocks = Blocks(self.kernel.panes)
        self.tables = {PANES: self.tables[PANES]} | {
            block_table(level): StateTable(slot=PANE, derived=True) for level in self._blocks.levels
        }

    def oldest(self, marks: Marks) -> Mapping[str, int]:
        """Return what is still needed: blocks are, as long as an open window contains all of their panes."""
        return {name: first for first in super().oldest(marks).values() for name in self.tables}

    def _close(
        self, view: StateView, new: pl.DataFrame | None, closed: int | None, upto: int
    ) -> tuple[pl.DataFrame, dict[str, pl.DataFrame]]:
        """Merge the blocks that are now complete; put windows together from blocks."""
        last, made = self._last(view, new, upto), {0: new}
        if last is None:
            return self.kernel.no_windows(), {}
        parts: list[pl.DataFrame] = []
        for level in range(self._blocks.levels[-1] + 1):
            if level > 0:
                halves = self._read(view, level - 1, [self._blocks.completed(level, closed, upto)], made[level - 1])
                made[level] = (
                    self.kernel.merge_blocks(halves, self._blocks.above(level)) if halves is not None else None
                )
            rows = self._read(view, level, self._blocks.needed(level, closed, last), made[level])
            if rows is not None:
                parts.append(rows.with_columns(self._windows(level, closed, last)))
        rows = self.kernel.put_together(pl.concat(parts)) if parts else self.kernel.no_windows()
        return rows, {block_table(level): blocks for level, blocks in made.items() if level > 0 and blocks is not None}

    def _windows(self, level: int, closed: int | None, last: int) -> list[pl.Expr]:
        """Return which of the windows being closed need a block of this level."""
        if closed == last - 1:  # only such blocks were read
            return [pl.lit(last, dtype=pl.Int64).alias(name) for name in (FIRST, LAST)]
        first, final = self._blocks.windows(level)
        first = first if closed is None else pl.max_horizontal(first, closed + 1)
        return [first.alias(FIRST), pl.min_horizontal(final, last).alias(LAST)]

    def _last(self, view: StateView, new: pl.DataFrame | None, upto: int) -> int | None:
        """Do not go past the last window that can have anything in it: at the end of the input, time is unbounded."""
        if upto != END_OF_TIME:
            return upto
        found = [s.high for s in view.state.segments if s.kind == PANES]
        found += [] if new is None or not new.height else [int(new[PANE].max())]  # type: ignore[arg-type]
        return self.kernel.panes.last_window(max(found)) if found else None

    def _read(
        self, view: StateView, level: int, ranges: Sequence[Range], made: pl.DataFrame | None
    ) -> pl.DataFrame | None:
        """Return blocks of a level, from state and from those made now; None if there are none."""
        parts = []
        for low, high in (r for r in ranges if r[0] < r[1]):
            found = [*view.read(block_table(level), low, high), *([made] if made is not None else [])]
            parts += [
                f.filter((pl.col(PANE) >= low) & (pl.col(PANE) < high)).select(self.kernel.columns) for f in found
            ]
        parts = [p for p in parts if p.height]
        return pl.concat(parts) if parts else None
