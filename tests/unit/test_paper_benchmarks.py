"""The benchmarks of the papers' evaluations: their queries give the right rows, and what is computed from measurements is computed right."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

import springtide as st
from benchmarks import figures, pictures
from benchmarks.clickstream import patterns, sine
from benchmarks.clickstream.data import requests
from benchmarks.elastic.reconfigure import different, epochs_more
from benchmarks.joins.data import write
from benchmarks.latency import windows
from benchmarks.peers import rescale
from benchmarks.recovery import replicas
from benchmarks.streamcloud import last_n, operators, protocols, strategies
from benchmarks.topk import views
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


def test_the_most_visited_languages_are_those_of_plain_polars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SE-9."""
    monkeypatch.setattr(views, "ROWS_PER_FILE", 20_000)
    monkeypatch.setattr(views, "PER_SECOND", 500)
    data = views._make(tmp_path / "in", 2)
    plan = views.query_of(st.parquet(data), tmp_path / "out").plan()
    inprocess.run(plan, tmp_path / "checkpoint", Options(3, 7_000))
    expected = views._plain(data)
    assert views._same_rows(tmp_path / "out", expected) == expected.height == 3 * views.K
    wrong = expected.with_columns(pl.col("count") + 1)
    with pytest.raises(AssertionError, match="the rows differ"):
        views._same_rows(tmp_path / "out", wrong)


def test_the_latency_is_that_of_the_last_file_of_each_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that is missing, or does not count all rows, is wrong."""
    monkeypatch.setattr(windows, "WARM_UP", 1)
    begin = datetime(2024, 1, 1, tzinfo=UTC)
    monkeypatch.setattr(windows, "RATE", 10)
    monkeypatch.setattr(windows, "KEYS", 2)
    rows = {  # file: windows by their ends, their counts and totals, and when the file could be seen, in seconds after the beginning
        "part-0": ([1, 1, 2], [5, 5, 5], [20, 25, 70], 2.05),
        "part-1": ([2], [5], [75], 2.25),
        "part-2": ([3, 3], [5, 5], [120, 124], 3.5),
        "part-3": ([4, 4], [5, 5], [170, 175], 4.5),
    }
    notes = ["watching"]
    for name, (ends, counts, totals, seen) in rows.items():
        columns = {"window_end": [begin + timedelta(seconds=end) for end in ends], "n": counts, "total": totals}
        file = pl.DataFrame(columns)
        file.cast({"window_end": st.TIME}).write_parquet(tmp_path / name)
        notes.append(f"{begin.timestamp() + seen} {name}")
    (tmp_path / "seen").write_text("\n".join([*notes, f"{begin.timestamp() + 9} part-0", ""]))
    found = windows._judged(tmp_path, tmp_path / "seen", begin, 4, [7.0])
    assert found.latencies == pytest.approx([250, 500, 500], abs=1)
    assert found.wrong == 2, "the third sums up something else, the fifth is missing"
    assert found.epochs == [7.0]


@pytest.fixture
def rescaled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The output of a run whose files came every second, and whose change was felt for three seconds."""
    monkeypatch.setattr(rescale, "FULL", 4)
    monkeypatch.setattr(rescale, "SETTLED", 6)
    monkeypatch.setattr(rescale, "AFTER", 6)
    (tmp_path / "out").mkdir()
    notes = ["watching"]
    for number, late in enumerate([0.2] * 11 + [3.2, 2.2, 1.2] + [0.2] * 3):
        start = BEGIN + timedelta(minutes=number)
        row = {"src": ["1"], "window_start": [start], "n": [number], "avg_duration": [0.5]}
        pl.DataFrame(row).cast({"window_start": st.TIME}).write_parquet(tmp_path / "out" / f"part-{number:02d}")
        notes.append(f"{100 + number + 1 + late} part-{number:02d}")
    (tmp_path / "seen").write_text("\n".join([*notes, ""]))
    return tmp_path


BEGIN = datetime(2024, 1, 1, tzinfo=UTC)


def test_the_gap_of_a_change_is_the_longest_time_without_output(rescaled: Path) -> None:
    """Files come at 100, 101, …; the one that closes window n is file n + 1. The change comes with file 10."""
    found = rescale._figures(rescaled, [100.0 + n for n in range(16)], [110.0])
    assert found["usual_ms"] == 200
    assert found["1 → 2"] == {"extra_ms": 3_000, "gap_ms": 3_000, "late_windows": 2}
    assert "2 → 1" not in found


def test_rows_that_are_wrong_or_missing_after_a_change_are_counted(rescaled: Path) -> None:
    right = pl.concat([rescale._read(file) for file in sorted((rescaled / "out").iterdir())])
    last = right["window_start"].max() + timedelta(minutes=61)  # the windows of the last two files do not count
    never = right.tail(1).with_columns(window_start=pl.lit(last).cast(right.schema["window_start"]))
    right = pl.concat([right, never])
    assert rescale._wrong(rescaled / "out", right) == 0
    (rescaled / "out" / "part-03").unlink()
    assert rescale._wrong(rescaled / "out", right) == 1
    assert rescale._wrong(rescaled / "out", right.with_columns(n=pl.lit(5, right.schema["n"]))) == 1 + 2 * 15


