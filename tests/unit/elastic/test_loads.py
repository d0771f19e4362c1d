"""Loads of buckets by several summaries: chance is told from what rows really cost (SC-11)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev

import numpy as np
import pytest

from springtide.elastic import maps
from springtide.elastic.loads import steady_loads
from springtide.elastic.policies.balancing import Balancing
from springtide.elastic.snapshot import Snapshot
from springtide.state.bucket_map import BucketMap
from tests.unit.elastic.measured import measured

EVEN = BucketMap.even(60, 6)


def busy(rows: Sequence[int], own: BucketMap, costs: Sequence[float], noise: np.random.Generator) -> Snapshot:
    """Each bucket's rows take their cost, and the time of each instance is measured with a tenth of noise."""
    work = maps.totals(own, [r * c for r, c in zip(rows, costs, strict=True)])
    return measured([w * noise.normal(1, 0.1) for w in work], rows=sum(rows), buckets=own, bucket_rows=rows)


def test_after_one_report_what_was_measured_counts() -> None:
    now = measured([0.8, 0.4, 0.4, 0.4], bucket_rows=[10] * 64)
    assert steady_loads(now, (), "heavy") == now.bucket_loads("heavy")


def test_nothing_known_is_nothing() -> None:
    now = measured([0.8, 0.4])
    assert steady_loads(now, (now,), "heavy") == ()
    idle = measured([0.0, 0.0], bucket_rows=[0] * 64)
    assert steady_loads(idle, (idle, idle), "heavy") == (0.0,) * 64


@pytest.mark.parametrize("seed", range(5))
def test_chance_moves_nothing(seed: int) -> None:
    """All buckets have the same rows at the same cost: only the measurements differ."""
    noise = np.random.default_rng(seed)
    summaries = [busy([10] * 60, EVEN, [0.006] * 60, noise) for _ in range(6)]
    assert summaries[-1].deviation("heavy") > 0.02
    loads = maps.totals(EVEN, steady_loads(summaries[-1], summaries[:-1], "heavy"))
    assert pstdev(loads) < 0.6 * pstdev(maps.totals(EVEN, summaries[-1].bucket_loads("heavy")))
    assert sum(loads) == pytest.approx(sum(summaries[-1].utilisation("heavy")))


@pytest.mark.parametrize("seed", range(5))
def test_other_rows_are_seen_at_once(seed: int) -> None:
    """Other buckets become hot: their rows are known, and what rows cost was known before."""
    noise = np.random.default_rng(seed)
    summaries = [busy([10] * 60, EVEN, [0.006] * 60, noise) for _ in range(6)]
    rows = [30 if b % 6 == 0 else 6 for b in range(60)]
    now = busy(rows, EVEN, [0.006] * 60, noise)
    (proposal,) = Balancing().decide(now, summaries)
    assert proposal.owners is not None
    after = maps.totals(maps.owned(EVEN, proposal.owners), rows)
    assert pstdev(after) / fmean(after) < 0.1


@pytest.mark.parametrize("seed", range(5))
def test_rows_that_cost_more_are_found(seed: int) -> None:
    """The rows of ten buckets take five times as long, whoever has them: that is no chance."""
    noise = np.random.default_rng(seed)
    costs = [0.01 if b % 6 == 0 else 0.002 for b in range(60)]
    own, summaries = EVEN, list[Snapshot]()
    for _ in range(8):
        summaries.append(busy([10] * 60, own, costs, noise))
        for proposal in Balancing().decide(summaries[-1], summaries[:-1]):
            assert proposal.owners is not None
            own = maps.owned(own, proposal.owners)
    work = maps.totals(own, [10 * c for c in costs])
    assert pstdev(work) / fmean(work) < 0.25, "it began with 1.1"


@pytest.mark.parametrize("seed", range(3))
def test_load_stays_even_while_the_popular_keys_change(seed: int) -> None:
    """SC-14 fig. 20: 15 instances, normally distributed keys whose mean moves; a task has a fixed part, and noise."""
    draw = np.random.default_rng(seed)
    own, history, bucket_of = BucketMap.even(512, 15), list[Snapshot](), draw.integers(0, 512, 10_000)
    even, plain = list[float](), list[float]()
    for mean in (2000, 4000, 6000, 8000):
        for epoch in range(6):
            keys = np.round(draw.normal(mean, 100, 100_000)).astype(np.int64)
            rows = np.bincount(bucket_of[keys], minlength=512).tolist()
            work = [(0.3 + load / 10_000) * draw.normal(1, 0.1) for load in maps.totals(own, rows)]
            now = measured(work, rows=100_000, buckets=own, bucket_rows=rows)
            if epoch >= 2:
                for found, bucket_map in ((even, own), (plain, BucketMap.even(512, 15))):
                    loads = maps.totals(bucket_map, rows)
                    found.append(pstdev(loads) / fmean(loads))
            for proposal in Balancing(uit=0.02).decide(now, history):
                assert proposal.owners is not None
                own = maps.owned(own, proposal.owners)
            history.append(now)
    assert fmean(even) < 0.05
    assert fmean(plain) > 3 * fmean(even)
