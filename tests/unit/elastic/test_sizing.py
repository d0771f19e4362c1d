"""Sizing: the fewest instances for all stages together."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from springtide.elastic import sizing
from springtide.elastic.sizing import WorkRate, fewer_changes, fewest, grown, shrunk, taken
from springtide.elastic.snapshot import Snapshot, SourceLoad, SubqueryLoad
from springtide.state.bucket_map import BucketMap

works = some.lists(some.tuples(some.integers(0, 2), some.floats(0.01, 2)), min_size=1, max_size=3).map(
    lambda found: {f"s{i}": WorkRate(level, seconds) for i, (level, seconds) in enumerate(found)}
)


def test_one_subquery_needs_its_work_rounded_up() -> None:
    assert fewest({"a": WorkRate(0, 3.2)}) == {"a": 4}
    assert fewest({"a": WorkRate(0, 3.2)}, available=0.8) == {"a": 4}
    assert fewest({"a": WorkRate(0, 3.3)}, available=0.8) == {"a": 5}


def test_subqueries_of_one_stage_run_side_by_side() -> None:
    assert fewest({"a": WorkRate(0, 2.0), "b": WorkRate(0, 3.0)}) == {"a": 2, "b": 3}


@settings(max_examples=25, deadline=None)
@given(works)
def test_nobody_needs_fewer(found: dict[str, WorkRate]) -> None:
    """Against all there are: at most one more, which whole numbers cost where two stages trade against each other."""
    degrees = fewest(found)
    assert taken(found, degrees) <= 1 + sizing.ROUNDING
    total = sum(degrees.values())
    best = min(
        (
            sum(tried)
            for tried in product(range(1, total), repeat=len(found))
            if sum(tried) < total and _fits(found, tried)
        ),
        default=total,
    )
    assert total - best <= 1


def _fits(found: dict[str, WorkRate], tried: tuple[int, ...]) -> bool:
    return taken(found, dict(zip(found, tried, strict=True))) <= 1 + sizing.ROUNDING


@given(works, some.integers(1, 30))
def test_growing_and_shrinking_keep_up_and_go_one_way(found: dict[str, WorkRate], n: int) -> None:
    before = dict.fromkeys(found, n)
    more = grown(found, before)
    assert taken(found, more) <= 1 + sizing.ROUNDING
    assert all(more[name] >= n for name in found)
    less = shrunk(found, more)
    assert taken(found, less) <= 1 + sizing.ROUNDING
    assert all(less[name] <= more[name] for name in found)
    kept = fewer_changes(found, before, more, spare=0.1)
    assert taken(found, kept) <= 1 + sizing.ROUNDING
    assert sum(kept.values()) <= 1.1 * sum(more.values()) + 1e-6


def test_a_hot_bucket_bounds_what_instances_bring() -> None:
    assert fewest({"a": WorkRate(0, 4.0, heaviest=0.5)}) == {"a": 4}
    hot = fewest({"a": WorkRate(0, 40.0, heaviest=4.0)})
    assert hot["a"] <= 10, "behind one bucket that takes four seconds of each second, more than ten wait"


def test_more_than_its_buckets_nobody_gets() -> None:
    assert fewest({"a": WorkRate(0, 40.0, most=16)})["a"] <= 16


def test_another_subquery_changes_only_if_that_saves_instances() -> None:
    found = {"source": WorkRate(0, 0.05), "sink": WorkRate(1, 8.0)}
    before = {"source": 1, "sink": 5}
    assert fewer_changes(found, before, grown(found, before), spare=0.1) == {"source": 1, "sink": 9}


# ── from snapshots ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_fixed_costs_are_not_available() -> None:
    #   epochs of 1 s, of which 0.1 s is nobody's work
    own = SubqueryLoad(BucketMap.even(0, 1), (10,), (10,), (0.4,), sources=("x",))
    before = Snapshot(0.0, 0, 0.5, 1.0, {"x": SourceLoad(10)}, {"a": own})
    assert sizing.available(Snapshot(1.0, 1, 0.5, 1.0, {"x": SourceLoad(10)}, {"a": own}), before) == pytest.approx(0.9)
    # … and 0.4 s: with more to do epochs would be longer, until it is a tenth
    assert sizing.available(Snapshot(1.0, 1, 0.8, 1.0, {"x": SourceLoad(10)}, {"a": own}), before) == pytest.approx(0.9)


def test_as4_more_rows_go_along_the_plan() -> None:
    #   x ─▶ a ─┐
    #           ├─▶ c        y brings nine tenths of what c gets
    #   y ─▶ b ─┘
    one = BucketMap.even(0, 1)
    a = SubqueryLoad(one, (100,), (10,), (0.1,), sources=("x",))
    b = SubqueryLoad(one, (100,), (90,), (0.1,), sources=("y",))
    c = SubqueryLoad(BucketMap.even(4, 1), (100,), (1,), (0.1,), upstream=("a", "b"))
    now = Snapshot(0.0, 0, 1.0, 1.0, {"x": SourceLoad(100), "y": SourceLoad(100)}, {"a": a, "b": b, "c": c})
    assert sizing.factors(now, {"x": 300.0, "y": 100.0}) == pytest.approx({"a": 3.0, "b": 1.0, "c": 1.2})
