"""`springtide scale`, `move`, `rebalance`, `pause`, `resume` and `stop` reach a running query through its checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from typer.testing import Result

import springtide as st
from springtide.cli.control import parse_buckets
from springtide.cli.errors import CommandError
from springtide.state.checkpoint import Checkpoint
from springtide.state.control import Command, ask
from springtide.state.manifest import Manifest
from tests.wording import says

Run = Callable[..., Result]
Running = Callable[..., AbstractContextManager[Path]]

BY_HAND = st.Elastic(max=8, policy=st.Manual(), balancing=None)


def latest(ckpt: Path) -> Manifest:
    manifest = Checkpoint(ckpt).latest()
    assert manifest is not None
    return manifest


def test_scale_tells_what_it_did(run: Run, running: Running) -> None:
    with running() as ckpt:
        told = run("scale", ckpt, "counts", 5).stdout
        assert told.startswith("counts: 2 → 5 instances, since epoch ")
        assert " of 256 buckets and " in told
        assert told.endswith(" of state changed owners\n")
        assert run("scale", ckpt, "counts", 5).stdout == "counts has 5 instances already\n"
        assert run("scale", ckpt, "kept", 1).stdout.startswith("counts: 5 → 1 instance, since epoch ")
        assert run("scale", ckpt, "x", 3).stdout.startswith("x: 2 → 3 instances, since epoch ")
        manifest = latest(ckpt)
    assert manifest.maps["counts"].instances == 1
    assert manifest.maps["x"].instances == 3


def test_what_is_told_is_committed(run: Run, running: Running) -> None:
    with running() as ckpt:
        told = run("scale", ckpt, "counts", 4).stdout
        epoch = int(told.split("since epoch ")[1].split()[0])
        assert Checkpoint(ckpt).manifest(epoch).maps["counts"].instances == 4
        assert Checkpoint(ckpt).manifest(epoch - 1).maps["counts"].instances == 2
        assert not list((ckpt / "control").glob("*.json"))


def test_scale_to_more_than_there_are_buckets(run: Run, running: Running) -> None:
    with running() as ckpt:
        assert run("scale", ckpt, "counts", 999).stdout.startswith("counts: 2 → 256 instances, since epoch ")
        assert run("scale", ckpt, "counts", 999).stdout == (
            "counts has 256 instances already; it has no more buckets\n"
        )


def test_scale_beyond_the_limits_is_refused_with_the_reason(run: Run, running: Running) -> None:
    with running(elastic=BY_HAND) as ckpt:
        result = run("scale", ckpt, "counts", 9)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "9 instances would be outside the limits, 1 to 8" in result.stderr


def test_commands_to_no_step(run: Run, running: Running) -> None:
    with running() as ckpt:
        for command in (
            ["scale", ckpt, "cuonts", 5],
            ["move", ckpt, "cuonts", "1", "--to", 0],
            ["rebalance", ckpt, "cuonts"],
        ):
            result = run(*command)
            assert result.exit_code == 1
            assert says(result.stderr, "error: ", "'numbers'", "no step 'cuonts'", "; ", "'counts'?")


def test_move(run: Run, running: Running) -> None:
    with running() as ckpt:
        told = run("move", ckpt, "counts", "0,2,4-7", "--to", 1).stdout
        assert told.startswith("counts: moved, since epoch ")
        assert "; 4 of 256 buckets and " in told  # 5 and 7 were there
        assert [latest(ckpt).maps["counts"].owners[b] for b in (0, 2, 4, 5, 6, 7)] == [1] * 6
        assert run("move", ckpt, "counts", "4-7", "--to", 1).stdout == "instance 1 of counts has them already\n"


def test_move_to_nobody_and_of_no_bucket(run: Run, running: Running) -> None:
    with running() as ckpt:
        assert "there is no instance 7, they are 0 to 1" in run("move", ckpt, "counts", "3", "--to", 7).stderr
        assert "there is no bucket 300, they are 0 to 255" in run("move", ckpt, "counts", "300", "--to", 1).stderr


def test_protocol(run: Run, running: Running) -> None:
    with running() as ckpt:
        told = run("scale", ckpt, "counts", 3, "--protocol", "state").stdout
        assert told.startswith("counts: 2 → 3 instances, since epoch ")
        assert run("scale", ckpt, "counts", 3, "--protocol", "telepathy").exit_code == 2
    assert "2 → 3 instances (state)" in run("history", ckpt).stdout


def test_rebalance(run: Run, running: Running) -> None:
    with running(rows=6) as ckpt:  # two of each key
        run("move", ckpt, "counts", "0-255", "--to", 0)
        assert run("rebalance", ckpt, "counts").stdout.startswith("counts: balanced, since epoch ")
        assert set(latest(ckpt).maps["counts"].owners) == {0, 1}
        assert "a stateless prefix has no buckets" in run("rebalance", ckpt, "x").stderr


def test_two_people_at_once_are_each_told_of_their_own_command(run: Run, running: Running) -> None:
    with running() as ckpt, ThreadPoolExecutor() as others:
        commands = [("scale", {"step": "x", "instances": 3}), ("scale", {"step": "counts", "instances": 0})]
        answers = [others.submit(ask, Checkpoint(ckpt), Command(*command), 60) for command in commands]
        assert run("move", ckpt, "counts", "0", "--to", 1).stdout.startswith("counts: moved, since epoch ")
        scaled, refused = (answer.result() for answer in answers)
    assert scaled.change is not None
    assert (scaled.status, scaled.change.subquery, scaled.change.after) == ("done", "x", 3)
    assert (refused.status, refused.change) == ("refused", None)


def test_a_run_that_ends_first_is_not_waited_for(running: Running) -> None:
    with running(held=True) as ckpt:
        pass
    answer = ask(Checkpoint(ckpt), Command("scale", {"step": "x", "instances": 3}), 60)
    assert answer.status == "sent"
    assert list((ckpt / "control").glob("*.json")), "the next run does it"
    answer = ask(Checkpoint(ckpt), Command("stop"), 60)
    assert (answer.status, answer.epoch) == ("done", latest(ckpt).epoch)
    assert len(list((ckpt / "control").glob("*.json"))) == 1, "the next run is not to stop at once"


def _paused(ckpt: Path) -> bool:
    state = latest(ckpt).elastic
    assert state is not None
    return state.paused


def test_pause_and_resume(run: Run, running: Running) -> None:
    with running(elastic=BY_HAND) as ckpt:
        assert run("pause", ckpt).stdout == ("elasticity of numbers is paused; changes by hand are still made\n")
        assert _paused(ckpt)
        assert run("scale", ckpt, "counts", 3).stdout.startswith("counts: 2 → 3 instances, since epoch ")
        assert run("resume", ckpt).stdout == "elasticity of numbers is resumed\n"
        assert not _paused(ckpt)


def test_pause_of_what_is_not_elastic(run: Run, running: Running) -> None:
    with running() as ckpt:
        result = run("pause", ckpt)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "the query is not elastic" in result.stderr
    assert "springtide run --elastic" in result.stderr


def test_stop(run: Run, running: Running) -> None:
    with running() as ckpt:
        assert run("stop", ckpt).stdout.startswith("numbers stopped after epoch ")
        assert not Checkpoint(ckpt).in_use()
    assert list((ckpt / "control").glob("*.json")) == []


def test_no_time_to_wait(run: Run, running: Running) -> None:
    with running(elastic=BY_HAND, held=True) as ckpt:
        left = "sent to numbers; it takes effect with the next epoch\n"
        assert run("scale", ckpt, "counts", 3, "--wait", 0).stdout == left
        assert run("move", ckpt, "counts", "3", "--to", 1, "--wait", 0).stdout == left
        assert run("pause", ckpt, "--wait", 0).stdout == ("sent to numbers; it takes effect after the current epoch\n")
        assert run("stop", ckpt, "--wait", 0).stdout == "sent to numbers; it will stop after the current epoch\n"


@pytest.mark.parametrize(
    "command",
    [
        ["stop"],
        ["pause"],
        ["resume"],
        ["rebalance", "counts"],
        ["move", "counts", "1", "--to", 1],
        ["scale", "counts", 2],
    ],
    ids=lambda command: command[0],
)
def test_nobody_is_there(run: Run, checkpoint: Callable[..., Path], command: list[object]) -> None:
    ckpt = checkpoint()
    name, *rest = command
    result = run(name, ckpt, *rest)
    assert (result.exit_code, result.stdout) == (1, "")
    assert says(result.stderr, "error: ", "'numbers'", "not running", str(ckpt), "; ", "springtide run")
    assert not list(ckpt.glob("control/*"))


def test_buckets() -> None:
    assert parse_buckets("3,7,10-15") == [3, 7, 10, 11, 12, 13, 14, 15]
    assert parse_buckets(" 5 , 4 - 5,0") == [0, 4, 5]
    for wrong in ("", "3,", "x", "5-3", "-1", "1.5", "1--2", "0-99999999999"):
        with pytest.raises(CommandError, match="write numbers and ranges of them"):
            parse_buckets(wrong)
