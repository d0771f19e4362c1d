"""Windows over consecutive rows: all of the same length, each beginning at some row.

row       0 1 2 3 4 5 6 7          length 5 = 4 + 1
window    └───────┘                merged from rows 0–3, made once for all windows, and row 4
            └───────┘
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import polars as pl

from springtide.operators.aggregates.partials import Partials

CELLS = 4_000_000
"""How many rows × windows are processed at once."""
_WINDOW = "__window"


def merge_runs(partials: Partials, rows: pl.DataFrame, starts: np.ndarray, length: int) -> pl.DataFrame:
    """Merge partial rows `start … start + length - 1` of each window into one.

    Additive results are differences of running sums. Otherwise each window is put together either from its rows, or from runs of 2, 4, 8, …
    rows, which are made once per length for all windows: whichever is less work.
    """
    rows = rows.select(partials.columns)
    if length == 1:
        return rows[starts]
    if partials.additive:
        sums = {c: pl.Series(_differences(v, starts, length)) for c, v in partials.spread_out(rows).items()}
        return pl.DataFrame(partials.taken_in(sums))
    doublings = length.bit_length() - 1
    if starts.size * length <= 2 * doublings * rows.height:
        return gathered(partials, rows, starts, length, partials.merge)
    return _doubled(partials, rows, starts, length)


def gathered(
    partials: Partials,
    rows: pl.DataFrame,
    starts: np.ndarray,
    length: int,
    fold: Callable[[pl.LazyFrame, list[str | pl.Expr]], pl.LazyFrame],
) -> pl.DataFrame:
    """Copy the rows of each window and fold them into one partial row per window."""
    results = []
    for numbers, members in members_of(starts, length):
        copies = rows[members].with_columns(pl.Series(_WINDOW, np.repeat(numbers, length)))
        results.append(fold(copies.lazy(), [_WINDOW]).sort(_WINDOW).select(partials.columns).collect())
    return pl.concat(results)


def members_of(starts: np.ndarray, length: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the numbers of some windows and the rows of all of them, one window after another; a bounded number of rows at a time."""
    step = max(1, CELLS // length)
    for low in range(0, max(1, starts.size), step):
        part = starts[low : low + step]
        yield np.arange(low, low + part.size), (part[:, None] + np.arange(length)).ravel()


def _differences(values: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    sums = np.zeros(values.size + 1, dtype=values.dtype)
    np.cumsum(values, out=sums[1:])
    result: np.ndarray = sums[starts + length] - sums[starts]  # wraps around just as the sums did
    return result


def _doubled(partials: Partials, rows: pl.DataFrame, starts: np.ndarray, length: int) -> pl.DataFrame:
    """Split each window into runs whose lengths are powers of two."""
    pieces, at, runs = [], starts, rows
    for level in range(length.bit_length()):
        if length >> level & 1:
            pieces.append(runs[at])
            at = at + (1 << level)
        if length >> level > 1:
            pairs = np.arange(max(0, runs.height - (1 << level)))
            both = pl.concat([runs[pairs], runs[pairs + (1 << level)]])
            numbers = pl.Series(_WINDOW, np.tile(pairs, 2))
            runs = partials.merge(both.with_columns(numbers).lazy(), [_WINDOW]).sort(_WINDOW).collect().drop(_WINDOW)
    numbers = pl.Series(_WINDOW, np.tile(np.arange(starts.size), len(pieces)))
    whole = pl.concat(pieces).with_columns(numbers).lazy()
    return partials.merge(whole, [_WINDOW]).sort(_WINDOW).select(partials.columns).collect()
