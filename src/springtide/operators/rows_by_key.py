"""Rows lined up by key: the rows of a key stand next to each other, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from springtide.exchange.hashing import HASH


@dataclass(frozen=True)
class RowsByKey:
    """Rows grouped by key, in order within each key."""

    rows: pl.DataFrame
    starts: np.ndarray
    """The first row of each key."""

    @staticmethod
    def of(rows: pl.DataFrame, keys: Sequence[str]) -> RowsByKey:
        """Line rows up by key; the rows of a key keep their order."""
        rows = rows.sort(HASH, maintain_order=True)
        starts = _changes(rows, [HASH])
        if _changes(rows, [HASH, *keys]).size > starts.size:  # two keys share a hash
            rows = rows.sort([HASH, *keys], maintain_order=True)
            starts = _changes(rows, [HASH, *keys])
        return RowsByKey(rows, starts)

    @property
    def lengths(self) -> np.ndarray:
        """How many rows each key has."""
        return np.diff(self.starts, append=self.rows.height)

    @property
    def ends(self) -> np.ndarray:
        """The last row of each key."""
        return np.asarray(self.starts + self.lengths - 1)


def _changes(rows: pl.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """Return the numbers of the rows that differ from the previous row in at least one of these columns."""
    if not rows.height:
        return np.empty(0, dtype=np.int64)
    other = rows.select(pl.any_horizontal([pl.col(c).ne_missing(pl.col(c).shift()) for c in columns])).to_series()
    changes: np.ndarray = np.flatnonzero(other.to_numpy()[1:]) + 1
    return np.concatenate(([0], changes))
