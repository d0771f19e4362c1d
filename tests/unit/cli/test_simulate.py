"""`springtide simulate`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from typer.testing import Result

from springtide.elastic.policies.threshold import Threshold
from springtide.elastic.settings import Elastic
from springtide.elastic.simulator import cluster
from springtide.elastic.simulator.topologies import TOPOLOGIES
from springtide.elastic.simulator.traces import trace
from springtide.state.history import History
from tests.unit.cli.conftest import BEGIN

Run = Callable[..., Result]


@pytest.fixture
def short(tmp_path: Path) -> Path:
    path = tmp_path / "load.csv"
    path.write_text("time,rate\n0,20\n100,20\n110,80\n200,80\n")
    return path


def policies(result: Result) -> dict[str, list[str]]:
    assert result.exit_code == 0, result.output
    lines = result.stdout.split("\n\n")[1].splitlines()[1:]
    return {line.split()[0]: line.split() for line in lines}


def test_a_table_of_policies(run: Run, short: Path) -> None:
    result = run("simulate", "linear", "--load", short, "--policy", "ds2", "--policy", "threshold")
    head = result.stdout.split("\n\n")[1].splitlines()[0]
    assert [word.strip() for word in head.split("  ") if word] == [
        *("policy", "changes", "off", "settling", "overshoot", "congested", "late > 30 s", "late rows"),
        *("instance-hours", "over the optimum"),
    ]
    shown = policies(result)
    assert list(shown) == ["ds2", "threshold", "optimum"]
    assert int(shown["threshold"][1]) > 0


def test_all_of_them(run: Run, short: Path) -> None:
    shown = policies(run("simulate", "diamond", "--load", short, "--compare"))
    assert {"threshold", "foresight", "autoscale", "bottleneck", "ds2", "manual"} <= set(shown)


def test_the_same_seed_gives_the_same(run: Run) -> None:
    command = ("simulate", "linear", "--load", "5-step", "--failures", 1, "--skew", 0.5, "--seed")
    assert run(*command, 3).stdout == run(*command, 3).stdout != run(*command, 4).stdout


def test_decisions_say_why(run: Run, short: Path) -> None:
    result = run("simulate", "linear", "--load", short, "--policy", "threshold", "--decisions")
    assert "scale sink: " in result.stdout
    assert "utilisation of" in result.stdout


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="needs springtide[plots]")
@pytest.mark.filterwarnings("ignore")  # of matplotlib's own
def test_a_picture(run: Run, short: Path, tmp_path: Path) -> None:
    assert run("simulate", "linear", "--load", short, "--picture", tmp_path / "x.svg").exit_code == 0
    assert "<svg" in (tmp_path / "x.svg").read_text()


def test_without_matplotlib_one_line_says_so(run: Run, short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = run("simulate", "linear", "--load", short, "--picture", "x.png")
    assert (result.exit_code, "springtide[plots]" in result.stderr) == (1, True)


def test_a_query_of_ones_own(run: Run, program: Callable[..., Path], short: Path, tmp_path: Path) -> None:
    file = program(
        """
        counts = x.aggregate(by="k", window=st.tumbling("1m"), total=st.sum("n"), name="counts")
        query = st.Query("counts", counts.to(out))
        """
    )
    rows = pl.DataFrame({"n": range(50), "k": ["a", "b"] * 25, "ts": [BEGIN] * 50})
    rows.write_parquet(tmp_path / "x.parquet")
    result = run("simulate", file, "--load", "5-step", "--sample", tmp_path / "x.parquet")
    assert "foresight" in policies(result)
    assert "give --sample" in run("simulate", file, "--load", "5-step").stderr


def test_from_a_run(run: Run, tmp_path: Path) -> None:
    model = TOPOLOGIES["linear"]
    load = trace("5-step", model.rate(12))
    real = cluster.run(model.paced(1.0, load.peak), load, Elastic(policy=Threshold()), keep=True)
    past = History(tmp_path)
    for snapshot in real.snapshots[:600]:
        past.append("snapshots", 1, snapshot.to_json())
    result = run("simulate", "--from", tmp_path, "--policy", "threshold", "--policy", "manual")
    assert result.exit_code == 0, result.output
    errors = {line.split(":")[0].strip(): float(line.split()[-1]) for line in result.stdout.splitlines()[-2:]}
    assert errors["threshold"] < 25 < errors["manual"]
    assert "degree_error_pct" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["linear"], "give --load: 3-step"),
        (["--load", "5-step"], "name what to simulate"),
        (["liner", "--load", "5-step"], "did you mean 'linear'?"),
        (["linear", "--load", "5-stp"], "did you mean '5-step'?"),
        (["linear", "--load", "5-step", "--policy", "ds3"], "did you mean 'ds2'?"),
        (["--from", "nowhere"], "nowhere has no history to go by"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(run: Run, arguments: list[str], why: str) -> None:
    result = run("simulate", *arguments)
    assert result.exit_code == 1
    assert why in result.stderr
    assert len(result.stderr.splitlines()) == 1
