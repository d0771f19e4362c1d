"""Threshold: SC-10, ST-8, SM-10."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from springtide.elastic.policies.policy import Proposal
from springtide.elastic.policies.threshold import PRESETS, SC_10, SM_10, ST_8, Threshold
from springtide.elastic.snapshot import Snapshot, SourceLoad, SubqueryLoad
from springtide.state.bucket_map import BucketMap
from springtide.state.instructions import Trigger
from tests.unit.elastic.measured import measured
from tests.wording import says


def wanted(policy: Threshold, snapshot: Snapshot) -> int | None:
    proposals = policy.decide(snapshot, ())
    return proposals[0].instances if proposals else None


# ── SC-10 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("utilisation", "instances"),
    [([0.95], 2), ([0.95] * 10, 16), ([0.9] * 10, None), ([0.5] * 10, None), ([0.3] * 10, 5), ([0.01] * 10, 1)],
)
def test_straight_to_the_target(utilisation: list[float], instances: int | None) -> None:
    assert wanted(SC_10, measured(utilisation)) == instances


def test_one_at_a_time() -> None:
    individual = replace(SC_10, provisioning="individual")
    assert wanted(individual, measured([0.95] * 10)) == 11
    assert wanted(individual, measured([0.3] * 10)) == 9
    assert wanted(individual, measured([0.48] * 2)) is None, "one alone would be over UUT at once"
    assert wanted(individual, measured([0.1])) is None


def test_a_decision_says_why() -> None:
    (proposal,) = SC_10.decide(measured([0.95] * 4), ())
    assert proposal == Proposal(
        "heavy",
        proposal.reason,
        Trigger("utilisation", pytest.approx(0.95), 0.9),
        instances=7,
    )
    assert says(proposal.reason, "95%", "over 90%", "7 instead of 4 instances", "54%")
    assert str(proposal.trigger) == "utilisation 0.95 > 0.9"


def test_rows_that_wait_count_as_load() -> None:
    """Nobody can be more than 100 % busy: that three times as much arrives shows in what arrives."""
    assert wanted(SC_10, measured([1.0] * 2, rows=1000, arrived=3000)) == 10


def test_working_off_a_backlog_is_no_reason_for_more() -> None:
    """All are busy, but with rows of before: what arrives now would keep them busy by 60 %."""
    assert wanted(SC_10, measured([1.0] * 5, rows=1000, arrived=600, backlog=500)) is None


def test_a_backlog_that_would_stay_is_one() -> None:
    #   4 instances, 3.4 arrive: 0.6 are left for 4 × 5 s × 20 = 400 s of work, in 60 s it takes 6.7
    late = measured([1.0] * 4, rows=1000, arrived=850, backlog=20_000)
    assert wanted(SC_10, late) == 11
    assert SC_10.decide(late, ())[0].trigger == Trigger("utilisation with backlog", pytest.approx(2.517, abs=0.01), 1.0)
    assert wanted(replace(SC_10, drain=None), late) is None


def test_nothing_is_taken_away_while_a_backlog_waits() -> None:
    quiet = measured([1.0] * 10, rows=1000, arrived=300)
    assert wanted(SC_10, quiet) == 5
    assert wanted(SC_10, replace(quiet, sources={"calls": SourceLoad(1000, 300, 6000)})) is None


def test_nothing_is_taken_away_while_the_rest_of_a_backlog_waits() -> None:
    """Nothing arrives any more: by what arrives one instance would do, but what is left would take it its time."""
    for backlog in (6000, 1000, 1):
        left = measured([1.0] * 10, rows=1000, arrived=0, backlog=backlog)
        for policy in (SC_10, ST_8, replace(SC_10, drain=None)):
            assert wanted(policy, left) is None
    assert wanted(SC_10, measured([1.0] * 10, rows=1000, arrived=0)) == 1


def test_nobody_goes_while_rows_wait() -> None:
    assert wanted(SC_10, measured([0.3] * 10, rows=1000, arrived=1000)) == 5
    assert wanted(SC_10, measured([0.3] * 10, rows=1000, arrived=1000, backlog=200)) is None


def test_a_stage_that_takes_hardly_any_time_is_left_alone() -> None:
    #   calls 0.02 s │ heavy 0.96 s
    calls = SubqueryLoad(BucketMap.even(0, 1), (10,), (10,), (0.02,), sources=("calls",))
    heavy = SubqueryLoad(BucketMap.even(8, 1), (10,), (10,), (0.96,), upstream=("calls",))
    now = Snapshot(0, 0, 1, 1, {"calls": SourceLoad(10)}, {"calls": calls, "heavy": heavy})
    assert now.mean_utilisation("calls") > SC_10.uut
    assert [p.subquery for p in SC_10.decide(now, ())] == ["heavy"]


@given(some.integers(1, 60), some.floats(0.01, 3))
def test_one_step_is_enough(n: int, utilisation: float) -> None:
    """Where load-aware provisioning goes, it stays: no cascade (SC-14, fig. 21)."""
    busy = min(1.0, utilisation)
    now = measured([busy] * n, rows=100_000, arrived=round(100_000 * utilisation / busy))
    n_after = wanted(SC_10, now) or n
    after = now.load("heavy") / n_after
    assert after <= SC_10.uut + 1e-9
    assert wanted(SC_10, measured([after] * n_after)) is None


# ── ST-8 ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("n", "out", "into"), [(5, 9, 2), (9, 16, 3), (18, 31, 7), (30, 52, 12), (40, 69, 17)])
def test_table_2_of_stretch(n: int, out: int, into: int) -> None:
    """From 120 % and from 30 % of what n threads can do."""
    assert wanted(ST_8, measured([1.0] * n, rows=10_000, arrived=12_000)) == out
    assert wanted(ST_8, measured([0.3] * n)) == into


def test_the_fewest_are_still_enough() -> None:
    assert wanted(ST_8, measured([0.43] * 3)) == 2, "1.29 / 0.7 is 1.8, but one alone could not do it"


# ── SM-10 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_streammine_adds_a_node_when_one_is_over_80_percent() -> None:
    assert wanted(SM_10, measured([0.5, 0.81, 0.5])) == 4
    assert wanted(SM_10, measured([0.5, 0.79, 0.5])) is None
    assert wanted(SM_10, measured([0.39] * 3)) == 2
    assert wanted(SC_10, measured([0.5, 0.91, 0.5])) is None, "StreamCloud looks at the average"


# ── all ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_presets_have_the_names_of_the_papers_rows() -> None:
    assert {name: (t.lut, t.uut, t.tut) for name, t in PRESETS.items()} == {
        "SC-10": (0.5, 0.9, 0.6),
        "ST-8": (0.45, 0.9, 0.7),
        "SM-10": (0.4, 0.8, 0.8),
    }


@pytest.mark.parametrize("bounds", [(0.6, 0.9, 0.6), (0.5, 0.6, 0.7), (-0.1, 0.9, 0.6)])
def test_thresholds_that_cannot_be_kept(bounds: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="lut < tut ≤ uut"):
        Threshold(*bounds)
