"""A look at a stream: the first rows that a run would give, and what a notebook shows of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.connectors import Source
from springtide.query.errors import QueryError
from springtide.testing import at


def numbers(rows: int, **options: Any) -> st.Stream:
    given = [{"n": i, "ts": at(f"{i}s")} for i in range(rows)]
    return st.source("numbers", st.memory(given, schema={"n": pl.Int64, "ts": st.TIME}), ts="ts", **options)


def test_head_gives_what_a_run_would_begin_with() -> None:
    stream = numbers(500)
    assert stream.head(3)["n"].to_list() == [0, 1, 2]
    assert stream.filter(pl.col("n") % 100 == 7).head()["n"].to_list() == [7, 107, 207, 307, 407]
    per_minute = stream.aggregate(window=st.tumbling("1m"), n=st.count())
    assert per_minute.head()["n"].to_list() == [60] * 8 + [20]  # all there is: the last window is over too


def test_a_window_that_the_sample_does_not_fill_is_not_shown() -> None:
    per_minute = numbers(500).aggregate(window=st.tumbling("1m"), n=st.count())
    assert per_minute.head(sample=150)["n"].to_list() == [60, 60]  # not a third one of 30
    assert per_minute.head(sample=30).height == 0


def test_a_generator_is_not_waited_for_and_need_not_end() -> None:
    records = st.call_records(callers=3, per_second=1)
    calls = st.source("calls", st.generate(records, rate=1), ts="ts")
    assert calls.head(5, sample=10).height == 5
    assert calls.aggregate(window=st.tumbling("10s"), n=st.count()).head(sample=25)["n"].to_list() == [10, 10]


def test_files_and_side_outputs(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,ts\n1,2024-05-01T00:00:10Z\n2,2024-05-01T00:00:00Z\nx,2024-05-01T00:00:20Z\n")
    source = st.source("n", st.csv(tmp_path, schema={"n": pl.Int64, "ts": st.TIME}), ts="ts")
    assert source.head()["n"].to_list() == [1]
    assert source.late.head()["n"].to_list() == [2]
    assert source.rejected.head().height == 1


def test_show_prints_and_says_why_there_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    numbers(3).show()
    assert capsys.readouterr().out.startswith("shape: (3, 2)")
    numbers(3000).aggregate(window=st.tumbling("1h"), n=st.count()).show()
    assert ".show(sample=100000)" in capsys.readouterr().out


@pytest.mark.parametrize("n", [0, -1, 2.5, True])
def test_numbers_of_rows_that_are_none(n: Any) -> None:
    with pytest.raises(QueryError, match=r"step numbers: n=.* is not a number of rows; write \.head\(20\)"):
        numbers(3).head(n)


def test_a_notebook_shows_columns_and_rows_and_takes_nothing_for_html() -> None:
    shown = numbers(3).map(text=pl.lit("<script>"))._repr_html_()
    assert "columns" in shown
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown


def test_a_notebook_shows_the_columns_of_what_cannot_be_read(tmp_path: Path) -> None:
    broken = numbers(3).map(x=pl.col("n").cast(pl.String).str.to_date("%Y", strict=True))
    shown = broken._repr_html_()
    assert "columns" in shown
    assert "no rows: step " in shown


def test_a_notebook_connects_to_nothing_that_nobody_asked_it_to() -> None:
    class Elsewhere(Source):
        def schema(self) -> pl.Schema:
            return pl.Schema({"n": pl.Int64()})

        def describe(self) -> str:
            return "far away"

        def take(self, *_: Any) -> Any:
            raise AssertionError("nobody asked for rows")

        def read(self, *_: Any) -> Any:
            raise AssertionError("nobody asked for rows")

    shown = st.source("x", Elsewhere())._repr_html_()
    assert "columns" in shown
    assert "some rows: stream.head()" in shown
