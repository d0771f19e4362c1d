"""Forecasts: how many rows will come, from how many came. Pure.

Linear     a line through the last minute, as in AUTOSCALE (AS-2)
Trend      a line since the last break, if the slope cannot be chance; knows how far off it may be
Seasonal   Holt and Winters' trend and season, for load that comes again every hour or every day
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from springtide.query.errors import SpringtideError

Floats = npt.NDArray[np.float64]


class MissingForecaster(SpringtideError):
    """The library that a forecast needs is not installed."""


@dataclass(frozen=True)
class Series:
    """Rates over time, oldest first; a rate is that of the time between its moment and the one before."""

    times: Floats
    rates: Floats

    @staticmethod
    def of(times: Sequence[float], rates: Sequence[float]) -> Series:
        """Take them from plain numbers."""
        return Series(np.asarray(times, dtype=np.float64), np.asarray(rates, dtype=np.float64))

    def last(self, seconds: float) -> Series:
        """Keep what is not older than so many seconds before the end."""
        first = int(np.searchsorted(self.times, self.times[-1] - seconds, side="right")) if self.times.size else 0
        return Series(self.times[first:], self.rates[first:])


@dataclass(frozen=True)
class Forecast:
    """What is to come, at each of the times that were asked for."""

    rates: tuple[float, ...]
    errors: tuple[float, ...]
    """The standard deviation that each may be off by."""
    trend: float = 0.0
    """By how much the rate grows in a second; over 0 is an increasing input (AS-5)."""
    seen: float = 0.0
    """Seconds for which the load has been like this. At 0 it has just jumped, and the last report may have only a part of it."""

    def upper(self, deviations: float) -> tuple[float, ...]:
        """Give rates that are exceeded only by what is farther off than so many standard deviations.

        >>> Forecast((100.0,), (5.0,)).upper(2)
        (110.0,)
        """
        return tuple(rate + deviations * error for rate, error in zip(self.rates, self.errors, strict=True))


class Forecaster(Protocol):
    """Looks back and says what comes next."""

    @property
    def memory(self) -> float:
        """How many seconds it looks back."""
        ...

    def forecast(self, past: Series, times: Sequence[float]) -> Forecast:
        """Say what the rate will be at some later times; `past` has one entry at least."""
        ...


@dataclass(frozen=True)
class Linear:
    """A line through the last window by least squares: formula (2) of AUTOSCALE.

    >>> Linear().forecast(Series.of([10, 20, 30], [100, 110, 120]), [40, 50]).rates
    (130.0, 140.0)
    """

    window: float = 60.0
    """Δ, the size of the monitoring window."""

    @property
    def memory(self) -> float:
        """Give the window."""
        return self.window

    def forecast(self, past: Series, times: Sequence[float]) -> Forecast:
        """Go on with the line; a rate is never under 0."""
        line = _fit(past.last(self.window))
        rates = tuple(max(0.0, round(line.at(t), 9)) for t in times)
        return Forecast(rates, tuple(line.residual for _ in times), line.slope, _length(past.last(self.window)))


BREAK = 10.0
"""Two lines must explain so many times as much as chance would, by the F statistic, before there is a break between them."""
CHANCE = 2.0
"""A slope within so many standard errors of 0 may be chance, and is taken for 0."""
FEW = 4
"""A line through fewer points fits too well to be believed: there it is the level that counts."""
QUIET = 0.01
"""Noise that is taken to be there at least, as a share of the rate."""


@dataclass(frozen=True)
class Trend:
    """A line through what came since the last break.

    Load jumps, and then what was before says nothing: where two lines explain the window much better than one, only the
    second counts. A slope that may be chance is none. A trend is not carried on for longer than it was seen.

    >>> times = range(0, 120, 5)
    >>> jump = Series.of(times, [100.0 if t < 100 else 300.0 for t in times])
    >>> [round(line.forecast(jump, [150]).rates[0]) for line in (Trend(), Linear())]
    [300, 446]
    """

    window: float = 120.0
    """Seconds that a line goes through at most."""
    memory: float = 600.0
    """Seconds from which it learns how noisy the load is."""

    def forecast(self, past: Series, times: Sequence[float]) -> Forecast:
        """Go on with the line since the last break."""
        noise = max(_noise(past.last(self.memory).rates), QUIET) * abs(float(past.rates[-1]))
        part, seen = _since_break(past.last(self.window), noise)
        line = _fit(part)
        if part.times.size < FEW or abs(line.slope) <= CHANCE * line.slope_error(noise):
            level = float(part.rates[-1] if part.times.size < FEW else part.rates.mean())
            error = noise * math.sqrt(1 + 1 / part.times.size)
            return Forecast(tuple(level for _ in times), tuple(error for _ in times), seen=seen)
        now = float(part.times[-1])
        until = now + (now - float(part.times[0]))
        ahead = [min(t, until) for t in times]
        rates = tuple(max(0.0, round(line.at(t), 9)) for t in ahead)
        return Forecast(rates, tuple(line.error_at(t, noise) for t in ahead), line.slope, seen)


SERIES = 8
"""So many series of rates can share a seasonal forecaster without each being fitted anew at every report."""


@dataclass
class Seasonal:
    """Holt and Winters' exponential smoothing with a damped trend and an additive season, by statsmodels.

    Rates are averaged over bins. The smoothing is fitted once there are two seasons, and again each quarter of a season;
    in between, new bins are smoothed with what was fitted. Until there are two seasons, and for what is nearer than a bin, it is `Trend`.
    """

    season: float
    """Seconds after which the load repeats itself."""
    bins: int = 60
    """As many make a season."""
    seasons: float = 4.0
    """So many are looked back on."""
    near: Trend = field(default_factory=Trend)
    _fitted: list[_Smoothing] = field(default_factory=list, init=False, repr=False, compare=False)
    """The last ones: a query may have several sources, and queries may share a forecaster."""

    def __post_init__(self) -> None:
        """Refuse what cannot be, and say at once if the library is missing."""
        if self.season <= 0 or self.bins < 4:
            raise ValueError("a season takes some time and has 4 bins at least")
        _holt_winters()

    @property
    def memory(self) -> float:
        """Give the length of the seasons that count."""
        return max(self.seasons * self.season, self.near.memory)

    def forecast(self, past: Series, times: Sequence[float]) -> Forecast:
        """Go on with trend and season from where the load is now."""
        near = self.near.forecast(past, times)
        width = self.season / self.bins
        edges, means = _binned(past, width)
        if means.size < 2 * self.bins:
            return near
        model = self._smoothing(edges, means, width)
        seasonal = [model.at(t) for t in times]
        # What happened in the last moments and no season explains goes on: the level is that of now, the shape the season's.
        now = float(past.times[-1])
        shift = self.near.forecast(past, [now]).rates[0] - model.at(now)
        error = model.error
        rates = tuple(max(0.0, s + shift) for s in seasonal)
        errors = tuple(math.hypot(error, e) / math.sqrt(2) for e in near.errors)
        trend = (rates[-1] - rates[0]) / (times[-1] - times[0]) if len(times) > 1 else 0.0
        return Forecast(rates, errors, trend, near.seen)

    def _smoothing(self, edges: Floats, means: Floats, width: float) -> _Smoothing:
        """Take the one that was fitted to the same rates, and go on with it where there are more."""
        before = next((model for model in self._fitted if model.is_of(edges, means)), None)
        if before is not None and before.end == float(edges[-1]):
            return before
        model = _Smoothing.of(edges, means, width, self.bins, before)
        self._fitted = [model, *(m for m in self._fitted if m is not before)][:SERIES]
        return model


# ── lines ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Line:
    """By least squares."""

    middle: float
    level: float
    slope: float
    residual: float
    number: int
    spread: float
    """The sum of the squared distances of the times from their middle."""

    def at(self, time: float) -> float:
        return self.level + self.slope * (time - self.middle)

    def slope_error(self, noise: float) -> float:
        return max(noise, self.residual) / math.sqrt(self.spread) if self.spread else math.inf

    def error_at(self, time: float, noise: float) -> float:
        far = (time - self.middle) ** 2 / self.spread if self.spread else 0.0
        return max(noise, self.residual) * math.sqrt(1 + 1 / self.number + far)


def _fit(past: Series) -> _Line:
    x, y = past.times, past.rates
    middle, level = float(x.mean()), float(y.mean())
    away = x - middle
    spread = float(away @ away)
    slope = float(away @ (y - level)) / spread if spread else 0.0
    rest = y - level - slope * away
    residual = math.sqrt(float(rest @ rest) / (x.size - 2)) if x.size > 2 else 0.0
    return _Line(middle, level, slope, residual, x.size, spread)


def _length(part: Series) -> float:
    return float(part.times[-1] - part.times[0])


def _noise(rates: Floats, lag: int = 4) -> float:
    """Give the standard deviation of the rates around a smooth course, as a share of them.

    Second differences know no level and no slope, and their median no jump. They are taken over some reports: noise is
    like that of the report before, and would look smaller than it is; but over so few that a jump is in few of them.
    """
    if rates.size < 5:
        return 0.0
    lag = max(1, min(lag, rates.size // 10))
    logs = np.log(np.maximum(rates, 1e-9))
    second = logs[2 * lag :] - 2 * logs[lag:-lag] + logs[: -2 * lag]
    return 1.4826 * float(np.median(np.abs(second))) / math.sqrt(6)


def _since_break(seen: Series, noise: float) -> tuple[Series, float]:
    """Keep what came since the last break, if there is one, and say for how long that has been seen.

    A report in which the load jumps has some of both sides and belongs to neither.
    """
    n = seen.times.size
    if n < FEW:
        return seen, _length(seen)
    x, y = seen.times - seen.times.mean(), seen.rates - seen.rates.mean()
    to_left = _misfits(x, y)
    to_right = _misfits(x[::-1], y[::-1])[::-1]
    sharp, smeared = to_left[1:-1] + to_right[2:], to_left[1:-2] + to_right[3:]
    # A break costs two more figures to describe, and a report that is left out a third.
    gains = [
        (to_left[-1] - apart) / (more * np.maximum(apart / max(1, n - 2 - more), max(noise**2, 1e-12)))
        for apart, more in ((sharp, 2), (smeared, 3))
    ]
    best = [int(np.argmax(gain)) for gain in gains]
    left_out = bool(gains[1][best[1]] > gains[0][best[0]])
    if gains[left_out][best[left_out]] <= BREAK:
        return seen, _length(seen)
    first = best[left_out] + 2 + left_out
    part = Series(seen.times[first:], seen.rates[first:])
    return part, float(part.times[-1] - seen.times[first - 1 if left_out else first])


def _misfits(x: Floats, y: Floats) -> Floats:
    """Give the squared errors of the best line through the first entry, the first two, …, all."""
    number = np.arange(1, x.size + 1)
    sums = {name: np.cumsum(v) for name, v in {"x": x, "y": y, "xx": x * x, "xy": x * y, "yy": y * y}.items()}
    around = sums["yy"] - sums["y"] ** 2 / number
    spread = sums["xx"] - sums["x"] ** 2 / number
    together = sums["xy"] - sums["x"] * sums["y"] / number
    explained = np.divide(together**2, spread, out=np.zeros_like(spread), where=(spread > 0) & (number >= FEW))
    return np.maximum(around - explained, 0.0)


# ── seasons ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _holt_winters() -> Any:
    try:
        return import_module("statsmodels.tsa.holtwinters").ExponentialSmoothing
    except ImportError:
        raise MissingForecaster(
            "a seasonal forecast needs statsmodels: pip install 'springtide[forecast]', or forecast with Trend()"
        ) from None


def _binned(past: Series, width: float) -> tuple[Floats, Floats]:
    """Average the rates over bins of a width that end at whole multiples of it; the last one that is not full is left out."""
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
    """Trend and season, fitted up to a moment."""

    end: float
    last: float
    """The rate of the bin that ends there."""
    width: float
    fitted: float
    """When the parameters were."""
    parameters: dict[str, float]
    ahead: Floats
    """The rates of the bins from the one that ends at `end` on."""
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
            fit, fitted = model.fit(), end
        else:
            fit, fitted = model.fit(optimized=False, **before.parameters), before.fitted
        names = ("smoothing_level", "smoothing_trend", "smoothing_seasonal", "damping_trend")
        parameters = {name: float(fit.params[name]) for name in names}
        rest = np.asarray(fit.resid[bins:])
        ahead = np.concatenate([np.asarray(fit.fittedvalues[-1:]), np.asarray(fit.forecast(2 * bins))])
        return _Smoothing(end, float(means[-1]), width, fitted, parameters, ahead, float(np.sqrt(np.mean(rest**2))))

    def is_of(self, edges: Floats, means: Floats) -> bool:
        """Tell whether it was fitted to the beginning of these rates."""
        place = round((self.end - float(edges[0])) / self.width)
        return 0 <= place < means.size and float(means[place]) == self.last

    def at(self, time: float) -> float:
        # The rate of a bin is that of its middle.
        place = (time - self.end) / self.width + 0.5
        return float(np.interp(place, np.arange(self.ahead.size), self.ahead))
