"""`springtide replicas`, and what makes `springtide run` a replica."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from springtide.cli.app import app
from springtide.runtime.replicas.group import Founding, Group, Member
from springtide.state.checkpoint import Lineage
from springtide.state.published import Published
from springtide.state.stores import Store


@pytest.fixture
def group(tmp_path: Path) -> Group:
    found = Group(Store.at(tmp_path / "group"))
    found.found(Founding(Lineage("id"), 4, Published(), {"query": "calls"}))
    found.write_member(Member("a", "1", "s3://bucket/a", 7, instances={"calls": 2}))
    found.write_member(Member("b", "2", "s3://bucket/b", 3, running=False))
    return found


def said(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == code, result.output
    return result.output


def test_how_far_each_is(group: Group) -> None:
    group.alarm(7, "b", "replicas a and b made different rows of epoch 7")
    text = said("replicas", group.store.url)
    assert "query calls, 2 replicas, published up to epoch 4" in text
    assert [line.split()[:4] for line in text.splitlines() if line.startswith(("a ", "b "))] == [
        ["a", "running", "7", "0"],
        ["b", "stopped", "3", "1"],
    ]
    assert "alarm: replicas a and b made different rows of epoch 7" in text


def test_a_replica_is_released(group: Group) -> None:
    assert "b is released" in said("replicas", group.store.url, "--release", "b")
    assert [m.name for m in group.members()] == ["a"]
    assert "there is no replica b; there are: a" in said("replicas", group.store.url, "--release", "b", code=1)


def test_what_is_no_group(tmp_path: Path) -> None:
    assert "is not a group of replicas" in said("replicas", str(tmp_path), code=1)


def test_a_replica_needs_a_group_a_name_and_a_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "q.py"
    file.write_text(
        "import springtide as st\nquery = st.Query('q', st.source('s', st.memory([{'x': 1}])).to(st.memory_sink()))\n"
    )
    assert "a replica needs --replica-of" in said("run", str(file), "--as", "a", code=1)
    assert "a replica needs --replica-of" in said("run", str(file), "--replica-of", str(tmp_path / "g"), code=1)
    given = ("--replica-of", str(tmp_path / "g"), "--as", "a", "--checkpoint", str(tmp_path / "c"))
    assert "can be read by one run only" in said("run", str(file), *given, code=1)
    assert not (tmp_path / "c").exists()
