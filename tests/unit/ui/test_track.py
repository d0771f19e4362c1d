"""All epochs as columns: summed up for charts in as few points as wanted."""

from __future__ import annotations

import pytest

from springtide.elastic.snapshot import Latency, Snapshot, SourceLoad, SubqueryLoad
from springtide.state.bucket_map import BucketMap
from springtide.ui.tail import LinePlace
from springtide.ui.track import EMPTY, Track, series


def snapshot(epoch: int, time: float, rows: int = 100, instances: int = 2, name: str = "heavy") -> Snapshot:
    own = SubqueryLoad(
        BucketMap.even(8, instances),
        (rows // instances,) * instances,
        (10,) * instances,
        (0.25,) * instances,
        sources=("calls",),
    )
    return Snapshot(
        time, epoch, 0.5, 1.0, {"calls": SourceLoad(rows, 2 * rows, epoch)}, {name: own}, Latency(0.1, 0.2, 0.3 + epoch)
    )


def track(count: int, **more: object) -> Track:
    found = [snapshot(i, 100.0 + i, **more) for i in range(count)]  # type: ignore[arg-type]
    return Track.of(found, [LinePlace("f", i, i + 1) for i in range(count)])


def test_each_epoch_is_a_point_where_there_is_room() -> None:
    found = series(track(5), most=100)
    assert found["t"] == [100.0, 101.0, 102.0, 103.0, 104.0]
    assert (found["epochs"], found["first"], found["last"]) == (5, 0, 4)
    assert (found["read"], found["arriving"]) == ([100.0] * 5, [200.0] * 5)
    assert found["subqueries"]["heavy"]["instances"] == [2.0] * 5
    assert found["subqueries"]["heavy"]["mean"] == [0.25] * 5


def test_points_sum_up_epochs_and_keep_the_worst() -> None:
    found = series(track(1000), most=10)
    assert len(found["t"]) == 10
    assert found["t"][-1] == 1099.0
    assert found["read"] == [100.0] * 10
    assert found["backlog"] == [99.0 + 100 * i for i in range(10)]
    assert found["p99"][0] == pytest.approx(99.3)


def test_a_span_of_time() -> None:
    found = series(track(100), begin=110.0, end=119.5)
    assert (found["epochs"], found["first"], found["last"]) == (10, 10, 19)
    assert series(track(100), begin=500.0)["epochs"] == 0
    assert series(EMPTY)["t"] == []


def test_earlier_and_later_epochs_with_other_subqueries() -> None:
    both = track(3, name="old") + Track.of([snapshot(3, 103.0)], [LinePlace("f", 9, 10)])
    found = series(both)
    assert found["subqueries"]["old"]["instances"] == [2.0, 2.0, 2.0, None]
    assert found["subqueries"]["heavy"]["instances"] == [None, None, None, 2.0]
    assert len(both.places) == 4
    assert len(EMPTY + both) == len(both + EMPTY) == 4


def test_the_place_of_an_epoch() -> None:
    assert track(10).index(4) == 4
    assert track(10).index(99) == 9
    assert track(10).index(-1) is None
