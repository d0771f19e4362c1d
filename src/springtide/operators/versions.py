"""State in which the newest version of a key counts: rows with `__hash` and `__version`, found by hash, folded when segments are merged.

An operator that changes anything about a key writes everything about it again, as this epoch's version. A key with nothing left is written
as one row that is not `__alive`, which is kept until it has been merged with everything older.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from springtide.exchange.hashing import HASH
from springtide.operators.state_view import StateView
from springtide.operators.tables import ALIVE, VERSION, StateTable

__all__ = ["ALIVE", "VERSION", "find", "keyed", "newest", "versioned"]


def keyed(keys: Sequence[str]) -> StateTable:
    """Make a table with versions of keys."""
    return StateTable(slot=VERSION, fold=lambda rows: newest(rows, keys), versions=True)


def newest(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Keep the rows of each key's newest version, sorted by hash."""
    if not rows.height:
        return rows
    rows = rows.sort(HASH, maintain_order=True)
    hashes, versions = rows[HASH].to_numpy(), rows[VERSION].to_numpy()
    starts = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
    lengths = np.diff(starts, append=rows.height)
    if not _one_key_each(rows, keys, starts):  # two keys share a hash: rare
        last = rows.group_by(HASH, *keys).agg(pl.col(VERSION).max())
        return rows.join(last, on=[HASH, *keys, VERSION], how="semi", nulls_equal=True, maintain_order="left")
    return rows.filter(versions == np.repeat(np.maximum.reduceat(versions, starts), lengths))


def _one_key_each(rows: pl.DataFrame, keys: Sequence[str], starts: np.ndarray) -> bool:
    """Return whether rows with the same hash have the same key; the runs of equal hashes begin at `starts`."""
    if not keys or starts.size == rows.height:
        return True
    other = rows.select(pl.any_horizontal([pl.col(k).ne_missing(pl.col(k).shift(1)) for k in keys])).to_series()
    inside = other.to_numpy(writable=True)
    inside[starts] = False
    return not inside.any()


def find(view: StateView, table: str, hashes: pl.Series, keys: Sequence[str]) -> pl.DataFrame | None:
    """Return the newest rows of all keys with one of these hashes; None if there are none."""
    wanted = np.sort(hashes.to_numpy(), kind="stable")  # mostly sorted already; np.unique would not benefit from that
    wanted = wanted[np.append(True, wanted[1:] != wanted[:-1])] if wanted.size else wanted
    found = view.lookup(table, wanted) if wanted.size else []
    return newest(pl.concat(found), keys) if found else None


def versioned(rows: pl.DataFrame, view: StateView) -> pl.DataFrame:
    """Mark rows as the version of this epoch."""
    return rows.with_columns(pl.lit(view.epoch.number, dtype=pl.Int64).alias(VERSION))
