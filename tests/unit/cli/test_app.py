from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from typer.testing import Result

import springtide

Run = Callable[..., Result]


def test_help_names_every_command(run: Run) -> None:
    for arguments in (["--help"], ["-h"]):
        shown = run(*arguments).output
        looking = ("explain", "plan", "run", "status", "state", "history", "demo", "--version")
        telling = ("scale", "move", "rebalance", "pause", "resume", "stop")
        assert all(command in shown for command in (*looking, *telling))


def test_no_command_shows_the_help(run: Run) -> None:
    assert "Usage: springtide" in run().output


def test_version(run: Run) -> None:
    result = run("--version")
    assert (result.exit_code, result.output) == (0, f"springtide {springtide.__version__}\n")


def test_errors_are_one_line_on_stderr(run: Run) -> None:
    result = run("explain", "none.py")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "error: there is no file none.py\n")


def test_module_can_be_run() -> None:
    source = Path(springtide.__file__).parents[1]
    shown = subprocess.run(
        [sys.executable, "-m", "springtide.cli", "--version"],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == f"springtide {springtide.__version__}\n"