def test_rounds_are_put_together_by_their_medians() -> None:
    change = {"extra_ms": 40, "gap_ms": 7, "late_windows": 1}
    run = {"usual_ms": 90, "wrong_rows": 2, "state_bytes": 5, "1 → 2": change}
    found = rescale.together([run, run, run | {"1 → 2": change | {"gap_ms": 900}}])
    assert (found["wrong_rows"], found["1 → 2"]["gap_ms"], found["1 → 2"]["gap_ms_of_each"]) == (6, 7, [7, 7, 900])


def test_a_size_of_state_does_not_replace_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other sides of the same size stay too."""
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    monkeypatch.setattr(figures, "write", lambda: None)
    monkeypatch.setattr(rescale.Load, "panes", property(lambda load: load.callers * 60))
    change = {"extra_ms": 40, "gap_ms": 7, "late_windows": 1}
    run = {"usual_ms": 90, "wrong_rows": 0, "state_bytes": 5, "1 → 2": change, "2 → 1": change}
    for callers, side in ((130_000, "springtide"), (18_000, "springtide"), (18_000, "flink-heap")):
        load = rescale.Load(callers, 1_000, tmp_path, pl.DataFrame({"n": [1]}))
        rescale._keep(load, 500, {side: rescale.together([run])})
    kept = json.loads((tmp_path / "rescale.json").read_text())
    assert {name: list(size["sides"]) for name, size in kept["sizes"].items()} == {
        "18000-1000": ["springtide", "flink-heap"],
        "130000-1000": ["springtide"],
    }
    _, ours, beside = figures.LINES["rescale"]
    assert ours(kept).count("7 ms without output") == 4
    assert beside(kept).startswith("flink-heap: with 1.08 M rows of state")


def test_replicas_give_sums_and_some_rows_as_they_are(tmp_path: Path) -> None:
    """SM-5: the second sink has rows of every file."""
    (tmp_path / "in").mkdir()
    for number in range(3):
        replicas._rows(number).write_parquet(tmp_path / "in" / f"{number}.parquet")
    query = replicas.query_of(st.parquet(tmp_path / "in"), tmp_path)
    inprocess.run(query.plan(), tmp_path / "checkpoint", Options(1, 2_000))
    assert len(list((tmp_path / "every").glob("*.parquet"))) == 3
    assert sorted(pl.read_parquet(tmp_path / "every" / "*.parquet")["x"]) == list(range(1, 6_000, 100))


def test_silence_until_the_end_is_a_gap_too() -> None:
    """SM-5: there may be no file at all after a kill."""
    assert replicas.gap_of([90.0, 91.0, 92.5, 93.5], struck=94.0) == replicas.Gap(6.5, usual=1.0, most=1.5)
    with pytest.raises(AssertionError, match="no usual time"):
        replicas.gap_of([93.0], struck=94.0)


class Sleeping:
    """A run that makes no epochs, and has the instances that it had."""

    active = True
    last_snapshot = SimpleNamespace(subqueries={"windows": SimpleNamespace(instances=1)})

    def epochs(self) -> list[Any]:
        return []

    def events(self) -> list[Any]:
        return [(0.0, "it sleeps")]

    def scale(self, *_: Any, **__: Any) -> None:
        pass


def test_nobody_waits_for_ever_for_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocols, "LONG", 0.05)
    with pytest.raises(TimeoutError, match="1 → 2 by state: still 1 instances"):
        protocols._change(Sleeping(), 1, 2, "state")
    with pytest.raises(TimeoutError, match=r"0 of 3 epochs.*it sleeps"):
        epochs_more(Sleeping(), 3, longest=0.05)


def test_epochs_are_counted_by_their_numbers() -> None:
    """A run remembers only so many of them."""

    class Forgetful(Sleeping):
        newest = 5_000

        def epochs(self) -> list[Any]:
            self.newest += 1
            return [SimpleNamespace(epoch=self.newest)]

    run = Forgetful()
    epochs_more(run, 3, longest=5)
    assert run.newest == 5_004


def test_what_is_modelled_is_drawn_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SC-14: with one more picture, and its own words in the figures."""
    monkeypatch.setattr(pictures, "FOLDER", tmp_path)
    by = {
        "unit": "rows/s",
        "as_fast_as_it_goes": {"1": 1e6, "2": 1.5e6},
        "modelled": {str(n): 1_000_000 * n for n in operators.MODELLED},
    }
    operators._draw_modelled({"map": by})
    assert (tmp_path / "operators-modelled.png").stat().st_size > 10_000
    _, ours, _ = figures.LINES["operators"]
    said = ours({"operators": {"map": by}, "wrong_rows": 0, "paper": {"instances": 40}})
    assert said.endswith("modelled, not measured, for 40 instances with a core each: map 40 M")


def test_every_benchmark_of_the_papers_has_a_line_in_the_figures() -> None:
    """SC-14, SM-10."""
    assert {"strategies", "protocols", "operators", "cartesian-last-n", "sine", "rescale"} <= figures.LINES.keys()


@pytest.mark.parametrize("name", [n for n in figures.PICTURES if (figures.RESULTS / f"{n}.json").exists()])
def test_pictures_are_drawn_from_what_was_kept(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "FOLDER", tmp_path)
    figures.draw(name)
    assert all(picture.stat().st_size > 1_000 for picture in tmp_path.iterdir())
