"""docs/architecture.md keeps its word: the walk of a tuple names the files that it meets."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from examples.heavy_callers import query
from springtide.runtime import inprocess
from springtide.runtime.engine import Options

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "springtide"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
WALK = re.findall(r"^\d+\. `([\w/]+\.py)`", PAGE.partition("## One tuple")[2].partition("\n## ")[0], flags=re.MULTILINE)
TWICE = {
    *("Aggregate", "Sink", "Source"),  # a step of a query, and what it is made of
    "Clock",  # the reference has its own
    *("Folder", "Group", "Records"),  # of a checkpoint, and of a connector
}
ROOMS = {"sources", "stateless", "exchange", "operators", "state"}


def test_the_walk_is_short_and_enters_no_room_twice() -> None:
    rooms = [room for room, _ in groupby(file.partition("/")[0] for file in WALK)]
    assert len(WALK) <= 20
    assert sorted(rooms) == sorted(set(rooms))
    assert sorted(WALK) == sorted(set(WALK))


def test_the_walk_names_the_files_that_a_tuple_meets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file of the rooms that tasks enter, and the sink's."""
    entered: set[str] = set()
    inside = False

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and (path := Path(frame.f_code.co_filename)).is_relative_to(SRC):
            file = path.relative_to(SRC).as_posix()
            room = file.partition("/")[0]
            if (inside and room in ROOMS) or room == "sinks":
                entered.add(file)

    execute = inprocess.execute

    def watched(*given: Any) -> Any:
        nonlocal inside
        inside = True
        try:
            return execute(*given)
        finally:
            inside = False

    monkeypatch.setattr(inprocess, "execute", watched)
    plan = query.plan()
    before = sys.getprofile()
    sys.setprofile(look)
    try:
        inprocess.run(plan, tmp_path, Options(instances=2, rows_per_epoch=1000))
    finally:
        sys.setprofile(before)
    assert sorted(entered) == sorted(file for file in WALK if not file.startswith("runtime/"))


def test_a_name_is_that_of_one_class() -> None:
    trees = [ast.parse(file.read_text("utf-8")) for file in SRC.rglob("*.py")]
    names = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    twice = {name for name, count in names.items() if count > 1 and not name.startswith("_")}
    assert sorted(twice - TWICE) == []
