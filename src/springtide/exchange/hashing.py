"""From keys to buckets."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache

import numpy as np
import polars as pl

BUCKET = "__bucket"
HASH = "__hash"
"""The hash of a tuple's keys, for operators that look keys up by it."""
_SEED = 20120601
_HALF = pl.lit(1 << 32, dtype=pl.UInt64)


def hash_of(keys: Sequence[str]) -> pl.Expr:
    """Return the hash of a tuple's keys; 0 without keys."""
    if not keys:
        return pl.lit(0, dtype=pl.UInt64).alias(HASH)
    key = pl.col(keys[0]) if len(keys) == 1 else pl.struct(keys)
    return hashed(key).alias(HASH)


def hashed(key: pl.Expr) -> pl.Expr:
    """Return the hash of one expression."""
    return key.hash(_SEED)


def bucket_of(keys: Sequence[str], buckets: int) -> pl.Expr:
    """Return the bucket of a tuple by its keys; 0 without keys."""
    return bucket_of_hash(hash_of(keys), buckets)


def bucket_of_hash(number: pl.Expr, buckets: int) -> pl.Expr:
    """Return the bucket of a hash: the hashes are cut into `buckets` ranges of equal size, so rows that are sorted by hash are sorted by bucket too."""
    return (number // _HALF * pl.lit(buckets, dtype=pl.UInt64) // _HALF).cast(pl.UInt16).alias(BUCKET)


def digest_of_rows(rows: pl.DataFrame) -> int:
    """Return a 64-bit number that depends on the rows but not on their order; that of several frames is the sum of theirs."""
    texts = rows.with_columns(pl.col(pl.Categorical).cast(pl.String))
    return int(texts.hash_rows(_SEED).to_numpy().sum(dtype=np.uint64)) if rows.height else 0


def fingerprint() -> str:
    """Return a text that tells this hash function from others.

    Polars may change its hash from one version to the next. Buckets in a checkpoint are only right under the hash that made
    them, so a checkpoint keeps this text and refuses to go on under another.
    """
    return _fingerprint(_SEED)


@cache
def _fingerprint(_: int) -> str:
    probe = pl.DataFrame({"i": [0, 1, -5, None], "s": ["", "a", "springtide", None], "b": [True, False, None, True]})
    hashes = [
        probe.select(bucket_of(keys, 1 << 16)).to_series().to_list() for keys in (["i"], ["s"], ["b"], ["i", "s"])
    ]
    return hashlib.sha256(repr(hashes).encode()).hexdigest()[:16]
