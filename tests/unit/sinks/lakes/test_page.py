"""The page about lakes: its code runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from springtide.runtime.engine import Options
from springtide.runtime.inprocess import run
from springtide.testing import compare
from tests.unit.test_docs import ROOT, blocks


def test_delta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "lakes.md").read_text("utf-8")
    (code,) = [body for language, body in blocks(page) if language == "python"]
    names: dict[str, Any] = {}
    exec(compile(code, "lakes.md", "exec"), names)
    run(names["query"].plan(), tmp_path / "ckpt", Options(2, rows_per_epoch=500))
    expected = names["query"].run_reference().rows()
    compare(pl.read_delta("lake/bills").select(expected.columns), expected)
