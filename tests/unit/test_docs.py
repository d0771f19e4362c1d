"""The README and the documents keep their word: links lead somewhere, commands exist, code runs and prints what is shown."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
import typer

import springtide as st
from springtide.cli.app import app
from springtide.runtime.engine import Options
from springtide.runtime.inprocess import run
from springtide.state.checkpoint import Checkpoint
from springtide.testing import at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
README = (ROOT / "README.md").read_text("utf-8")

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def blocks(text: str) -> list[tuple[str, str]]:
    """(language, lines) of each fenced block."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def prose(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(text), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pages
def test_links_lead_somewhere(page: Path) -> None:
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text("utf-8"))):
        path, _, anchor = link.partition("#")
        if re.match(r"https?://", link):
            continue
        target = (page.parent / path) if path else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text("utf-8"))):
            wrong.append(link)
    assert wrong == []


@pages
def test_commands_exist(page: Path) -> None:
    """`springtide NAME …`, in a line of a shell block or in the text, with the options that it has."""
    text = page.read_text("utf-8")
    shell = [line for language, body in blocks(text) if language == "sh" for line in body.splitlines()]
    lines = [line.partition("#")[0] for line in shell] + re.findall(r"`([^`]+)`", prose(text))
    group = typer.main.get_command(app)
    commands: dict[str, Any] = group.commands  # type: ignore[attr-defined]
    for line in lines:
        called = re.match(r"springtide ([a-z]+)\b(.*)", line)
        if called is None:
            continue
        assert called[1] in commands, line
        command, rest = commands[called[1]], called[2].split()
        if hasattr(command, "commands"):  # a group
            assert rest[0] in command.commands or rest[0] == "…", line
            command = command.commands.get(rest[0], command)
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", called[2])) <= known, line


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), flags=re.MULTILINE))
    shown = {target for page in PAGES for target in re.findall(r"\bmake ([a-z]+)\b(?= +#|`)", page.read_text("utf-8"))}
    assert {"demo", "test"} <= shown <= targets


def test_index_has_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    own = [
        page.name
        for page in (ROOT / "docs").glob("*.md")
        if page.name not in ("README.md", "index.md", "changelog.md", "examples.md")
    ]
    assert [name for name in own if f"]({name})" not in index] == []


def test_tour_has_every_folder() -> None:
    tour = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    package = ROOT / "src" / "springtide"
    folders = [folder.name for folder in package.iterdir() if (folder / "__init__.py").exists()]
    assert [name for name in folders if f"`src/springtide/{name}`" not in tour and f"`{name}`" not in tour] == []


def first_query() -> tuple[str, str, str]:
    """The first query, what it prints, and how it runs on Spark."""
    found = blocks(README)
    (first, second) = [i for i, (language, _) in enumerate(found) if language == "python"]
    assert found[first + 1][0] == "text"
    return found[first][1], found[first + 1][1], found[second][1]


@pytest.fixture
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_first_query_prints_what_is_shown(in_an_empty_folder: Path) -> None:
    code, shown, _ = first_query()
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    assert printed.getvalue() == shown
    assert list(in_an_empty_folder.iterdir()) == []


class Clock:
    """Begins at two o'clock of the 1st of January 1970, a Thursday, or so many days later; a second passes with each look."""

    def __init__(self, day: int = 0) -> None:
        self.now = day * 86_400 + 2 * 3_600.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@pytest.mark.parametrize(("day", "instances"), [(0, 1), (3, 4)], ids=["Thursday", "Sunday"])
def test_own_policy_does_what_is_said(day: int, instances: int, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "elasticity.md").read_text("utf-8")
    (code,) = [body for language, body in blocks(text) if language == "python" and "class Night" in body]
    names: dict[str, Any] = {}
    exec(compile(code, "elasticity.md", "exec"), names)
    rows = [{"k": f"k{i % 5}", "ts": at(f"{i}s")} for i in range(200)]
    source = st.source("rows", st.memory(rows, schema={"k": pl.String, "ts": st.TIME}), ts="ts")
    counts = source.aggregate(by="k", window=st.tumbling("10s"), n=st.count(), name="counts")
    query = st.Query("counting", counts.to(st.memory_sink()))
    options = Options(4, rows_per_epoch=5, elastic=names["elastic"], clock=Clock(day), timer=Clock())
    engine = run(query.plan(), tmp_path / "ckpt", options)
    assert engine.manifest.maps["counts"].instances == instances
    assert ("it is 2 o'clock" if day == 0 else "nobody is here on Sundays") in str(engine.events)


def test_primitives_do_what_is_said(in_an_empty_folder: Path) -> None:
    text = (ROOT / "docs" / "state.md").read_text("utf-8")
    (code,) = [body for language, body in blocks(text) if language == "python" and "state.partition" in body]
    rows = [{"k": f"k{i % 5}", "x": i, "ts": at(f"{i}s")} for i in range(60)]
    source = st.source("rows", st.memory(rows, schema={"k": pl.String, "x": pl.Int64, "ts": st.TIME}), ts="ts")
    sums = source.aggregate(by="k", window=st.tumbling("50s"), total=st.sum("x"), name="sums")
    plan = st.Query("sums", sums.to(st.memory_sink())).plan()
    run(plan, "ckpt", Options(2, rows_per_epoch=10), between=lambda engine: engine.manifest.epoch < 3)
    exec(compile(code, "state.md", "exec"), {})
    kept = {folder: Checkpoint(folder).epochs() for folder in ("ckpt", "fresh", "node2/ckpt")}
    assert kept == {"ckpt": [0, 1, 2, 3], "fresh": [2], "node2/ckpt": [2, 3]}


@pytest.mark.spark
def test_first_query_gives_the_same_rows_on_spark(spark: SparkSession, in_an_empty_folder: Path) -> None:
    code, _, on_spark = first_query()
    names: dict[str, Any] = {}
    with redirect_stdout(io.StringIO()):
        exec(compile(code + on_spark, "README.md", "exec"), names)
    rows = pl.read_parquet(in_an_empty_folder / "out").sort("ts", "src")
    assert rows.equals(names["query"].run_reference().rows().sort("ts", "src"))
