"""`springtide plan --sample`: SC-8."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from typer.testing import Result

import springtide as st

Run = Callable[..., Result]


@pytest.fixture
def counts(program: Callable[..., Path]) -> Path:
    return program(
        """
        kept = x.filter(pl.col("n") >= 0, name="kept")
        counts = kept.aggregate(by="k", window=st.sliding("1m", every="10s"), total=st.sum("n"), name="counts")
        best = counts.aggregate(window=st.tumbling("1m"), best=st.max("total"), name="best")
        query = st.Query("counts", best.to(out))
        """
    )


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    begin = datetime(2024, 1, 1, tzinfo=UTC)
    rows = [{"n": i, "k": f"k{i % 3}", "ts": begin + timedelta(seconds=i)} for i in range(60)]
    pl.DataFrame(rows, schema={"n": pl.Int64, "k": pl.String, "ts": st.TIME}).write_parquet(tmp_path / "x.parquet")
    return tmp_path / "x.parquet"


def table(result: Result) -> dict[str, list[str]]:
    assert result.exit_code == 0, result.output
    _, lines, *_ = result.stdout.split("\n\n")
    return {name: row for name, *row in map(str.split, lines.splitlines()[1:])}


def test_sc8_all_instances_are_shared_out(run: Run, counts: Path, sample: Path) -> None:
    rows = table(run("plan", counts, "--sample", sample, "--instances", 12))
    assert list(rows) == ["x", "counts", "best", "total"]
    given = {name: int(row[-1]) for name, row in rows.items()}
    assert given["total"] == given["x"] + given["counts"] + given["best"] == 12
    assert given["best"] == 1  # it has one bucket
    assert [int(rows[name][0]) for name in ("x", "counts")] == [60, 60]


def test_sc8_output_says_what_was_measured(run: Run, counts: Path, sample: Path) -> None:
    shown = run("plan", counts, "--sample", f"x={sample}", "--rows", 20).stdout
    assert "on a sample (rows: x 20) with the sequential reference" in shown
    assert "the ratios between subqueries are what counts" in shown


def test_sc8_rate_asks_for_as_many_as_it_needs(run: Run, counts: Path, sample: Path) -> None:
    rows = table(run("plan", counts, "--sample", sample, "--rate", 1))
    assert [row[-1] for row in rows.values()] == ["1", "1", "1", "3"]
    assert rows["x"][0] == "1"


def test_sc8_rate_that_the_buckets_do_not_allow(run: Run, counts: Path, sample: Path) -> None:
    result = run("plan", counts, "--sample", sample, "--rate", 1e8)
    assert table(result)["counts"][-1] == "256"
    assert "\ncounts cannot use more instances: it has 256 buckets.\n" in result.stdout
    assert "\nbest cannot use more instances: it has 1 bucket.\n" in result.stdout


def test_too_few_instances(run: Run, counts: Path, sample: Path) -> None:
    result = run("plan", counts, "--sample", sample, "--instances", 2)
    assert (result.exit_code, result.stderr) == (1, "error: give at least 3 instances, one for each subquery, not 2\n")


def test_sample_of_which_no_row_fits(run: Run, counts: Path, tmp_path: Path) -> None:
    nothing = pl.DataFrame({"n": [1], "k": ["a"], "ts": [None]}, schema={"n": pl.Int64, "k": pl.String, "ts": st.TIME})
    nothing.write_parquet(tmp_path / "null.parquet")
    result = run("plan", counts, "--sample", tmp_path / "null.parquet")
    assert (result.exit_code, result.stderr) == (1, "error: no row of the sample fits x: the time 'ts' is null\n")
