"""The notebook runs from beginning to end, and shows what it says it shows."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.machine import LONG

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: no notebook is run")
pytest.importorskip("ipykernel", reason="ipykernel is not installed: no notebook is run")

pytestmark = pytest.mark.spark

NOTEBOOK = Path(__file__).parents[2] / "examples" / "first_steps.ipynb"


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The cells of code, with their output."""
    folder = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "save it without output: it has paths of a machine"
    # a kernel inherits the environment; `python` in its description may be another one than that of the tests
    environment = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "TMPDIR": str(folder)}
    client = nbclient.NotebookClient(
        notebook, timeout=LONG, resources={"metadata": {"path": str(folder)}}, kernel_name="python3"
    )
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        client.execute()
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    if (kept := os.environ.get("SPRINGTIDE_NOTEBOOK")) is not None:  # to look at it
        nbformat.write(notebook, kept)
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cell: Any) -> dict[str, str]:
    """What a cell shows, by its type."""
    (result,) = [output for output in cell.outputs if output.output_type == "execute_result"]
    return dict(result.data)


def test_a_stream_shows_its_columns_and_some_rows(cells: list[Any]) -> None:
    html = shown(cells[1])["text/html"]
    assert "columns" in html
    assert "<td" in html
    assert "the first rows, by the reference" in html


def test_a_query_is_a_picture(cells: list[Any]) -> None:
    picture = shown(cells[3])["image/svg+xml"]
    assert picture.startswith("<svg")
    assert "heavy, 256 buckets" in picture
    assert "hash(src)" in picture


def test_a_run_is_a_live_panel_and_ends(cells: list[Any]) -> None:
    first, last = shown(cells[4]), shown(cells[-1])
    assert "application/vnd.jupyter.widget-view+json" in first
    assert "heavy-callers: running" in first["text/html"]
    assert "heavy-callers: stopped" in last["text/html"]
    assert "heavy" in last["text/html"]


def test_decisions_and_snapshots_are_tables(cells: list[Any]) -> None:
    decisions, snapshot = shown(cells[6])["text/html"], shown(cells[7])["text/html"]
    assert "1 → 3 instances" in decisions
    assert "utilisation" in snapshot


def test_nothing_goes_wrong_on_the_way(cells: list[Any]) -> None:
    said = [o for cell in cells for o in cell.outputs if o.output_type == "stream" and o.name == "stderr"]
    ours = "".join(o.text for o in said)
    assert "heavy-callers runs on local[" in ours
    assert "Traceback" not in ours
