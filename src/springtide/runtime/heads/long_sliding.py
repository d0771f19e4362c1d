"""Aggregates over long windows of time whose functions cannot be taken back (min, max, collect, …): panes and blocks of panes in state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from springtide.kernels.blocks import LEAST, Blocks, Range
from springtide.kernels.sliding import FIRST, LAST, PANE
from springtide.query import steps
from springtide.query.types import END_OF_TIME
from springtide.runtime.heads.head import Head, Kind, Shelf
from springtide.runtime.heads.sliding import PANES, SlidingHead, block_kind
from springtide.state.manifest import Marks


def sliding_head(step: steps.Aggregate, buckets: int) -> Head:
    """Give the head for a window of time: with totals where they can be kept, with blocks where they help."""
    head = SlidingHead(step, buckets)
    return LongSlidingHead(step, buckets) if not head.kernel.totals_kept and head.kernel.panes.size >= LEAST else head


class LongSlidingHead(SlidingHead):
    """A windowed aggregate with blocks."""

    def __init__(self, step: steps.Aggregate, buckets: int) -> None:
        """Prepare the kernel."""
        super().__init__(step, buckets)
        self._blocks = Blocks(self.kernel.panes)
        self.kinds = {PANES: self.kinds[PANES]} | {block_kind(level): Kind(slot=PANE) for level in self._blocks.levels}

    def oldest(self, marks: Marks) -> Mapping[str, int]:
        """Blocks are needed as long as a window that is open has all of their panes."""
        return {name: first for first in super().oldest(marks).values() for name in self.kinds}

    def _close(
        self, shelf: Shelf, new: pl.DataFrame | None, closed: int | None, upto: int
    ) -> tuple[pl.DataFrame, dict[str, pl.DataFrame]]:
        """Merge the blocks that are complete now; put windows together from blocks."""
        last, made = self._last(shelf, new, upto), {0: new}
        if last is None:
            return self.kernel.no_windows(), {}
        parts: list[pl.DataFrame] = []
        for level in range(self._blocks.levels[-1] + 1):
            if level > 0:
                halves = self._read(shelf, level - 1, [self._blocks.completed(level, closed, upto)], made[level - 1])
                made[level] = (
                    self.kernel.merge_blocks(halves, self._blocks.above(level)) if halves is not None else None
                )
            rows = self._read(shelf, level, self._blocks.needed(level, closed, last), made[level])
            if rows is not None:
                parts.append(rows.with_columns(self._windows(level, closed, last)))
        rows = self.kernel.put_together(pl.concat(parts)) if parts else self.kernel.no_windows()
        return rows, {block_kind(level): blocks for level, blocks in made.items() if level > 0 and blocks is not None}

    def _windows(self, level: int, closed: int | None, last: int) -> list[pl.Expr]:
        """Say for which of the windows that are closed now a block of a level is needed."""
        if closed == last - 1:  # only such blocks were read
            return [pl.lit(last, dtype=pl.Int64).alias(name) for name in (FIRST, LAST)]
        first, final = self._blocks.windows(level)
        first = first if closed is None else pl.max_horizontal(first, closed + 1)
        return [first.alias(FIRST), pl.min_horizontal(final, last).alias(LAST)]

    def _last(self, shelf: Shelf, new: pl.DataFrame | None, upto: int) -> int | None:
        """Do not go past the last window that can have anything in it: at the end of the input time is without bound."""
        if upto != END_OF_TIME:
            return upto
        found = [s.high for s in shelf.state.segments if s.kind == PANES]
        found += [] if new is None or not new.height else [int(new[PANE].max())]  # type: ignore[arg-type]
        return self.kernel.panes.last_window(max(found)) if found else None

    def _read(
        self, shelf: Shelf, level: int, ranges: Sequence[Range], made: pl.DataFrame | None
    ) -> pl.DataFrame | None:
        """Give blocks of a level, from state and from those made now; None for none."""
        parts = []
        for low, high in (r for r in ranges if r[0] < r[1]):
            found = [*shelf.read(block_kind(level), low, high), *([made] if made is not None else [])]
            parts += [
                f.filter((pl.col(PANE) >= low) & (pl.col(PANE) < high)).select(self.kernel.columns) for f in found
            ]
        parts = [p for p in parts if p.height]
        return pl.concat(parts) if parts else None
