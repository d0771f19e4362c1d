"""Forecasts: how many rows will arrive, judging by how many have arrived. Pure.

Linear     a line through the last minute, as in AUTOSCALE (AS-2)
Trend      a line since the last break, if the slope cannot be chance; knows how far off it may be
Seasonal   Holt and Winters' trend and season, for load that repeats every hour or every day
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import InitVar, dataclass
from typing import Protocol
from warnings import warn

import numpy as np
import numpy.typing as npt

from springtide.query.usage import usage_of

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """Rates over time, oldest first; each rate covers the time between its moment and the previous one."""

    times: Floats
    rates: Floats

    @staticmethod
    def of(times: Sequence[float], rates: Sequence[float]) -> Series:
        """Make a series from plain numbers."""
        return Series(np.asarray(times, dtype=np.float64), np.asarray(rates, dtype=np.float64))

    def last(self, seconds: float) -> Series:
        """Keep only entries that are at most this many seconds older than the end."""
        first = int(np.searchsorted(self.times, self.times[-1] - seconds, side="right")) if self.times.size else 0
        return Series(self.times[first:], self.rates[first:])


@dataclass(frozen=True)
class Forecast:
    """The forecast rate at each of the requested times."""

    rates: tuple[float, ...]
    errors: tuple[float, ...]
    """The standard deviation of the error of each rate."""
    trend: float = 0.0
    """How much the rate grows per second; above 0, the input is increasing (AS-5)."""
    seen: float = 0.0
    """Seconds for which the load has been like this. At 0 it has just jumped, and the last summary may show only part of the jump."""

    def upper(self, deviations: float) -> tuple[float, ...]:
        """Return the rates plus a number of standard deviations.

        >>> Forecast((100.0,), (5.0,)).upper(2)
        (110.0,)
        """
        return tuple(rate + deviations * error for rate, error in zip(self.rates, self.errors, strict=True))


class Forecaster(Protocol):
    """Looks at the past and predicts what comes next."""

    @property
    def lookback(self) -> float:
        """How many seconds it looks back."""
        ...

    def forecast(self, past: Series, times: Sequence[float]) -> Forecast:
        """Return the expected rates at some later times; `past` has at least one entry."""
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
    def lookback(self) -> float:
        """The window."""
        return self.window

    def forecast(self, past: Series, times: Sequence[float]) -> Forecast:
        """Extend the line; a rate is never below 0."""
        line = _line_through(past.last(self.window))
        rates = tuple(max(0.0, round(line.at(t), 9)) for t in times)
        return Forecast(rates, tuple(line.residual for _ in times), line.slope, _length(past.last(self.window)))


BREAK = 10.0
"""Two lines must explain this many times as much as chance would (F statistic) before a break between them is assumed."""
CHANCE = 2.0
"""A slope within this many standard errors of 0 may be chance, and is treated as 0."""
FEW = 4
"""A line through fewer points than this fits too well to be trusted: only the level counts then."""
QUIET = 0.01
"""The minimum noise that is assumed, as a share of the rate."""


@usage_of("st.Trend(window=120)", "(trend)")
@dataclass(frozen=True)
class Trend:
    """A line through everything since the last break.

    Load jumps, and then what was before is irrelevant: if two lines explain the window much better than one, only the second
    counts. A slope that may be chance is ignored. A trend is not extrapolated for longer than it has been observed.

    >>> times = range(0, 120, 5)
    >>> jump = Series.of(times, [100.0 if t < 100 else 300.0 for t in times])
    >>> [round(line.forecast(jump, [150]).rates[0]) for line in (Trend(), Linear())]
    [300, 446]
    """

    window: float = 120.0
    """The longest time, in seconds, that a line covers."""
    lookback: float = 600.0
    """Seconds of the past from which it learns how noisy the load is."""
    memory: InitVar[float | None] = None
    """The old name of `lookback`."""

    def __post_init__(self, memory: float | None) -> None:
        """Accept the old name as well."""
        if memory is not None:
            warn("st.Trend(memory=…) is called lookback= now", DeprecationWarning, stacklevel=4)
            object.__setattr__(self, "lookback", memory)

    def forecast(self, past: Series, times: Sequence[float]) -> Forecast:
        """Extend the line since the last break."""
        noise = max(_noise(past.last(self.lookback).rates), QUIET) * abs(float(past.rates[-1]))
        part, seen = _since_break(past.last(self.window), noise)
        line = _line_through(part)
        if part.times.size < FEW or abs(line.slope) <= CHANCE * line.slope_error(noise):
            level = float(part.rates[-1] if part.times.size < FEW else part.rates.mean())
            error = noise * math.sqrt(1 + 1 / part.times.size)
            return Forecast(tuple(level for _ in times), tuple(error for _ in times), seen=seen)
        now = float(part.times[-1])
        until = now + (now - float(part.times[0]))
        ahead = [min(t, until) for t in times]
        rates = tuple(max(0.0, round(line.at(t), 9)) for t in ahead)
        return Forecast(rates, tuple(line.error_at(t, noise) for t in ahead), line.slope, seen)


# ── lines ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Line:
    """A line fitted by least squares."""

    middle: float
    level: float
    slope: float
    residual: float
    number: int
    spread: float
    """The sum of the squared distances of the times from their mean."""

    def at(self, time: float) -> float:
        return self.level + self.slope * (time - self.middle)

    def slope_error(self, noise: float) -> float:
        return max(noise, self.residual) / math.sqrt(self.spread) if self.spread else math.inf

    def error_at(self, time: float, noise: float) -> float:
        far = (time - self.middle) ** 2 / self.spread if self.spread else 0.0
        return max(noise, self.residual) * math.sqrt(1 + 1 / self.number + far)


def _line_through(past: Series) -> _Line:
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
    """Return the standard deviation of the rates around a smooth curve, as a share of the rates.

    Second differences ignore level and slope, and their median ignores jumps. They span several summaries, because noise resembles
    that of the previous summary and would look smaller than it is; but not so many that a jump would be in most of them.
    """
    if rates.size < 5:
        return 0.0
    lag = max(1, min(lag, rates.size // 10))
    logs = np.log(np.maximum(rates, 1e-9))
    second = logs[2 * lag :] - 2 * logs[lag:-lag] + logs[: -2 * lag]
    return 1.4826 * float(np.median(np.abs(second))) / math.sqrt(6)


def _since_break(seen: Series, noise: float) -> tuple[Series, float]:
    """Keep what came since the last break, if there is one, and return for how long that has been observed.

    A summary in which the load jumps contains some of both sides and belongs to neither.
    """
    n = seen.times.size
    if n < FEW:
        return seen, _length(seen)
    x, y = seen.times - seen.times.mean(), seen.rates - seen.rates.mean()
    to_left = _misfits(x, y)
    to_right = _misfits(x[::-1], y[::-1])[::-1]
    sharp, smeared = to_left[1:-1] + to_right[2:], to_left[1:-2] + to_right[3:]
    # A break takes two more parameters to describe, and a summary that is left out takes a third.
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
    """Return the squared errors of the best line through the first entry, the first two, …, all."""
    number = np.arange(1, x.size + 1)
    sums = {name: np.cumsum(v) for name, v in {"x": x, "y": y, "xx": x * x, "xy": x * y, "yy": y * y}.items()}
    around = sums["yy"] - sums["y"] ** 2 / number
    spread = sums["xx"] - sums["x"] ** 2 / number
    together = sums["xy"] - sums["x"] * sums["y"] / number
    explained = np.divide(together**2, spread, out=np.zeros_like(spread), where=(spread > 0) & (number >= FEW))
    return np.maximum(around - explained, 0.0)
