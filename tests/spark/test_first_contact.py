"""The first minutes with a query: started with nothing said, looped over, in a `with`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.query.errors import QueryError, SpringtideError
from springtide.testing import FAIL, PAUSE, at
from tests.wording import says

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


def rows(first: int, count: int) -> list[Any]:
    return [{"n": n, "ts": at(f"{n}s")} for n in range(first, first + count)]


def stream(*given: Any) -> st.Stream:
    return st.source("x", st.memory([*given], schema={"n": pl.Int64, "ts": st.TIME}), ts="ts")


def test_a_start_without_anything_uses_a_folder_of_its_name_and_the_next_one_goes_on(
    spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files = tmp_path / "in"
    files.mkdir()

    def query() -> st.Query:
        x = st.source("x", st.parquet(files, schema={"n": pl.Int64, "ts": st.TIME}, follow=True), ts="ts")
        return st.Query("first", x.to(st.parquet_sink(tmp_path / "out")))

    def write(name: str, first: int) -> None:
        pl.DataFrame(rows(first, 5), schema={"n": pl.Int64, "ts": st.TIME}).write_parquet(files / f"{name}.parquet")

    def read(expected: int) -> None:
        with query().start() as run:
            while run.status()["sources"].get("x", {"accepted": 0})["accepted"] < expected:
                assert not run.wait(0.05)

    write("a", 0)
    read(5)
    place = tmp_path / "springtide-checkpoints" / "first"
    assert (place / "springtide.json").exists()
    assert f"first runs on local[2,4]; its checkpoint is {place}: " in capfd.readouterr().err
    write("b", 5)
    read(10)
    assert f"its checkpoint is {place}: it continues after epoch " in capfd.readouterr().err
    assert sorted(pl.read_parquet(tmp_path / "out")["n"].to_list()) == list(range(10))


def test_rows_in_memory_begin_anew_and_are_looped_over_once(
    spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        sink = st.memory_sink()
        query = st.Query("loop", stream(*rows(0, 3), PAUSE, *rows(3, 2), PAUSE, *rows(5, 4)).to(sink))
        run = query.start()
        assert "in memory only" in capfd.readouterr().err
        run.wait()  # whoever begins to loop after the end misses nothing
        parts = [part["n"].to_list() for part in run.results()]
        assert parts == [[0, 1, 2], [3, 4], [5, 6, 7, 8]]
        assert [part["n"].to_list() for part in run.results()] == parts
    assert not (tmp_path / "springtide-checkpoints").exists()


def test_a_loop_gives_what_came_before_an_error_and_then_the_error(spark: Any, tmp_path: Path) -> None:
    text = pl.col("n").cast(pl.String) + pl.when(pl.col("n") < 3).then(pl.lit("")).otherwise(pl.lit("x"))
    x = stream(*rows(0, 3), PAUSE, *rows(3, 3)).map(n=text.cast(pl.Int64))
    results = st.Query("broken", x.to(st.memory_sink())).start(spark, checkpoint=tmp_path / "ckpt").results()
    assert next(results)["n"].to_list() == [0, 1, 2]
    with pytest.raises(SpringtideError, match="the next start continues"):
        next(results)


def test_a_second_run_on_the_same_sink_gives_its_own_rows_only(spark: Any, tmp_path: Path) -> None:
    sink, source = st.memory_sink(), st.memory([*rows(0, 3), FAIL, *rows(3, 2)], schema={"n": pl.Int64, "ts": st.TIME})
    query = st.Query("again", st.source("x", source, ts="ts").to(sink))
    given: list[int] = []

    def collect() -> None:
        for part in query.start(spark, checkpoint=tmp_path / "ckpt").results():
            given.extend(part["n"].to_list())

    with pytest.raises(SpringtideError):
        collect()
    collect()
    assert given == [0, 1, 2, 3, 4]


def test_which_rows_are_meant(spark: Any, tmp_path: Path) -> None:
    x = stream(*rows(0, 2))
    two = st.Query(
        "two", x.to(st.memory_sink(), name="all"), x.filter(pl.col("n") > 0).to(st.memory_sink(), name="some")
    )
    with two.start(spark, checkpoint=tmp_path / "two") as run:
        with pytest.raises(QueryError, match=r"several sinks .*; .*: all, some"):
            run.results()
        with pytest.raises(QueryError, match=r"no sink 'sum' .*; .*: all, some"):
            run.results("sum")
        assert [part["n"].to_list() for part in run.results("some")] == [[1]]
    none = st.Query("none", x.to(st.parquet_sink(tmp_path / "out")))
    with (
        none.start(spark, checkpoint=tmp_path / "none") as run,
        pytest.raises(QueryError, match=r"in memory; .*memory_sink"),
    ):
        run.results()


def test_a_with_stops_the_query_also_after_an_error(spark: Any, tmp_path: Path) -> None:
    x = st.source("x", st.generate(st.call_records(callers=3, per_second=1), rate=50), ts="ts")
    query = st.Query("endless", x.to(st.memory_sink()))

    def fail() -> None:
        with query.start(spark, checkpoint=tmp_path / "ckpt") as run:
            runs.append(run)
            next(run.results())
            raise ZeroDivisionError

    runs: list[Any] = []
    with pytest.raises(ZeroDivisionError):
        fail()
    assert not runs[0].active


@pytest.mark.parametrize("trigger", ["soon", 5])
def test_a_trigger_that_is_no_time_is_refused_before_anything_is_there(
    spark: Any, tmp_path: Path, trigger: Any
) -> None:
    query = st.Query("first", stream(*rows(0, 3)).to(st.parquet_sink(tmp_path / "out")))
    with pytest.raises(QueryError) as refused:
        query.start(spark, checkpoint=tmp_path / "ckpt", trigger=trigger)
    assert refused.value.step == "first (query)"
    assert says(refused.value, f"trigger={trigger!r}", "5 seconds", "available now")
    assert not (tmp_path / "out").exists()
