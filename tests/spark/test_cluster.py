"""A standalone cluster: executors come before buckets move and go after; those that never come or die change no row (SC-12, SE-6)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.elastic.standalone import standalone
from tests.wording import says

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]


def drive(folder: Path, *arguments: str) -> dict[str, Any]:
    """Start a cluster of two workers with two cores each, and drive a query through its changes there."""
    (folder / "job").mkdir()
    with standalone(folder / "cluster", workers=2, cores=2) as master:
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.on_cluster", str(folder / "job"), master, *arguments],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            said, noise = child.communicate(timeout=900)
        finally:
            child.kill()
    assert child.returncode == 0, noise
    told: dict[str, Any] = json.loads(said.splitlines()[-1])
    return told


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run with everything in it: a cluster takes seconds to start. It has compared its rows with the reference."""
    return drive(tmp_path_factory.mktemp("cluster"))


def test_executors_come_and_go_with_the_instances(told: dict[str, Any]) -> None:
    """1 → 4 → 1 under load: what waits is applied once they are there, and what is not needed goes."""
    assert told["executors_out"] == 4
    assert told["notes"][:3] == [
        "counts waits for executors to have 4 instances",
        "scaled counts: 1 → 4 instances",
        "scaled counts: 4 → 1 instance",
    ]
    assert told["results"] > 0


def test_an_executor_killed_during_a_change_changes_no_row(told: dict[str, Any]) -> None:
    assert told["notes"][3:5] == ["counts waits for executors to have 3 instances", "scaled counts: 1 → 3 instances"]


def test_executors_that_never_come_do_not_stop_the_query(told: dict[str, Any]) -> None:
    """There are four slots for nine instances: those that came are used, and the query has run on meanwhile."""
    waits, dropped, *more = told["notes_of_the_second_start"]
    assert waits == "counts waits for executors to have 9 instances"
    assert says(dropped, "scale counts: 2 → 9 instances; ", "dropped: executors ", "of 9 instances", "in time")
    assert more[-1].endswith(" → 1 instance")
    assert told["epochs_meanwhile"] > 0


@pytest.mark.slow
def test_a_warm_pool_that_is_decommissioned(tmp_path: Path) -> None:
    """SE-6: with one executor in the pool there is one more than needed, before and after; executors finish their tasks before they go."""
    told = drive(tmp_path, "1", "spark_decommission_enabled=true")
    assert told["notes"][1] == "scaled counts: 1 → 4 instances"
    assert told["results"] > 0
