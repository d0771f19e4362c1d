"""Parquet files as a source: which files, in which order, with which columns (SC-3)."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import springtide as st
from springtide.sources.parquet import Parquet


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, values in {"b.parquet": [3, 4], "a.parquet": [1, 2], "c.parquet": [5]}.items():
        pl.DataFrame({"x": values}).write_parquet(tmp_path / name)
    (tmp_path / "notes.txt").write_text("not for us", "utf-8")
    return tmp_path


def values(source: Parquet) -> list[int]:
    rows = source.read_all()["0"]
    assert isinstance(rows, pl.DataFrame)
    return rows["x"].to_list()


def test_the_files_of_a_folder_in_the_order_of_their_names(folder: Path) -> None:
    source = st.parquet(folder)
    assert [Path(f).name for f in source.files()] == ["a.parquet", "b.parquet", "c.parquet"]
    assert values(source) == [1, 2, 3, 4, 5]


def test_one_file_or_a_pattern(folder: Path) -> None:
    assert values(st.parquet(folder / "b.parquet")) == [3, 4]
    assert values(st.parquet(f"{folder}/[ac].parquet")) == [1, 2, 5]


def test_the_schema_is_that_of_the_first_file(folder: Path) -> None:
    assert st.parquet(folder).schema() == pl.Schema({"x": pl.Int64()})


def test_a_schema_that_is_given_needs_no_file(tmp_path: Path) -> None:
    source = st.parquet(tmp_path, schema={"x": pl.Int64, "ts": st.TIME})
    assert source.schema() == pl.Schema({"x": pl.Int64(), "ts": st.TIME})
    assert values(source) == []
    assert st.source("calls", source, ts="ts").timed


def test_it_says_where(folder: Path) -> None:
    assert st.parquet("cdr/").describe() == "parquet cdr/"
    assert st.parquet(Path("cdr")).describe() == "parquet cdr"


def test_no_file_and_no_schema(tmp_path: Path) -> None:
    with pytest.raises(st.QueryError) as caught:
        st.source("calls", st.parquet(tmp_path))
    assert caught.value.step == "calls (source)"
    assert caught.value.problem == f"there is no Parquet file in {tmp_path}"


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("x,y\n1,2\n" * 10, "utf-8")
    with pytest.raises(st.QueryError) as caught:
        st.source("calls", st.parquet(tmp_path))
    assert caught.value.step == "calls (source)"
    assert caught.value.problem.startswith(f"{tmp_path}/a.parquet cannot be read (")
    assert caught.value.hint == "check that it is a Parquet file"


def test_a_name_with_characters_of_a_pattern_is_none(tmp_path: Path) -> None:
    for name in ("a[1].parquet", "b*.parquet", "c?.parquet"):
        pl.DataFrame({"x": [1, 2]}).write_parquet(tmp_path / name)
    assert values(st.parquet(tmp_path)) == [1, 2] * 3
