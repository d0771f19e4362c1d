"""SC-8: instances per subquery from the measured per-tuple cost."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as hs

import springtide as st
from springtide.compiler.instances import Cost, Observation, costs, instances, needed


def loads(*values: float, most: int | None = None) -> dict[str, Cost]:
    return {f"q{i}": Cost(rate=1, seconds=value, most=most) for i, value in enumerate(values)}


def shares(given: dict[str, Cost], available: int) -> list[int]:
    return list(instances(given, available).values())


def test_sc8_shares_are_in_proportion_to_load() -> None:
    assert shares(loads(1, 2, 5), 16) == [2, 4, 10]


def test_sc8_load_is_rate_times_cost() -> None:
    assert shares({"fast": Cost(rate=900, seconds=1), "slow": Cost(rate=100, seconds=9)}, 10) == [5, 5]


def test_largest_remainders_are_rounded_up() -> None:
    assert shares(loads(40, 35, 25), 10) == [4, 4, 2]
    assert shares(loads(46, 30, 24), 10) == [5, 3, 2]


def test_everybody_gets_one_at_the_cost_of_the_others() -> None:
    assert shares(loads(1000, 1000, 1, 1), 10) == [4, 4, 1, 1]
    assert shares(loads(0, 0), 4) == [2, 2]
    assert shares(loads(0, 3), 4) == [1, 3]


def test_nobody_gets_more_than_it_has_buckets() -> None:
    given = {"single": Cost(1, 90, most=1), "a": Cost(1, 10, most=256), "b": Cost(1, 20)}
    assert instances(given, 10) == {"single": 1, "a": 3, "b": 6}
    assert shares(loads(1, 1, most=2), 10) == [2, 2]


def test_both_limits_at_once() -> None:
    given = {"single": Cost(1, 50, most=1), "idle": Cost(1, 0.1), "a": Cost(1, 10), "b": Cost(1, 10)}
    assert instances(given, 8) == {"single": 1, "idle": 1, "a": 3, "b": 3}


def test_the_merge_of_a_ranking_goes_with_the_ranking(every_kind: st.Query) -> None:
    plan = every_kind.plan()
    seen = [Observation("top", 100, 3.0), Observation("ranking", 10, 1.0)]
    measured = costs(plan, seen)
    assert list(measured) == [s.name for s in plan.subqueries if s.name != "top.merge"]
    assert measured["top"] == Cost(100, 0.04, 256)


def test_too_few_instances_are_refused() -> None:
    with pytest.raises(ValueError, match=r"at least 3 instances, .*, not 2"):
        instances(loads(1, 1, 1), 2)


@given(
    hs.lists(hs.tuples(hs.floats(0, 1e6), hs.none() | hs.integers(1, 64)), min_size=1, max_size=8), hs.integers(0, 200)
)
def test_all_are_given_out_within_the_limits(rows: list[tuple[float, int | None]], spare: int) -> None:
    given = {f"q{i}": Cost(1, seconds, most) for i, (seconds, most) in enumerate(rows)}
    available = len(given) + spare
    result = instances(given, available)
    assert all(1 <= result[name] <= (cost.most or available) for name, cost in given.items())
    full = all(cost.most is not None and result[name] == cost.most for name, cost in given.items())
    assert sum(result.values()) == available or full


@given(hs.lists(hs.floats(1, 100), min_size=1, max_size=8), hs.integers(0, 200))
def test_nobody_is_off_by_one_or_more(values: list[float], spare: int) -> None:
    available = 101 * len(values) + spare
    total = sum(values)
    for share, value in zip(shares(loads(*values), available), values, strict=True):
        assert abs(share - available * value / total) < 1


def test_needed_at_a_rate() -> None:
    given = {"a": Cost(1_000, 0.0021), "b": Cost(1_000, 0.0000001), "c": Cost(1_000, 1, most=1)}
    assert needed(given) == {"a": 3, "b": 1, "c": 1}
    assert needed(given, utilisation=0.5) == {"a": 5, "b": 1, "c": 1}


@pytest.fixture
def query(stream: Callable[..., st.Stream]) -> st.Query:
    """s ─ f ─ n ─┬─ u ─ sink:  u and the sink run behind n and behind m."""
    s = stream("s", x=pl.Int64).filter(pl.col("x") > 1, name="f")
    n = s.aggregate(window=st.tumbling("1m"), c=st.count(), name="n")
    m = s.aggregate(by="x", window=st.tumbling("1m"), c=st.count(), name="m").drop("x", name="d")
    return st.Query("q", st.union(n, m, name="u").to(st.memory_sink()))


def test_costs_of_a_sample(query: st.Query) -> None:
    seen = [
        Observation("s", 60, 0.1),
        Observation("s", 40, 0.1),
        Observation("f", 100, 0.3),
        Observation("n", 50, 2.0),
        Observation("m", 50, 1.0),
        Observation("d", 10, 0.5),
        Observation("u", 12, 0.2),
    ]
    measured = costs(query.plan(), seen)
    assert measured["s"] == Cost(100, pytest.approx(0.005), None)
    assert measured["n"] == Cost(50, pytest.approx(2.1 / 50), 1)
    assert measured["m"] == Cost(50, pytest.approx(1.6 / 50), 256)
    at_rate = costs(query.plan(), seen, rate=1_000)
    assert [cost.rate for cost in at_rate.values()] == [1_000, 500, 500]
    assert [cost.seconds for cost in at_rate.values()] == [cost.seconds for cost in measured.values()]


def test_subquery_without_tuples_costs_nothing(query: st.Query) -> None:
    assert all(cost.load == 0 for cost in costs(query.plan(), []).values())
