"""Windowed aggregates over time: panes in, closed windows out.

A window of `size` every `every` is cut into panes of gcd(size, every). State has one partial result per key and pane, never one
per window. A window is closed once, when the merged time has reached its end; no tuple can fall into its panes after that.

    pane       0   1   2   3   4   5   6          size 3 panes, every 1 pane
    window 0   └───────────┘
    window 1       └───────────┘                  from window 0 to window 1: pane 3 enters, pane 0 leaves

If every partial column is an integer that adds up (sums of floats are made of integers too), the sums of the next window (minus what leaves) are kept as totals, and
closing a window reads only the panes that enter or leave. Otherwise each closed window is merged from its panes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from springtide.exchange import order
from springtide.exchange.hashing import BUCKET, bucket_of
from springtide.operators.aggregates.partials import ROWS, Partials
from springtide.operators.sliding.running import Changes, running_sums
from springtide.query.steps import Aggregate
from springtide.query.types import END_OF_TIME, TIME, TS, WINDOW_END, WINDOW_START
from springtide.query.windows import Sliding

PANE = "__pane"
FIRST, LAST = "__first", "__last"
"""The first and the last window that a partial row is part of."""
_WINDOW = "__window"
_ID = "__id"
_CELLS = 4_000_000
"""How many rows of windows are put together at once."""


@dataclass(frozen=True)
class Panes:
    """The geometry of a window, with everything counted in panes."""

    width: int
    """The width of a pane in microseconds."""
    size: int
    every: int

    @staticmethod
    def of(window: Sliding) -> Panes:
        """Cut a window into panes."""
        width = math.gcd(window.size, window.every)
        return Panes(width, window.size // width, window.every // width)

    def last_closed(self, merged_time: int) -> int:
        """Return the number of the last window that ends at or before this time."""
        if merged_time == END_OF_TIME:
            return END_OF_TIME
        return (merged_time // self.width - self.size) // self.every

    def first_pane_after(self, window: int) -> int:
        """Return the first pane of the window after this one: earlier panes are no longer needed."""
        return (window + 1) * self.every

    def start(self, window: int) -> int:
        """Return the time at which a window starts."""
        return window * self.every * self.width

    def range_of(self, first: int | None, last: int | None) -> tuple[int, int]:
        """Return the panes `low ≤ pane < high` of the windows from the first to the last; None means no bound."""
        low = -(2**63) if first is None else first * self.every
        return low, END_OF_TIME if last is None else last * self.every + self.size

    def first_window(self, pane: int) -> int:
        """Return the first window that contains this pane."""
        return (pane - self.size) // self.every + 1

    def last_window(self, pane: int) -> int:
        """Return the last window that contains this pane."""
        return pane // self.every


class SlidingAggregate:
    """The kernel of one windowed aggregate step."""

    def __init__(self, step: Aggregate) -> None:
        """Prepare the expressions."""
        assert isinstance(step.window, Sliding)
        self.panes = Panes.of(step.window)
        self.partials = Partials(step.aggregates)
        self.keys = list(step.by)
        self.totals_kept = self.partials.additive and self.panes.size > self.panes.every
        self.totals_are_new = self.totals_kept and self.partials.additive_now
        """Whether older versions kept no totals."""
        self.schema = step.schema
        self._groups = [BUCKET, *self.keys]
        self.columns = [*self._groups, PANE, *self.partials.columns]
        """The columns of pane rows."""
        self._input = step.inputs[0].schema
        self._nothing = pl.DataFrame(schema={**step.schema, **dict.fromkeys(self.partials.hidden, pl.String())})

    def combine(self, tuples: pl.LazyFrame) -> pl.LazyFrame:
        """Fold tuples into partial results per key and pane. This runs before the exchange, where buckets are added."""
        pane = pl.col(TS).dt.epoch("us") // self.panes.width if self.panes.width > 1 else pl.col(TS).dt.epoch("us")
        return self.partials.add(tuples, [*self.keys, pane.alias(PANE)])

    def merge(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Merge what came from several senders or segments into one row per bucket, key and pane."""
        return self.partials.merge(rows.lazy(), [*self._groups, PANE]).collect()

    def merge_blocks(self, rows: pl.DataFrame, start: pl.Expr) -> pl.DataFrame:
        """Merge rows into one per bucket, key and block, where `start` is the start of the block."""
        return self.partials.merge(rows.lazy(), [*self._groups, start]).select(self.columns).collect()

    def panes_in_totals(self, closed: int) -> tuple[int, int]:
        """Return the panes `low ≤ pane < high` whose sums are the totals once window `closed` is closed."""
        return (closed + 1) * self.panes.every, closed * self.panes.every + self.panes.size

    def totals_of(self, panes: pl.DataFrame) -> pl.DataFrame:
        """Add up panes to totals."""
        columns = [c for c in self.columns if c != PANE]
        return self.partials.merge(panes.lazy(), self._groups).select(columns).collect()

    def no_panes(self) -> pl.DataFrame:
        """Return an empty frame of pane rows."""
        tuples = pl.LazyFrame(schema=self._input)
        if self.partials.ordered:
            tuples = tuples.with_columns(*order.of_step(0), order.content(list(self._input)))
        return self.combine(tuples).with_columns(bucket_of([], 1)).select(self.columns).collect()

    def panes_to_close(self, closed: int | None, upto: int) -> list[tuple[int, int]]:
        """Return the ranges of panes `low ≤ pane < high` that are needed to close the windows up to `upto`."""
        size, every = self.panes.size, self.panes.every
        end = END_OF_TIME if upto == END_OF_TIME else upto * every + size
        if closed is None:
            return [(-(2**63), end)]
        if not self.totals_kept:
            return [((closed + 1) * every, end)]
        gone, come = END_OF_TIME if upto == END_OF_TIME else (upto + 1) * every, closed * every + size
        if gone >= come:
            return [((closed + 1) * every, max(gone, end))]
        return [((closed + 1) * every, gone), (come, end)]

    def close(
        self, closed: int | None, upto: int, panes: pl.DataFrame, totals: pl.DataFrame | None
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Close the windows after `closed`, up to and including `upto`; return their rows and the totals for the next time.

        `panes` has (at least) the rows of those windows' panes that are not in `totals`, and of the panes in `totals` that
        leave; `closed` is None if no window was closed before.
        """
        last = self._last(upto, panes, totals)
        if last is None:
            return self.no_windows(), None
        if not self.totals_kept:
            return self._merged(closed, last, panes), None
        return self._running(closed, last, panes, totals)

    def _last(self, upto: int, panes: pl.DataFrame, totals: pl.DataFrame | None) -> int | None:
        """Do not go past the last window that has anything in it: at the end of the input, time is unbounded."""
        if panes.height == 0 and (totals is None or totals.height == 0):
            return None
        if upto != END_OF_TIME:
            return upto
        greatest = panes[PANE].max() if panes.height else None
        assert isinstance(greatest, int) or greatest is None
        # What is in the totals but not in the panes will have left once all panes have: totals hold no later pane.
        return self.panes.last_window(greatest) if isinstance(greatest, int) else None

    # ── merged from panes ─────────────────────────────────────────────────────────────────────────────────────────

    def _merged(self, closed: int | None, last: int, panes: pl.DataFrame) -> pl.DataFrame:
        geometry = self.panes
        pane = pl.col(PANE)
        first = (pane - geometry.size) // geometry.every + 1
        if closed is not None:
            first = pl.max_horizontal(first, pl.lit(closed + 1, dtype=pl.Int64))
        final = pl.min_horizontal(pane // geometry.every, pl.lit(last, dtype=pl.Int64))
        if geometry.size == geometry.every:
            rows = panes.lazy().with_columns((pane // geometry.every).alias(_WINDOW)).filter(pl.col(_WINDOW) <= last)
            return self._finished(self.partials.merge(rows, [*self._groups, _WINDOW]))
        return self.put_together(panes.with_columns(first.alias(FIRST), final.alias(LAST)))

    def put_together(self, parts: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of windows, given partial rows that are each part of the windows from `FIRST` to `LAST`."""
        parts = parts.filter(pl.col(FIRST) <= pl.col(LAST))
        if not parts.height:
            return self.no_windows()
        copies = parts.select((pl.col(LAST) - pl.col(FIRST)).max() + 1).item()
        chunk = max(1, _CELLS // copies)
        results = []
        for part in _bucket_chunks(parts.sort(BUCKET) if parts.height > chunk else parts, chunk):
            window = (
                pl.col(FIRST).alias(_WINDOW) if copies == 1 else pl.int_ranges(FIRST, pl.col(LAST) + 1).alias(_WINDOW)
            )
            rows = part.lazy().with_columns(window).drop(FIRST, LAST)
            rows = rows if copies == 1 else rows.explode(_WINDOW)
            results.append(self._finished(self.partials.merge(rows, [*self._groups, _WINDOW])))
        return pl.concat(results)

    # ── running totals ────────────────────────────────────────────────────────────────────────────────────────────

    def _running(
        self, closed: int | None, last: int, panes: pl.DataFrame, totals: pl.DataFrame | None
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        geometry, partials = self.panes, self.partials
        before = totals if totals is not None else self._no_totals(panes)
        groups = pl.concat([before[self._groups], panes[self._groups]]).lazy()
        everyone = groups.unique().sort(BUCKET).with_row_index(_ID).collect()
        ids, totals_of = (self._numbers(frame, everyone) for frame in (panes, before))
        pane = panes[PANE].to_numpy()
        enters, leaves = (pane - geometry.size) // geometry.every + 1, pane // geometry.every + 1
        # What is already in the totals does not enter again; what was subtracted in advance does not leave again.
        entering = enters <= last if closed is None else (enters <= last) & (enters > closed)
        leaving = leaves <= last + 1 if closed is None else (leaves <= last + 1) & (leaves > closed + 1)
        windows = self._candidates(closed, last, panes[PANE].unique().to_numpy())
        grid = np.append(windows, last + 1)  # the last column: what leaves with the window after the last one
        values, known = partials.spread_out(panes), partials.spread_out(before)
        columns = list(values | known)
        changes = [
            Changes(totals_of, np.zeros_like(totals_of), known),
            _changed(ids, _places(grid, enters), values, entering),
            _changed(ids, _places(grid, leaves), values, leaving, sign=-1),
        ]
        results, kept = [], []
        for found, left in running_sums(changes, everyone.height, windows.size, ROWS):
            done, alive = (partials.taken_in({c: pl.Series(part.values[c]) for c in columns}) for part in (found, left))
            results.append(everyone[found.keys].hstack([pl.Series(_WINDOW, windows[found.windows]), *done]))
            kept.append(everyone[self._groups][left.keys].hstack(alive))
        return self._finished(pl.concat(results).lazy()), pl.concat(kept)

    def _numbers(self, rows: pl.DataFrame, everyone: pl.DataFrame) -> np.ndarray:
        """Return the numbers that the keys of rows have among all keys."""
        groups = self.keys or self._groups  # a key has one bucket
        numbers = everyone.select(*groups, _ID)
        found = rows.select(groups).join(numbers, on=groups, how="left", nulls_equal=True, maintain_order="left")
        return found[_ID].to_numpy().astype(np.int64)

    def _candidates(self, closed: int | None, last: int, panes: np.ndarray) -> np.ndarray:
        """Return the numbers of the windows after `closed` up to `last` that may have tuples, in order."""
        overlap = math.ceil(self.panes.size / self.panes.every)
        if closed is not None and last - closed <= overlap:
            return np.arange(closed + 1, last + 1)
        ranges = [np.arange(self.panes.first_window(int(p)), self.panes.last_window(int(p)) + 1) for p in panes]
        if closed is not None:  # what is in the totals may appear in the windows that follow directly
            ranges.append(np.arange(closed + 1, closed + overlap + 1))
        windows = np.unique(np.concatenate(ranges)) if ranges else np.empty(0, dtype=np.int64)
        return windows[(windows <= last) & (closed is None or windows > closed)]

    def _no_totals(self, panes: pl.DataFrame) -> pl.DataFrame:
        return panes.clear().drop(PANE)

    # ── both ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _finished(self, rows: pl.LazyFrame) -> pl.DataFrame:
        start = pl.col(_WINDOW) * (self.panes.every * self.panes.width)
        end = start + self.panes.size * self.panes.width
        keep: list[str | pl.Expr] = [
            (end - 1).cast(pl.Int64).cast(TIME).alias(TS),
            *self.keys,
            start.cast(pl.Int64).cast(TIME).alias(WINDOW_START),
            end.cast(pl.Int64).cast(TIME).alias(WINDOW_END),
        ]
        return self.partials.finish(rows, keep).collect()

    def no_windows(self) -> pl.DataFrame:
        """Return an empty frame of results."""
        return self._nothing


def between(rows: pl.DataFrame, low: int, high: int) -> pl.DataFrame:
    """Return the rows of panes `low ≤ pane < high`; usually that is all or none of them, and the least and the greatest pane are enough to tell."""
    panes = rows[PANE]
    least, greatest = panes.min(), panes.max()
    if least is None or least >= high or greatest < low:  # type: ignore[operator]
        return rows.clear()
    if least >= low and greatest < high:  # type: ignore[operator]
        return rows
    return rows.filter((pl.col(PANE) >= low) & (pl.col(PANE) < high))


def _bucket_chunks(rows: pl.DataFrame, chunk: int) -> list[pl.DataFrame]:
    """Cut rows sorted by bucket into parts of about `chunk` rows, never within a key of a bucket."""
    if rows.height <= chunk:
        return [rows] if rows.height else []
    lengths = rows[BUCKET].rle().struct.unnest()["len"].to_list()
    parts, start, length = [], 0, 0
    for n in lengths:
        if length and length + n > chunk:
            parts.append(rows[start : start + length])
            start, length = start + length, 0
        length += n
    return [*parts, rows[start : start + length]]


def _places(grid: np.ndarray, windows: np.ndarray) -> np.ndarray:
    """Return where windows are in a sorted grid that has them."""
    whole = int(grid[-1]) - int(grid[0]) + 1 == grid.size
    return windows - grid[0] if whole else np.searchsorted(grid, windows)


def _changed(
    keys: np.ndarray, windows: np.ndarray, values: dict[str, np.ndarray], which: np.ndarray, sign: Literal[1, -1] = 1
) -> Changes:
    if which.all():
        return Changes(keys, windows, values, sign)
    return Changes(keys[which], windows[which], {c: v[which] for c, v in values.items()}, sign)
