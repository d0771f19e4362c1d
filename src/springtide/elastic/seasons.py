"""Seasons: load that repeats every hour or every day, by Holt and Winters' exponential smoothing. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from springtide.elastic.forecast import Floats, Forecast, Series, Trend
from springtide.query.errors import SpringtideError
from springtide.query.usage import usage_of


class MissingForecaster(SpringtideError):
    """The library needed for a forecast is not installed."""


SEASONS = 4.0
"""How many seasons a seasonal forecaster looks back."""
TREND = Trend()
"""What it uses for times closer than one bin, and until there are two seasons."""
SERIES = 8
"""How many series of rates can share a seasonal forecaster without each being refitted for every summary."""


@usage_of("st.Seasonal(3600)", "(seasonal)")
@dataclass
class Seasonal:
    """Holt and Winters' exponential smoothing with a damped trend and an additive season, by statsmodels.

    Rates are averaged over bins. The smoothing is fitted once there are two seasons, and again every quarter of a season; in between, new
    bins are smoothed with the fitted parameters. Until there are two seasons, and for times closer than one bin, it behaves like `Trend`.
    """

    season: float
    """Seconds after which the load repeats."""
    bins: int = 60
    """How many bins make a season."""
    _fitted: list[_Smoothing] = field(default_factory=list, init=False, repr=False, compare=False)
    """The most recent ones: a query may have several sources, and queries may share a forecaster."""

    def __post_init__(self) -> None:
        """Refuse impossible settings, and say at once if the library is missing."""
        if self.season <= 0 or self.bins < 4:
            raise ValueError("a season must be longer than zero and have at least 4 bins")
        _holt_winters()

    @property
    def lookback(self) -> float:
        """The length of the seasons that are considered."""
        return max(SEASONS * self.season, TREND.lookback)

    def forecast(self, past: Series, times: Sequence[float]) -> Forecast:
        """Extend trend and season from the current load."""
        near = TREND.forecast(past, times)
        width = self.season / self.bins
        edges, means = _binned(past, width)
        if means.size < 2 * self.bins:
            return near
        model = self._smoothing(edges, means, width)
        seasonal = [model.at(t) for t in times]
        # Recent deviations that no season explains persist: the level is the current one, the shape is the season's.
        now = float(past.times[-1])
        shift = TREND.forecast(past, [now]).rates[0] - model.at(now)
        error = model.error
        rates = tuple(max(0.0, s + shift) for s in seasonal)
        errors = tuple(math.hypot(error, e) / math.sqrt(2) for e in near.errors)
        trend = (rates[-1] - rates[0]) / (times[-1] - times[0]) if len(times) > 1 else 0.0
        return Forecast(rates, errors, trend, near.seen)

    def _smoothing(self, edges: Floats, means: Floats, width: float) -> _Smoothing:
        """Return the smoothing that was fitted to the same rates, updated if there are more of them now."""
        before = next((model for model in self._fitted if model.is_of(edges, means)), None)
        if before is not None and before.end == float(edges[-1]):
            return before
        model = _Smoothing.of(edges, means, width, self.bins, before)
        self._fitted = [model, *(m for m in self._fitted if m is not before)][:SERIES]
        return model


def _holt_winters() -> Any:
    try:
        return import_module("statsmodels.tsa.holtwinters").ExponentialSmoothing
    except ImportError:
        raise MissingForecaster(
            "a seasonal forecast needs statsmodels: pip install 'springtide[forecast]', or forecast with Trend()"
        ) from None


def _binned(past: Series, width: float) -> tuple[Floats, Floats]:
    """Average the rates over bins whose ends are multiples of their width; the last bin is left out unless it is full."""
    number = np.ceil(past.times / width - 1e-9).astype(np.int64)
    first, last = int(number[0]) + 1, math.floor(float(past.times[-1]) / width + 1e-9)
    if last < first:
        return np.empty(0), np.empty(0)
    lengths = np.diff(past.times, prepend=past.times[0] - width)
    inside = (number >= first) & (number <= last)
    place = number[inside] - first
    rows = np.bincount(place, (past.rates * lengths)[inside], minlength=last - first + 1)
    time = np.bincount(place, lengths[inside], minlength=last - first + 1)
    known = time > 0
    bins = np.arange(first, last + 1)
    means = np.asarray(np.interp(bins, bins[known], rows[known] / time[known]), dtype=np.float64)
    return (bins * width).astype(np.float64), means


@dataclass(frozen=True)
class _Smoothing:
    """Trend and season, fitted up to a point in time."""

    end: float
    last: float
    """The rate of the bin that ends there."""
    width: float
    fitted: float
    """When the parameters were fitted."""
    parameters: dict[str, float]
    ahead: Floats
    """The rates of the bins, starting with the one that ends at `end`."""
    error: float

    @staticmethod
    def of(edges: Floats, means: Floats, width: float, bins: int, before: _Smoothing | None) -> _Smoothing:
        end = float(edges[-1])
        model = _holt_winters()(
            means,
            trend="add",
            damped_trend=True,
            seasonal="add",
            seasonal_periods=bins,
            initialization_method="heuristic",
        )
        if before is None or end - before.fitted >= bins * width / 4:
            fitted_model, fitted = model.fit(), end
        else:
            fitted_model, fitted = model.fit(optimized=False, **before.parameters), before.fitted
        names = ("smoothing_level", "smoothing_trend", "smoothing_seasonal", "damping_trend")
        parameters = {name: float(fitted_model.params[name]) for name in names}
        rest = np.asarray(fitted_model.resid[bins:])
        ahead = np.concatenate(
            [np.asarray(fitted_model.fittedvalues[-1:]), np.asarray(fitted_model.forecast(2 * bins))]
        )
        return _Smoothing(end, float(means[-1]), width, fitted, parameters, ahead, float(np.sqrt(np.mean(rest**2))))

    def is_of(self, edges: Floats, means: Floats) -> bool:
        """Return whether it was fitted to the beginning of these rates."""
        place = round((self.end - float(edges[0])) / self.width)
        return 0 <= place < means.size and float(means[place]) == self.last

    def at(self, time: float) -> float:
        # The rate of a bin is the rate at its middle.
        place = (time - self.end) / self.width + 0.5
        return float(np.interp(place, np.arange(self.ahead.size), self.ahead))
