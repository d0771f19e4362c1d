"""Traces: how the load changes over time. Shapes between 0 and 1, to be scaled to a peak, or rates from a file."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

NOISE = 0.03
"""The standard deviation of a rate from its shape, as a share."""
INDEPENDENT_AFTER = 10.0
"""Seconds after which the noise is mostly independent of its earlier values."""


@dataclass(frozen=True)
class Trace:
    """The rates of a source, second by second."""

    name: str
    rates: Floats

    @property
    def seconds(self) -> int:
        """Return its length."""
        return int(self.rates.size)

    @property
    def peak(self) -> float:
        """Return its highest rate."""
        return float(self.rates.max())

    def times(self, factor: float) -> Trace:
        """Multiply all rates."""
        return replace(self, rates=self.rates * factor)

    def arrived(self) -> Floats:
        """Return the total rows that have arrived by each second, starting with 0."""
        return np.concatenate([np.zeros(1), np.cumsum(self.rates)])

    def averaged(self, seconds: float) -> Floats:
        """Return the average rate of each stretch of this many seconds."""
        total, edges = self.arrived(), np.arange(0, self.seconds + 1e-9, seconds)
        return np.asarray(np.diff(np.interp(edges, np.arange(total.size), total)) / seconds, dtype=np.float64)


Shape = Callable[[float], float]


def three_step(t: float) -> float:
    """Low, rising to high within minutes, and soon down again: fig. 7 of AUTOSCALE."""
    return _along(t, [(0, 0.25), (300, 0.25), (480, 1.0), (840, 1.0), (900, 0.25), (1200, 0.25)])


def five_step(t: float) -> float:
    """Sudden peaks: fig. 8 of AUTOSCALE."""
    return (0.2, 1.0, 0.4, 0.8, 0.2)[min(4, int(t // 240))]


def sine(t: float) -> float:
    """Between 1 and 3 as in StreamMine3G (SM-10), but over ten minutes: its half a minute assumes nodes that stand ready."""
    return (2 - math.cos(2 * math.pi * t / 600)) / 3


def ramp(t: float) -> float:
    """A straight line up and down again, from 1 to 27: fig. 21 of StreamCloud."""
    return _along(t, [(0, 1 / 27), (60, 1 / 27), (1500, 1.0), (1560, 1.0), (3000, 1 / 27), (3060, 1 / 27)])


def flash(t: float) -> float:
    """A flash crowd: five times the load within a minute and a half, gone again after about ten minutes."""
    if t < 600:
        return 0.2
    if t < 690:
        return float(0.2 * 5 ** ((t - 600) / 90))
    return float(0.2 + 0.8 * math.exp(-max(0.0, t - 780) / 240))


def day(t: float) -> float:
    """A day: quiet at night, a peak in the evening, and a batch every hour on the hour."""
    hour = t / 3600
    base = 0.5 - 0.28 * math.cos(2 * math.pi * (hour - 4) / 24) - 0.1 * math.cos(4 * math.pi * (hour - 1) / 24)
    minute = t % 3600 / 60
    return base + 0.12 * math.exp(-(((minute - 8) / 4) ** 2))


SHAPES: Mapping[str, tuple[Shape, int]] = {
    "3-step": (three_step, 1200),
    "5-step": (five_step, 1200),
    "sine": (sine, 2400),
    "ramp": (ramp, 3060),
    "flash": (flash, 1800),
    "day": (day, 86_400),
}
"""Name → shape and seconds."""


def trace(name: str, peak: float = 1.0, seed: int = 0, noise: float = NOISE) -> Trace:
    """Return a trace by name, with its own noise; the top of its shape is the peak.

    >>> trace("5-step", peak=1000, noise=0).rates[[0, 300, 500, 800, 1100]].tolist()
    [200.0, 1000.0, 400.0, 800.0, 200.0]
    """
    if name not in SHAPES:
        raise ValueError(
            f"there is no trace {name!r}; there are {', '.join(SHAPES)}, or give a CSV file with time,rate"
        )
    shape, seconds = SHAPES[name]
    rates = np.array([shape(float(t)) for t in range(seconds)])
    return Trace(name, peak * rates / rates.max() * _noise(seconds, noise, seed))


def read(path: Path) -> Trace:
    """Read a trace from a CSV file with the columns time, in seconds, and rate, in rows per second.

    Between two lines, the rate is interpolated linearly.
    """
    with open(path, newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        if not {"time", "rate"} <= set(rows.fieldnames or ()):
            raise ValueError(f"{path} has the columns {', '.join(rows.fieldnames or ())}; it needs time and rate")
        try:
            points = sorted((float(row["time"]), float(row["rate"])) for row in rows)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
    if len(points) < 2 or any(rate < 0 for _, rate in points):
        raise ValueError(f"{path} needs at least two lines, and no negative rates")
    times, rates = zip(*points, strict=True)
    seconds = np.arange(math.ceil(times[-1] - times[0]))
    return Trace(path.stem, np.interp(seconds, np.asarray(times) - times[0], np.asarray(rates)))


def _along(t: float, points: Sequence[tuple[float, float]]) -> float:
    return float(np.interp(t, [x for x, _ in points], [y for _, y in points]))


def _noise(seconds: int, deviation: float, seed: int) -> Floats:
    """Return small irregular fluctuations around 1, each similar to the previous one."""
    if not deviation:
        return np.ones(seconds)
    random = np.random.default_rng(seed).standard_normal(seconds)
    keep = math.exp(-1 / INDEPENDENT_AFTER)
    value, found = 0.0, np.empty(seconds)
    for i, shock in enumerate(random):
        value = keep * value + math.sqrt(1 - keep * keep) * float(shock)
        found[i] = value
    return np.exp(deviation * found)
