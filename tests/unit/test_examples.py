"""Every example is explained and run: SC-3 and SC-5 on the first queries of the papers."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from springtide.cli.app import app

EXAMPLES = Path(__file__).parents[2] / "examples"

ROUTING = {
    "heavy_callers": ["", "hash(src)"],
    "clickstream": ["", "hash(session)", "hash(pattern)"],
    "band_join": ["", "grid(16 × 16)"],
}


def test_all_examples_are_here() -> None:
    assert sorted(file.stem for file in EXAMPLES.glob("*.py")) == sorted(ROUTING)


@pytest.mark.parametrize("name", ROUTING)
def test_explain(name: str, golden: Callable[[str, str], None]) -> None:
    result = CliRunner().invoke(app, ["explain", str(EXAMPLES / f"{name}.py")])
    assert result.exit_code == 0
    subqueries = [line for line in result.stdout.splitlines() if line.startswith("subquery")]
    assert len(subqueries) == len(ROUTING[name])
    assert all(routing in line for line, routing in zip(subqueries, ROUTING[name], strict=True))
    golden(f"examples/{name}", result.stdout)


@pytest.mark.parametrize("name", ROUTING)
def test_run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    variables = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    shown = capsys.readouterr().out
    assert shown.startswith("shape: (")
    assert "shape: (0" not in shown
    assert variables["__doc__"]
