"""Tasks go where their state is, through Spark's own preferred locations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.elastic.standalone import standalone

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]


def test_instances_stay_where_their_state_is_and_give_way_when_that_is_gone(tmp_path: Path, s3: str) -> None:
    job = tmp_path / "job"
    job.mkdir()

    def environment(worker: int) -> dict[str, str]:
        return {"SPRINGTIDE_CACHE": str(job / f"cache-{worker}")}

    with standalone(tmp_path / "cluster", workers=2, cores=1, environment=environment) as master:
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.at_home", str(job), master, s3.replace("?", "/ckpt?")],
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
    assert told["after"] == told["before"], "nobody moves for nothing"
    assert len({told["after"][f"counts {i}"] for i in range(2)}) == 2, "each executor has its share"
    assert told["read"] > 0
    assert told["fetched"] <= 0.1 * told["read"], f"{told}: state is on the node that reads it"
    assert told["at_last"] != told["after"], "who has no executor any more is elsewhere"
