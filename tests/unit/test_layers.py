"""Who may import whom: what the table in docs/architecture.md says, for every room. An import counts wherever it stands: in a function and under TYPE_CHECKING as well."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.imports import PICTURE, SRC, all_imports, edges, imports, said

PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text("utf-8")
EVERYTHING = "everything"


def table() -> dict[str, set[str]]:
    """Room → the rooms that it may import, as the page says it."""
    rows = re.findall(
        r"^\| `([\w/]+)(?:\.py)?` \|[^|]*\| ([^|]*) \|$", PAGE.partition("## The rooms")[2], flags=re.MULTILINE
    )
    return {room: {EVERYTHING} if said == EVERYTHING else set(re.findall(r"`([\w/]+)`", said)) for room, said in rows}


def spark() -> set[str]:
    """The rooms that know Spark, as the page says it."""
    (sentence,) = re.findall(r"^`pyspark` is imported in (.*?) only\.", PAGE, flags=re.MULTILINE)
    return set(re.findall(r"`([\w/]+)`", sentence))


ROOMS = table()


def room_of(module: str) -> str | None:
    """The room that a module is in: the smallest that has a row of its own; None for springtide itself."""
    parts = module.split(".")[1:]
    found = ["/".join(parts[:n]) for n in range(len(parts), 0, -1)]
    return next((room for room in found if room in ROOMS), found[-1] if found else None)


def test_every_package_has_a_row() -> None:
    there = {p.stem for p in (SRC / "springtide").iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert sorted(there - {"__init__"}) == sorted(room for room in ROOMS if "/" not in room)
    assert [room for room in ROOMS if "/" in room and not (SRC / "springtide" / room).is_dir()] == []


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_what_the_table_says(room: str) -> None:
    used = {
        other: f"{module} imports {imported}"
        for module, imported in all_imports()
        if imported.startswith("springtide.") and room_of(module) == room and (other := room_of(imported)) != room
    }
    if EVERYTHING in ROOMS[room]:
        return
    assert [text for other, text in used.items() if other not in ROOMS[room]] == []
    assert sorted(ROOMS[room] - set(used)) == [], "the table names rooms that are not imported"


def test_nobody_imports_the_command_line() -> None:
    assert [m for m, i in all_imports() if room_of(i) == "cli" and room_of(m) != "cli"] == []


def test_only_the_edges_know_spark() -> None:
    wrong = [
        f"{module} imports {imported}"
        for module, imported in all_imports()
        if imported.split(".")[0] == "pyspark" and room_of(module) not in spark()
    ]
    assert wrong == []


def test_the_picture_is_drawn_from_the_code() -> None:
    drawn = PICTURE.read_text("utf-8")
    assert said(edges()) in drawn, "run `python -m scripts.imports`"


def test_every_form_of_import_is_seen() -> None:
    source = """
import pyspark.sql as ps
from . import sibling, helper
from .sibling import thing
from ..state import store
def late():
    from springtide.cli import main
    from springtide import query, Query
"""
    modules = {"springtide", "springtide.query", "springtide.exchange.sibling", "springtide.state.store"}
    assert list(imports(source, "springtide.exchange.gate", is_package=False, modules=modules)) == [
        "pyspark.sql",
        "springtide.exchange.sibling",
        "springtide.exchange",
        "springtide.exchange.sibling",
        "springtide.state.store",
        "springtide.cli",
        "springtide.query",
        "springtide",
    ]
    assert list(imports("from .x import y", "springtide.query", is_package=True, modules=modules)) == [
        "springtide.query.x"
    ]
