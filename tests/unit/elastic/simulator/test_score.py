"""The score: what the columns of `springtide simulate` mean, on runs that can be worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from springtide.elastic.policies.policy import Proposal
from springtide.elastic.settings import Elastic
from springtide.elastic.simulator import cluster
from springtide.elastic.simulator.model import Model, ModelStep
from springtide.elastic.simulator.score import Score, score_of
from springtide.elastic.simulator.traces import Trace
from springtide.elastic.snapshot import Snapshot


@dataclass(frozen=True)
class Timed:
    """More instances at a time, and fewer at another."""

    instances: int = 2
    at: float = 1e9
    until: float = 1e9

    def decide(self, snapshot: Snapshot, history: Sequence[Snapshot]) -> Sequence[Proposal]:
        n = self.instances if self.at <= snapshot.time < self.until else 2
        return [Proposal("only", "the clock", instances=n)]


def score(policy: Timed, rates: Sequence[float], bound: float = 30.0) -> Score:
    """Ten rows a second take an instance; two instances at first, others are there after 10 s."""
    model = Model({"only": ModelStep(0.1, noise=0.0)}, overhead=0.0, launch=0.0, handover=0.0, startup=10.0).paced(
        1.0, 100
    )
    elastic = Elastic(policy=policy, balancing=None, every=1, grace=0, confirmations=1)
    return score_of(cluster.run(model, Trace("by hand", np.array(rates)), elastic, degrees={"only": 2}), bound)


def test_who_has_enough_is_perfect() -> None:
    found = score(Timed(), [19.0] * 120)
    assert (found.reconfigurations, found.off_pct, found.overshoot_pct) == (0, 0, 0)
    assert (found.congested, found.late, found.late_rows, found.settling) == (0, 0, 0, 0)
    assert found.hours == pytest.approx(2 * 120 / 3600)
    assert found.excess_pct == pytest.approx(0)


def test_who_has_too_few_is_late() -> None:
    found = score(Timed(), [38.0] * 120)
    assert found.congested == pytest.approx(120, abs=2), "38 rows/s come, 20 are done"
    assert found.late == pytest.approx(60, abs=10), "half of what came is done: after a minute rows are 30 s old"
    assert found.late_rows == pytest.approx(20 * 60, rel=0.2)
    assert found.off_pct == pytest.approx(50), "2 of the 4 that are needed"
    assert found.excess_pct == pytest.approx(-50)
    assert found.settling == pytest.approx(110, abs=5), (
        "it never does; at first what waits is no more than an epoch's rows"
    )


def test_instances_are_paid_from_when_they_are_asked_for() -> None:
    #   load         19 ─────┐38 ──────┐19 ───      instances  2 ─────┐8 ─────┐2 ───
    #   seconds      0      60        90    120                0     60+10   100   120
    found = score(Timed(8, at=60, until=100), [19.0] * 60 + [38.0] * 30 + [19.0] * 30)
    assert found.reconfigurations == 2
    assert found.overshoot_pct == pytest.approx(100), "8, when 4 were the most that was needed"
    assert found.congested == pytest.approx(11, abs=2), "until they are there"
    assert found.hours * 3600 == pytest.approx(2 * 120 + 6 * 40, abs=12)
    assert found.least_hours * 3600 == pytest.approx(2 * 120 + 2 * 40), "4 for 30 s, asked for 10 s before"
    assert found.late == 0
