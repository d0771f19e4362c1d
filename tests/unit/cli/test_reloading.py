"""The file of a query, read again while the query runs."""

from __future__ import annotations

import threading
from io import StringIO
from pathlib import Path
from textwrap import dedent
from typing import Any, cast

import pytest
from rich.console import Console

import springtide as st
from springtide.cli.elasticity import parse_elastic
from springtide.cli.errors import CommandError
from springtide.cli.interrupts import Interrupts
from springtide.cli.launch import _follow
from springtide.cli.load import elastic_in, load_query
from springtide.cli.plain_view import PlainView
from springtide.cli.progress import Tracker
from springtide.cli.reloading import FileChanges, QueryFile
from springtide.elastic.settings import Elastic
from springtide.runtime.clocks import SteadyClock
from tests.machine import LONG
from tests.wording import says

PROGRAM = """
    import polars as pl
    import springtide as st

    LEAST = 1

    x = st.source("x", st.memory([{"n": 1}]))
    query = st.Query("looked-at", x.filter(pl.col("n") > LEAST).to(st.memory_sink(), name="out"))
"""


class Run:
    """Takes note of what it is told."""

    def __init__(self) -> None:
        self.forms: list[tuple[st.Query, Elastic | bool]] = []
        self.notes: list[str] = []
        self.refuses: Exception | None = None

    def replace(self, query: st.Query, *, elastic: Elastic | bool, history: bool) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.forms.append((query, elastic))

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "looked_at.py"
    file.write_text(dedent(PROGRAM))
    return file


def edit(file: Path, old: str, new: str) -> None:
    file.write_text(file.read_text().replace(old, new))


def test_it_is_read_when_it_has_changed_and_not_before(program: Path) -> None:
    load_query(str(program))
    watched, run = QueryFile(str(program), None, lambda: None), Run()
    watched.replace_if_changed(run)  # type: ignore[arg-type]
    assert run.forms == []
    edit(program, "LEAST = 1", "LEAST = 7")  # as long as before, and in the same second
    watched.replace_if_changed(run)  # type: ignore[arg-type]
    watched.replace_if_changed(run)  # type: ignore[arg-type]
    ((query, _),) = run.forms
    assert "n > 7" in query.explain()


def test_a_file_that_makes_no_sense_changes_nothing(program: Path) -> None:
    load_query(str(program))
    watched, run = QueryFile(str(program), None, lambda: None), Run()
    edit(program, "LEAST = 1", "LEAST =")
    watched.replace_if_changed(run)  # type: ignore[arg-type]
    with pytest.raises(CommandError, match=r"looked_at\.py:5: invalid syntax"):
        watched.read()
    program.unlink()  # an editor is about to put another one there
    watched.replace_if_changed(run)  # type: ignore[arg-type]
    program.write_text(dedent(PROGRAM).replace("LEAST = 1", "LEAST = 3"))
    run.refuses = st.QueryError("x (source)", "it is another one", "keep it")
    watched.replace_if_changed(run)  # type: ignore[arg-type]
    edit(program, "LEAST = 3", "LEAST = 4")
    run.refuses = TypeError("cannot pickle it")  # from code that nobody thought of
    watched.replace_if_changed(run)  # type: ignore[arg-type]
    assert run.forms == []
    assert [says(note, "looked_at.py", "changed", ": ") for note in run.notes] == [True] * 3
    assert "invalid syntax" in run.notes[0]
    assert "it was: step x (source): it is another one; keep it" in run.notes[1]
    assert "it was: TypeError: cannot pickle it" in run.notes[2]


