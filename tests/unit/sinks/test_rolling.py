"""Parquet files of a decent size, and in folders: exactly once through kills, and whole for whoever reads."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.dataset as ds
import pytest

import springtide as st
from springtide.connectors import Lineage, Owner, Publication
from springtide.runtime import inprocess
from springtide.runtime.engine import Options
from springtide.sinks.folder import Folder
from springtide.sinks.rolling import Layout, layout_of
from springtide.state.names import MANIFESTS
from springtide.testing import check_sink

OWNER = Owner("numbers", "out", Lineage("a" * 32), generation=1)
SCHEMA = pl.Schema({"x": pl.Int64()})


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def visible(folder: Path) -> list[Path]:
    return sorted(folder.glob("**/*.parquet"))


@pytest.mark.parametrize("options", [{"roll": "1h"}, {"roll": "1KB"}, {"partition_by": "x"}], ids=str)
def test_exactly_once_whatever_is_killed(options: dict[str, Any], tmp_path: Path) -> None:
    def read(name: str) -> pl.DataFrame:
        files = visible(tmp_path / name)
        return pl.concat([pl.read_parquet(f, hive_partitioning=True) for f in files]) if files else pl.DataFrame()

    check_sink(lambda name: st.parquet_sink(tmp_path / name, **options), read)


def published(folder: Folder, outbox: Path, epochs: range, clock: Clock) -> None:
    """Publish an epoch of one row a second."""
    for epoch in epochs:
        file = outbox / f"{epoch}.parquet"
        pl.DataFrame({"x": [epoch]}, schema=SCHEMA).write_parquet(file)
        folder.publish(Publication("out", epoch, SCHEMA, (file,), (1,)))
        clock.now += 1


def test_epochs_of_a_second_make_a_file_a_minute(tmp_path: Path) -> None:
    clock, out, outbox = Clock(), tmp_path / "out", tmp_path / "outbox"
    outbox.mkdir()
    folder = Folder(out, OWNER, Layout(seconds=60, clock=clock))
    published(folder, outbox, range(150), clock)
    assert len(visible(out)) == 2
    assert pl.read_parquet(out / "*.parquet")["x"].to_list() == list(range(122))
    folder.close()
    assert len(visible(out)) == 3
    assert pl.read_parquet(out / "*.parquet")["x"].to_list() == list(range(150))
    assert [f.name for f in out.iterdir() if f.name.startswith(".part") or f.name.startswith(".rolling")] == []


def test_what_was_held_back_is_shown_when_it_is_held_back_no_more(tmp_path: Path) -> None:
    clock, out, outbox = Clock(), tmp_path / "out", tmp_path / "outbox"
    outbox.mkdir()
    published(Folder(out, OWNER, Layout(seconds=60, clock=clock)), outbox, range(3), clock)  # and it dies
    assert visible(out) == []
    Folder(out, replace(OWNER, generation=2, epoch=2)).close()
    assert pl.read_parquet(out / "*.parquet")["x"].to_list() == [0, 1, 2]


@pytest.mark.parametrize("by", [(), ("y",)], ids=["whole", "partitioned"])
def test_what_another_form_of_the_query_held_back_is_shown_as_it_was(by: tuple[str, ...], tmp_path: Path) -> None:
    """A run dies, and one that continues from a savepoint has a column more: both forms have files of their own."""
    clock, out, outbox = Clock(), tmp_path / "out", tmp_path / "outbox"
    outbox.mkdir()
    published(Folder(out, OWNER, Layout(seconds=60, clock=clock)), outbox, range(3), clock)  # and it dies
    folder = Folder(out, replace(OWNER, generation=2, epoch=2), Layout(by, seconds=60, clock=clock))
    rows = pl.DataFrame({"x": [3, 4], "y": ["a", "a"]})
    rows.write_parquet(outbox / "3.parquet")
    folder.publish(Publication("out", 3, rows.schema, (outbox / "3.parquet",), (2,)))
    folder.close()
    assert [str(file.relative_to(out)) for file in visible(out)] == [
        "part-000000003-0000.parquet",
        f"{'y=a/' if by else ''}part-000000003-0001.parquet",
    ]
    first, second = (pl.read_parquet(file, hive_partitioning=True) for file in visible(out))
    assert first.equals(pl.DataFrame({"x": [0, 1, 2]}))
    assert second.select("x", "y").equals(rows)


def test_other_programs_read_folders_by_their_names(tmp_path: Path) -> None:
    rows = [
        {"ts": n * 1_000_000, "kind": ["a b", "c/d", None, "é=1"][n % 4], "day": date(2024, 5, 1 + n % 2), "x": n}
        for n in range(12)
    ]
    schema = {"ts": pl.Int64, "kind": pl.String, "day": pl.Date, "x": pl.Int64}
    sink = st.parquet_sink(tmp_path / "out", partition_by=["day", "kind"])
    query = st.Query("folders", st.source("rows", st.memory(rows, schema=schema), ts="ts").to(sink))
    inprocess.run(query.plan(buckets=2), tmp_path / "ckpt", Options(1, rows_per_epoch=5))
    expected = query.run_reference().rows().select("x", "kind", "day").sort("x")
    found = pl.read_parquet(tmp_path / "out" / "**" / "*.parquet", hive_partitioning=True)
    assert found.select("x", "kind", "day").sort("x").equals(expected)
    table = ds.dataset(tmp_path / "out", format="parquet", partitioning="hive").to_table()
    arrow = pl.from_arrow(table)
    assert isinstance(arrow, pl.DataFrame)
    assert arrow.sort("x")["kind"].to_list() == expected["kind"].to_list()
    files = f"read_parquet('{tmp_path}/out/**/*.parquet', hive_partitioning = true)"
    assert duckdb.sql(f"SELECT x, kind, day FROM {files} ORDER BY x").fetchall() == expected.rows()


def test_other_programs_pass_over_what_is_held_back(tmp_path: Path) -> None:
    clock, out, outbox = Clock(), tmp_path / "out", tmp_path / "outbox"
    outbox.mkdir()
    published(Folder(out, OWNER, Layout(seconds=60, clock=clock)), outbox, range(70), clock)
    shown = list(range(61))
    assert len(visible(out)) == 1
    assert pl.read_parquet(out / "*.parquet")["x"].to_list() == shown
    assert ds.dataset(out, format="parquet").to_table()["x"].to_pylist() == shown
    for pattern in ("*.parquet", "**/*.parquet"):
        assert duckdb.sql(f"SELECT x FROM '{out}/{pattern}' ORDER BY x").fetchall() == [(x,) for x in shown]


def test_a_text_that_is_the_word_for_null_has_a_folder_of_its_own(tmp_path: Path) -> None:
    """No row is lost; Polars and Arrow take it for null, DuckDB does not."""
    rows = pl.DataFrame({"kind": ["__HIVE_DEFAULT_PARTITION__", "a", None], "x": [1, 2, 3]})
    query = st.Query(
        "word", st.source("rows", st.memory(rows)).to(st.parquet_sink(tmp_path / "out", partition_by="kind"))
    )
    inprocess.run(query.plan(), tmp_path / "ckpt", Options(1))
    files = f"read_parquet('{tmp_path}/out/**/*.parquet', hive_partitioning = true)"
    assert duckdb.sql(f"SELECT kind, x FROM {files} ORDER BY x").fetchall() == rows.rows()
    found = pl.read_parquet(tmp_path / "out" / "**" / "*.parquet", hive_partitioning=True).sort("x")
    assert found.select("kind", "x").rows() == [(None, 1), ("a", 2), (None, 3)]


@pytest.mark.parametrize("text", ["a" * 300, "é" * 127, "/" * 90], ids=["long", "of two bytes each", "escaped"])
def test_what_cannot_be_the_name_of_a_folder_is_refused_while_nothing_is_committed(tmp_path: Path, text: str) -> None:
    rows = st.memory(pl.DataFrame({"kind": ["a", text], "x": [1, 2]}))
    query = st.Query("long", st.source("rows", rows).to(st.parquet_sink(tmp_path / "out", partition_by="kind")))
    with pytest.raises(st.SinkError, match=r"bytes; .* 255; shorten 'kind'"):
        inprocess.run(query.plan(), tmp_path / "ckpt", Options(1))
    assert not [*(tmp_path / "ckpt" / MANIFESTS).glob("0*")]


def test_days_that_no_calendar_has_are_no_folders(tmp_path: Path) -> None:
    rows = pl.DataFrame({"day": pl.Series([0, 2_932_897], dtype=pl.Int32).cast(pl.Date), "x": [1, 2]})
    source = st.source("rows", st.memory(rows))
    query = st.Query("far", source.to(st.parquet_sink(tmp_path / "out", partition_by="day")))
    with pytest.raises(st.SinkError, match=r"'day' has a year before 1 or after 9999.*; change 'day' before this sink"):
        inprocess.run(query.plan(), tmp_path / "ckpt", Options(1))
    assert not [*(tmp_path / "ckpt" / MANIFESTS).glob("0*")]


def test_names_that_just_fit_are_taken(tmp_path: Path) -> None:
    rows = pl.DataFrame({"kind": ["a" * 250, "é" * 125, "/" * 83], "x": [1, 2, 3]})
    query = st.Query(
        "fits", st.source("rows", st.memory(rows)).to(st.parquet_sink(tmp_path / "out", partition_by="kind"))
    )
    inprocess.run(query.plan(), tmp_path / "ckpt", Options(1))
    found = pl.read_parquet(tmp_path / "out" / "**" / "*.parquet", hive_partitioning=True).sort("x")
    assert found.select("kind", "x").equals(rows)


@pytest.mark.parametrize("options", [{"partition_by": "kind"}, {"roll": "1h"}], ids=str)
def test_a_folder_s_name_may_have_characters_of_patterns(options: dict[str, Any], tmp_path: Path) -> None:
    out = tmp_path / "out[1]*" / "{a}?"
    rows = pl.DataFrame({"kind": ["a", "b", "a"], "x": [1, 2, 3]})
    query = st.Query("pattern", st.source("rows", st.memory(rows)).to(st.parquet_sink(out, **options)))
    inprocess.run(query.plan(), tmp_path / "ckpt[1]", Options(1, rows_per_epoch=2))
    found = [pl.read_parquet(f, glob=False, hive_partitioning=False)["x"] for f in visible(out)]
    assert sorted(pl.concat(found)) == [1, 2, 3]


def test_a_disk_that_was_full_is_not_filled_with_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, out, outbox, failures = Clock(), tmp_path / "out", tmp_path / "outbox", 0

    def full(held: Any, staging: Path, *_: Any) -> None:
        nonlocal failures
        failures += 1
        staging.mkdir()
        (staging / "begun").touch()
        raise OSError("no space left")

    outbox.mkdir()
    folder = Folder(out, OWNER, Layout(seconds=60, clock=clock))
    published(folder, outbox, range(60), clock)
    with monkeypatch.context() as patch:
        patch.setattr("springtide.sinks.folder.write_rolled", full)
        for _ in range(3):
            with pytest.raises(OSError, match="no space"):
                published(folder, outbox, range(60, 61), clock)
    assert failures == 3
    assert not [f for f in out.iterdir() if f.name.startswith(".rolling")]
    folder.close()
    assert pl.read_parquet(out / "*.parquet")["x"].to_list() == list(range(61))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"roll": "soon"}, "neither a time nor a size"),
        ({"roll": 5}, "neither a time nor a size"),
        ({"roll": "0s"}, "not above zero"),
        ({"partition_by": ["x", "x"]}, "does not name different columns"),
        ({"partition_by": [1]}, "does not name different columns"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(st.QueryError, match=problem):
        st.parquet_sink("out", **options)


@pytest.mark.parametrize(
    ("by", "problem"),
    [
        ("y", "no column 'y'"),
        ("ts", "partitioned by strings, integers"),
        (["x"], "every column is in partition_by; at least one"),
    ],
)
def test_columns_that_make_no_folders_are_refused_when_the_query_is_built(by: Any, problem: str) -> None:
    schema = {"x": pl.Int64} if by == ["x"] else {"ts": st.TIME, "x": pl.Int64}
    stream = st.source("rows", st.memory(schema=schema), ts=None if by == ["x"] else "ts")
    sink = st.parquet_sink("out", partition_by=by)
    with pytest.raises(st.QueryError, match=problem):
        stream.to(sink)


def test_sizes_and_times_are_told_apart() -> None:
    assert layout_of((), "128MB") == Layout(bytes=128_000_000)
    assert layout_of("day", "5m") == Layout(("day",), seconds=300.0)
    assert Layout(bytes=10).due(10, 0.0)
    assert not Layout(bytes=10).due(9, 0.0)
