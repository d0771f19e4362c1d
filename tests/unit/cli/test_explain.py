"""`springtide explain`, with SC-5's costs and ST-9's model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from tests.wording import says

Run = Callable[..., Result]
Program = Callable[..., Path]


@pytest.fixture
def counts(program: Program) -> Path:
    return program(
        """
        counts = x.filter(pl.col("n") > 0).aggregate(by="k", window=st.tumbling("1m"), total=st.sum("n"), name="counts")
        query = st.Query("counts", counts.to(out))
        """
    )


def test_text(run: Run, counts: Path, golden: Callable[[str, str], None]) -> None:
    golden("cli/explain", run("explain", counts).stdout)


def test_text_is_plain_in_a_pipe(run: Run, counts: Path) -> None:
    assert "\x1b" not in run("explain", counts, "--cost", "--scalability").stdout + run("explain", counts).stdout


def test_mermaid(run: Run, counts: Path) -> None:
    shown = run("explain", counts, "--mermaid").stdout
    assert shown.startswith("flowchart LR\n")
    assert '==>|"hash(k), combined"|' in shown


def test_buckets(run: Run, counts: Path) -> None:
    assert "64 buckets, hash(k)" in run("explain", counts, "--buckets", 64).stdout
    result = run("explain", counts, "--buckets", 100)
    assert (result.exit_code, result.stdout) == (1, "")
    assert says(result.stderr, "error: step counts (query): 100 buckets ", "; ", "power of two")


def test_sc5_cost(run: Run, counts: Path) -> None:
    shown = run("explain", counts, "--cost", "--nodes", 10, "--alpha", 1, "--beta", 0.5, "--rho", 1000).stdout
    rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if "-cloud" in line}
    assert rows["query-cloud"] == ["1", "90.0", "1", "590.0"]
    assert rows["operator-cloud"] == ["2", "5.0", "1", "505.0"]
    assert rows["operator-set-cloud"][:4] == ["2", "5.0", "1", "505.0"]


def test_sc5_cost_out_of_range(run: Run, counts: Path) -> None:
    assert "α and β go from 0 to 1" in run("explain", counts, "--cost", "--alpha", 2).stderr


def test_st9_scalability(run: Run, counts: Path) -> None:
    shown = run("explain", counts, "--scalability").stdout
    assert "virtual shared-nothing, scales to n = 12\n" in shown
    assert "pure shared-nothing,    scales to n = 6\n" in shown


def test_st9_parameters_can_be_given(run: Run, counts: Path) -> None:
    options = [
        "--processing-time",
        8,
        "--output-time",
        2,
        "--route",
        0,
        "--share",
        0,
        "--merge-pure",
        0,
        "--merge-virtual",
        0,
    ]
    shown = run("explain", counts, "--scalability", *options).stdout
    assert shown.count("scales to n = 4\n") == 2


def test_cost_and_scalability_together(run: Run, counts: Path) -> None:
    shown = run("explain", counts, "--cost", "--scalability").stdout
    assert "operator-set-cloud" in shown
    assert "P_SN" in shown
