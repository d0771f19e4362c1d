"""Predictive: AS-1, AS-2, AS-3, AS-4, AS-5, AS-6. The numbers in brackets are the paper's formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from springtide.elastic.manager import Manager
from springtide.elastic.policies.predictive import MATRIX, Estimate, Predictive, expected
from springtide.elastic.settings import Elastic
from springtide.elastic.snapshot import Snapshot, SourceLoad, SubqueryLoad
from springtide.state.bucket_map import BucketMap
from springtide.state.instructions import Trigger
from tests.unit.elastic.measured import measured


def minute(
    arrivals: Sequence[int], *, utilisation: float = 0.5, instances: int = 4, backlog: int = 0
) -> list[Snapshot]:
    """Summaries of 10 s; 1,000 rows of each were read, which took the instances as long as said."""
    found = [
        measured(
            [utilisation] * instances,
            time=10.0 * (i + 1),
            period=10.0,
            rows=1000,
            arrived=n,
            backlog=backlog if i == len(arrivals) - 1 else 0,
        )
        for i, n in enumerate(arrivals)
    ]
    return [replace(summary, seconds=10.0 * utilisation) for summary in found]


def estimate(summaries: list[Snapshot], policy: Predictive | None = None) -> Estimate:
    return (policy or Predictive()).local(summaries[-1], summaries)["heavy"]


def wanted(summaries: list[Snapshot], policy: Predictive | None = None) -> int | None:
    found = (policy or Predictive()).decide(summaries[-1], summaries[:-1])
    return found[0].instances if found else None


def test_as1_as2_input_is_what_is_forecast_and_what_waits() -> None:
    #   600, 700, … 1,100 rows in 10 s: the line says 1,200 … 1,700 for the next minute (2), and 500 wait (3)
    found = estimate(minute([600, 700, 800, 900, 1000, 1100], backlog=500))
    assert found.input == pytest.approx(1200 + 1300 + 1400 + 1500 + 1600 + 1700 + 500)
    assert found.increasing


def test_as2_capacity_is_what_all_instances_can_do_in_a_window() -> None:
    #   1,000 rows keep 4 instances busy by half of 10 s: 12,000 in a minute (4)
    assert estimate(minute([1000] * 6)).now == pytest.approx(12_000)


def test_as2_capacity_goes_with_earlier_ones() -> None:
    assert expected([100.0]) == 100.0
    assert expected([90.0, 110.0, 90.0, 110.0]) == pytest.approx(100.0), "a high one came after each low one"
    assert expected([100.0, 110.0, 120.0, 130.0, 140.0]) == pytest.approx(128.0, abs=10)


@pytest.mark.parametrize(("level", "activity"), [(0.3, "low"), (0.8, "medium"), (1.0, "high"), (1.01, "critical")])
def test_as3_activity(level: float, activity: str) -> None:
    assert Predictive().activity(level) == activity


def test_as5_matrix() -> None:
    assert {key for key, decision in MATRIX.items() if decision == "scale-out"} == {
        ("high", True),
        ("critical", False),
        ("critical", True),
    }
    assert {key for key, decision in MATRIX.items() if decision == "scale-in"} == {("low", False)}


def test_as5_degree() -> None:
    """(11): one more where activity is high, else as many as the level says."""
    assert wanted(minute([1700, 1750, 1800, 1850, 1700, 1760])) == 5, "88 % and growing: high"
    assert wanted(minute([1800] * 6)) is None, "high, but not growing"
    assert wanted(minute([3000] * 6)) == 6, "150 % of 4"
    assert wanted(minute([1200] * 6)) is None, "medium"
    assert wanted(minute([500] * 6)) == 1, "25 % of 4"
    assert wanted(minute([400, 420, 440, 460, 480, 500])) is None, "low, but growing"


def test_as5_a_backlog_counts() -> None:
    assert wanted(minute([1200] * 6)) is None
    assert wanted(minute([1200] * 6, backlog=10_000)) == 6, "7,200 come and 10,000 wait, 12,000 can be done"


def test_a_decision_says_why() -> None:
    summaries = minute([3000] * 6)
    (proposal,) = Predictive().decide(summaries[-1], summaries[:-1])
    for said in ("18,000 rows", "60 s", "4 instances can do 12,000", "150% is critical", "6 instead of 4"):
        assert said in proposal.reason
    assert proposal.trigger == Trigger("activity", pytest.approx(1.5), 1.0)


# ── the graph ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def chain(arrived: int, backlog: int = 0, selectivity: float = 0.5) -> Snapshot:
    #   calls ── half of the rows ──▶ heavy; both take half of the time, and the time is full
    calls = SubqueryLoad(BucketMap.even(0, 2), (500, 500), (250, 250), (5.0, 5.0), sources=("x",))
    rows = round(500 * selectivity)
    heavy = SubqueryLoad(BucketMap.even(16, 2), (rows, rows), (1, 1), (5.0, 5.0), upstream=("calls",))
    calls = replace(calls, rows_out=(rows, rows))
    return Snapshot(10.0, 1, 10.0, 10.0, {"x": SourceLoad(1000, arrived, backlog)}, {"calls": calls, "heavy": heavy})


def test_as4_backlog_goes_along_by_selectivity() -> None:
    found = Predictive().local(chain(1000, backlog=4000), [chain(1000, backlog=4000)])
    assert found["calls"].input == pytest.approx(6000 + 4000)
    assert found["heavy"].input == pytest.approx(3000 + 2000)


def test_as4_behind_a_critical_subquery_both_estimates_are_combined() -> None:
    """Algorithm 1: calls gets three times what it can do, and what it will give is what heavy has to reckon with."""
    now = chain(3000)
    local = Predictive().local(now, [now])
    assert local["calls"].level == pytest.approx(3.0)
    assert local["calls"].output == pytest.approx(6000 * 0.5), "it can do 6,000 (8), half of them come out (9)"
    safe = Predictive(combine="max").consistent(now, local)["heavy"]
    frugal = Predictive(combine="min").consistent(now, {**local, "heavy": replace(local["heavy"], input=9000.0)})[
        "heavy"
    ]
    assert (safe.input, safe.above) == (pytest.approx(3000.0), pytest.approx(3000.0))
    assert frugal.input == pytest.approx(3000.0)
    larger = Predictive(combine="max").consistent(now, {**local, "heavy": replace(local["heavy"], input=9000.0)})[
        "heavy"
    ]
    assert larger.input == 9000.0


def test_as4_behind_a_quiet_subquery_the_own_estimate_counts() -> None:
    now = chain(900)
    local = Predictive().local(now, [now])
    assert Predictive().consistent(now, local) == local


def test_thresholds_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="theta_min"):
        Predictive(theta_min=0.9)


def test_as6_after_a_change_there_is_a_grace_period() -> None:
    manager = Manager(Elastic(policy=Predictive(), balancing=None, every=10, grace=30))
    summaries = minute([3000] * 6)
    (told,) = manager.handle(summaries[0])
    busy = replace(measured([0.5] * 6, time=20.0, period=10.0, arrived=9000, buckets=told.after), seconds=5.0)
    assert manager.handle(busy) == ()
    assert [r.rule for r in manager.refusals] == ["grace"]
    assert manager.handle(replace(busy, time=60.0))
