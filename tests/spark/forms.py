"""The two forms of an epoch on Spark, chosen by a test instead of by how fast the machine is."""

from __future__ import annotations

import math

import pytest

from springtide.runtime.spark import brevity
from springtide.runtime.spark.run import Run


def choose_form(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have epochs in stages, or all that can be in one task."""
    limit = math.inf if form == "one task" else 0.0
    monkeypatch.setattr(brevity, "SHORT", limit)
    monkeypatch.setattr(brevity, "LONG", limit)


def forms(run: Run) -> set[str]:
    """Return the forms that the epochs of a run had."""
    one_task = {load.span is None for s in run.snapshots() for load in s.subqueries.values()}
    return {"one task" if each else "stages" for each in one_task}
