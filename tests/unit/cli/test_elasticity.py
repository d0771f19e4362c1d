"""What `--elastic`, `--min`, `--max` and `--policy` mean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

import springtide as st
from springtide.cli.elasticity import POLICIES, parse_elastic
from springtide.cli.errors import CommandError
from springtide.elastic.policies.threshold import SC_10, SM_10, ST_8
from tests.wording import says

Run = Callable[..., Result]

NIGHT = """
import springtide as st

class Night:
    def decide(self, snapshot, history):
        return []

class Late(Night):
    def __init__(self, hour):
        self.hour = hour

evening = Late(20)
number = 7
"""


def test_nothing_is_said() -> None:
    assert parse_elastic(False) is None


def test_the_usual_policy() -> None:
    assert parse_elastic(True) == st.Elastic()
    assert parse_elastic(False, 2, 8) == st.Elastic(min=2, max=8)  # limits say that it is elastic


def test_presets_by_the_rows_of_the_papers() -> None:
    """SC-10, ST-8, SM-10."""
    assert {"threshold", "sc-10", "st-8", "sm-10", "manual"} <= set(POLICIES)
    for name, preset in (("sc-10", SC_10), ("st-8", ST_8), ("sm-10", SM_10)):
        assert parse_elastic(True, policy=name) == st.Elastic(policy=preset)


def test_by_hand_means_that_nothing_is_balanced_either() -> None:
    assert parse_elastic(True, policy="manual") == st.Elastic(policy=st.Manual(), balancing=None)


def test_protocol() -> None:
    assert parse_elastic(False, protocol="state") == st.Elastic(protocol="state")


def test_own_policy(tmp_path: Path) -> None:
    (tmp_path / "night_watch.py").write_text(NIGHT)
    for name, kind in (("Night", "Night"), ("evening", "Late")):
        found = parse_elastic(True, None, 4, f"night_watch:{name}", folder=tmp_path)
        assert found is not None
        assert (type(found.policy).__name__, found.max) == (kind, 4)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("treshold", "there is no policy 'treshold'; did you mean 'threshold'"),
        ("no_such_module:Night", "the module 'no_such_module' cannot be imported"),
        ("night_watch:Day", "--policy night_watch:Day is not a policy: a class with decide"),
        ("night_watch:number", "is not a policy"),
        ("night_watch:Late", "--policy night_watch:Late: TypeError: "),
    ],
)
def test_what_is_no_policy(policy: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "night_watch.py").write_text(NIGHT)
    with pytest.raises(CommandError, match=message):
        parse_elastic(True, policy=policy, folder=tmp_path)


def test_mistakes_are_told_before_spark_starts(run: Run, program: Callable[..., Path]) -> None:
    file = program("query = st.Query('q', x.to(out))")
    wrong = run("run", file, "--min", 5, "--max", 2)
    assert says(wrong.stderr, "error: --min and --max: ", "5 and 2")
    assert "there is no policy 'often'" in run("run", file, "--policy", "often").stderr
