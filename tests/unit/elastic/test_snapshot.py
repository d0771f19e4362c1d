"""Snapshots: AS-1, SM-2. What is measured, and what follows from it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from springtide.elastic.snapshot import Latency, Snapshot, SourceLoad, SubqueryLoad
from springtide.state.bucket_map import BucketMap
from tests.unit.elastic.measured import measured


def query(*, period: float = 1.0, arrived: int | None = None, backlog: int = 0, slots: int | None = None) -> Snapshot:
    """A prefix with one instance, an aggregate with two behind it, and a ranking behind that.

    stage   calls 0.2 s │ heavy 0.4 s │ top 0.2 s │ 0.2 s overhead
    """
    calls = SubqueryLoad(BucketMap.even(0, 1), (100,), (100,), (0.2,), sources=("calls",))
    heavy = SubqueryLoad(
        BucketMap.even(4, 2), (60, 40), (6, 4), (0.4, 0.2), upstream=("calls",), bucket_rows=(50, 30, 10, 10)
    )
    top = SubqueryLoad(BucketMap.even(4, 1), (10,), (1,), (0.2,), upstream=("heavy",))
    return Snapshot(
        time=10.0,
        epoch=3,
        seconds=1.0,
        period=period,
        sources={"calls": SourceLoad(100, arrived, backlog)},
        subqueries={"calls": calls, "heavy": heavy, "top": top},
        latency=Latency(0.5, 0.9, 1.0),
        slots=slots,
    )


def test_stages_follow_the_graph() -> None:
    assert query().levels == {"calls": 0, "heavy": 1, "top": 2}
    diamond = {
        "a": SubqueryLoad(BucketMap.even(0, 1), (), (), ()),
        "b": SubqueryLoad(BucketMap.even(4, 1), (), (), (), upstream=("a",)),
        "c": SubqueryLoad(BucketMap.even(4, 1), (), (), (), upstream=("a", "b")),
    }
    assert Snapshot(0, 0, 1, 1, {}, diamond).levels == {"a": 0, "b": 1, "c": 2}


def test_all_instances_of_a_query_that_just_keeps_up_are_busy() -> None:
    """0.8 s of work in a second: the busiest of each stage could work 25 % more, whatever its share."""
    now = query()
    assert now.utilisation("calls") == pytest.approx([0.8])
    assert now.utilisation("heavy") == pytest.approx([0.8, 0.4])
    assert now.utilisation("top") == pytest.approx([0.8])


def test_waiting_for_rows_is_time_that_could_have_been_used() -> None:
    assert query(period=4.0).utilisation("heavy") == pytest.approx([0.2, 0.1])


def test_a_stage_takes_as_long_as_was_measured() -> None:
    now = query()
    longer = replace(now, subqueries={**now.subqueries, "top": replace(now.subqueries["top"], span=1.4)})
    assert longer.share("top") == pytest.approx(0.7)
    assert longer.utilisation("top") == pytest.approx([0.2 / 0.7])


def test_more_instances_than_slots_work_in_turn() -> None:
    assert query(slots=1).span("heavy") == pytest.approx(0.6)
    assert query(slots=2).span("heavy") == pytest.approx(0.4)


def test_load_follows_what_arrives() -> None:
    assert query().load("heavy") == pytest.approx(1.2)
    assert query(arrived=250).load("heavy") == pytest.approx(3.0)
    assert query(arrived=50).load("heavy") == pytest.approx(0.6)
    assert query(arrived=250).rate == 250


def test_what_the_backlog_will_cost() -> None:
    assert query(backlog=1000).owed("heavy") == pytest.approx(12.0)
    assert query(backlog=1000, period=4.0).owed("heavy") == pytest.approx(12.0)
    assert query(backlog=1000).backlog == 1000


def test_behind_is_who_has_rows_that_an_epoch_had_no_room_for() -> None:
    assert not measured([0.5], arrived=100).has_backlog("heavy")
    assert measured([0.5], arrived=100, backlog=1).has_backlog("heavy")
    with pytest.warns(DeprecationWarning, match="has_backlog"):
        assert measured([0.5], arrived=100, backlog=1).is_behind("heavy")


def test_a_subquery_knows_only_its_own_sources() -> None:
    now = query(arrived=200)
    other = SubqueryLoad(BucketMap.even(0, 1), (5,), (5,), (0.1,), sources=("other",))
    both = replace(
        now, sources={**now.sources, "other": SourceLoad(5, 50)}, subqueries={**now.subqueries, "other": other}
    )
    assert set(both.origins("top")) == {"calls"}
    assert both.load("other") == pytest.approx(10 * both.utilisation("other")[0])


def test_loads_of_buckets_add_up_to_the_utilisation() -> None:
    loads = with_bucket_rows(50_000, 30_000, 10_000, 10_000).bucket_loads("heavy")
    #   instance 0 has buckets 0 and 2 (5 and 1 of 6), instance 1 has 1 and 3 (3 and 1 of 4)
    assert loads == pytest.approx([0.8 * 5 / 6, 0.4 * 3 / 4, 0.8 * 1 / 6, 0.4 * 1 / 4], rel=1e-3)
    assert query().bucket_loads("top") == ()


def test_a_few_rows_say_little_about_buckets() -> None:
    """Which buckets got them is chance: none of them is without work for that."""
    assert with_bucket_rows(2, 0, 1, 1).bucket_loads("heavy") == pytest.approx([0.4, 0.2, 0.4, 0.2])
    some = with_bucket_rows(20, 0, 10, 10).bucket_loads("heavy")
    assert some[0] > some[2] > some[1] > 0
    assert sum(some) == pytest.approx(1.2)


def with_bucket_rows(*rows: int) -> Snapshot:
    now = query()
    return replace(now, subqueries={**now.subqueries, "heavy": replace(now.subqueries["heavy"], bucket_rows=rows)})


def test_measured_work_counts_more_than_rows() -> None:
    now = query()
    own = replace(now.subqueries["heavy"], bucket_busy=(0.1, 0.1, 0.3, 0.1))
    assert replace(now, subqueries={**now.subqueries, "heavy": own}).bucket_loads("heavy") == pytest.approx(
        [0.2, 0.2, 0.6, 0.2]
    )


def test_figures_of_one_subquery() -> None:
    heavy = query().subqueries["heavy"]
    assert (heavy.instances, heavy.most, heavy.selectivity) == (2, 4, 0.1)
    assert heavy.seconds_per_row == pytest.approx(0.006)
    idle = replace(heavy, rows_in=(0, 0), rows_out=(0, 0))
    assert (idle.selectivity, idle.seconds_per_row) == (1.0, 0.0)
    assert query().subqueries["calls"].most is None


def test_nothing_measured_is_nothing_busy() -> None:
    empty = Snapshot(0, 0, 0, 0, {}, {"a": SubqueryLoad(BucketMap.even(4, 2), (0, 0), (0, 0), (0.0, 0.0))})
    assert empty.utilisation("a") == (0.0, 0.0)
    assert (empty.load("a"), empty.owed("a"), empty.deviation("a"), empty.rate) == (0, 0, 0, 0)


def test_a_snapshot_comes_back_from_json() -> None:
    now = query(arrived=7, slots=4)
    grid = replace(now.subqueries["top"], grid=(2, 2), wait=(0.1,), span=0.3, bucket_bytes=(1, 2, 3, 4))
    now = replace(now, subqueries={**now.subqueries, "top": grid})
    assert now.levels  # what was worked out is not written
    assert Snapshot.from_json(json.loads(json.dumps(now.to_json()))) == now
    assert Snapshot.from_json(json.loads(json.dumps(replace(now, latency=None).to_json()))).latency is None


def test_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="a snapshot of format 2"):
        Snapshot.from_json(query().to_json() | {"format": 2})
