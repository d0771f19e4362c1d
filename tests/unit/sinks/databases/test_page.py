"""The page about databases: its code runs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.runtime.engine import Options
from springtide.runtime.inprocess import run
from springtide.testing import compare
from tests.servers.postgres import Postgres
from tests.unit.test_docs import ROOT, blocks

PAGE = (ROOT / "docs" / "databases.md").read_text("utf-8")
CODE = [body for language, body in blocks(PAGE) if language == "python"]


def names(url: str, count: int) -> dict[str, Any]:
    """What the first blocks of the page define."""
    found: dict[str, Any] = {}
    for body in CODE[:count]:
        exec(compile(body.replace("postgresql://me@db.example/calls", url), "databases.md", "exec"), found)
    return found


def test_postgres(tmp_path: Path, postgres: Postgres) -> None:
    query: st.Query = names(postgres.url, 1)["query"]
    run(query.plan(), tmp_path / "ckpt", Options(2, rows_per_epoch=500))
    expected = query.run_reference().rows("bills")
    columns = ", ".join(expected.columns)
    compare(pl.DataFrame(postgres.ask(f"SELECT {columns} FROM bills"), schema=expected.schema, orient="row"), expected)
    latest = expected.sort("window_start").unique("src", keep="last")
    found = postgres.ask(f"SELECT {columns} FROM latest")
    compare(pl.DataFrame(found, schema=expected.schema, orient="row"), latest)


def test_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    query: st.Query = names("postgresql://nowhere/x", 2)["query"]
    run(query.plan(), tmp_path / "ckpt", Options(2, rows_per_epoch=500))
    with closing(sqlite3.connect("bills.db")) as connection:
        found = connection.execute("SELECT src, seconds, calls FROM bills").fetchall()
    expected = query.run_reference().rows()
    assert sorted(found) == sorted(expected.select("src", "seconds", "calls").rows())
