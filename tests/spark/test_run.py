"""A run on Spark, and the handle to it: Spark's own sources, stopping, scaling, attaching (ST-3)."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest

import springtide as st
import springtide.testing
from springtide.testing import at, compare
from tests.machine import LONG

pytestmark = pytest.mark.spark

SCHEMA = {"key": pl.String, "value": pl.Int64, "ts": st.TIME}


def frame(first: int, count: int) -> pl.DataFrame:
    """Make one row per second, from second `first` on."""
    numbers = range(first, first + count)
    return pl.DataFrame(
        {"key": [f"k{i % 3}" for i in numbers], "value": list(numbers), "ts": [at(f"{i}s") for i in numbers]},
        schema=SCHEMA,
    )


def put(path: Path, rows: pl.DataFrame, age: float = 0) -> None:
    """Give a stream another file, some seconds old. It is written beside first: whoever reads the folder sees all of it or nothing."""
    hidden = path.with_name(f".{path.name}")
    rows.write_parquet(hidden)
    os.utime(hidden, (hidden.stat().st_mtime - age,) * 2)
    os.rename(hidden, path)


def write(folder: Path, number: int) -> None:
    """Write a file of rows. Spark reads the oldest file first: none is as old as another, however quickly they were written."""
    put(folder / f"{number}.parquet", frame(number * 25, 25), age=100 - 10 * number)


def counting(source: st.Stream) -> tuple[st.Query, Any]:
    sink = st.memory_sink()
    counts = source.aggregate(by="key", window=st.tumbling("10s"), n=st.count(), total=st.sum("value"), name="counts")
    return st.Query("counting", counts.to(sink, name="out")), sink


def until(run: Any, condition: Callable[[], bool], seconds: float = LONG) -> None:
    """Wait for something that a run will do; if the run fails first, raise what it failed with."""
    end = time.monotonic() + seconds
    while not condition():
        assert not run.wait(0.05) or condition(), f"the run has ended: {run.status()}"
        assert time.monotonic() < end, f"it did not happen in {seconds:g} s: {run.status()}, {run.events()}"


def accepted(run: Any, source: str) -> int:
    found: int = run.status()["sources"].get(source, {"accepted": 0})["accepted"]
    return found


def test_a_streaming_dataframe_is_a_source(spark: Any, tmp_path: Path) -> None:
    """Rows that Spark reads: all that is there, then on after a restart with another degree, nothing lost or doubled."""
    files = tmp_path / "in"
    files.mkdir()
    for i in range(4):
        write(files, i)
    schema = spark.read.parquet(str(files)).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 2).parquet(str(files))
    query, sink = counting(st.source("rows", st.spark(stream), ts="ts", max_disorder="100s"))
    query.start(spark, checkpoint=tmp_path / "ckpt", instances=2, trigger="available now").wait()
    (tmp_path / "ckpt" / "spark" / "offsets" / ".9.4711.tmp").touch()  # as an older version left it when it was killed
    for i in range(4, 10):
        write(files, i)
    run = query.start(spark, checkpoint=tmp_path / "ckpt", instances=3)
    until(run, lambda: accepted(run, "rows") == 250)
    run.stop()
    expected = query.run_reference({"rows": frame(0, 250)}, bounded=False)
    assert expected.rows().height > 0
    compare(sink.rows(), expected.rows())


def test_two_streaming_dataframes_beside_a_source_read_in_python(spark: Any, tmp_path: Path) -> None:
    """Sources of both kinds in one query: one epoch takes from all of them."""
    streams = []
    for name, first in (("a", 0), ("b", 5)):
        folder = tmp_path / name
        folder.mkdir()
        frame(first, 60).write_parquet(folder / "0.parquet")
        stream = spark.readStream.schema(spark.read.parquet(str(folder)).schema).parquet(str(folder))
        streams.append(st.source(name, st.spark(stream), ts="ts"))
    native = st.source("c", st.memory(frame(2, 60)), ts="ts")
    query, sink = counting(st.union(*streams, native))
    query.start(spark, checkpoint=tmp_path / "ckpt", instances=2, trigger="available now").wait()
    inputs = {"a": frame(0, 60), "b": frame(5, 60)}
    # the streams of Spark do not end: what is given is what is certain without their end
    expected = query.run_reference(inputs | {"c": [*frame(2, 60).to_dicts(), st.testing.END]}, bounded=False)
    compare(sink.rows(), expected.rows())
    assert expected.rows().height > 0


def test_not_a_streaming_dataframe(spark: Any) -> None:
    with pytest.raises(st.QueryError, match="this is not a streaming DataFrame"):
        st.spark(spark.range(3))
    with pytest.raises(st.QueryError, match="there is no column 'partition'"):
        st.spark(spark.readStream.format("rate").load(), stream="partition")


def test_stop_scale_and_attach_while_running(spark: Any, tmp_path: Path) -> None:
    """An endless query is stopped between epochs and at once, scaled, given another input, and loses nothing."""
    files = tmp_path / "in"
    files.mkdir()
    frame(0, 100).write_parquet(files / "0.parquet")
    query, sink = counting(st.source("rows", st.parquet(files, follow=True), ts="ts"))
    run = query.start(spark, checkpoint=tmp_path / "ckpt", instances=2, rows_per_epoch=20)
    run.stop(at_once=True)
    assert not run.active
    assert not (tmp_path / "ckpt" / "spark").exists(), "Spark reads nothing: what it writes is the run's own"
    run = query.start(spark, checkpoint=tmp_path / "ckpt", rows_per_epoch=20)
    until(run, lambda: accepted(run, "rows") == 100)
    run.scale("counts", 3)
    with pytest.raises(st.QueryError, match="did you mean 'counts'"):
        run.scale("count", 3)
    run.attach("rows", "more", st.memory(frame(100, 30)))
    until(run, lambda: accepted(run, "rows") == 130)
    put(files / "1.parquet", frame(100, 50))
    until(run, lambda: accepted(run, "rows") == 180)
    assert [text for _, text in run.events()] == ["scaled counts: 2 → 3 instances"]
    assert run.status()["subqueries"]["counts"]["instances"] == 3
    run.stop()
    inputs = {"0": frame(0, 150), "more/0": [*frame(100, 30).to_dicts(), st.testing.END]}
    compare(sink.rows(), query.run_reference({"rows": inputs}, bounded=False).rows())


def test_a_run_tells_what_it_measured(spark: Any, tmp_path: Path) -> None:
    query, sink = counting(st.source("rows", st.memory(frame(0, 40)), ts="ts"))
    run = query.start(spark, checkpoint=tmp_path / "ckpt", instances=2, rows_per_epoch=20)
    assert run.wait(LONG)
    assert [m["rows"] for m in run.metrics()] == [20, 20]
    assert [m.epoch for m in run.epochs()] == [0, 1]
    status = run.status()
    assert status["ended"]
    assert status["sources"]["rows"] == {"accepted": 40, "late": 0, "rejected": 0, "ended": True}
    again = query.start(spark, checkpoint=tmp_path / "ckpt")
    assert again.wait(LONG), "a query that has ended ends at once"
    assert sink.rows()["n"].sum() == 40


def test_a_query_runs_on_two_checkpoints_at_once(spark: Any, tmp_path: Path) -> None:
    runs = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        frame(0, 20).write_parquet(tmp_path / name / "0.parquet")
        query, _ = counting(st.source("rows", st.parquet(tmp_path / name, follow=True), ts="ts"))
        runs.append(query.start(spark, checkpoint=tmp_path / f"{name}-ckpt", instances=1))
    for run in runs:
        until(run, lambda run=run: accepted(run, "rows") == 20)  # type: ignore[misc]
        run.stop()


@pytest.mark.parametrize("lost", [False, True], ids=["stopped", "memory lost"])
def test_rows_that_spark_read_are_buffered_until_their_state_is_durable(spark: Any, tmp_path: Path, lost: bool) -> None:
    """SE-1: what Spark has read and committed is not read again; a recovery sends what the prefix kept."""
    files, memory = tmp_path / "in", tmp_path / "memory"
    for n in range(4):
        (files / str(n)).mkdir(parents=True)
    schema = "key string, value long, ts timestamp"
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(files / "*"))
    query, sink = counting(st.source("rows", st.spark(rows), ts="ts"))
    durable = st.Durability("never", shared_memory=memory, buffer=False, degree=2)
    run = query.start(spark, checkpoint=tmp_path / "ckpt", instances=2, durability=durable)
    for n in range(4):
        put(files / str(n) / "rows.parquet", frame(50 * n, 50))
        until(run, lambda n=n: accepted(run, "rows") == 50 * n + 50)  # type: ignore[misc]
        if n == 2 and lost:
            shutil.rmtree(memory)
    assert any("whole again" in text for _, text in run.events()) is lost
    assert run.checkpoint_now() == run.status()["epoch"]
    run.stop()
    compare(sink.rows(), query.run_reference({"rows": frame(0, 200)}, bounded=False).rows())


def test_what_spark_itself_fails_with_is_not_taken_for_the_end(spark: Any, tmp_path: Path) -> None:
    """Its log of offsets cannot be written: no epoch fails, there is none."""
    files = tmp_path / "in"
    files.mkdir()
    frame(0, 50).write_parquet(files / "0.parquet")
    stream = spark.readStream.schema(spark.read.parquet(str(files)).schema).parquet(str(files))
    query, sink = counting(st.source("rows", st.spark(stream), ts="ts"))
    offsets = tmp_path / "ckpt" / "spark" / "offsets"
    query.start(spark, checkpoint=tmp_path / "ckpt", trigger="available now").stop()
    shutil.rmtree(offsets.parent, ignore_errors=True)
    offsets.parent.mkdir()
    offsets.write_text("in the way")
    run = query.start(spark, checkpoint=tmp_path / "ckpt")
    with pytest.raises(st.SpringtideError, match=r"^Spark has ended the query: .+; .*next start"):
        run.wait(LONG)
    shutil.rmtree(offsets.parent)
    assert query.start(spark, checkpoint=tmp_path / "ckpt", trigger="available now").wait(LONG)
    compare(sink.rows(), query.run_reference({"rows": frame(0, 50)}, bounded=False).rows())


class Counted(st.KeyOperator):
    """Counts the rows of each key."""

    state: ClassVar = {"n": pl.Int64}
    output: ClassVar = {"key": pl.String, "n": pl.Int64, "ts": st.TIME}
    step = 1

    def init(self, key: tuple[Any, ...]) -> dict[str, Any]:
        return {"n": 0}

    def process(self, key: Any, state: dict[str, Any], tuples: pl.DataFrame, ready_ts: int) -> list[dict[str, Any]]:
        rows = []
        for ts in tuples["ts"]:
            state["n"] += self.step
            rows.append({"key": key[0], "n": state["n"], "ts": ts})
        return rows


class ByThousands(Counted):
    step = 1000

    def migrate(self, old: dict[str, Any]) -> dict[str, Any]:
        return {"n": old["n"] * 1000}


class Unwilling(Counted):
    def migrate(self, old: dict[str, Any]) -> dict[str, Any]:
        raise ZeroDivisionError("not today")


def test_a_query_is_replaced_while_it_runs(spark: Any, tmp_path: Path) -> None:
    """SM-3: another filter, other code, a sink more and another policy; a form that fails is taken back; what Spark reads stays as it is."""
    files, sink, copy = tmp_path / "in", st.memory_sink(), st.memory_sink()
    files.mkdir()
    write(files, 0)

    def form(operator: Counted, *more: Any, keep: bool = True, extra: tuple[Any, ...] = ()) -> st.Query:
        rows = st.source("rows", st.parquet(files, follow=True, schema=SCHEMA), ts="ts")
        counts = rows.filter(pl.lit(keep)).operator(operator, keys="key", name="counts")
        return st.Query("swapped", counts.to(sink, name="out"), *(rows.to(m, name="copy") for m in more), *extra)

    def newest() -> dict[str, int]:
        rows = sink.rows().group_by("key").agg(pl.col("n").max())
        return dict(zip(rows["key"], rows["n"], strict=True))

    run = form(Counted()).start(spark, checkpoint=tmp_path / "ckpt", instances=2)
    until(run, lambda: accepted(run, "rows") == 25)
    with pytest.raises(st.TakenBackError, match="not today"):
        run.replace(form(Unwilling(), copy))
    stream = spark.readStream.format("rate").load()
    other = st.source("other", st.spark(stream), ts="timestamp").to(st.memory_sink(), name="rate")
    with pytest.raises(st.QueryError, match=r"other .*is one that Spark reads, and was not there before"):
        run.replace(form(Counted(), extra=(other,)))
    run.replace(form(ByThousands(), copy), elastic=st.Elastic(max=2))
    write(files, 1)
    until(run, lambda: accepted(run, "rows") == 50)
    with pytest.raises(st.QueryError, match=r"step counts.*4 instances .*limits"):
        run.scale("counts", 4)
    run.replace(elastic=False)
    run.scale("counts", 4)
    run.replace(form(ByThousands(), keep=False))
    write(files, 2)
    until(run, lambda: accepted(run, "rows") == 75)
    run.stop()
    assert [d.change for d in run.decisions()].count("replaced") == 3
    assert copy.rows()["value"].sort().to_list() == list(range(25, 50)), "while it was there"
    assert sorted(newest().values()) == [16_000, 17_000, 17_000], "rows of the third file are not let in, but time is"
