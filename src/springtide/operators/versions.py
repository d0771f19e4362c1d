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
    hashes = rows[HASH].to_numpy()
    places = np.argsort(
        hashes, kind="stable"
    )  # segments are sorted: their runs are merged, which is quicker than to sort
    ordered = hashes[places]
    again = np.flatnonzero(ordered[1:] == ordered[:-1])  # the next row has the same hash
    older, newer = places[again], places[again + 1]
    if not _have_one_key(rows, keys, older, newer):  # two keys share a hash: rare
        rows = rows[places]
        last = rows.group_by(HASH, *keys).agg(pl.col(VERSION).max())
        return rows.join(last, on=[HASH, *keys, VERSION], how="semi", nulls_equal=True, maintain_order="left")
    versions = rows[VERSION].to_numpy()
    if (versions[newer] > versions[older]).all():  # as it is unless a small segment has older rows than a large one
        last_of_run = np.ones(places.size, dtype=bool)
        last_of_run[again] = False
        places = places[last_of_run]
    else:
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        greatest = np.maximum.reduceat(versions[places], starts)
        places = places[versions[places] == np.repeat(greatest, np.diff(starts, append=places.size))]
    return rows[places].with_columns(pl.col(HASH).set_sorted())


def _have_one_key(rows: pl.DataFrame, keys: Sequence[str], some: np.ndarray, others: np.ndarray) -> bool:
    """Return whether rows with the same hash have the same key, pair by pair."""
    return all((rows[key][some].eq_missing(rows[key][others])).all() for key in keys)


def find(view: StateView, table: str, hashes: pl.Series, keys: Sequence[str]) -> pl.DataFrame | None:
    """Return the newest rows of all keys with one of these hashes; None if there are none."""
    wanted = np.sort(hashes.to_numpy(), kind="stable")  # mostly sorted already; np.unique would not benefit from that
    wanted = wanted[np.append(True, wanted[1:] != wanted[:-1])] if wanted.size else wanted
    found = view.lookup(table, wanted) if wanted.size else []
    return newest(pl.concat(found), keys) if found else None


def versioned(rows: pl.DataFrame, view: StateView) -> pl.DataFrame:
    """Mark rows as the version of this epoch."""
    return rows.with_columns(pl.lit(view.epoch.number, dtype=pl.Int64).alias(VERSION))
