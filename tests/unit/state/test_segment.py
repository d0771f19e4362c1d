"""Segments: state in immutable files, read whole or by bucket."""

from __future__ import annotations

import json
import random
import tempfile
import zlib
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

import springtide as st
from springtide.state.segment import FORMAT, Segment, read_segment, write_segment

BUCKET = "__bucket"


def rows(buckets: list[int]) -> pl.DataFrame:
    return pl.DataFrame(
        {BUCKET: buckets, "key": [f"k{i}" for i in range(len(buckets))], "n": range(len(buckets))},
        schema={BUCKET: pl.UInt16, "key": pl.String, "n": pl.Int64},
    )


def rewrite(path: Path, meta: Any) -> None:
    """Put other metadata into a segment."""
    table = pa.ipc.open_file(str(path)).read_all() if path.exists() else pa.table({"x": [1]})
    table = table.replace_schema_metadata(None if meta is None else {b"springtide": meta})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def test_what_is_written_is_read_sorted_by_bucket(tmp_path: Path) -> None:
    path = tmp_path / "state" / "agg" / "a.arrow"
    written = write_segment(path, rows([3, 1, 2, 1]), BUCKET)
    got = read_segment(path)
    assert got[BUCKET].to_list() == [1, 1, 2, 3]
    assert got.sort("n").equals(rows([3, 1, 2, 1]))
    assert got.schema == rows([1]).schema
    assert written == (path.stat().st_size, zlib.crc32(path.read_bytes()), None)
    assert [f.name for f in path.parent.iterdir()] == ["a.arrow"]


@given(some.lists(some.integers(0, 6), max_size=20), some.sets(some.integers(0, 8)))
def test_some_buckets_are_read_and_no_others(buckets: list[int], wanted: set[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.arrow"
        frame = rows(buckets)
        write_segment(path, frame, BUCKET)
        got = read_segment(path, wanted)
        assert got.schema == frame.schema
        assert got.sort("n").equals(frame.filter(pl.col(BUCKET).is_in(list(wanted))).sort("n"))


def test_the_directory_says_where_each_bucket_is(tmp_path: Path) -> None:
    write_segment(tmp_path / "a.arrow", rows([3, 1, 2, 1]), BUCKET)
    meta = json.loads(pa.ipc.open_file(str(tmp_path / "a.arrow")).schema.metadata[b"springtide"])
    assert meta == {"format": FORMAT, "directory": [[1, 0, 2], [2, 2, 1], [3, 3, 1]]}


@pytest.mark.parametrize(
    "dtype",
    [
        st.TIME,
        pl.Duration("ms"),
        pl.Decimal(38, 2),
        pl.Binary,
        pl.List(pl.Struct({"ts": st.TIME, "v": pl.String})),
        pl.Struct({"n": pl.Int64, "s": pl.List(pl.Float64)}),
        pl.Boolean,
    ],
)
def test_every_type_of_state_comes_back(tmp_path: Path, dtype: Any) -> None:
    frame = pl.DataFrame({BUCKET: [0, 1], "v": [None, None]}, schema={BUCKET: pl.UInt16, "v": dtype})
    write_segment(tmp_path / "a.arrow", frame, BUCKET)
    assert read_segment(tmp_path / "a.arrow").schema == frame.schema
    assert read_segment(tmp_path / "a.arrow", [1]).equals(frame[1:])


def test_a_segment_is_as_large_as_its_rows(tmp_path: Path) -> None:
    """Polars' texts are views: those of rows that are not written must not be written either."""
    texts = pl.DataFrame({"b": range(10_000), "k": [f"a text of some length, the {i}th" for i in range(10_000)]})
    few = texts.filter(pl.col("b") % 1000 == 0).with_columns(lists=pl.concat_list("k"))
    assert write_segment(tmp_path / "few.arrow", few, "b").bytes < 5_000
    assert read_segment(tmp_path / "few.arrow").equals(few)


def test_a_segment_replaces_one_of_the_same_name_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    write_segment(path, rows([1, 2]), BUCKET)
    before = read_segment(path)
    write_segment(path, rows([5]), BUCKET)
    assert before[BUCKET].to_list() == [1, 2]  # mapped memory stays what it was
    assert read_segment(path)[BUCKET].to_list() == [5]


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **more: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pa.ipc, "new_file", full)
    with pytest.raises(OSError, match="No space left"):
        write_segment(tmp_path / "a.arrow", rows([1]), BUCKET)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(st.CheckpointError, match=r"a\.arrow is missing; restore the file"):
        read_segment(tmp_path / "a.arrow")


def test_a_file_that_was_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    write_segment(path, rows([1, 2, 3]), BUCKET)
    data = path.read_bytes()
    for length in range(0, len(data), 13):
        path.write_bytes(data[:length])
        with pytest.raises(st.CheckpointError, match="is damaged"):
            read_segment(path)


def test_a_file_with_wrong_bytes_is_never_another_kind_of_error(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    write_segment(path, rows([1, 2, 3]), BUCKET)
    data, dice, problems = path.read_bytes(), random.Random(1), []
    for at in range(0, len(data), 3):
        path.write_bytes(data[:at] + bytes([data[at] ^ dice.randrange(1, 256)]) + data[at + 1 :])
        try:
            read_segment(path)
        except st.CheckpointError as error:
            problems.append(error.problem)
    assert len(problems) > 50
    assert all(problem.startswith(("is damaged (", "has format ")) for problem in problems)


@pytest.mark.parametrize("meta", [None, b"not json", b"[]", b"{}", b'{"format": 1}'])
def test_an_arrow_file_that_is_no_segment(tmp_path: Path, meta: bytes | None) -> None:
    rewrite(tmp_path / "a.arrow", meta)
    with pytest.raises(st.CheckpointError, match="is damaged"):
        read_segment(tmp_path / "a.arrow", [1])


def test_a_newer_format(tmp_path: Path) -> None:
    rewrite(tmp_path / "a.arrow", json.dumps({"format": FORMAT + 1, "index": "elsewhere"}).encode())
    with pytest.raises(st.CheckpointError, match=r"format 2.* reads format 1; .*newer"):
        read_segment(tmp_path / "a.arrow")


def test_what_a_manifest_says_of_it() -> None:
    segment = Segment(
        "state/agg/7.arrow", "panes", epoch=7, instance=1, version=2, rows=100, bytes=4096, low=-5, high=2**62
    )
    assert Segment.from_json(json.loads(json.dumps(segment.to_json()))) == segment
