"""The table of docs/papers.md is true: what it points at is there, and each test names the id that it shows."""

import re
from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "papers.md").read_text().splitlines()
    if re.match(r"\| [A-Z]{2}-\d", line)
]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_the_test_of_a_row_names_its_id(row: list[str]) -> None:
    name, _, where, test = row
    assert re.search(rf"\b{name}\b", (ROOT / test.strip("`")).read_text()), f"{test} does not speak of {name}"
    for path in re.findall(r"`([a-z_]+/[a-z_/]*(?:\.py)?)`", where):
        assert (ROOT / "src" / "springtide" / path).exists(), f"there is no {path}"


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_the_benchmarks_of_a_row_can_be_run(row: list[str]) -> None:
    said = " ".join(row[1:3])
    for names in re.findall(r"benchmarks? ((?:`[a-z-]+`(?:, | and )?)+)", said):
        assert set(re.findall(r"`([a-z-]+)`", names)) <= BENCHMARKS.keys()


@pytest.mark.parametrize("name", ["SC-14", "SE-8", "SE-9", "SE-10", "AS-7", "SM-10"])
def test_what_the_papers_measured_has_a_benchmark(name: str) -> None:
    assert any(row[0] == name and "benchmark" in " ".join(row[1:3]) for row in ROWS)


def test_the_table_is_not_empty() -> None:
    assert len(ROWS) >= 17
