"""Balancing: SC-11. UIT, MIT, and a bucket that must be alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from springtide.elastic import maps
from springtide.elastic.policies.balancing import Balancing, hot, rebalancing
from springtide.state.bucket_map import BucketMap
from springtide.state.instructions import Trigger
from tests.unit.elastic.measured import measured
from tests.wording import says

EVEN = BucketMap.even(64, 4)


def test_over_uit_buckets_move_and_the_degree_stays() -> None:
    busy = [0.8, 0.4, 0.4, 0.4]
    (proposal,) = Balancing().decide(measured(busy, bucket_rows=[10] * 64), ())
    assert proposal.instances is None
    assert proposal.trigger == Trigger("deviation of utilisation", pytest.approx(0.1732, abs=1e-4), 0.05)
    assert says(proposal.reason, "utilisation", "17.3%", "over 5.0%", "6 buckets moved")
    assert proposal.owners is not None
    loads = measured(busy, bucket_rows=[10] * 64).bucket_loads("heavy")
    after = maps.owned(EVEN, proposal.owners)
    assert max(maps.totals(after, loads)) < 0.55


def test_under_uit_nothing_moves() -> None:
    assert Balancing(uit=0.2).decide(measured([0.8, 0.4, 0.4, 0.4], bucket_rows=[10] * 64), ()) == []


def test_what_brings_less_than_mit_is_left() -> None:
    """A bucket makes up an instance's load: moving it would only move the load."""
    one = [100 if b == 0 else 0 for b in range(64)]
    assert Balancing().decide(measured([0.8, 0.0, 0.0, 0.0], bucket_rows=one), ()) == []
    nearly = [100 if b == 0 else 1 if b == 4 else 0 for b in range(64)]
    busy = measured([0.8, 0.0, 0.0, 0.0], bucket_rows=nearly)
    assert Balancing().decide(busy, ()) == []
    assert Balancing(mit=0.001).decide(busy, ()) != []


def test_a_hot_bucket_gets_an_instance_to_itself() -> None:
    rows = [300 if b == 8 else 10 for b in range(64)]
    busy = [0.9, 0.32, 0.32, 0.32]
    (proposal,) = Balancing().decide(measured(busy, bucket_rows=rows), ())
    assert proposal.reason.endswith("alone on an instance: bucket 8 with 32% of the load")
    assert proposal.owners is not None
    assert [b for b, owner in enumerate(proposal.owners) if owner == proposal.owners[8]] == [8]


def test_who_is_alone_and_heavy_is_hot() -> None:
    own = BucketMap(0, 3, (0, 1, 1, 2))
    assert hot(own, [5, 1, 1, 2]) == [0]
    assert hot(own, [5, 4, 0, 2]) == [0, 1]
    assert hot(own, [1, 1, 1, 1]) == []


def test_nothing_is_known_nothing_moves() -> None:
    assert Balancing().decide(measured([0.8, 0.4, 0.4, 0.4]), ()) == []


def test_a_grid_stays_as_it_is() -> None:
    now = measured([0.8, 0.4, 0.4, 0.4], bucket_rows=[10] * 64)
    grid = replace(now, subqueries={"heavy": replace(now.subqueries["heavy"], grid=(8, 8))})
    assert Balancing().decide(grid, ()) == []


def test_by_hand_there_is_no_threshold() -> None:
    proposal, left = rebalancing("heavy", BucketMap(0, 2, (0, 0, 0, 1)), [1.0, 1.0, 1.0, 1.0])
    assert proposal is not None
    assert proposal.reason == "with 1 bucket moved it is 0.0%"
    assert left == 0
    assert rebalancing("heavy", BucketMap.even(4, 2), [1.0] * 4)[0] is None
