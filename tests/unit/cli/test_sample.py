from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import polars as pl
import pytest

import springtide as st
from springtide.cli.errors import CommandError
from springtide.cli.sample import read_sample, read_samples

SCHEMA = pl.Schema({"n": pl.Int64(), "x": pl.Float64(), "day": pl.Date(), "ok": pl.Boolean(), "ts": st.TIME})
ROWS = pl.DataFrame(
    {
        "n": [1, 2],
        "x": [0.5, None],
        "day": [date(2024, 1, 1), date(2024, 1, 2)],
        "ok": [True, False],
        "ts": [datetime(2024, 1, 1, 9, 0, 1, tzinfo=UTC), datetime(2024, 1, 1, 9, 0, 2, 500_000, tzinfo=UTC)],
    },
    schema=SCHEMA,
)


def write(rows: pl.DataFrame, path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".parquet":
        rows.write_parquet(path)
    elif path.suffix == ".csv":
        rows.write_csv(path, datetime_format="%Y-%m-%dT%H:%M:%S%.6fZ")
    else:
        rows.with_columns(pl.col("ts").dt.to_string("iso:strict")).write_ndjson(path)
    return path


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".ndjson", ".jsonl"])
def test_every_format_gives_the_same_rows(tmp_path: Path, suffix: str) -> None:
    assert read_sample("s", write(ROWS, tmp_path / f"rows{suffix}"), SCHEMA, 10).equals(ROWS)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".ndjson"])
def test_files_of_a_folder_are_read_in_the_order_of_their_names(tmp_path: Path, suffix: str) -> None:
    write(ROWS.tail(1), tmp_path / "data" / f"b{suffix}")
    write(ROWS.head(1), tmp_path / "data" / f"a{suffix}")
    (tmp_path / "data" / "_SUCCESS").touch()
    assert read_sample("s", tmp_path / "data", SCHEMA, 10).equals(ROWS)


def test_no_more_rows_than_wanted(tmp_path: Path) -> None:
    assert read_sample("s", write(ROWS, tmp_path / "rows.parquet"), SCHEMA, 1).equals(ROWS.head(1))


def test_other_columns_and_near_types_do_no_harm(tmp_path: Path) -> None:
    near = ROWS.with_columns(pl.col("n").cast(pl.Int16), pl.col("ts").dt.replace_time_zone(None), more=pl.lit(1))
    assert read_sample("s", write(near, tmp_path / "rows.parquet"), SCHEMA, 10).equals(ROWS)


@pytest.mark.parametrize(
    ("rows", "name", "message"),
    [
        (ROWS.drop("ok"), "a.parquet", r"has no column 'ok', which s needs; it has n, x, day, ts"),
        (ROWS.with_columns(n=pl.lit("one")), "a.parquet", "the column 'n' is str, not i64"),
        (ROWS.with_columns(n=pl.lit("one")), "a.csv", r"a\.csv cannot be read for s: could not parse `one`"),
        (ROWS.with_columns(ts=pl.lit("soon")), "a.csv", r"a\.csv cannot be read for s: "),
        (ROWS.clear(), "a.parquet", "has no rows"),
        (ROWS, "a.txt", "is not Parquet, CSV or NDJSON"),
    ],
)
def test_samples_that_do_not_fit(tmp_path: Path, rows: pl.DataFrame, name: str, message: str) -> None:
    path = write(rows, tmp_path / name) if name != "a.txt" else tmp_path / name
    path.touch()
    with pytest.raises(CommandError, match=message) as caught:
        read_sample("s", path, SCHEMA, 10)
    assert "\n" not in str(caught.value)


def test_sample_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="there is no file"):
        read_sample("s", tmp_path / "none.parquet", SCHEMA, 10)


@pytest.fixture
def two_sources() -> st.Query:
    r, s = (st.source(name, st.memory(schema=SCHEMA), ts="ts") for name in "rs")
    return st.Query("both", r.union(s).to(st.memory_sink()))


def test_each_source_has_its_sample(two_sources: st.Query, tmp_path: Path) -> None:
    path = write(ROWS, tmp_path / "rows.parquet")
    assert list(read_samples(two_sources, [f"s={path}", f"r={path}"], 10)) == ["r", "s"]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (["{}"], "the query has several sources; say which one {} is for: --sample r={}"),
        (["r={}"], "there is no sample for s; add --sample s=PATH"),
        (["q={}"], "the query has no source 'q'; there are: r, s"),
    ],
)
def test_samples_that_are_not_clear(two_sources: st.Query, tmp_path: Path, wanted: list[str], message: str) -> None:
    path = str(write(ROWS, tmp_path / "rows.parquet"))
    with pytest.raises(CommandError) as caught:
        read_samples(two_sources, [text.replace("{}", path) for text in wanted], 10)
    assert str(caught.value) == message.replace("{}", path)
