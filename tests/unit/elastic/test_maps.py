"""The algebra of bucket maps: SC-11, ST-1. All buckets are owned, few are moved, the load is even."""

from __future__ import annotations

import itertools
from collections import Counter
from statistics import fmean, pstdev

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from springtide.elastic import maps
from springtide.state.bucket_map import BucketMap


@some.composite
def bucket_maps(draw: some.DrawFn, most: int = 64) -> BucketMap:
    buckets = draw(some.integers(1, most))
    instances = draw(some.integers(1, buckets))
    owners = draw(some.lists(some.integers(0, instances - 1), min_size=buckets, max_size=buckets))
    return BucketMap(draw(some.integers(0, 9)), instances, tuple(owners))


@some.composite
def loaded(draw: some.DrawFn) -> tuple[BucketMap, list[float]]:
    own = draw(bucket_maps())
    load = some.floats(0, 100) | some.integers(0, 3).map(float) | some.just(1000.0)
    return own, draw(some.lists(load, min_size=len(own.owners), max_size=len(own.owners)))


def least_moves(before: BucketMap, instances: int) -> int:
    """Try every way to have even numbers of buckets."""
    has = Counter(before.owners)
    each, more = divmod(len(before.owners), instances)
    ways = itertools.combinations(range(instances), more)
    return min(
        len(before.owners) - sum(min(has[i], each + (i in generous)) for i in range(instances)) for generous in ways
    )


# ── scaling ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(bucket_maps(most=12), some.data())
def test_without_loads_numbers_are_even_and_no_way_moves_fewer(before: BucketMap, data: some.DataObject) -> None:
    n = data.draw(some.integers(1, len(before.owners)).filter(lambda n: n != before.instances))
    after = maps.scale(before, n)
    numbers = Counter(after.owners)
    assert set(numbers) == set(range(n))
    assert max(numbers.values()) - min(numbers.values()) <= 1
    assert len(maps.moved(before, after)) == least_moves(before, n)
    assert (after.version, after.instances) == (before.version + 1, n)


@given(loaded(), some.data())
def test_with_loads_nobody_has_more_than_the_average_and_a_bucket(
    case: tuple[BucketMap, list[float]], data: some.DataObject
) -> None:
    before, loads = case
    n = data.draw(some.integers(1, len(before.owners)))
    after = maps.scale(before, n, loads)
    assert len(after.owners) == len(before.owners)
    assert set(after.owners) <= set(range(n))
    if any(loads) and n != before.instances:
        assert max(maps.totals(after, loads)) <= 1.02 * sum(loads) / n + 1.01 * max(loads) + 1e-6


@given(bucket_maps(most=12), some.data())
def test_with_equal_loads_hardly_more_are_moved(before: BucketMap, data: some.DataObject) -> None:
    n = data.draw(some.integers(1, len(before.owners)).filter(lambda n: n != before.instances))
    after = maps.scale(before, n, [2.0] * len(before.owners))
    assert len(maps.moved(before, after)) <= least_moves(before, n) + n / 2


@pytest.mark.parametrize(("old", "new"), [(1, 2), (2, 8), (8, 3), (16, 17), (1, 64), (64, 1)])
def test_what_is_even_stays_even_with_the_fewest_moves(old: int, new: int) -> None:
    before = BucketMap.even(256, old)
    after = maps.scale(before, new)
    assert len(maps.moved(before, after)) == 256 * abs(new - old) // max(new, old)
    measured = maps.scale(before, new, [1.0] * 256)
    assert len(maps.moved(before, measured)) <= 256 * abs(new - old) // max(new, old) + 1
    assert max(Counter(measured.owners).values()) <= 256 // new + 1


def test_buckets_without_load_are_spread_too() -> None:
    before = BucketMap.even(40, 4)
    after = maps.scale(before, 2, [1.0] * 4 + [0.0] * 36)
    assert sorted(Counter(after.owners).values()) == [20, 20]


def test_scaling_to_the_same_number_changes_nothing() -> None:
    before = BucketMap(3, 2, (0, 0, 0, 1))
    assert maps.scale(before, 2, [5, 1, 1, 1]) is before


def test_a_prefix_has_no_buckets_to_move() -> None:
    assert maps.scale(BucketMap(0, 1, ()), 5) == BucketMap(1, 5, ())


