"""Nodes that have nothing in common but an object store: separate caches on one machine, no shared checkpoint (network and mounts are shared)."""

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


@pytest.mark.parametrize("every", ["2s", pytest.param("epoch", marks=pytest.mark.slow)])
def test_a_node_dies_and_the_driver_moves(tmp_path: Path, s3: str, every: str) -> None:
    job = tmp_path / "job"
    job.mkdir()

    def environment(worker: int) -> dict[str, str]:
        return {"SPRINGTIDE_CACHE": str(job / f"cache-{worker}")}

    with standalone(tmp_path / "cluster", workers=2, cores=2, environment=environment) as master:
        address = s3.replace("?", "/ckpt?")
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.on_nodes", str(job), master, address, every],
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
    assert told["results"] > 0
    assert {"cache-0", "cache-1"} & set(told["caches"]), "segments were on the nodes"
    assert not [f for f in job.rglob("*") if f.is_file() and b"hush-hush" in f.read_bytes()]
