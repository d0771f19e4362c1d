"""From keys to buckets."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import polars as pl

BUCKET = "__bucket"
_SEED = 20120601


def bucket_of(keys: Sequence[str], buckets: int) -> pl.Expr:
    """Give the bucket of a tuple: the hash of its keys modulo the number of buckets; 0 without keys."""
    if not keys:
        return pl.lit(0, dtype=pl.UInt16).alias(BUCKET)
    key = pl.col(keys[0]) if len(keys) == 1 else pl.struct(keys)
    return (key.hash(_SEED) % buckets).cast(pl.UInt16).alias(BUCKET)


def fingerprint() -> str:
    """Tell this hash from another one.

    Polars may change its hash with a version. Buckets in a checkpoint are only right under the hash that made them, so a
    checkpoint keeps this text and refuses to go on under another.
    """
    probe = pl.DataFrame({"i": [0, 1, -5, None], "s": ["", "a", "springtide", None], "b": [True, False, None, True]})
    hashes = [
        probe.select(bucket_of(keys, 1 << 16)).to_series().to_list() for keys in (["i"], ["s"], ["b"], ["i", "s"])
    ]
    return hashlib.sha256(repr(hashes).encode()).hexdigest()[:16]
