"""What is decided before an epoch runs: who reads what, from which time on, and which segments are merged. Pure."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from springtide.connectors import Slice
from springtide.runtime.compacting import ADOPTED, CROWD, FULL, compaction
from springtide.runtime.epoch import TaskReport
from springtide.runtime.planning import assign_slices, with_times
from springtide.state.bucket_map import BucketMap
from springtide.state.manifest import Delivery, SubqueryState
from springtide.state.segment import Segment

BEGINNING = -(2**63)


def part(position: int, rows: int, greatest: int | None = None, *, stream: str = "0", source: str = "s") -> Slice:
    return Slice(stream, position, rows, None, greatest, source)


# ── sharing out slices ─────────────────────────────────────────────────────────────────────────────────────────────────


def shown(shares: tuple[tuple[Slice, ...], ...]) -> list[list[str]]:
    return [[f"{p.source}{p.stream}@{p.position}" for p in share] for share in shares]


def test_a_stream_whose_times_are_unknown_goes_to_one_instance_in_order() -> None:
    slices = [part(0, 10), part(10, 10), part(20, 10)]
    assert shown(assign_slices(slices, 3)) == [["s0@0", "s0@10", "s0@20"], [], []]


def test_one_slice_without_a_time_keeps_the_stream_together() -> None:
    slices = [part(0, 10, 5), part(10, 10), part(20, 10, 7)]
    assert shown(assign_slices(slices, 2)) == [["s0@0", "s0@10", "s0@20"], []]


def test_a_stream_whose_times_are_known_is_read_side_by_side() -> None:
    slices = [part(10 * i, 10, i) for i in range(6)]
    assert shown(assign_slices(slices, 3)) == [["s0@0", "s0@10"], ["s0@20", "s0@30"], ["s0@40", "s0@50"]]


def test_several_streams_go_where_there_is_least() -> None:
    slices = [part(0, 50, stream="a"), part(0, 10, stream="b"), part(0, 10, stream="c"), part(0, 10, stream="d")]
    assert shown(assign_slices(slices, 2)) == [["sa@0"], ["sb@0", "sc@0", "sd@0"]]


def test_streams_of_the_same_name_of_two_sources_are_two() -> None:
    slices = [part(0, 10, source="a"), part(0, 10, source="b"), part(10, 10, source="a")]
    assert shown(assign_slices(slices, 2)) == [["a0@0", "a0@10"], ["b0@0"]]


def test_nothing_to_assign_slices() -> None:
    assert assign_slices([], 3) == ((), (), ())


@given(
    some.lists(
        some.tuples(some.sampled_from("ab"), some.integers(1, 100), some.none() | some.integers(0, 9)), max_size=20
    ),
    some.integers(1, 5),
)
def test_everything_is_shared_out_once_and_streams_stay_in_order(
    given_slices: list[tuple[str, int, int | None]], instances: int
) -> None:
    slices = [part(i, rows, greatest, stream=stream) for i, (stream, rows, greatest) in enumerate(given_slices)]
    shares = assign_slices(slices, instances)
    assert len(shares) == instances
    assert sorted((p for share in shares for p in share), key=lambda p: p.position) == slices
    for share in shares:
        for stream in "ab":
            positions = [p.position for p in share if p.stream == stream]
            assert positions == sorted(positions)
    for stream in "ab":
        own = [p for p in slices if p.stream == stream]
        if any(p.greatest is None for p in own[:-1]):
            assert sum(any(p.stream == stream for p in share) for share in shares) == 1


@pytest.mark.parametrize("instances", [1, 2, 3, 7])
def test_known_times_make_even_shares(instances: int) -> None:
    shares = assign_slices([part(i, 100, i) for i in range(70)], instances)
    loads = [sum(p.rows for p in share) for share in shares]
    assert max(loads) - min(loads) <= 200


# ── the time before each slice ────────────────────────────────────────────────────────────────────────────────────────


def test_each_slice_begins_where_the_one_before_ends() -> None:
    #   greatest   5     3     9            disorder 2
    #   before   1     3     3     7
    slices = [part(0, 1, 5), part(1, 1, 3), part(2, 1, 9), part(3, 1)]
    placed = with_times("calls", slices, {"0": 1}, 2, BEGINNING)
    assert [p.time for p in placed] == [1, 3, 3, 7]
    assert {p.source for p in placed} == {"calls"}


def test_a_new_stream_begins_at_the_beginning() -> None:
    placed = with_times("calls", [part(0, 1, stream="new"), part(0, 1, stream="old")], {"old": 4}, 0, BEGINNING)
    assert [p.time for p in placed] == [BEGINNING, 4]


def test_behind_a_slice_of_unknown_time_the_last_known_time_is_given() -> None:
    """The task that reads both, in order, knows better."""
    placed = with_times("calls", [part(0, 1), part(1, 1, 9), part(2, 1)], {"0": 4}, 0, BEGINNING)
    assert [p.time for p in placed] == [4, 4, 9]


def test_times_are_not_changed_for_the_caller() -> None:
    times = {"0": 1}
    with_times("calls", [part(0, 1, 5)], times, 0, BEGINNING)
    assert times == {"0": 1}


# ── compaction ────────────────────────────────────────────────────────────────────────────────────────────────────────


def segments(*rows: int, instance: int = 0, version: int = 0, kind: str = "panes") -> list[Segment]:
    return [
        Segment(
            f"{kind}-{instance}-{version}-{i}",
            kind,
            epoch=i,
            instance=instance,
            version=version,
            rows=n,
            bytes=n,
            low=0,
            high=0,
        )
        for i, n in enumerate(rows)
    ]


def decided(*found: list[Segment], version: int = 0, instances: int = 2) -> dict[int, list[str]]:
    state = SubqueryState({}, tuple(s for part in found for s in part))
    plans = compaction(state, BucketMap.even(8, instances, version), {"totals"}, {"keys"})
    return {instance: list(files) for instance, files in plans.items()}


def test_few_segments_are_left_alone() -> None:
    assert decided() == {}
    assert decided(segments(*[10] * (CROWD - 1))) == {}


def test_as_many_of_one_size_are_merged() -> None:
    assert decided(segments(*[10] * CROWD)) == {0: [f"panes-0-0-{i}" for i in range(CROWD)]}


def test_each_instance_has_its_own() -> None:
    plans = decided(segments(*[10] * CROWD), segments(*[10] * 3, instance=1))
    assert list(plans) == [0]
    both = decided(segments(*[10] * CROWD), segments(*[10] * CROWD, instance=1))
    assert sorted(both) == [0, 1]


def test_a_large_one_is_not_merged_with_small_ones() -> None:
    assert decided(segments(1_000_000, 10, 10, 10)) == {}
    assert decided(segments(1_000_000, 10, 10, 10, 10))[0] == [f"panes-0-0-{i}" for i in range(1, 5)]


def test_the_smallest_are_merged_first() -> None:
    mixed = segments(*[1000] * CROWD, *[10] * CROWD)
    assert decided(mixed)[0] == [f"panes-0-0-{i}" for i in range(CROWD, 2 * CROWD)]


def test_full_ones_are_not_merged_again() -> None:
    assert decided(segments(*[FULL] * 10)) == {}


def test_versions_are_merged_whatever_their_size_with_all_smaller_ones() -> None:
    """What is out of date in a large segment goes only when it is merged; what says that a key is gone only with all that is older."""
    assert decided(segments(FULL, FULL, FULL, kind="keys")) == {}
    assert len(decided(segments(*[FULL] * CROWD, kind="keys"))[0]) == CROWD
    assert decided(segments(10, *[1000] * CROWD, 1_000_000, kind="keys"))[0] == [f"keys-0-0-{i}" for i in range(5)]


def test_totals_are_not_merged() -> None:
    assert decided(segments(*[10] * 10, kind="totals")) == {}


def test_segments_of_an_older_map_are_adopted_by_all_when_they_are_many() -> None:
    old, new = segments(*[10] * (CROWD * 2), version=0), segments(10, version=1)
    assert decided(old[:-1], new, version=1) == {}
    names = [s.file for s in old]
    assert decided(old, new, version=1) == {0: names, 1: names}


def test_nothing_is_adopted_in_the_first_epoch_of_a_map() -> None:
    old = segments(*[10] * (CROWD * 2), version=0)
    assert decided(old, version=1) == {}
    names = tuple(s.file for s in old)
    copied = compaction(SubqueryState({}, tuple(old)), BucketMap.even(8, 2, 1), (), copy=True)
    assert copied == {0: names, 1: names}, "state recreation does it at once"


def test_a_few_are_adopted_in_each_epoch_the_smallest_first() -> None:
    old, new = segments(*[ADOPTED // 2] * 6, *[10] * 6, version=0), segments(10, version=1)
    assert sorted(decided(old, new, version=1)[0]) == sorted(f"panes-0-0-{i}" for i in (6, 7, 8, 9, 10, 11, 0))


def test_large_ones_are_adopted_too() -> None:
    old, new = segments(*[10 * ADOPTED] * 8, version=0), segments(10, version=1)
    assert len(decided(old, new, version=1)[0]) == 3, "one more than there are instances: they become fewer"


@given(some.lists(some.integers(1, 3_000_000), max_size=60))
def test_after_merging_again_and_again_few_are_left(rows: list[int]) -> None:
    """The number of segments grows with the logarithm of what is in them."""
    alive: list[Segment] = []
    for i, n in enumerate(rows):
        alive.append(Segment(f"new{i}", "panes", epoch=i, instance=0, version=0, rows=n, bytes=n, low=0, high=0))
        plan = compaction(SubqueryState({}, tuple(alive)), BucketMap.even(8, 1), ()).get(0, ())
        if plan:
            merged = sum(s.rows for s in alive if s.file in plan)
            alive = [s for s in alive if s.file not in plan]
            alive.append(
                Segment(f"merged{i}", "panes", epoch=i, instance=0, version=0, rows=merged, bytes=merged, low=0, high=0)
            )
    small = [s for s in alive if s.rows < FULL]
    assert len(small) <= CROWD * (FULL.bit_length() // 2 + 1)
    assert sum(s.rows for s in alive) == sum(rows)


# ── reports ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_report_comes_back() -> None:
    report = TaskReport(
        "agg",
        1,
        rows_in=5,
        rows_out=2,
        busy=0.5,
        times={"calls": {"0": 7}},
        sources={"calls": {"accepted": 5, "late": 0, "rejected": 1}},
        marks={"window": -3},
        segments=tuple(segments(10)),
        outbox=(Delivery("out", "outbox/1/a", 2, 1),),
    )
    assert TaskReport.from_json(json.loads(json.dumps(report.to_json()))) == report
