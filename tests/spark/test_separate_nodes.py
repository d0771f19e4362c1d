"""Nodes that have nothing in common but an object store: in namespaces of their own, or, where these cannot be made, as processes with folders of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.machine import LONG
from tests.servers import nodes
from tests.servers.nodes import inside, why_not

ROOT = Path(__file__).parents[2]
FALLBACK = "no namespaces for nodes"
APART = """
import sys
from pathlib import Path
from tests.servers.nodes import network

folder = Path(sys.argv[1])
with network(folder / "nodes", ["one", "other"], namespaces=True) as nodes:
    for node in nodes.values():
        log = folder / f"{node.name}.log"
        node.start(["sh", "-c", "hostname; find /tmp -maxdepth 1 -type f; touch /tmp/$(hostname); getent hosts other; touch tests/x"], log).wait()
    nodes["one"].cut_off(); nodes["one"].let_back(); nodes["one"].slow_down(); nodes["one"].speed_up()
    left = nodes["one"].start(["sleep", "1000"], folder / "sleep.log")
    nodes["one"].kill()
    left.wait()
"""


def possible(kind: str) -> str:
    """Return what nodes can be here."""
    if kind == "namespaces" and (reason := why_not()) is not None:
        warnings.warn(f"{FALLBACK}, {reason}: they are processes with folders of their own", stacklevel=1)
        return "folders"
    return kind


@pytest.mark.spark
@pytest.mark.filterwarnings(f"always:{FALLBACK}")
@pytest.mark.parametrize(
    ("kind", "every"),
    [
        ("namespaces", "2s"),
        pytest.param("namespaces", "epoch", marks=pytest.mark.slow),
        pytest.param("folders", "2s", marks=pytest.mark.slow),
    ],
)
def test_nodes_come_and_go_the_store_is_away_and_the_driver_moves(tmp_path: Path, kind: str, every: str) -> None:
    """Every operator gives the reference's rows: the process that does all this has compared them."""
    kind = possible(kind)
    command = [sys.executable, "-m", "tests.spark.on_separate_nodes", "play", str(tmp_path), kind, every]
    child = subprocess.Popen(
        inside(command) if kind == "namespaces" else command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        said, noise = child.communicate(timeout=6 * LONG)
    finally:
        child.kill()
    assert child.returncode == 0, noise
    told: dict[str, Any] = json.loads(said.splitlines()[-1])
    assert len(told["results"]) == 8
    assert min(told["results"].values()) > 0
    assert not [f for f in tmp_path.rglob("*") if f.is_file() and b"hush-hush" in f.read_bytes()]


@pytest.mark.filterwarnings(f"always:{FALLBACK}")
def test_where_there_are_no_namespaces_nodes_are_folders_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "_ALONE", ["false"])
    assert possible("folders") == "folders"
    with warnings.catch_warnings(record=True) as said:  # as pytest does, which shows them at the end
        assert possible("namespaces") == "folders"
    assert [f"{warning.message}".partition(":")[0] for warning in said] == [f"{FALLBACK}, the system does not let us"]


def test_nodes_in_namespaces_have_names_files_and_processes_of_their_own(tmp_path: Path) -> None:
    if (reason := why_not()) is not None:
        pytest.skip(f"{FALLBACK}, {reason}")
    command = inside([sys.executable, "-c", APART, str(tmp_path)])
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, timeout=LONG)
    for name in ("one", "other"):
        said = (tmp_path / f"{name}.log").read_text().splitlines()
        assert said[0] == name
        assert said[1].split() == ["10.213.0.12", "other"], "a temporary folder of its own, without files"
        assert said[2].endswith("Read-only file system")
        assert [f.name for f in (tmp_path / "nodes" / name / "tmp").iterdir() if f.is_file()] == [name]
