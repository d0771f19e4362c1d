"""The benchmarks of the papers' evaluations: their queries give the right rows, and what is computed from measurements is computed right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import springtide as st
from benchmarks import figures
from benchmarks.clickstream import patterns, sine
from benchmarks.clickstream.data import requests
from benchmarks.elastic.reconfigure import different
from benchmarks.joins.data import write
from benchmarks.streamcloud import last_n, operators, protocols, strategies
from springtide.runtime import inprocess
from springtide.runtime.options import Options


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    """Five minutes of calls of few callers."""
    number = pl.int_range(3_000)
    ts = 1_700_000_000_000_000 + number * 100_000
    rows = pl.select(
        src=(number * 7_919 % 37).cast(pl.String),
        dst=(number * 104_729 % 31).cast(pl.String),
        start=ts // 1_000 - number * 1_299_709 % 600_000 - 1_000,
        end=ts // 1_000,
        district=(number * 31 % 17).cast(pl.Int32),
        lat=(number * 1_299_709 % 1_000) / 10,
        lon=(number * 15_485_863 % 1_000) / 10,
        ts=ts.cast(st.TIME),
    )
    (tmp_path / "in").mkdir()
    rows.write_parquet(tmp_path / "in" / "000.parquet")
    return tmp_path / "in"


def test_the_query_gives_the_same_rows_in_whichever_way_it_is_cut(calls: Path, tmp_path: Path) -> None:
    """SC-14: with a hop before every operator, and with any number of instances; and they are DuckDB's."""
    found = []
    for hops, instances in ((False, 1), (False, 5), (True, 2)):
        place = tmp_path / f"{hops}-{instances}"
        plan = strategies.query_of(calls, place, hops=hops).plan()
        assert strategies.hops(plan) == (8 if hops else 3)
        inprocess.run(plan, place / "checkpoint", Options(instances, 700))
        found.append(pl.read_parquet(place / "out" / "*.parquet"))
    assert different(found[0], found[1]) == different(found[0], found[2]) == 0
    assert strategies.same_as_duckdb(found[0], calls) > 10


def test_channels_are_counted_and_instances_go_where_the_work_is(calls: Path, tmp_path: Path) -> None:
    """SC-14: a self-join is sent both of its sides."""
    plan = strategies.query_of(calls, tmp_path, hops=False).plan()
    work = {"calls": 1.0, "pairs": 6.0, "districts": 2.0, "areas": 0.1}
    parts = strategies.allocated("operator-set-cloud", work, 10)
    assert parts == {"calls": 1, "pairs": 6, "districts": 2, "areas": 1}
    assert strategies.channels(plan, parts) == 2 * 1 * 6 + 6 * 2 + 2 * 1


def test_the_cost_model_is_found_in_what_it_has_made(calls: Path, tmp_path: Path) -> None:
    """SC-14: α, β and γ come out of costs that were made with them."""
    runs = [
        {"channels": float(f), "rows": 1e5, "hops": float(h), "cpu": 2e-6 + (3e-4 * f + 1e-6 * 1e5 * h + 0.02) / 1e5}
        for f, h in ((30, 3), (100, 8), (900, 3), (400, 8))
    ]
    fit = strategies.fitted(runs, 2e-6)
    assert (fit["alpha"], fit["beta"], fit["gamma"]) == pytest.approx((3e-4, 1e-6, 0.02))
    plan = strategies.query_of(calls, tmp_path, hops=False).plan()
    work = dict.fromkeys((q.name for q in plan.subqueries), 1.0)

    def rate(strategy: str, instances: int) -> float:
        return strategies.model(strategy, plan, work, instances, 2e-6, fit)["rows_per_s"]

    assert rate("query-cloud", 60) < 6 * rate("query-cloud", 10)
    assert rate("operator-set-cloud", 60) > rate("query-cloud", 60)


@pytest.mark.parametrize("name", operators.CASES)
def test_a_single_operator_gives_the_rows_of_duckdb(name: str, calls: Path, tmp_path: Path) -> None:
    """SC-14: aggregate, map, join and Cartesian product."""
    made, total = operators.Calls(calls / "000.parquet", 20), 2_000
    case = operators.CASES[name]
    plan = operators.query_of(case, st.generate(made, rate=None, total=total), tmp_path / "out").plan()
    inprocess.run(plan, tmp_path / "checkpoint", Options(2, 600))
    wrong, rows = operators.compared(case, made, total, tmp_path / "out")
    assert wrong == 0
    assert rows > 50


def test_the_last_tuples_are_those_of_a_plain_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SC-14: the Cartesian product over windows of n tuples."""
    monkeypatch.setattr(last_n, "WINDOW", 40)
    monkeypatch.setattr(last_n, "MODULUS", 101)

    def tuples(rng: np.random.Generator, ts: np.ndarray) -> dict[str, np.ndarray]:
        return dict(zip("abc", rng.integers(0, 1000, (3, ts.size)).astype(np.int32), strict=True))

    sides = [write(tmp_path / name, 2, 10, 15, tuples) for name in ("left", "right")]
    expected = last_n.program(*(pl.concat(map(pl.read_parquet, sorted(s.glob("*.parquet")))) for s in sides))
    inprocess.run(last_n.query_of(*sides, tmp_path / "out").plan(), tmp_path / "checkpoint", Options(3, 90))
    rows = pl.read_parquet(tmp_path / "out" / "*.parquet").select(expected.columns)
    assert different(rows, expected) == 0
    assert expected.height > 50


def test_requests_that_are_played_back_give_the_rows_of_plain_polars(tmp_path: Path) -> None:
    """SM-10: the query of the elastic run, with work for each pattern."""
    total = 20_000
    ts = pl.Series("ts", sine.BEGIN + np.arange(total) * 3_000).cast(st.TIME)
    (tmp_path / "in").mkdir()
    requests(total).with_columns(ts).write_parquet(tmp_path / "in" / "all.parquet")
    source = st.generate(sine.Recorded(tmp_path / "in" / "all.parquet"), rate=None, total=total)
    work = pl.col("pattern").map_batches(lambda patterns: patterns, return_dtype=pl.String)
    query = patterns.query_of(st.source("clicks", source, ts="ts"), st.parquet_sink(tmp_path / "out"), work)
    inprocess.run(query.plan(), tmp_path / "checkpoint", Options(2, 6_000))
    assert patterns.same_rows(tmp_path / "out", patterns.plain(tmp_path / "in")) == 20


def test_calls_are_made_the_same_however_they_are_cut() -> None:
    """SC-14: every caller has a call in every window, and what is made twice is the same."""
    whole = protocols.rows(100, 500, 0, 0, 1_000)
    assert whole.equals(pl.concat([protocols.rows(100, 500, 0, first, 250) for first in range(0, 1_000, 250)]))
    windows = whole.group_by(pl.col("ts").dt.truncate("1s")).agg(pl.col("src").n_unique())
    assert windows["src"].to_list() == [100, 100]


def test_every_benchmark_of_the_papers_has_a_line_in_the_figures() -> None:
    """SC-14, SM-10."""
    assert {"strategies", "protocols", "operators", "cartesian-last-n", "sine", "rescale"} <= figures.LINES.keys()
