"""Blobs: what one sender gives one instance, as bytes."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.exchange.blob import Blob
from springtide.query.types import END_OF_TIME

TIMES = {"calls": {"0": 5, "1": -(2**63)}, "accounts": {"ä/b": END_OF_TIME}}


def test_header_and_tuples_come_back() -> None:
    tuples = pl.DataFrame({"k": ["a", None], "ts": [1, 2]}).with_columns(pl.col("ts").cast(st.TIME))
    got = Blob.decode(Blob(7, TIMES, {"s": 3}, tuples).encode())
    assert (got.exchange, got.times) == (7, TIMES)
    assert got.tuples is not None
    assert got.tuples.equals(tuples)
    assert got.tuples.schema == tuples.schema


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (pl.List(pl.Struct({"a": pl.Int64, "b": pl.String})), [{"a": 1, "b": None}]),
        (pl.Binary, b"\x00\xff"),
        (pl.Duration("ms"), None),
        (pl.Decimal(20, 3), None),
        (pl.Struct({"n": pl.Int64}), {"n": 3}),
        (pl.UInt16, 65535),
        (pl.List(pl.String), ["a text of some length", None]),
        (pl.Array(pl.String, 2), ["a", "b"]),
        (pl.Enum(["a", "b"]), "b"),
        (pl.Time, None),
        (pl.Null, None),
    ],
)
def test_every_type_comes_back(dtype: Any, value: Any) -> None:
    tuples = pl.DataFrame({"v": [value, None]}, schema={"v": dtype})
    got = Blob.decode(Blob(0, {}, {}, tuples).encode()).tuples
    assert got is not None
    assert got.equals(tuples)
    assert got.schema == tuples.schema


@pytest.mark.parametrize("tuples", [None, pl.DataFrame({"x": []})])
def test_a_blob_may_be_a_header_only(tuples: pl.DataFrame | None) -> None:
    data = Blob(3, TIMES, {}, tuples).encode()
    got = Blob.decode(data)
    assert (got.exchange, got.times, got.tuples) == (3, TIMES, None)
    assert len(data) < 150


def test_a_blob_is_as_large_as_its_tuples() -> None:
    """Texts of rows that go elsewhere stay behind."""
    everybody = pl.DataFrame({"k": [f"a text of some length, the {i}th" for i in range(10_000)]})
    few = everybody.filter(pl.int_range(pl.len()) % 1000 == 0)
    data = Blob(0, {}, {}, few).encode()
    assert len(data) < 2_000
    got = Blob.decode(data).tuples
    assert got is not None
    assert got.equals(few)


@pytest.mark.parametrize("data", [b"", b"ST0b....", b"\x80\x05pickle"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a blob of this version"):
        Blob.decode(data)


def test_tuples_are_not_shown() -> None:
    assert "shape" not in repr(Blob(0, {}, {}, pl.DataFrame({"x": [1]})))
