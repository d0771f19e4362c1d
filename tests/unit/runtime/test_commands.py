"""Commands to a running query."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest

from springtide.runtime import inprocess
from springtide.runtime.commands import Commands
from springtide.runtime.engine import Engine, Options
from springtide.state.control import Command, send
from tests.unit.runtime.crashing import every_row_is_there_once, files_to_files, write_input


def test_a_stop_that_comes_while_the_run_waits_is_not_forgotten(tmp_path: Path) -> None:
    """Though what it waits for works at the next attempt."""
    commands, nobody = Commands(tmp_path, lambda _: None), cast(Any, None)
    assert not commands.told_to_stop()
    assert not commands.take(nobody)
    left = send(tmp_path, Command("stop"))
    assert commands.told_to_stop()
    assert not left.exists(), "the next start does not find it"
    assert commands.told_to_stop()
    assert commands.take(nobody)


# ── what is no command (issue 11, 13) ─────────────────────────────────────────────────────────────────────────────

DEEP = "[" * 100_000
POISON = {
    "infinite": '{"command": "scale", "options": {"step": "aggregate", "instances": 1e999}}',
    "no number": '{"command": "scale", "options": {"step": "aggregate", "instances": NaN}}',
    "half": '{"command": "scale", "options": {"step": "aggregate", "instances": 1.5}}',
    "huge": '{"command": "scale", "options": {"step": "calls", "instances": 1000000000000}}',
    "digits": '{"command": "scale", "options": {"step": "aggregate", "instances": ' + "9" * 10_000 + "}}",
    "text": '{"command": "scale", "options": {"step": "aggregate", "instances": "two"}}',
    "true": '{"command": "scale", "options": {"step": "aggregate", "instances": true}}',
    "protocol": '{"command": "scale", "options": {"step": "aggregate", "instances": 2, "protocol": {"a": []}}}',
    "step": '{"command": "scale", "options": {"step": ["aggregate"], "instances": 2}}',
    "nothing": '{"command": "scale"}',
    "unknown": '{"command": "explode"}',
    "no name": '{"command": ["stop"]}',
    "options": '{"command": "scale", "options": [1]}',
    "buckets": '{"command": "move", "options": {"step": "aggregate", "buckets": "all", "to": 0}}',
    "bucket": '{"command": "move", "options": {"step": "aggregate", "buckets": [1e999], "to": 0}}',
    "deep": DEEP,
    "deeper": '{"command": "scale", "options": ' + '{"a":' * 50_000,
    "cut": '{"command": "sca',
    "bytes": "\udcff\udcfe",
    "empty": "",
    "long": '{"command": "' + "x" * (2 << 20) + '"}',
}


@pytest.mark.parametrize("name", POISON)
def test_what_is_no_command_is_refused_and_the_run_goes_on(tmp_path: Path, name: str) -> None:
    write_input(tmp_path)
    control = tmp_path / "checkpoint" / "control"

    def between(engine: Engine) -> bool:
        if engine.manifest.epoch == 1:
            control.mkdir(exist_ok=True)
            (control / "1.json").write_bytes(POISON[name].encode(errors="surrogateescape"))
            send(tmp_path / "checkpoint", Command("scale", {"step": "aggregate", "instances": 3}))
        assert not engine.take_commands()
        return engine.manifest.epoch < 4

    query = files_to_files(tmp_path).plan(buckets=8)
    engine = inprocess.run(query, tmp_path / "checkpoint", Options(2, rows_per_epoch=7), between=between)
    told = [text for _, text in engine.events]
    assert sum("was refused: " in text for text in told) == 1, told
    assert engine.maps["aggregate"].instances == 3, "the command behind it was done"
    assert [f.suffix for f in control.iterdir()] in ([], [".unreadable"])
    inprocess.run(query, tmp_path / "checkpoint", Options(2))
    every_row_is_there_once(tmp_path)


def test_what_is_no_file_is_left_alone_and_told_once(tmp_path: Path) -> None:
    root, control, told = tmp_path / "checkpoint", tmp_path / "checkpoint" / "control", list[str]()
    (control / "folder.json").mkdir(parents=True)
    (tmp_path / "own.json").write_text("mine")
    os.symlink(tmp_path / "own.json", control / "link.json")
    os.mkfifo(control / "pipe.json")
    (control / "secret.json").write_text('{"command": "stop"}')
    (control / "secret.json").chmod(0)
    commands, nobody = Commands(root, told.append), cast(Any, None)
    for _ in range(3):
        stops = commands.take(nobody)
        assert stops == (os.getuid() == 0), "root may read everything"
        commands.stopped = stops
    assert (tmp_path / "own.json").read_text() == "mine"
    kept = {"folder.json", "link.json", "pipe.json"}
    assert kept <= {f.name for f in control.iterdir()}
    refused = [text for text in told if "was refused: it cannot be read" in text]
    assert {text.split("'")[1] for text in refused} >= kept
    assert len(refused) == len(set(refused)) == 3 + (os.getuid() != 0)


def test_a_control_folder_that_is_a_link_or_a_file_is_not_looked_into(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "notes.json").write_text("mine")
    os.symlink(tmp_path / "own", tmp_path / "control")
    commands, nobody = Commands(tmp_path, lambda _: None), cast(Any, None)
    assert not commands.take(nobody)
    assert (tmp_path / "own" / "notes.json").read_text() == "mine"
    (tmp_path / "control").unlink()
    (tmp_path / "control").write_text("a file")
    assert not commands.take(nobody)


def test_a_command_that_cannot_be_removed_is_done_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    commands, nobody = Commands(tmp_path, told.append), cast(Any, None)
    send(tmp_path, Command("stop"))

    def refused(self: Path, *, missing_ok: bool = False) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "unlink", refused)
    assert commands.take(nobody)
    assert not commands.take(nobody)
    assert "cannot be removed (Operation not permitted): remove it" in told[0]
