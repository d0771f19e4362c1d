"""Commands to a running query."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import springtide as st
from springtide.runtime import inprocess
from springtide.runtime.commands import Commands
from springtide.runtime.engine import Engine, Options
from springtide.state.answers import KEPT, Answer, read_answer, write_answer
from springtide.state.checkpoint import Checkpoint
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
    control, sent = tmp_path / "checkpoint" / "control", list[Path]()

    def between(engine: Engine) -> bool:
        if engine.manifest.epoch == 1:
            control.mkdir(exist_ok=True)
            (control / "1.json").write_bytes(POISON[name].encode(errors="surrogateescape"))
            sent.append(send(tmp_path / "checkpoint", Command("scale", {"step": "aggregate", "instances": 3})))
        assert not engine.take_commands()
        return engine.manifest.epoch < 4

    query = files_to_files(tmp_path).plan(buckets=8)
    engine = inprocess.run(query, tmp_path / "checkpoint", Options(2, rows_per_epoch=7), between=between)
    told = [text for _, text in engine.events]
    assert sum("was refused: " in text for text in told) == 1, told
    assert engine.maps["aggregate"].instances == 3, "the command behind it was done"
    assert {f.suffix for f in control.iterdir()} <= {".result", ".unreadable"}
    refused, done = read_answer(control / "1.json"), read_answer(sent[0])
    assert refused is not None
    assert (refused.status, refused.final) == ("refused", True)
    assert done is not None
    assert (done.status, done.final, done.epoch) == ("done", True, 2)
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


# ── answers (issue 12) ────────────────────────────────────────────────────────────────────────────────────────────


class Running:
    """A query that is run epoch by epoch, and what its commands were answered."""

    def __init__(self, folder: Path, elastic: st.Elastic | None = None) -> None:
        write_input(folder)
        self.root = folder / "checkpoint"
        plan = files_to_files(folder).plan(buckets=8)
        options = Options(2, rows_per_epoch=7, elastic=elastic)
        self.engine = Engine(plan, Checkpoint(self.root), lambda epoch: inprocess.execute(plan, epoch), options)
        self.engine.begin()

    def close(self) -> None:
        if self.engine.checkpoint.in_use():
            self.engine.close()

    def send(self, name: str, **options: object) -> Path:
        return send(self.root, Command(name, options))

    def take(self) -> bool:
        return self.engine.take_commands()

    def epoch(self) -> None:
        assert self.engine.has_work()
        self.engine.run()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path)
    yield running
    running.close()


def answer_to(command: Path) -> Answer:
    answer = read_answer(command)
    assert answer is not None, "there is no answer"
    return answer


def test_a_change_is_answered_when_it_is_committed_and_measured(started: Running) -> None:
    started.epoch()
    command = started.send("scale", step="aggregate", instances=3)
    started.take()
    assert read_answer(command) is None
    assert command.exists(), "the next run finds it if this one dies now"
    started.epoch()
    answer = answer_to(command)
    assert (answer.status, answer.final, answer.epoch) == ("done", True, 1)
    change = answer.change
    assert change is not None
    assert (change.subquery, change.before, change.after, change.buckets) == ("aggregate", 2, 3, 8)
    assert change.moved > 0
    assert change.seconds is not None
    assert change.seconds > 0
    assert change.extra_seconds is not None
    assert change.bytes_moved is not None
    assert not command.exists()


def test_what_changes_nothing_is_answered_at_once(started: Running) -> None:
    scale = started.send("scale", step="aggregate", instances=2)
    move = started.send("move", step="aggregate", buckets=[0], to=0)
    started.take()
    for command in (scale, move):
        answer = answer_to(command)
        assert (answer.status, answer.change, answer.final) == ("done", None, True)
        assert "already" in answer.reason


def test_everybody_is_told_of_his_own_command(started: Running) -> None:
    wrong = started.send("scale", step="agregate", instances=3)
    scale = started.send("scale", step="aggregate", instances=3)
    pause = started.send("pause")
    started.take()
    started.epoch()
    assert answer_to(wrong).status == "refused"
    assert "did you mean 'aggregate'?" in answer_to(wrong).reason
    assert answer_to(scale).status == "done"
    assert answer_to(pause).status == "refused"
    assert "not elastic" in answer_to(pause).reason


def test_a_later_command_replaces_an_earlier_one(started: Running) -> None:
    first = started.send("scale", step="aggregate", instances=3)
    second = started.send("scale", step="aggregate", instances=4)
    started.take()
    started.epoch()
    assert answer_to(first).status == "failed"
    change = answer_to(second).change
    assert change is not None
    assert (change.before, change.after) == (3, 4)


def test_pause_and_resume_are_answered_when_they_are_committed(tmp_path: Path) -> None:
    running = Running(tmp_path, st.Elastic(policy=st.Manual(), balancing=None))
    for name in ("pause", "resume"):
        command = running.send(name)
        running.take()
        assert read_answer(command) is None
        running.epoch()
        assert answer_to(command) == Answer("done", epoch=running.engine.manifest.epoch)
    running.close()


def test_stop_is_answered_when_the_run_has_ended(started: Running) -> None:
    started.epoch()
    command = started.send("stop")
    assert started.take()
    assert not command.exists(), "the next run is not to stop at once"
    assert read_answer(command) is None
    started.close()
    assert answer_to(command) == Answer("done", epoch=0)


def test_an_answer_that_cannot_be_written_stops_nobody(started: Running) -> None:
    command = started.send("scale", step="aggregate", instances=3)
    command.with_suffix(".result").mkdir()
    started.take()
    started.epoch()
    assert started.engine.manifest.maps["aggregate"].instances == 3
    assert not command.exists()


def test_old_answers_are_removed(tmp_path: Path) -> None:
    for i in range(KEPT + 5):
        file = tmp_path / f"{i}.json"
        write_answer(file, Answer("done", epoch=i))
        os.utime(file.with_suffix(".result"), ns=(i, i))
    (tmp_path / "own.txt").touch()
    write_answer(tmp_path / "last.json", Answer("done"))
    assert len(list(tmp_path.glob("*.result"))) == KEPT
    assert read_answer(tmp_path / "0.json") is None
    assert answer_to(tmp_path / f"{KEPT}.json").epoch == KEPT
    assert (tmp_path / "own.txt").exists()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"status": "odd", "change": null}', '{"status": "done", "change": 5}']
)
def test_what_is_no_answer_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "1.result").write_text(text)
    assert read_answer(tmp_path / "1.json") is None