class Stuck(Run):
    """A run that does not get on with being replaced, since a sink is away, until it is told to stop."""

    def __init__(self, interrupts: Interrupts) -> None:
        super().__init__()
        self.last_snapshot, self._interrupts, self._stopped, self.asked = None, interrupts, threading.Event(), 0

    @property
    def active(self) -> bool:
        return not self._stopped.is_set()

    def replace(self, query: st.Query, *, elastic: Elastic | bool, history: bool) -> None:
        self.asked += 1
        self._interrupts.stop_wanted = True  # Ctrl-C, while it waits
        assert self._stopped.wait(LONG), "nobody told it to stop"
        raise st.SpringtideError("the query is not running any more")

    def stop(self) -> None:
        self._stopped.set()

    def wait(self, timeout: float | None = None) -> bool:
        return self._stopped.wait(min(timeout or LONG, 0.01))

    def epochs(self) -> list[Any]:
        return []

    def events(self) -> list[Any]:
        return []

    def decisions(self, last: int) -> list[Any]:
        return []


def test_a_stop_is_heard_while_the_query_is_replaced(program: Path) -> None:
    load_query(str(program))
    interrupts = Interrupts()
    run = Stuck(interrupts)
    changes = FileChanges(QueryFile(str(program), None, lambda: None), cast(Any, run))
    edit(program, "LEAST = 1", "LEAST = 7")
    view = PlainView(Console(file=StringIO()))
    _follow(cast(Any, run), view, Tracker(None), interrupts, SteadyClock(), changes)
    assert run.asked == 1, "while it is replaced, nobody replaces it once more"


def test_a_policy_of_ones_own_is_read_again(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tmp_path / "mine_to_reload.py"
    policy.write_text("class Mine:\n    degree = 1\n    def decide(self, snapshot, history):\n        return []\n")
    load_query(str(program))

    def settings() -> Elastic | None:
        return parse_elastic(True, policy="mine_to_reload:Mine", folder=tmp_path)

    first: Any = settings()
    watched = QueryFile(str(program), "mine_to_reload:Mine", settings)
    edit(policy, "degree = 1", "degree = 22")
    second: Any = watched.read()[1]
    assert (first.policy.degree, second.policy.degree) == (1, 22)
    edit(policy, "class Mine", "class Others")
    with pytest.raises(CommandError, match="is not a policy"):
        watched.read()
    run = Run()
    edit(policy, "class Others", "class Mine")
    watched.replace_if_changed(cast(Any, run))
    edit(policy, "degree = 22", "degree = 33")  # as long as before, and in the same second
    watched.replace_if_changed(cast(Any, run))
    watched.replace_if_changed(cast(Any, run))
    policies: list[Any] = [elastic.policy for _, elastic in run.forms if isinstance(elastic, Elastic)]
    assert [found.degree for found in policies] == [22, 33]
    run.refuses = st.QueryError("x (source)", "it is another one", "keep it")
    edit(policy, "degree = 33", "degree = 44")
    watched.replace_if_changed(cast(Any, run))
    assert says(run.notes[0], "looked_at.py", "mine_to_reload.py", "changed")


def test_the_file_says_what_decides_about_instances(program: Path) -> None:
    """What options say comes first; without any of it nothing does."""
    program.write_text(program.read_text() + "elastic = st.Elastic(min=2, max=8, protocol='window')\n")
    load_query(str(program))

    def settings() -> Elastic | None:
        return parse_elastic(False, most=4, base=elastic_in(str(program)))

    found = settings()
    assert found is not None
    assert (found.min, found.max, found.protocol) == (2, 4, "window")
    watched, run = QueryFile(str(program), None, lambda: parse_elastic(False, base=elastic_in(str(program)))), Run()
    for old, new in (
        ("max=8", "max=9"),
        ("elastic = st.Elastic(min=2, max=9, protocol='window')", ""),
        ("", "elastic = 7\n"),
    ):
        edit(program, old, new) if old else program.write_text(program.read_text() + new)
        watched.replace_if_changed(cast(Any, run))
    assert [elastic and elastic.max for _, elastic in run.forms] == [9, False]
    assert "7 says nothing about elasticity" in run.notes[0]
    program.write_text(program.read_text().replace("elastic = 7", "import json as elastic"))
    load_query(str(program))
    assert elastic_in(str(program)) is None
