"""Manifests that somebody forged, with a checksum that fits, cannot reach anything outside of the checkpoint (issue 11, 14)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import springtide as st
from springtide import state
from springtide.runtime import inprocess
from springtide.runtime.engine import Engine, Options
from springtide.state.checkpoint import Checkpoint
from springtide.state.verifying import verify
from tests.contract.damage import as_manifest
from tests.unit.runtime.crashing import every_row_is_there_once, files_to_files, write_input

LOG: dict[str, Any] = {
    "times": {},
    "greatest": {},
    "slices": {},
    "buffers": {},
    "rows": 0,
    "idle": False,
    "memory": None,
}

ELASTIC: dict[str, Any] = {"format": 1, "paused": False, "underway": {}, "changed": {}, "wishes": {}, "refusals": []}

BODIES: dict[str, Callable[[Any, str], Any]] = {
    "a segment": lambda body, path: body["state"]["aggregate"]["segments"][0].update(file=path),
    "rows for a sink": lambda body, path: body["outbox"].append(
        {"sink": "copy", "file": path, "rows": 1, "instance": 0}
    ),
    "a ledger": lambda body, path: body["sources"]["numbers"]["position"]["ledger"].update(files=[[path, 1, 1]]),
    "a buffer": lambda body, path: body.update(log=LOG | {"buffers": {"numbers": [[path]]}}),
}
PATHS = [
    *(
        "../outside/own.arrow",
        "state/../../outside/own.arrow",
        "outbox/../../outside/own.arrow",
        "state/a/../own.arrow",
    ),
    *(
        "state//own.arrow",
        "state/./own.arrow",
        "state/a/.own",
        "state/a\\b/own",
        "state/a/b\0",
        "state",
        "",
        "ABSOLUTE",
    ),
]


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A checkpoint in the middle of its input, and files of somebody's own beside it."""
    write_input(tmp_path)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "own.arrow").write_bytes(b"mine")
    run(tmp_path, lambda engine: engine.manifest.epoch < 2)
    return tmp_path


def run(folder: Path, between: Callable[[Engine], bool] = lambda _: True) -> Engine:
    plan = files_to_files(folder).plan(buckets=8)
    return inprocess.run(plan, folder / "checkpoint", Options(2, rows_per_epoch=7), between=between)


def forge(folder: Path, change: Callable[[Any], Any]) -> None:
    checkpoint = Checkpoint(folder / "checkpoint")
    path = checkpoint.root / "manifests" / f"{checkpoint.epochs()[-1]:09d}"
    body = json.loads(path.read_bytes())["body"]
    change(body)
    path.write_bytes(as_manifest(body))


@pytest.mark.parametrize("what", BODIES)
@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_leads_out_is_refused(stopped: Path, what: str, path: str) -> None:
    own = stopped / "outside" / "own.arrow"
    forge(stopped, lambda body: BODIES[what](body, str(own) if path == "ABSOLUTE" else path))
    root = stopped / "checkpoint"
    for act in (
        lambda: run(stopped),
        lambda: state.backup(root, stopped / "copy"),
        lambda: state.trim(root, keep=1),
        lambda: state.save(root, "one"),
    ):
        with pytest.raises(st.CheckpointError, match=r"manifest of epoch 2 is damaged .*is not a file below"):
            act()
    assert [d.file for d in verify(root).damaged] == ["manifests/000000002"]
    assert own.read_bytes() == b"mine"


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.update(epoch=9),
        lambda body: body["maps"]["aggregate"].update(instances=1),
        lambda body: body["maps"]["aggregate"].update(instances=10**12),
        lambda body: body["sources"]["numbers"].update(accepted=float("inf")),
        lambda body: body["state"]["aggregate"]["segments"][0].update(rows=2**70),
        lambda body: body["state"]["aggregate"]["segments"][0].update(bytes=-1),
        lambda body: body["metrics"].update(at=float("nan")),
        lambda body: body["metrics"].pop("seconds"),
        lambda body: body["metrics"].update(events=["scaled"]),
        lambda body: body["metrics"]["subqueries"]["aggregate"].update(rows_in=[-1]),
        lambda body: body["sources"]["numbers"].update(attached={"more": {"ended": "yes"}}),
        lambda body: body.update(elastic={"format": 1}),
        lambda body: body.update(elastic=ELASTIC | {"underway": {"aggregate": {}}}),
        lambda body: body.update(elastic=ELASTIC | {"refusals": [7]}),
        lambda body: body.pop("maps"),
        lambda body: body.update(log=7),
        lambda body: body.update(log={name: part for name, part in LOG.items() if name != "buffers"}),
        lambda body: body["shadows"].update({"\ud800": 1}),
        lambda body: body["maps"].pop("aggregate"),
        lambda body: body["maps"]["aggregate"]["owners"].pop(),
        lambda body: body["sources"].pop("numbers"),
        lambda body: body.update(accounts="none"),
        lambda body: body["accounts"].update({"source numbers": {"read": "all"}}),
    ],
)
def test_what_no_run_writes_is_refused(stopped: Path, change: Callable[[Any], Any]) -> None:
    forge(stopped, change)
    with pytest.raises(st.CheckpointError, match=r"manifest of epoch 2 is damaged .*; restore that file"):
        run(stopped)


