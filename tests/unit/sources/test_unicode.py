"""Texts that are not UTF-8 in Spark's rows: such a row is rejected, and no other."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

import springtide as st
from springtide.connectors import MISFIT, Read, Slice
from springtide.exchange.gate import BEGINNING
from springtide.query.steps import Source
from springtide.sources.spark import SparkSource, tuples
from springtide.sources.unicode import checked
from springtide.stateless.ingest import ingest


def raw(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary()).view(pa.string())


def lists(*values: bytes) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), raw(*values))


def rows(**columns: pa.Array) -> pa.StructArray:
    return pa.StructArray.from_arrays(list(columns.values()), list(columns))


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"ok\xf5"])
def test_the_row_with_the_bad_text_is_named(bad: bytes) -> None:
    frame = checked(rows(x=raw(b"yes", bad, None, "ü".encode()), n=pa.array([1, 2, 3, 4])))
    assert frame[MISFIT].to_list() == [None, f"column 'x': {bad!r} is not UTF-8", None, None]
    assert frame.filter(pl.col(MISFIT).is_null())["x"].to_list() == ["yes", None, "ü"]
    assert frame["n"].to_list() == [1, 2, 3, 4]


def test_texts_inside_of_others_and_slices() -> None:
    batch = rows(l=lists(b"a", b"\xfe", b"c"), s=rows(y=raw(b"a", b"b", b"\xfd")))
    reasons = [None, "column 'l': a string in list<item: string> is not UTF-8"]
    reasons += ["column 's': a string in struct<y: string> is not UTF-8"]
    for start in range(3):
        assert checked(batch.slice(start))[MISFIT].to_list() == reasons[start:]


def test_sound_rows_are_as_they_were() -> None:
    frame = checked(rows(x=raw(b"a", b"b"), b=pa.array([b"\xff", None])))
    assert frame[MISFIT].null_count() == 2
    assert frame.drop(MISFIT).rows() == [("a", b"\xff"), ("b", None)]


def test_they_are_rejected_and_the_others_come_in(tmp_path: Path) -> None:
    connector = SparkSource(None, pl.Schema({"t": pl.Int64(), "x": pl.String()}), None, None)  # type: ignore[arg-type]
    step = st.source("s", connector, ts="t").step
    assert isinstance(step, Source)
    frame = tuples(connector, rows(t=pa.array([1, 2, 3]), x=raw(b"a", b"\xff", b"c")))
    got = ingest(step, "s", Slice("0", 0, 3, None), Read(frame.lazy()), BEGINNING, ordered=False, origin=0)
    accepted = got.accepted.collect()
    accepted.write_parquet(tmp_path / "out.parquet")
    assert pl.read_parquet(tmp_path / "out.parquet")["x"].to_list() == ["a", "c"]
    assert got.rejected is not None
    assert got.rejected["reason"].to_list() == ["column 'x': b'\\xff' is not UTF-8"]
    assert got.rejected["row"].to_list() == ['{"t":2,"x":null}']
