"""Every example is explained and run: SC-3 and SC-5 on the first queries of the papers. Those that the engine runs, run there too."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from springtide.cli.app import app
from springtide.cli.load import load_query
from springtide.query.steps import Sink
from springtide.runtime import inprocess
from springtide.runtime.engine import Options
from springtide.sinks.memory import MemorySink
from springtide.testing import compare

EXAMPLES = Path(__file__).parents[2] / "examples"

ROUTING = {
    "heavy_callers": ["", "hash(src)"],
    "clickstream": ["", "hash(session)", "hash(pattern)"],
    "word_count": ["", "hash(word)", "hash(word)"],
    "call_fraud": ["", "hash(src)"],
    "band_join": ["", "grid(16 × 16)"],
    "hashtags": ["", "hash(each of hashtags)"],
    "kafka_to_postgres": ["", "hash(src)"],
    "linear_road": ["", "hash(car)", "hash(segment, car)", "hash(segment)", "hash(segment)", "hash(segment)"],
}
ALONE = [name for name in ROUTING if name != "kafka_to_postgres"]
"""Those that need no server; the other one is run by tests/kafka/test_pipeline.py."""


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


@pytest.mark.spark
@pytest.mark.parametrize("name", ALONE)
def test_run(name: str, capsys: pytest.CaptureFixture[str], spark: Any) -> None:
    """As `python examples/NAME.py` does, but on the session that the tests have."""
    variables = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    shown = capsys.readouterr().out
    assert shown.startswith("shape: (")
    assert "shape: (0" not in shown
    assert variables["__doc__"]


@pytest.mark.parametrize("name", ALONE)
def test_on_the_engine(name: str, tmp_path: Path) -> None:
    """SM-10 among them: session, last five pages, top patterns; ST-2: tweets with several hashtags; SC-13: calls of one caller from two places; ST-6: the band join; and SE-8: tolls."""
    query = load_query(str(EXAMPLES / f"{name}.py"))
    (sink,) = query.of_kind(Sink).values()
    assert isinstance(sink.connector, MemorySink)
    inprocess.run(query.plan(), tmp_path / "ckpt", Options(instances=3, rows_per_epoch=400))
    compare(sink.connector.rows(), query.run_reference().rows())
