"""Forecasts: AS-2, and what is better than a line."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from springtide.elastic.forecast import Linear, Series, Trend
from springtide.elastic.seasons import MissingForecaster, Seasonal


def every(seconds: float, rates: list[float]) -> Series:
    return Series.of([seconds * (i + 1) for i in range(len(rates))], rates)


def test_as2_linear_regression_over_the_last_window_only() -> None:
    rates = [9e9] * 10 + [100.0 + 10 * i for i in range(6)]
    found = Linear(window=60).forecast(every(10, rates), [170, 180])
    assert found.rates == pytest.approx((160.0, 170.0))
    assert found.trend == pytest.approx(1.0)


def test_as2_the_slope_says_whether_input_increases() -> None:
    assert Linear().forecast(every(10, [5.0, 4.0, 3.0]), [40]).trend < 0
    assert Linear().forecast(every(10, [5.0]), [40]).trend == 0


def test_a_rate_is_never_negative() -> None:
    falling = every(5, [100.0 - 9 * i for i in range(11)])
    for forecaster in (Linear(), Trend()):
        assert min(forecaster.forecast(falling, [100.0, 500.0]).rates) == 0


#    300 ┤                    ┌─────
#    100 ┤────────────────────┘
#        └───────────────────────────▶
def test_trend_forgets_what_was_before_a_jump() -> None:
    after_one = Trend().forecast(every(5, [100.0] * 15 + [180.0]), [200])
    assert after_one.seen == 0, "the last summary may have only a part of the jump"
    after_two = Trend().forecast(every(5, [100.0] * 15 + [180.0, 300.0]), [200])
    assert (after_two.rates[0], after_two.seen) == (pytest.approx(300), 5), "now it has all of it"
    later = Trend().forecast(every(5, [100.0] * 15 + [300.0] * 5), [200])
    assert (later.rates[0], later.trend, later.seen) == (pytest.approx(300), 0, 20)


def test_trend_takes_chance_for_chance() -> None:
    noisy = 1000 + 30 * np.random.default_rng(0).standard_normal(24)
    found = Trend().forecast(every(5, noisy.tolist()), [200])
    assert found.trend == 0
    assert found.rates[0] == pytest.approx(1000, rel=0.02)
    assert 15 < found.errors[0] < 60, "it knows the noise"


def test_trend_follows_a_ramp_as_long_as_it_was_seen() -> None:
    ramp = every(5, [100.0 + 10 * i for i in range(12)])
    near, far, farther = Trend().forecast(ramp, [70, 115, 500]).rates
    assert near == pytest.approx(230)
    assert far == farther == pytest.approx(320)


@given(
    rates=some.lists(some.floats(0, 1e9), min_size=1, max_size=40), ahead=some.lists(some.floats(0, 1e4), min_size=1)
)
def test_forecasts_are_numbers_whatever_came(rates: list[float], ahead: list[float]) -> None:
    past = every(5, rates)
    for forecaster in (Linear(), Trend()):
        found = forecaster.forecast(past, [float(past.times[-1]) + t for t in ahead])
        assert len(found.rates) == len(found.errors) == len(ahead)
        assert all(math.isfinite(x) and x >= 0 for x in (*found.rates, *found.errors, found.seen))


def test_without_the_library_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "statsmodels.tsa.holtwinters", None)
    with pytest.raises(MissingForecaster, match=r"springtide\[forecast\]"):
        Seasonal(season=3600)


def test_season_comes_again() -> None:
    #   four hours with a bump on the hour: three minutes before the next one, only the season knows of it
    def rate(t: float) -> float:
        return 1000 + 800 * math.exp(-(((t % 3600 - 480) / 240) ** 2))

    times = [10.0 * i for i in range(1, 4 * 360 - 2)]
    noise = 1 + 0.02 * np.random.default_rng(1).standard_normal(len(times))
    past = Series.of(times, [rate(t) * n for t, n in zip(times, noise, strict=True)])
    ahead = [4 * 3600 + 240.0, 4 * 3600 + 480.0]
    seasonal, trend = Seasonal(3600).forecast(past, ahead), Trend().forecast(past, ahead)
    actual = [rate(t) for t in ahead]
    assert np.abs(np.subtract(seasonal.rates, actual)).max() < 250
    assert np.abs(np.subtract(trend.rates, actual)).max() > 600


def test_before_two_seasons_it_is_trend() -> None:
    past = every(10, [100.0 + i for i in range(300)])
    assert Seasonal(3600).forecast(past, [3010]) == Trend().forecast(past, [3010])


def test_series_that_share_a_seasonal_forecaster_do_not_mix() -> None:
    times = np.arange(60.0, 3 * 3600, 60)
    waves = [Series(times, level * (2 + np.sin(2 * np.pi * times / 3600))) for level in (100.0, 900.0)]
    shared, ahead = Seasonal(3600, bins=12), [float(times[-1]) + 600]
    alone = [Seasonal(3600, bins=12).forecast(wave, ahead).rates for wave in waves]
    for _ in range(2):
        assert [shared.forecast(wave, ahead).rates for wave in waves] == alone
    earlier = Series(times[:-10], waves[0].rates[:-10])
    assert shared.forecast(earlier, ahead) == Seasonal(3600, bins=12).forecast(earlier, ahead), (
        "as if the later were not known"
    )


def test_the_old_name_of_lookback_still_works() -> None:
    with pytest.warns(DeprecationWarning, match="lookback"):
        assert Trend(memory=60.0) == Trend(lookback=60.0)
