"""Rows lined up by key."""

from __future__ import annotations

import polars as pl

from springtide.exchange.hashing import HASH
from springtide.operators.rows_by_key import RowsByKey


def test_keys_with_one_hash_are_told_apart() -> None:
    rows = pl.DataFrame(
        {HASH: [1, 1, 1, 0, 1], "k": ["a", "b", "a", "c", None]}, schema={HASH: pl.UInt64, "k": pl.String}
    )
    lines = RowsByKey.of(rows.with_row_index("i"), ["k"])
    assert lines.rows.select("k", "i").rows() == [("c", 3), (None, 4), ("a", 0), ("a", 2), ("b", 1)]
    assert lines.starts.tolist() == [0, 1, 2, 4]
    assert lines.ends.tolist() == [0, 1, 3, 4]
    assert RowsByKey.of(rows.clear(), ["k"]).starts.size == 0
