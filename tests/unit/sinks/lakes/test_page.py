"""The page about lakes: its code runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyiceberg.catalog import load_catalog

import springtide as st
from springtide.runtime.engine import Options
from springtide.runtime.inprocess import run
from springtide.testing import compare
from tests.unit.test_docs import ROOT, blocks

CODE = [body for language, body in blocks((ROOT / "docs" / "lakes.md").read_text("utf-8")) if language == "python"]


def test_delta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(CODE[0], "lakes.md", "exec"), names)
    run(names["query"].plan(), tmp_path / "ckpt", Options(2, rows_per_epoch=500))
    expected = names["query"].run_reference().rows()
    compare(pl.read_delta("lake/bills").select(expected.columns), expected)
    exec(compile(CODE[1], "lakes.md", "exec"), names)
    days = st.Query("days", names["days"].to(st.memory_sink())).run_reference().rows()
    assert days["seconds"].sum() == expected["seconds"].sum()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_iceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for body in (CODE[0], CODE[-1]):
        exec(compile(body, "lakes.md", "exec"), names)
    run(names["query"].plan(), tmp_path / "ckpt", Options(2, rows_per_epoch=500))
    expected = names["query"].run_reference().rows()
    table = load_catalog("default", **names["catalog"]).load_table("lake.bills")
    compare(pl.DataFrame(table.scan().to_arrow()).select(expected.columns), expected)
