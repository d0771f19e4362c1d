"""The chaos runner, short: a query of each kind is killed, changed and started anew; every row is there once. `make chaos` is the long one."""

from __future__ import annotations

import pytest

from tests.chaos.__main__ import main

pytestmark = pytest.mark.spark


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    code = main(list(arguments))
    said = capsys.readouterr().out
    assert code == 0, said
    assert "     0 rows wrong" in said
    return said


def test_a_query_in_trouble_gives_every_row_once(capsys: pytest.CaptureFixture[str]) -> None:
    said = run(capsys, "--seconds", "6", "--seed", "3", "--queries", "operator")
    assert "faults and changes injected" in said


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_queries_in_much_trouble_give_every_row_once(capsys: pytest.CaptureFixture[str], seed: int) -> None:
    run(capsys, "--seconds", "180", "--seed", str(seed))


@pytest.mark.slow
def test_executors_in_trouble_change_no_row(capsys: pytest.CaptureFixture[str]) -> None:
    said = run(capsys, "--seconds", "90", "--seed", "1", "--queries", "aggregate", "--cluster")
    assert "× executor" in said


@pytest.mark.slow
@pytest.mark.parametrize("how", ["standby", "replicas"])
def test_drivers_that_are_killed_and_paused_change_no_row(capsys: pytest.CaptureFixture[str], how: str) -> None:
    said = run(capsys, "--seconds", "120", "--seed", "1", "--queries", "aggregate", "--drivers", how)
    assert "× kill of a" in said
