"""Running sums of keys over windows: what enters is added, what leaves is subtracted, and the sum stays as it is until the next change.

    window            0   1   2   3   4 │ after the last
    changes of a key     +5  +2      −5 │ −2
    its sums          ·   5   7   7   2 │ ·

Where most keys change at most windows, a grid of keys × windows is filled and added up (`_on_a_grid`). Where a key has tuples in few of the windows, nearly
all of that grid would be empty: then only the changes are sorted and added up (`_by_changes`). Both give the same rows in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import polars as pl

_CELLS = 4_000_000
"""How many cells of keys × windows are processed at once."""
_USUAL = 6
"""The number of columns that `_CELLS` is meant for; with more columns, fewer cells are processed at once."""
_EMPTY = 6
"""With more cells than this for each change, the grid costs more than sorting the changes."""


@dataclass(frozen=True)
class Changes:
    """Numbers that are added to the sums of keys (or subtracted from them), each from a window on; a column that is not there does not change."""

    keys: np.ndarray
    windows: np.ndarray
    values: Mapping[str, np.ndarray]
    sign: Literal[1, -1] = 1

    def of(self, low: int, high: int) -> Changes:
        """Return those of the keys `low ≤ key < high`, counted from `low` on."""
        its = (self.keys >= low) & (self.keys < high)
        values = {name: numbers[its] for name, numbers in self.values.items()}
        return Changes(self.keys[its] - low, self.windows[its], values, self.sign)


@dataclass(frozen=True)
class Sums:
    """The sums of keys: one number a row in each column."""

    keys: np.ndarray
    windows: np.ndarray
    values: dict[str, np.ndarray]


def running_sums(changes: Sequence[Changes], keys: int, windows: int, count: str) -> Iterator[tuple[Sums, Sums]]:
    """Give the sums of all keys in all windows in which the column `count` is above 0, by key and window, and those after the last window.

    They come in several parts, by key. A change may come after the last window too.
    """
    columns = list(dict.fromkeys(name for some in changes for name in some.values))
    if keys * (windows + 1) > _EMPTY * sum(some.keys.size for some in changes):
        yield _by_changes(changes, columns, windows, count)
        return
    step = max(1, _CELLS * _USUAL // (max(1, windows) * max(_USUAL, len(columns))))
    for low in range(0, keys, step):
        high = min(keys, low + step)
        own = changes if step >= keys else [some.of(low, high) for some in changes]
        shown, left = _on_a_grid(own, columns, high - low, windows, count)
        yield replace(shown, keys=shown.keys + low), replace(left, keys=left.keys + low)


def _on_a_grid(
    changes: Sequence[Changes], columns: Sequence[str], keys: int, windows: int, count: str
) -> tuple[Sums, Sums]:
    cells = [some.keys * (windows + 1) + some.windows for some in changes]
    totals = {}
    for name in columns:
        there = [(some, its) for some, its in zip(changes, cells, strict=True) if name in some.values]
        if not any(some.values[name].any() for some, _ in there):  # a digit that no number here has
            totals[name] = np.broadcast_to(np.int64(0), (keys, windows + 1))  # takes no memory
            continue
        grid = np.zeros((keys, windows + 1), dtype=np.int64)
        for some, its in there:
            (np.add if some.sign > 0 else np.subtract).at(grid.ravel(), its, some.values[name])
        totals[name] = np.cumsum(grid, axis=1, out=grid)
    key, window = np.nonzero(totals[count][:, :-1] > 0)
    (left,) = np.nonzero(totals[count][:, -1] > 0)
    return (
        Sums(key, window, {name: total[key, window] for name, total in totals.items()}),
        Sums(left, np.full(left.size, windows), {name: total[left, -1] for name, total in totals.items()}),
    )


def _by_changes(changes: Sequence[Changes], columns: Sequence[str], windows: int, count: str) -> tuple[Sums, Sums]:
    cells = np.concatenate([some.keys * (windows + 1) + some.windows for some in changes])
    order = pl.Series(cells).arg_sort().to_numpy()  # twice as fast as NumPy's
    cells = cells[order]
    ends = np.flatnonzero(np.append(cells[1:] != cells[:-1], cells.size > 0))  # of the changes in one cell
    key, window = np.divmod(cells[ends], windows + 1)
    last = np.append(key[1:] != key[:-1], key.size > 0)[: key.size]  # of a key
    until = np.where(last, windows, np.append(window[1:], windows)[: key.size])
    lengths = np.diff(np.flatnonzero(last), prepend=-1)
    totals = {}
    for name in columns:
        parts = [
            some.sign * some.values[name] if name in some.values else np.zeros(some.keys.size, dtype=np.int64)
            for some in changes
        ]
        # Added up over all keys: what came before a key is taken off again.
        added = np.cumsum(np.concatenate(parts)[order])[ends]
        before = np.append(np.int64(0), added[last])[:-1]
        totals[name] = added - np.repeat(before, lengths)
    shown = np.flatnonzero((totals[count] > 0) & (until > window))
    times = (until - window)[shown]
    rows = np.repeat(shown, times)
    steps = np.arange(rows.size) - np.repeat(np.cumsum(times) - times, times)
    left = np.flatnonzero(last & (totals[count] > 0))
    return (
        Sums(key[rows], window[rows] + steps, {name: total[rows] for name, total in totals.items()}),
        Sums(key[left], np.full(left.size, windows), {name: total[left] for name, total in totals.items()}),
    )
