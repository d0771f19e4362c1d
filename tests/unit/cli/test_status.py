"""`springtide status` reads a checkpoint, whether its query runs or not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from typer.testing import Result

import springtide as st
from springtide.runtime.identity import identity
from springtide.state.checkpoint import Checkpoint
from tests.wording import says

Run = Callable[..., Result]


def table(text: str, first: str) -> list[dict[str, str]]:
    """The rows of the table whose heading begins with a word."""
    (part,) = [p for p in text.split("\n\n") if p.startswith(first)]
    head, *rows = [line.split(maxsplit=part.splitlines()[0].count("  ")) for line in part.splitlines()]
    return [dict(zip(part.splitlines()[0].split(), row, strict=False)) for row in rows if head]


def test_stopped_query(run: Run, checkpoint: Callable[..., Path]) -> None:
    shown = run("status", checkpoint(epochs=4)).stdout
    assert shown.startswith("query numbers, stopped\n\nlast epoch  3, committed at ")
    assert "\nrows        100 in, " in shown
    assert "\nbacklog     200 rows\n" in shown
    (source,) = table(shown, "source")
    assert (source["source"], source["accepted"], source["late"], source["rejected"]) == ("x", "400", "0", "0")
    assert source["time"] == "2024-05-01 00:06:39"
    first, second = [line.split() for line in shown.splitlines()[-2:]]
    assert first == ["x", "2", "–", "–", "–", "–"]
    assert second[:3] == ["counts", "2", "256"]
    assert int(second[4]) > 0


def test_query_at_its_end(run: Run, checkpoint: Callable[..., Path]) -> None:
    shown = run("status", checkpoint(epochs=100)).stdout
    assert shown.startswith("query numbers, ended with its input\n")
    assert table(shown, "source")[0]["time"] == "ended"


def test_running_query(run: Run, running: Callable[[], AbstractContextManager[Path]]) -> None:
    with running() as ckpt:
        assert run("status", ckpt).stdout.startswith("query numbers, running\n")


def test_before_the_first_epoch(run: Run, query: st.Query, tmp_path: Path) -> None:
    Checkpoint(tmp_path / "ckpt").acquire(identity(query.plan())).release()
    assert run("status", tmp_path / "ckpt").stdout == "query numbers, not running: no epoch is committed yet\n"
    assert "no epoch is committed" in run("state", tmp_path / "ckpt").stderr


@pytest.mark.parametrize("command", [["status"], ["state"], ["stop"], ["scale"]])
def test_not_a_checkpoint(run: Run, tmp_path: Path, command: list[str]) -> None:
    more = ["counts", "2"] if command == ["scale"] else []
    result = run(*command, tmp_path / "none", *more)
    assert (result.exit_code, result.stdout) == (1, "")
    assert says(result.stderr, f"error: checkpoint {tmp_path}/none does not exist", "; ", "path")
