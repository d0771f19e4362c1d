"""Commands, answers and the history of a run whose checkpoint is in an object store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from typer.testing import CliRunner

from springtide.cli.app import app
from springtide.runtime import inprocess
from springtide.sinks.memory import MemorySink
from springtide.state.answers import Answer, read_answer, write_answer
from springtide.state.control import Command, receive, send
from springtide.state.from_outside import RemoteCheckpoint, from_outside
from springtide.state.pulse import Pulse
from springtide.state.relay import Relay
from springtide.state.stores import Store
from tests.stores.misbehaving import Misbehaving, served
from tests.unit.runtime.test_remote import options, query

STORE = "fake://bucket/ckpt"


@pytest.fixture
def bucket() -> Iterator[Misbehaving]:
    bucket = Misbehaving(1, trouble=0.0)
    with served(bucket=bucket):
        yield bucket


class Holds:
    """A lease."""

    lost = False

    def is_lost(self) -> bool:
        return self.lost


@pytest.fixture
def relay(bucket: Misbehaving, tmp_path: Path) -> Relay:
    with mock.patch("threading.Thread"):  # what it does is done when the test says so
        relay = Relay(Store.at(STORE), tmp_path, Holds)  # type: ignore[arg-type]
    return relay


def test_a_command_comes_in_and_its_answer_goes_out(bucket: Misbehaving, relay: Relay, tmp_path: Path) -> None:
    seen = from_outside(STORE)
    assert isinstance(seen, RemoteCheckpoint)
    assert not seen.in_use()
    pulse = Pulse(Store.at(STORE), 3_600.0, lambda: False)
    pulse.beat()
    relay.once()
    seen._looked = -1e9
    assert seen.in_use()
    file = send(seen.root, Command("scale", {"step": "sums", "instances": 3}))
    seen._looked = -1e9
    seen.in_use()
    relay.once()
    (command,) = receive(tmp_path)
    assert (command.name, command.options["instances"]) == ("scale", 3)
    assert command.file is not None
    write_answer(command.file, Answer("done", epoch=7))
    command.file.unlink()
    relay.once()
    assert [f for f in bucket.files if f.endswith(".json")] == []
    seen._looked = -1e9
    seen.in_use()
    answer = read_answer(file)
    assert answer is not None
    assert (answer.status, answer.epoch) == ("done", 7)
    relay.close()
    pulse.close()
    seen._looked = -1e9
    assert not seen.in_use()


def test_a_run_that_lost_its_checkpoint_changes_nothing(bucket: Misbehaving, relay: Relay, tmp_path: Path) -> None:
    (tmp_path / "history").mkdir()
    (tmp_path / "history" / "snapshots-000001-000000.jsonl").write_text("{}\n")
    with mock.patch.object(Holds, "lost", True):
        before = dict(bucket.files)
        relay.once()
        relay.close()
        assert bucket.files == before
    relay.once()
    assert "ckpt/history/snapshots-000001-000000.jsonl" in bucket.files


def test_commands_of_the_command_line_take_an_address(s3: str, tmp_path: Path) -> None:
    """Whatever can be asked of a folder can be asked of a store."""
    url = s3.replace("?", "/ckpt?")
    inprocess.run(query(MemorySink()).plan(buckets=8), url, options(tmp_path), between=lambda e: e.manifest.epoch < 3)
    told = {}
    for command in (
        ["status", url],
        ["history", url, "--snapshots"],
        ["state", url],
        ["state", url, "sums"],
        ["checkpoint", "save", url, "mine"],
        ["checkpoint", "list", url],
        ["checkpoint", "verify", url],
        ["checkpoint", "copy", url, str(tmp_path / "copy")],
        ["checkpoint", "copy", str(tmp_path / "copy"), url.replace("/ckpt?", "/second?")],
        ["checkpoint", "restore", url, str(tmp_path / "new"), "--at", "2"],
    ):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, (command, result.output, result.exception)
        assert "hush-hush" not in result.output
        told[" ".join(command[:2] if command[0] == "checkpoint" else command[:1])] = result.output
    assert "query remote, stopped" in told["status"]
    assert "4 epochs" in told["history"]
    assert "1 savepoint" in told["checkpoint list"]
    assert "all whole" in told["checkpoint verify"]
    refused = CliRunner().invoke(app, ["scale", url, "sums", "3"])
    assert refused.exit_code != 0
    assert "hush-hush" not in refused.output + str(refused.exception)
