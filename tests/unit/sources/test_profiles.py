"""Rate profiles: the rows that are due are the integral of the rate."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

import springtide as st
from springtide.sources.profiles import Profile

RATES = some.floats(0, 10_000)
PROFILES = some.one_of(
    RATES.map(st.constant),
    some.lists(some.tuples(some.floats(0.01, 100), RATES), min_size=1, max_size=5).map(st.steps),
    some.tuples(RATES, some.floats(0, 1), some.floats(0.1, 100)).map(lambda t: st.sine(t[0], t[0] * t[1], t[2])),
    some.lists(RATES, min_size=1, max_size=20).map(st.trace),
)


@given(PROFILES, some.floats(0, 1000), some.floats(0, 1000))
def test_it_never_falls(profile: Profile, one: float, other: float) -> None:
    early, late = sorted((one, other))
    assert 0 <= profile.due(early) <= profile.due(late)


@given(PROFILES)
def test_nothing_is_due_at_the_start_and_before(profile: Profile) -> None:
    assert profile.due(0) == 0
    assert profile.due(-5) == 0


@pytest.mark.parametrize(
    ("rate", "seconds", "rows"), [(10, 1.5, 15), (0.29, 100, 29), (1e6, 3600, 3_600_000_000), (0, 9, 0)]
)
def test_constant(rate: float, seconds: float, rows: int) -> None:
    assert st.constant(rate).due(seconds) == rows


def test_steps() -> None:
    #   rate  100 ────┐     ┌──── 50 …
    #                 └─────┘ 0
    #         0       10    15
    profile = st.steps([(10, 100), ("5s", 0), (timedelta(seconds=1), 50)])
    assert [profile.due(t) for t in (0, 5, 10, 12, 15, 16, 25)] == [0, 500, 1000, 1000, 1000, 1050, 1500]


def test_sine_over_a_period_is_its_mean() -> None:
    profile = st.sine(100, 100, 60)
    assert [profile.due(60 * n) for n in (1, 2, 10)] == [6000, 12000, 60000]
    assert profile.due(30) == math.floor(3000 + 100 * 60 / math.pi)  # the first half is the upper one
    assert profile.due(45) - profile.due(44.9) <= 1  # at the bottom nothing comes


@given(some.floats(0, 1000), some.floats(0, 1), some.floats(1, 100), some.floats(0, 200))
def test_sine_is_the_integral(mean: float, share: float, period: float, seconds: float) -> None:
    amplitude, slices = mean * share, 2000
    width = seconds / slices
    middle = (width * (i + 0.5) for i in range(slices))
    summed = sum((mean + amplitude * math.sin(2 * math.pi * t / period)) * width for t in middle)
    assert st.sine(mean, amplitude, period).due(seconds) == pytest.approx(summed, abs=1 + 0.01 * summed)


def test_trace() -> None:
    profile = st.trace([10, 0, 30], every="1m")
    assert [profile.due(t) for t in (30, 60, 120, 180, 240)] == [300, 600, 600, 2400, 4200]
    assert st.trace([5, 7]).due(2) == 12


def test_a_long_trace_is_quick_to_ask() -> None:
    profile = st.trace([float(i % 100) for i in range(100_000)])
    assert profile.due(100_000) == 4_950_000
    assert sum(profile.due(t) > 0 for t in range(1000)) == 998


@pytest.mark.parametrize(
    ("profile", "text"),
    [
        (st.constant(1500), "1500 rows/s"),
        (st.steps([(1, 10), (1, 20)]), "10 → 20 rows/s"),
        (st.trace(range(10)), "10 rates of 0 to 9 rows/s"),
        (st.sine(100, 50, "90s"), "100 ± 50 rows/s every 1m30s"),
    ],
)
def test_it_says_how_fast(profile: Profile, text: str) -> None:
    assert str(profile) == text


@pytest.mark.parametrize("rate", [-1, math.nan, math.inf, "10", None, True, [1]])
def test_what_is_no_rate(rate: Any) -> None:
    makers: list[Any] = [st.constant, lambda r: st.steps([(1, r)]), lambda r: st.sine(r, 0, 1), lambda r: st.trace([r])]
    for make in makers:
        with pytest.raises(st.QueryError, match="is not a rate; give rows per second, zero or more"):
            make(rate)


@pytest.mark.parametrize("length", [0, -1, math.nan, math.inf, "soon", None, True])
def test_what_is_no_length(length: Any) -> None:
    makers: list[Any] = [lambda s: st.steps([(s, 1)]), lambda s: st.sine(1, 0, s), lambda s: st.trace([1], every=s)]
    for make in makers:
        with pytest.raises(st.QueryError, match="is not a length of time"):
            make(length)


@pytest.mark.parametrize("parts", [[], "10", 10, [5], [(1, 2, 3)], [("1s",)]])
def test_what_are_no_steps(parts: Any) -> None:
    with pytest.raises(st.QueryError, match=r"\(steps\): "):
        st.steps(parts)


@pytest.mark.parametrize("rates", [[], "10", 10])
def test_what_is_no_trace(rates: Any) -> None:
    with pytest.raises(st.QueryError, match=r"\(trace\): "):
        st.trace(rates)


def test_a_sine_below_zero() -> None:
    with pytest.raises(st.QueryError, match=r"sine.*10 ± 20 .*below zero; .*amplitude"):
        st.sine(10, 20, 1)


def test_profiles_are_values() -> None:
    assert st.constant(5) == st.constant(5.0)
    assert hash(st.trace([1, 2])) == hash(st.steps([(1, 1), (1, 2)]))
