"""Commands to a running query."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from springtide.runtime.commands import Commands
from springtide.state.control import Command, send


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
