"""Summaries sum up the epochs since the last change of a map."""

from __future__ import annotations

from dataclasses import replace

import pytest

from springtide.elastic.snapshot import Latency
from springtide.elastic.summaries import merged
from springtide.state.bucket_map import BucketMap
from tests.unit.elastic.measured import measured


def test_one_is_itself() -> None:
    only = measured([0.5])
    assert merged([only]) is only


def test_rows_and_times_are_added_and_the_backlog_is_the_last() -> None:
    first = measured([0.2, 0.4], time=1, period=1, rows=100, arrived=150, backlog=50)
    second = measured([0.8, 0.4], time=4, period=3, rows=300, arrived=None, backlog=20)
    summary = merged([first, second])
    assert (summary.time, summary.epoch, summary.period) == (4, 4, 4)
    assert (summary.rows, summary.sources["calls"].arrived, summary.backlog) == (400, 450, 20)
    assert summary.utilisation("heavy") == pytest.approx([0.65, 0.4])


def test_each_stage_waits_for_its_slowest_in_every_epoch() -> None:
    def unmeasured(*utilisation: float) -> object:
        now = measured(utilisation, period=1)
        return replace(now, subqueries={"heavy": replace(now.subqueries["heavy"], span=None)})

    summary = merged([unmeasured(0.8, 0.1), unmeasured(0.1, 0.8)])  # type: ignore[list-item]
    assert summary.span("heavy") == pytest.approx(1.6)


def test_what_was_before_another_map_is_left_out() -> None:
    #   map      0    1    1
    #   busy   0.9  0.5  0.3
    old = measured([0.9, 0.9], buckets=BucketMap.even(64, 2, version=0))
    new = [measured([u, u], time=i, buckets=BucketMap.even(64, 2, version=1)) for i, u in enumerate((0.5, 0.3), 1)]
    summary = merged([old, *new])
    assert summary.period == 10
    assert summary.mean_utilisation("heavy") == pytest.approx(0.4)


def test_what_the_last_epoch_brought_is_known() -> None:
    epochs = [measured([0.5], time=t, period=1, rows=n, arrived=n) for t, n in ((1, 100), (2, 100), (3, 400))]
    assert merged(epochs).rate == pytest.approx(200)
    assert [s.latest for s in merged(epochs).sources.values()] == [400]


def test_latency_is_the_worst() -> None:
    slow = replace(measured([0.5]), latency=Latency(0.1, 0.2, 0.9))
    slower = replace(measured([0.5]), latency=Latency(0.2, 0.3, 0.4))
    assert merged([slow, slower, measured([0.5])]).latency == Latency(0.2, 0.3, 0.9)


def test_buckets_that_were_not_measured_every_time_are_not_known() -> None:
    rows = [1] * 64
    assert merged([measured([0.5], bucket_rows=rows)] * 2).subqueries["heavy"].bucket_rows == (2,) * 64
    assert merged([measured([0.5], bucket_rows=rows), measured([0.5])]).subqueries["heavy"].bucket_rows == ()
