"""State of which the newest version of a key counts: rows with `__hash` and `__version`, found by hash, folded when segments are merged.

A head that changes what it has of a key writes all of it again, as the version of this epoch; a key of which nothing is left is
written as one row that is not `__alive`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from springtide.kernels.hashing import HASH
from springtide.runtime.heads.head import Kind, Shelf

VERSION = "__version"
"""The epoch that wrote a row."""


def keyed(keys: Sequence[str]) -> Kind:
    """Make a kind of state with versions of keys."""
    return Kind(fold=lambda rows: newest(rows, keys))


def newest(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Keep the rows of each key's newest version."""
    last = rows.group_by(HASH, *keys).agg(pl.col(VERSION).max())
    return rows.join(last, on=[HASH, *keys, VERSION], how="semi", nulls_equal=True)


def find(shelf: Shelf, kind: str, hashes: pl.Series, keys: Sequence[str]) -> pl.DataFrame | None:
    """Give the newest rows of all keys with one of these hashes; None for nothing."""
    wanted = np.unique(hashes.to_numpy())
    found = shelf.lookup(kind, wanted) if wanted.size else []
    return newest(pl.concat(found), keys) if found else None


def versioned(rows: pl.DataFrame, shelf: Shelf) -> pl.DataFrame:
    """Mark rows as the version of this epoch."""
    return rows.with_columns(pl.lit(shelf.epoch.number, dtype=pl.Int64).alias(VERSION))
