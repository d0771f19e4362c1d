"""The pages that teach keep their word: their Python blocks run in the order in which they stand, and print what is shown."""

from __future__ import annotations

import io
import os
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.test_docs import ROOT, blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALONE = ["howto/behind.md", "howto/operator.md", "howto/policy.md"]
ON_SPARK = ["tutorial.md", "howto/from-spark.md"]


def run_page(name: str, names: dict[str, Any]) -> None:
    """Run the blocks of a page one after the other; a text block behind one of Python is what that prints."""
    found = blocks((ROOT / "docs" / name).read_text("utf-8"))
    assert any(language == "python" for language, _ in found)
    for i, (language, code) in enumerate(found):
        if language != "python":
            continue
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(code, f"docs/{name}, block {i + 1}", "exec"), names)
        if i + 1 < len(found) and found[i + 1][0] == "text":
            assert printed.getvalue() == found[i + 1][1]


@pytest.mark.parametrize("page", ALONE)
def test_code_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page, {"__name__": "page"})


@pytest.mark.spark
@pytest.mark.parametrize("page", ON_SPARK)
def test_code_runs_on_spark(page: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkdir("calls")  # what Spark reads in the how-to
    run_page(page, {"__name__": "page", "spark": spark})


def test_every_page_that_has_code_is_run() -> None:
    teaching = [ROOT / "docs" / "tutorial.md", *(ROOT / "docs" / "howto").glob("*.md")]
    with_code = {str(p.relative_to(ROOT / "docs")) for p in teaching if "\n```python\n" in p.read_text("utf-8")}
    assert with_code == {*ALONE, *ON_SPARK}
