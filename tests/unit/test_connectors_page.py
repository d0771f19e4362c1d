"""docs/connectors.md keeps its word: what it builds passes the suites."""

from __future__ import annotations

import gc
import re
import warnings
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "connectors.md"


def test_the_page_builds_a_source_and_a_sink_that_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the page closes no connection that it reads with
        exec(compile("\n".join(code), "connectors.md", "exec"), {})
        gc.collect()
    assert (tmp_path / "target2.db").exists()