@pytest.mark.parametrize(
    "place",
    [
        "state",
        "state/aggregate",
        "outbox",
        "manifests",
        "savepoints",
        "spark",
        "spark/sources/0",
        "spark-runs",
        "spark-runs/1a2b",
    ],
)
def test_a_link_that_leads_out_is_refused(stopped: Path, place: str) -> None:
    """What is removed or moved behind it would be somebody else's."""
    root, elsewhere = stopped / "checkpoint", stopped / "elsewhere"
    (root / place).mkdir(parents=True, exist_ok=True)
    shutil.move(root / place, elsewhere)
    os.symlink(elsewhere, root / place)
    before = sorted(elsewhere.rglob("*"))
    with pytest.raises(st.CheckpointError, match=f"has a link at {place}, which leads to .*; put the file"):
        run(stopped)
    with pytest.raises(st.CheckpointError, match="has a link"):
        state.trim(root, keep=1)
    assert sorted(elsewhere.rglob("*")) == before
    (root / place).unlink()
    shutil.move(elsewhere, root / place)
    run(stopped)
    every_row_is_there_once(stopped)


@pytest.mark.parametrize("file", ["springtide.json", "manifests/000000002"])
@pytest.mark.parametrize("kind", ["folder", "pipe", "deep"])
def test_what_is_no_file_of_ours_is_refused(stopped: Path, file: str, kind: str) -> None:
    path = stopped / "checkpoint" / file
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(b"[" * 100_000)
    with pytest.raises(st.CheckpointError, match="damaged"):
        run(stopped)


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "link to nowhere"])
def test_what_sinks_have_is_never_written_into_a_file_of_somebody_else(stopped: Path, kind: str) -> None:
    path, own = stopped / "checkpoint" / "published", stopped / "outside" / "own.arrow"
    path.unlink()
    match kind:
        case "link":
            os.symlink(own, path)
        case "hard link":
            os.link(own, path)
        case "pipe":
            os.mkfifo(path)
        case _:
            os.symlink(stopped / "outside" / "new", path)
    run(stopped)
    assert path.is_file()
    assert not path.is_symlink()
    assert [f.name for f in own.parent.iterdir()] == [own.name]
    assert own.read_bytes() == b"mine"
    every_row_is_there_once(stopped)


@pytest.mark.parametrize(
    "forged",
    [{"keys": ["k", "k"]}, {"tables": [{"panes": 1}]}, {"tables": 7}, {"columns": None}, {"every": None}, {"size": 0}],
    ids=str,
)
def test_what_is_said_of_the_state_is_as_a_run_says_it(stopped: Path, forged: dict[str, Any]) -> None:
    path = stopped / "checkpoint" / "springtide.json"
    marker = json.loads(path.read_bytes())
    said = marker["identity"]["state"]["aggregate"]
    said |= forged
    marker["identity"]["state"]["aggregate"] = {
        name: value for name, value in said.items() if value is not None or name == "columns"
    }
    path.write_text(json.dumps(marker))
    with pytest.raises(st.CheckpointError, match=r"damaged springtide\.json"):
        run(stopped)


@pytest.mark.parametrize("part", [[], ["a", "b", "c", "d"], [1], "text"], ids=str)
def test_what_is_said_of_the_steps_is_as_a_run_says_it(stopped: Path, part: Any) -> None:
    path = stopped / "checkpoint" / "springtide.json"
    marker = json.loads(path.read_bytes())
    forms = marker["identity"]["forms"]["aggregate"]
    forms[next(iter(forms))] = part
    path.write_text(json.dumps(marker))
    with pytest.raises(st.CheckpointError, match=r"damaged springtide\.json"):
        run(stopped)
