"""Experience: delays, settling and gains, measured from the summaries of before."""

from __future__ import annotations

import pytest

from springtide.elastic import experience
from springtide.elastic.manager import Manager
from springtide.elastic.policies.policy import Proposal
from springtide.elastic.settings import Elastic
from springtide.elastic.snapshot import Snapshot, SourceLoad, SubqueryLoad
from springtide.state.bucket_map import BucketMap
from tests.unit.elastic.measured import measured


def summary(time: float, n: int, cost: float, span: float | None = None, rows: int = 100) -> Snapshot:
    own = SubqueryLoad(BucketMap.even(64, n, n), (rows // n,) * n, (1,) * n, (cost * rows / n,) * n, span=span)
    return Snapshot(time, int(time), 5.0, 5.0, {"x": SourceLoad(rows)}, {"heavy": own})


def test_the_manager_measures_how_long_instances_take_to_come() -> None:
    class Wanting:
        def decide(self, snapshot: Snapshot, history: object) -> list[Proposal]:
            return [Proposal("heavy", "a test", instances=4)] if snapshot.subqueries["heavy"].instances == 2 else []

    manager = Manager(Elastic(policy=Wanting(), balancing=None, every=5, grace=0))
    (told,) = manager.handle(measured([1.0] * 2, time=5))
    manager.handle(measured([1.0] * 2, time=10))
    assert manager.history[-1].coming == {"heavy": 4}
    manager.handle(measured([0.5] * 4, time=25, buckets=told.after))
    last = manager.history[-1]
    assert (last.took, last.coming) == ({"heavy": pytest.approx(15.0)}, {}), "told at 5, in the epoch that began at 20"
    assert experience.delay(list(manager.history)) == pytest.approx(15.0)
    assert Snapshot.from_json(last.to_json()) == last


def test_settling_is_the_time_in_which_rows_cost_more() -> None:
    #   2 instances │ 4 instances: two summaries are slow, state is read again
    costs = [0.01] * 3 + [0.03, 0.02] + [0.01] * 4
    summaries = [summary(5.0 * i, 2 if i < 3 else 4, cost) for i, cost in enumerate(costs)]
    assert experience.settling(summaries, "heavy") == pytest.approx(10.0)
    assert experience.settling(summaries[:3], "heavy") is None


def test_costs_without_a_middle_have_not_settled() -> None:
    """Half of the summaries are far over the median and half far under it: none is near it."""
    costs = [0.01] * 3 + [0.03, 0.03, 0.01, 0.01]
    summaries = [summary(5.0 * i, 2 if i < 3 else 4, cost) for i, cost in enumerate(costs)]
    assert experience.settling(summaries, "heavy") == pytest.approx(20.0)


def test_gain_compares_the_stage_before_and_after() -> None:
    before = [summary(5.0 * i, 2, 0.01, span=0.8) for i in range(3)]

    def after(span: float) -> list[Snapshot]:
        return [summary(15.0 + 5 * i, 4, 0.01, span=span) for i in range(3)]

    for span, share in ((0.4, 1.0), (0.8, 0.0), (0.6, 1 / 3)):
        found = experience.gain([*before, *after(span)], "heavy")
        assert found is not None
        assert (found.before, found.after, found.share) == (2, 4, pytest.approx(share))
    assert experience.gain(before, "heavy") is None
    assert experience.gain([*after(0.4), *before], "heavy") is None, "fewer instances are no scale-out"
    assert experience.gain([*before, after(0.4)[0]], "heavy") is None, "nothing is known yet"


def test_what_was_before_the_first_rows_is_no_load() -> None:
    summaries = [measured([0.5], time=5.0 * i, rows=n, arrived=n) for i, n in enumerate((0, 0, 100, 0, 100), 1)]
    assert experience.rates(summaries, "calls", 60.0) == ([15.0, 20.0, 25.0], [20.0, 0.0, 20.0])
    assert experience.rates(summaries[:2], "calls", 60.0) == ([10.0], [0.0])
