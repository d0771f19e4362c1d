"""From keys to buckets."""

from __future__ import annotations

from collections import Counter
from datetime import date
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.exchange.hashing import BUCKET, bucket_of, fingerprint


def buckets(frame: pl.DataFrame, keys: list[str], n: int = 256) -> list[int]:
    return frame.select(bucket_of(keys, n)).to_series().to_list()


def test_without_keys_everything_is_in_bucket_0() -> None:
    frame = pl.DataFrame({"x": [1, 2, 3]}).with_columns(bucket_of([], 256))
    assert frame[BUCKET].to_list() == [0, 0, 0]
    assert frame.schema[BUCKET] == pl.UInt16


@pytest.mark.parametrize("keys", [["i"], ["s"], ["i", "s"]])
@pytest.mark.parametrize("n", [1, 7, 256, 65_536])
def test_buckets_are_in_range_and_shared_out_evenly(keys: list[str], n: int) -> None:
    count = 20_000
    frame = pl.DataFrame({"i": range(count), "s": [f"key{i}" for i in range(count)]})
    found = Counter(buckets(frame, keys, n))
    assert all(0 <= b < n for b in found)
    if n <= 256:
        assert len(found) == n
        assert max(found.values()) < 2 * count / n


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (pl.Int64, [1, 2, None, 2**40]),
        (pl.UInt8, [1, 2, None, 255]),
        (pl.String, ["a", "", None, "a longer text than fits into a view"]),
        (pl.Boolean, [True, False, None, True]),
        (pl.Binary, [b"a", b"", None, b"bb"]),
        (pl.Date, [date(2024, 1, 1), None, date(1969, 1, 1), date(2024, 1, 2)]),
        (pl.Decimal(10, 2), [Decimal("1.25"), None, Decimal("-1.25"), Decimal(0)]),
        (st.TIME, [0, None, -1, 10**15]),
    ],
)
def test_a_key_has_one_bucket_wherever_it_is(dtype: Any, values: list[Any]) -> None:
    column = (
        pl.Series("k", values, dtype=pl.Int64).cast(st.TIME)
        if dtype == st.TIME
        else pl.Series("k", values, dtype=dtype)
    )
    frame = pl.DataFrame([column, pl.Series("other", range(len(values)))])
    together = buckets(frame, ["k"])
    assert [buckets(frame[i : i + 1], ["k"])[0] for i in range(frame.height)] == together
    chunked = pl.concat([frame[i : i + 1] for i in range(frame.height)], rechunk=False)
    assert buckets(chunked, ["k"]) == together
    assert buckets(frame.reverse(), ["k"]) == together[::-1]
    pairs = buckets(frame, ["k", "other"])
    assert [buckets(frame[i : i + 1], ["k", "other"])[0] for i in range(frame.height)] == pairs


def test_the_hash_has_a_fingerprint_that_stays() -> None:
    assert fingerprint() == fingerprint()
    assert len(fingerprint()) == 16
    assert int(fingerprint(), 16) >= 0


def test_another_hash_has_another_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint()
    monkeypatch.setattr("springtide.exchange.hashing._SEED", 1)
    assert fingerprint() != before
