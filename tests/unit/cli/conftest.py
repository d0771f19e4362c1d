"""Runs commands, writes small files with queries in them, and makes checkpoints without Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent

import polars as pl
import pytest
from typer.testing import CliRunner, Result

import springtide as st
from springtide.cli.app import app
from springtide.runtime import inprocess
from springtide.runtime.engine import Options

Run = Callable[..., Result]

BEGIN = datetime(2024, 5, 1, tzinfo=UTC)
ROWS = 600
MANY = 20 * ROWS
"""Rows of a query that has not come to its end when a test is done with it, however slow the machine is."""


@pytest.fixture
def run() -> Run:
    """`run("explain", "file.py")` gives the exit code, stdout and stderr."""
    return lambda *arguments: CliRunner().invoke(app, [str(a) for a in arguments], prog_name="springtide")


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], Path]:
    """Write a program that has `x`, a source of numbers `n`, and `out`, a sink, and then these lines."""

    def write(lines: str, name: str = "program.py") -> Path:
        begin = """\
        import polars as pl
        import springtide as st
        out = st.memory_sink()
        x = st.source("x", st.memory(schema={"n": pl.Int64, "k": pl.String, "ts": st.TIME}), ts="ts")
        """
        path = tmp_path / name
        path.write_text(dedent(begin) + dedent(lines), "utf-8")
        return path

    return write


@pytest.fixture
def query() -> st.Query:
    """Ten minutes of numbers, one per second, of the keys a, b and c: per key and minute their mean, maximum and number."""
    return numbers(ROWS)


def numbers(count: int) -> st.Query:
    rows = [{"k": "abc"[i % 3], "n": i, "ts": BEGIN + timedelta(seconds=i)} for i in range(count)]
    frame = pl.DataFrame(rows, schema={"k": pl.String, "n": pl.Int64, "ts": st.TIME})
    counts = st.source("x", st.memory(frame), ts="ts").aggregate(
        by="k", window=st.sliding("4m", every="2m"), avg=st.mean("n"), top=st.max("n"), name="counts"
    )
    return st.Query("numbers", counts.filter(pl.col("avg") > 0, name="kept").to(st.memory_sink()))


@pytest.fixture
def checkpoint(query: st.Query, tmp_path: Path) -> Callable[..., Path]:
    """Run the query in this process, 100 rows per epoch, for some epochs; give its checkpoint."""

    def make(epochs: int = 3, instances: int = 2) -> Path:
        left = iter(range(epochs))
        inprocess.run(
            query.plan(),
            tmp_path / "ckpt",
            Options(instances, rows_per_epoch=100),
            between=lambda engine: next(left, None) is not None,
        )
        return tmp_path / "ckpt"

    return make


@pytest.fixture
def running(tmp_path: Path) -> Callable[..., AbstractContextManager[Path]]:
    """Have a longer query at work in another thread, a row (or a few) per epoch, until it is told to stop.

    With `held` it comes to its third epoch and no further: what is left for it is not taken up before the test is over.
    """

    @contextmanager
    def start(elastic: st.Elastic | None = None, rows: int = 1, held: bool = False) -> Iterator[Path]:
        def between(engine: inprocess.Engine) -> bool:
            over.wait(None if held and engine.manifest.epoch == 2 else 0.02)
            return not engine.take_commands() and not over.is_set()

        over = threading.Event()
        arguments = (numbers(MANY).plan(), tmp_path / "ckpt", Options(2, rows_per_epoch=rows, elastic=elastic))
        thread = threading.Thread(target=inprocess.run, args=arguments, kwargs={"between": between})
        thread.start()
        try:
            while not (tmp_path / "ckpt" / "manifests" / f"{2:09d}").exists():
                assert thread.is_alive(), "the query has ended before its third epoch"
                time.sleep(0.01)
            yield tmp_path / "ckpt"
        finally:
            over.set()
            thread.join()

    return start
