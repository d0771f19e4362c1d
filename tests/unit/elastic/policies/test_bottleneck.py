"""Bottleneck: SE-5."""

from __future__ import annotations

from dataclasses import replace

import pytest

from springtide.elastic.policies.bottleneck import Bottleneck
from springtide.elastic.snapshot import Snapshot, SourceLoad, SubqueryLoad
from springtide.state.bucket_map import BucketMap
from springtide.state.instructions import Trigger
from tests.unit.elastic.measured import measured


def test_se5_two_reports_in_a_row_over_70_percent() -> None:
    quiet, busy = measured([0.5, 0.5]), measured([0.8, 0.9])
    assert Bottleneck().decide(busy, []) == ()
    assert Bottleneck().decide(busy, [busy, quiet]) == ()
    (proposal,) = Bottleneck().decide(busy, [quiet, busy])
    assert proposal.instances == 4
    assert proposal.trigger == Trigger("utilisation", pytest.approx(0.9), 0.7)


def test_se5_only_the_instances_that_are_too_busy_are_split() -> None:
    busy = measured([0.8, 0.3, 0.3])
    (proposal,) = Bottleneck().decide(busy, [busy])
    assert proposal.instances == 4
    assert "1 of 3 instances stayed over 70% for 2 summaries" in proposal.reason
    assert proposal.reason.endswith("4 instead of 3")


def test_se5_reports_under_another_map_do_not_count() -> None:
    old, new = measured([0.9]), measured([0.9, 0.9])
    assert Bottleneck().decide(new, [old, old]) == ()


def test_se5_only_the_bottleneck_is_scaled() -> None:
    #   calls 1 s │ heavy 4 s: both are busy all the time that they have, and heavy takes most of it
    calls = SubqueryLoad(BucketMap.even(0, 1), (10,), (10,), (1.0,), sources=("x",))
    heavy = SubqueryLoad(BucketMap.even(8, 1), (10,), (10,), (4.0,), upstream=("calls",))
    now = Snapshot(5.0, 1, 5.0, 5.0, {"x": SourceLoad(10)}, {"calls": calls, "heavy": heavy})
    assert [p.subquery for p in Bottleneck().decide(now, [now])] == ["heavy"]
    assert Bottleneck().decide(replace(now, period=10.0), [now]) == (), "half of the time nobody works"


def test_se5_k_and_delta_are_the_users() -> None:
    busy = measured([0.6])
    assert Bottleneck(delta=0.5, k=1).decide(busy, [])
    with pytest.raises(ValueError, match="0 < delta ≤ 1 and k ≥ 1"):
        Bottleneck(delta=1.5)
