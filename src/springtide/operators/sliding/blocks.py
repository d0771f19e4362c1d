"""Blocks of panes: long windows of functions that cannot be subtracted are put together from a few partial results, not from every pane.

A block of level j has 2^j panes, starting at a multiple of 2^j. It is merged once, from its two halves, when its panes are complete. A window is
then put together from the largest blocks within it, at most two per level:

    pane      0   1   2   3   4   5   6   7   8   9  10  11
    level 1   └───────┘       └───────┘       └───────┘
    level 2   └───────────────┘               └───────────────┘
    window        ├───────────────────────────────────┤            = pane 1 + block 2–3 + block 4–7 + block 8–9

A block is one of the parts of a window if the window contains all of it but not all of the block above it. Those windows are consecutive, so each
block knows the first and the last of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from springtide.operators.sliding.kernel import PANE, Panes
from springtide.query.types import END_OF_TIME

LEAST = 8
"""Windows with fewer panes are put together from panes."""

Range = tuple[int, int]
"""Blocks that begin at `low ≤ pane < high`."""

_BEGINNING = -(2**63)


@dataclass(frozen=True)
class Blocks:
    """The blocks of a window, counted in panes. Panes are blocks of level 0."""

    panes: Panes

    @property
    def levels(self) -> range:
        """The levels above panes: the largest blocks are no larger than the window."""
        return range(1, self.panes.size.bit_length())

    def completed(self, level: int, closed: int | None, upto: int) -> Range:
        """Return the blocks of a level that are complete when the windows up to `upto` are closed, and were not yet complete after window `closed`."""
        low = _BEGINNING if closed is None else _end(self.panes, closed) >> level << level
        return low, END_OF_TIME if upto == END_OF_TIME else _end(self.panes, upto) >> level << level

    def needed(self, level: int, closed: int | None, last: int) -> list[Range]:
        """Return the blocks of a level that can be parts of the windows after `closed` up to `last`."""
        length, end = 1 << level, _end(self.panes, last) - (1 << level) + 1
        if closed is None:
            return [(_BEGINNING, end)]
        first = closed + 1
        if first == last:
            return [(start, start + 1) for start in self.parts(first).get(level, ())]
        start, inner = first * self.panes.every, last * self.panes.every + length
        outer = _end(self.panes, first) - 2 * length + 1
        if level == self.levels[-1] or inner >= outer:
            return [(start, end)]
        return [(start, min(inner, end)), (outer, end)]  # at the beginning of a window, and at its end

    def parts(self, window: int) -> dict[int, list[int]]:
        """Return the starts of the blocks that a window is put together from, by level."""
        found: dict[int, list[int]] = {}
        at, end = window * self.panes.every, _end(self.panes, window)
        while at < end:
            level = max(j for j in (0, *self.levels) if at % (1 << j) == 0 and at + (1 << j) <= end)
            found.setdefault(level, []).append(at)
            at += 1 << level
        return found

    def windows(self, level: int) -> tuple[pl.Expr, pl.Expr]:
        """Return the first and the last window that a block is part of; there may be none."""
        start, length = pl.col(PANE), 1 << level
        size, every = self.panes.size, self.panes.every
        first, last = (start + (length - size - 1)) // every + 1, start // every
        if level == self.levels[-1]:
            return first, last
        right = (start // length) & 1 == 1
        # For a right half, windows that begin within the left half or with the right one; for a left half, windows that end before the right one does.
        first = pl.when(right).then(pl.max_horizontal(first, (start - length) // every + 1)).otherwise(first)
        last = pl.when(right).then(last).otherwise(pl.min_horizontal(last, (start + (2 * length - size - 1)) // every))
        return first, last

    def above(self, level: int) -> pl.Expr:
        """Return the start of the block of a level that contains a smaller one."""
        return (pl.col(PANE) // (1 << level) * (1 << level)).alias(PANE)


def _end(panes: Panes, window: int) -> int:
    return window * panes.every + panes.size
