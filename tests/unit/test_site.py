"""The documentation site builds without a warning, leads nowhere that is not there, and asks nobody else for anything."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import springtide as st
from benchmarks import figures
from scripts import diagrams

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(importlib.util.find_spec("sphinx") is None, reason="needs springtide[docs]")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    (folder / "0.0.1").mkdir()
    (folder / "0.0.1" / "index.html").write_text("an older one")
    # In a process of its own: Python's warnings, which are errors here, are Sphinx's own business.
    made = subprocess.run(
        [sys.executable, "-m", "scripts.site", str(folder)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    return folder / st.__version__


class Page(HTMLParser):
    """What a page has names for, what it links to, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.names |= {found[n] for n in ("id", "name") if n in found}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        loaded = found.get("src") or (found.get("href") if tag == "link" else None)
        if loaded:
            self.loads.append(loaded)


@cache
def page_of(path: Path) -> Page:
    return Page(path.read_text("utf-8"))


def test_no_link_is_dead_and_nothing_comes_from_elsewhere(built: Path) -> None:
    wrong, outside = [], []
    pages = sorted(built.rglob("*.html"))
    assert len(pages) > 40
    for path in pages:
        page = page_of(path)
        for link in page.links + page.loads:
            there = urlsplit(link)
            if there.scheme or there.netloc:
                outside += [f"{path.name}: {link}"] if link in page.loads and there.scheme != "data" else []
                continue
            target = (path.parent / unquote(there.path)).resolve() if there.path else path
            names = page_of(target).names if target.suffix == ".html" and target.exists() else set()
            if not target.exists() or (there.fragment and there.fragment not in names | {"top"} and names):
                wrong.append(f"{path.relative_to(built)}: {link}")
    assert (wrong, outside) == ([], [])


def test_it_can_be_searched_and_says_its_version(built: Path) -> None:
    assert "rebalance" in (built / "searchindex.js").read_text("utf-8")
    assert f"Springtide {st.__version__}" in (built / "index.html").read_text("utf-8")


def test_versions_are_side_by_side(built: Path) -> None:
    assert f"url={st.__version__}/index.html" in (built.parent / "index.html").read_text()
    listed = (built.parent / "versions.html").read_text()
    assert listed.index(st.__version__) < listed.index("0.0.1")


def test_every_public_name_is_in_the_reference(built: Path) -> None:
    names: set[str] = set()
    for path in (built / "reference").glob("*.html"):
        names |= page_of(path).names
    assert sorted(name for name in st.__all__ if f"springtide.{name}" not in names) == []


def test_diagrams_are_pictures(built: Path) -> None:
    wanted = diagrams.sources()
    assert len(wanted) >= 2
    assert set(wanted) == set(diagrams.DIAGRAMS.glob("*.svg")), "run `python -m scripts.diagrams`"
    for path in ("architecture.html", "elasticity.html"):
        assert "flowchart" not in (built / path).read_text("utf-8")


def test_figures_are_those_of_the_results() -> None:
    assert figures.page() == figures.PAGE.read_text("utf-8"), "run `python -m benchmarks.figures`"


def test_the_readme_has_four_figures_of_the_results() -> None:
    def of(name: str) -> Any:
        return json.loads((figures.RESULTS / f"{name}.json").read_text("utf-8"))

    heavy, change, restart = of("heavy-callers"), of("reconfigure"), of("restart")
    worst = max(change["by_change_ms"].values(), key=lambda s: s["median"])["median"]
    wanted = [
        f"{figures.short(heavy['rows_per_s'])} rows/s | {heavy['ratio_vs_spark']:.0f} × Spark",
        f"at most {worst:.0f} ms longer",
        f"stop and repartition: {change['spark_ms'] / 1000:.0f} s",
        f"{restart['seconds']:.1f} s to the next commit | Spark with RocksDB: {restart['spark_s']:.1f} s",
    ]
    readme = (ROOT / "README.md").read_text("utf-8")
    assert [text for text in wanted if text not in readme] == []
    assert (change["wrong_rows"], of("recovery")["wrong_rows"], of("cluster")["wrong_rows"]) == (0, 0, 0)
