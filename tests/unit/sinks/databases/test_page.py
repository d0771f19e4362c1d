"""The page about databases: its code runs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.query.steps import Sink
from springtide.runtime.engine import Options
from springtide.runtime.inprocess import run
from springtide.testing import compare
from tests.servers.postgres import Postgres
from tests.unit.test_docs import ROOT, blocks

PAGE = (ROOT / "docs" / "databases.md").read_text("utf-8")
CODE = [body for language, body in blocks(PAGE) if language == "python"]


def names(url: str, *numbers: int) -> dict[str, Any]:
    """What these blocks of the page define."""
    found: dict[str, Any] = {}
    for number in numbers:
        exec(compile(CODE[number].replace("postgresql://me@db.example/calls", url), "databases.md", "exec"), found)
    return found


def test_postgres(tmp_path: Path, postgres: Postgres) -> None:
    query: st.Query = names(postgres.url, 0)["query"]
    run(query.plan(), tmp_path / "ckpt", Options(2, rows_per_epoch=500))
    expected = query.run_reference().rows("bills")
    columns = ", ".join(expected.columns)
    compare(pl.DataFrame(postgres.ask(f"SELECT {columns} FROM bills"), schema=expected.schema, orient="row"), expected)
    latest = expected.sort("window_start").unique("src", keep="last")
    found = postgres.ask(f"SELECT {columns} FROM latest")
    compare(pl.DataFrame(found, schema=expected.schema, orient="row"), latest)


def test_a_table_as_input(tmp_path: Path, postgres: Postgres) -> None:
    postgres.ask("CREATE TABLE calls (src text, ts timestamptz, ended bool)")
    postgres.ask(
        "INSERT INTO calls SELECT 's' || g % 5, '2024-05-01Z'::timestamptz + make_interval(mins => g * 7 % 300), g % 4 > 0 FROM generate_series(1, 300) g"
    )
    query: st.Query = names(postgres.url, 0, 1)["again"]
    engine = run(query.plan(), tmp_path / "ckpt", Options(2, rows_per_epoch=50))
    assert engine.manifest.ended
    (sink,) = [step.connector for step in query.of_kind(Sink).values()]
    compare(sink.rows(), query.run_reference().rows())
    assert sum(sink.rows()["calls"]) == 225


def test_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    query: st.Query = names("postgresql://nowhere/x", 0, 2)["query"]
    run(query.plan(), tmp_path / "ckpt", Options(2, rows_per_epoch=500))
    with closing(sqlite3.connect("bills.db")) as connection:
        found = connection.execute("SELECT src, seconds, calls FROM bills").fetchall()
    expected = query.run_reference().rows()
    assert sorted(found) == sorted(expected.select("src", "seconds", "calls").rows())
