"""What user operators need from frames: tuples brought to the states that they belong to, in the total order (ST-2, ST-4).

tuples of an instance         a x   b y   a z         each key's tuples go into one run, in the total order
in runs by key                a x   a z   b y         a run, and what is known about its key, is the work of one state
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from springtide.exchange import order
from springtide.exchange.hashing import BUCKET, HASH, bucket_of_hash, hash_of
from springtide.exchange.routing import BUCKETS
from springtide.query.operators import OWN_KEYS

KEY = "__key"
"""The single key of a tuple that was made from one with several keys."""
_ROW = "__row"


def to_each_key(tuples: pl.DataFrame, column: str, buckets: int, own: np.ndarray) -> pl.DataFrame:
    """Turn each tuple with a list of keys into one tuple per distinct key whose bucket is ours (`own[bucket]`)."""
    pairs = _pairs(tuples, column, buckets, own)
    return _with(tuples, pairs.with_columns(pl.concat_list(KEY).alias(OWN_KEYS)))


def to_each_bucket(tuples: pl.DataFrame, column: str, buckets: int, own: np.ndarray) -> pl.DataFrame:
    """Turn each tuple with a list of keys into one tuple per bucket that is ours, with the distinct keys that it has there."""
    pairs = _pairs(tuples, column, buckets, own)
    together = pairs.group_by(_ROW, BUCKET, maintain_order=True).agg(pl.col(KEY).alias(OWN_KEYS))
    return _with(tuples, together)


def one_key_each(tuples: pl.DataFrame) -> pl.DataFrame:
    """Turn each tuple into one for each of its own keys."""
    return tuples.explode(OWN_KEYS).with_columns(pl.concat_list(OWN_KEYS).alias(OWN_KEYS))


def _pairs(tuples: pl.DataFrame, column: str, buckets: int, own: np.ndarray) -> pl.DataFrame:
    """Return pairs of a tuple's number and one of its keys, in the order of the tuples and of their lists."""
    numbered = tuples.select(pl.col(column).alias(KEY)).with_row_index(_ROW)
    pairs = numbered.explode(KEY).unique([_ROW, KEY], keep="first", maintain_order=True)
    pairs = pairs.with_columns(hash_of([KEY])).with_columns(bucket_of_hash(pl.col(HASH), buckets))
    return pairs.filter(pl.Series(own[pairs[BUCKET].to_numpy()]))


def _with(tuples: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    return tuples.drop(BUCKETS)[pairs[_ROW]].hstack(pairs.drop(_ROW))


def in_runs(tuples: pl.DataFrame, keys: Sequence[str], content: Sequence[str]) -> tuple[pl.DataFrame, np.ndarray]:
    """Bring the tuples of each key together, in the total order within each key; return them and the first row of every run."""
    rows = order.arrange(tuples, content).sort(HASH, maintain_order=True)
    starts, collision = runs(rows, keys)
    if collision:
        rows = order.arrange(tuples, content).sort([HASH, *keys], maintain_order=True)
        starts, _ = runs(rows, keys)
    return rows, starts


def runs(rows: pl.DataFrame, keys: Sequence[str]) -> tuple[np.ndarray, bool]:
    """Return the first row of every run of a key in rows sorted by hash, and whether two keys share a hash."""
    hashes = rows[HASH].to_numpy()
    first = changes(hashes)
    other = (
        rows.select(pl.any_horizontal([pl.col(k).ne_missing(pl.col(k).shift(1)) for k in keys])).to_series().to_numpy()
    )
    new = first | other
    new[:1] = True
    return np.flatnonzero(new), bool((new & ~first).any())


def changes(values: np.ndarray) -> np.ndarray:
    """Return for each value whether it differs from the previous one; the first one always does."""
    new = np.ones(values.size, dtype=bool)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return new