def test_a_grid_is_shared_out_in_rectangles() -> None:
    before = BucketMap.grid(4, 4, 2)
    assert maps.scale(before, 4, [1.0] * 16, grid=(4, 4)) == BucketMap.grid(4, 4, 4, version=1)


@pytest.mark.parametrize(("n", "message"), [(0, "0 instances"), (7, "7 instances cannot share 6 buckets")])
def test_numbers_that_cannot_be(n: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        maps.scale(BucketMap.even(6, 2), n)


# ── moving ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_moving_to_the_owner_changes_nothing() -> None:
    before = BucketMap.even(6, 2)
    assert maps.move(before, [1, 3], to=1) is before


@pytest.mark.parametrize(
    ("buckets", "to", "message"), [([0], 2, "there is no instance 2, they are 0 to 1"), ([6], 1, "no bucket 6")]
)
def test_moves_that_cannot_be(buckets: list[int], to: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        maps.move(BucketMap.even(6, 2), buckets, to)


@pytest.mark.parametrize("owners", [(0, 1), (0, 1, 2, 0), (0, -1, 0, 0)])
def test_owners_that_cannot_be(owners: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"owner"):
        maps.owned(BucketMap.even(4, 2), owners)


# ── balancing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(loaded())
def test_balancing_never_makes_it_worse(case: tuple[BucketMap, list[float]]) -> None:
    before, loads = case
    after = maps.rebalance(before, loads)
    old, new = maps.totals(before, loads), maps.totals(after, loads)
    assert max(new) <= max(old) + 1e-6
    assert pstdev(new) <= pstdev(old) + 1e-6
    assert after.version == before.version + (after is not before)


@given(loaded())
def test_after_balancing_no_single_move_is_worth_it(case: tuple[BucketMap, list[float]]) -> None:
    before, loads = case
    sums = maps.totals(maps.rebalance(before, loads, worth=0.02), loads)
    assert max(sums) - min(sums) <= max(0.02 * fmean(sums), 2 * max(loads)) + 1e-6


@given(loaded())
@example((BucketMap(0, 3, (1, 1, 0, 1, 2, 1)), [0.1, 1.1, 1.1, 0.7, 0.2, 0.3]))  # sums that hang on the order of steps
@example((BucketMap(0, 4, (1, 0, 3, 1, 0, 0)), [2.14, 1.5, 1.8, 0.77, 1.77, 0.02]))  # and a bound on the map
def test_balancing_twice_is_balancing_once(case: tuple[BucketMap, list[float]]) -> None:
    before, loads = case
    after = maps.rebalance(before, loads)
    assert maps.rebalance(after, loads) is after


def test_a_bucket_that_is_too_hot_ends_up_alone() -> None:
    before = BucketMap.even(64, 4)
    loads = [100.0 if b == 8 else 1.0 for b in range(64)]
    after = maps.rebalance(before, loads)
    assert after.buckets_of(after.owners[8]) == [8]
    assert after.owners[8] == before.owners[8], "it stays, the others go"
    assert maps.totals(after, loads)[1:] == [21.0, 21.0, 21.0]


def test_where_no_bucket_fits_two_are_exchanged() -> None:
    #   0: 5 5 = 10     1: 4 4 = 8       a 5 for a 4
    after = maps.rebalance(BucketMap(0, 2, (0, 0, 1, 1)), [5, 5, 4, 4])
    assert maps.totals(after, [5, 5, 4, 4]) == [9, 9]


@pytest.mark.parametrize("seed", range(5))
def test_balanced_load_deviates_by_less_than_two_percent(seed: int) -> None:
    """SC-14 fig. 20, ST-7: keys of a normal distribution, hashed to 256 buckets, on 15 instances."""
    import random

    draw = random.Random(seed)
    loads = [0.0] * 256
    for _ in range(20_000):
        loads[hash(round(draw.gauss(4000, 100))) * 2654435761 % 2**32 % 256] += 1
    sums = maps.totals(maps.rebalance(BucketMap.even(256, 15), loads), loads)
    assert pstdev(sums) / fmean(sums) < 0.02


def test_a_map_comes_back_from_json() -> None:
    own = BucketMap.even(5, 2, version=3)
    assert BucketMap.from_json(own.to_json()) == own
