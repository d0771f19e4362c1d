"""Commands to a running query, as files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from springtide.state.control import Command, receive, send


def test_commands_stay_until_they_are_done_oldest_first(tmp_path: Path) -> None:
    commands = [Command("scale", {"step": "agg", "instances": n}) for n in (1, 2, 3)] + [Command("stop")]
    for command in commands:
        assert send(tmp_path, command).exists()
    assert receive(tmp_path) == commands
    assert receive(tmp_path) == commands, "whoever receives them may die before they are done"
    files = [c.file for c in receive(tmp_path)]
    assert receive(tmp_path, files[:3]) == [Command("stop")]
    for file in files:
        file.unlink()
    assert receive(tmp_path) == []


def test_no_folder_no_commands(tmp_path: Path) -> None:
    assert receive(tmp_path) == []
    assert receive(tmp_path / "nowhere") == []


def test_a_command_that_is_still_being_written_is_not_seen(tmp_path: Path) -> None:
    send(tmp_path, Command("stop"))
    (tmp_path / "control" / ".1-abc.partial").write_text('{"comm')
    assert receive(tmp_path) == [Command("stop")]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", "{}", '{"command": "x", "options": 5}', '{"options": {}}', "\udcff"]
)
def test_what_cannot_be_read_is_put_aside(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "control"
    folder.mkdir()
    (folder / "1.json").write_bytes(text.encode(errors="surrogateescape"))
    send(tmp_path, Command("stop"))
    assert receive(tmp_path) == [Command("stop")]
    assert "1.unreadable" in [f.name for f in folder.iterdir()]
    assert receive(tmp_path) == [Command("stop")]


def test_options_may_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "control").mkdir()
    (tmp_path / "control" / "1.json").write_text(json.dumps({"command": "stop"}))
    assert receive(tmp_path) == [Command("stop", {})]
