"""`springtide scale` and `springtide stop` reach a running query through its checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from typer.testing import Result

from springtide.state.checkpoint import Checkpoint

Run = Callable[..., Result]
Running = Callable[[], AbstractContextManager[Path]]


def test_scale_tells_that_it_was_taken_up(run: Run, running: Running) -> None:
    with running() as ckpt:
        assert run("scale", ckpt, "counts", 5).stdout.startswith("counts: 2 → 5 instances, since epoch ")
        assert run("scale", ckpt, "counts", 5).stdout == "counts has 5 instances already\n"
        assert run("scale", ckpt, "kept", 1).stdout.startswith("counts: 5 → 1 instance, since epoch ")
        manifest = Checkpoint(ckpt).latest()
    assert manifest is not None
    assert manifest.maps["counts"].instances == 1
    assert manifest.maps["x"].instances == 2


def test_scale_of_no_step(run: Run, running: Running) -> None:
    with running() as ckpt:
        result = run("scale", ckpt, "cuonts", 5)
    assert result.exit_code == 1
    assert result.stderr == "error: the query 'numbers' has no step 'cuonts'; did you mean 'counts'?\n"


def test_stop(run: Run, running: Running) -> None:
    with running() as ckpt:
        assert run("stop", ckpt).stdout.startswith("numbers stopped after epoch ")
        assert not Checkpoint(ckpt).in_use()
    assert list((ckpt / "control").glob("*.json")) == []


def test_no_time_to_wait(run: Run, running: Running) -> None:
    with running() as ckpt:
        assert run("scale", ckpt, "counts", 3, "--wait", 0).stdout == (
            "left for numbers; it will take it up after the epoch at work\n"
        )
        assert run("stop", ckpt, "--wait", 0).stdout == "left for numbers; it will stop after the epoch at work\n"


@pytest.mark.parametrize("command", [["stop"], ["scale", "counts", 2]], ids=["stop", "scale"])
def test_nobody_is_there(run: Run, checkpoint: Callable[..., Path], command: list[object]) -> None:
    ckpt = checkpoint()
    name, *rest = command
    result = run(name, ckpt, *rest)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"error: the query 'numbers' is not running on {ckpt}; springtide run starts it\n"
    assert not list(ckpt.glob("control/*"))
