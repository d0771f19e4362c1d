"""Rate profiles: how many rows a generator owes after a length of time. Pure.

constant   ────────────      steps   ───┐  ┌───      sine    ╭─╮   ╭─
                                        └──┘                ─╯ ╰─╮╭╯
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from itertools import accumulate
from typing import Any, Protocol

from springtide.query.errors import QueryError, shown
from springtide.query.types import Length, length_text, micros
from springtide.query.usage import usage

_ROUNDING = 1e-6
"""A row is due when the integral of the rate has reached it, apart from rounding."""


class Profile(Protocol):
    """How many rows are due."""

    def due(self, seconds: float) -> int:
        """Count the rows that are due this long after the start: the integral of the rate. It never falls."""
        ...


@dataclass(frozen=True)
class Constant:
    """The same rate all the time."""

    rate: float

    def due(self, seconds: float) -> int:
        """Count the rows that are due."""
        return _whole(self.rate * max(0.0, seconds))

    def __str__(self) -> str:
        """Say the rate."""
        return f"{self.rate:g} rows/s"


@dataclass(frozen=True)
class Steps:
    """One rate after the other; the last one continues."""

    parts: tuple[tuple[float, float], ...]
    """Seconds and rate of each."""

    def due(self, seconds: float) -> int:
        """Count the rows that are due."""
        starts, owed = self._sums
        at = max(0, bisect_right(starts, seconds) - 1)
        return _whole(owed[at] + self.parts[at][1] * max(0.0, seconds - starts[at]))

    @cached_property
    def _sums(self) -> tuple[list[float], list[float]]:
        """When each step begins, and what is owed by then."""
        lengths = [length for length, _ in self.parts]
        owed = [length * rate for length, rate in self.parts]
        return [0.0, *accumulate(lengths[:-1])], [0.0, *accumulate(owed[:-1])]

    def __str__(self) -> str:
        """Say the rates."""
        rates = [rate for _, rate in self.parts]
        if len(rates) > 4:
            return f"{len(rates)} rates of {min(rates):g} to {max(rates):g} rows/s"
        return f"{' → '.join(f'{rate:g}' for rate in rates)} rows/s"


@dataclass(frozen=True)
class Sine:
    """A rate that goes up and down."""

    mean: float
    amplitude: float
    period: float
    """Seconds."""

    def due(self, seconds: float) -> int:
        """Count the rows that are due."""
        turn = 2 * math.pi / self.period
        t = max(0.0, seconds)
        return _whole(self.mean * t + self.amplitude / turn * (1 - math.cos(turn * t)))

    def __str__(self) -> str:
        """Say the rates."""
        return f"{self.mean:g} ± {self.amplitude:g} rows/s every {length_text(round(self.period * 1e6))}"


@usage("st.constant(1000)")
def constant(rate: float) -> Constant:
    """Produce `rate` rows per second.

    >>> st.constant(2.5).due(10)
    25
    """
    return Constant(_rate("constant", rate))


@usage("st.steps([(60, 1000), (60, 5000)])")
def steps(parts: Sequence[tuple[float | Length, float]]) -> Steps:
    """Produce one rate after the other: seconds (or a length such as "1m") and rows per second of each. The last one continues.

    >>> profile = st.steps([(10, 100), ("5s", 1000), (1, 0)])
    >>> profile.due(10), profile.due(12), profile.due(60)
    (1000, 3000, 6000)
    """
    if isinstance(parts, str) or not isinstance(parts, Sequence) or not parts:
        raise QueryError("(steps)", f"{shown(parts)} is not a list of steps", "write [(seconds, rate), ...]")
    made = []
    for part in parts:
        if not isinstance(part, tuple | list) or len(part) != 2:
            raise QueryError("(steps)", f"{shown(part)} is not a step", "write (seconds, rate)")
        made.append((_seconds("steps", part[0]), _rate("steps", part[1])))
    return Steps(tuple(made))


@usage("st.sine(1000, 500, '10m')")
def sine(mean: float, amplitude: float, period: float | Length) -> Sine:
    """Produce a rate that goes up and down around `mean` once per `period`, rising first.

    >>> profile = st.sine(100, 50, "1m")
    >>> profile.due(30), profile.due(60)
    (3954, 6000)
    """
    mean, amplitude = _rate("sine", mean), _rate("sine", amplitude)
    if amplitude > mean:
        raise QueryError("(sine)", f"{mean:g} ± {amplitude:g} goes below zero", "give an amplitude up to the mean")
    return Sine(mean, amplitude, _seconds("sine", period))


@usage("st.trace([1000, 2000, 1500], every='1m')")
def trace(rates: Sequence[float], *, every: float | Length = "1s") -> Steps:
    """Produce the rates of a recorded load, each for the time `every`. The last one continues.

    >>> st.trace([10, 30, 20], every="1m").due(120)
    2400
    """
    if isinstance(rates, str) or not isinstance(rates, Iterable) or not (rates := list(rates)):
        raise QueryError("(trace)", f"{shown(rates)} is not a list of rates", "write [100, 250, ...]")
    length = _seconds("trace", every)
    return Steps(tuple((length, _rate("trace", rate)) for rate in rates))


def _whole(owed: float) -> int:
    return math.floor(owed + _ROUNDING)


def _rate(kind: str, rate: Any) -> float:
    try:
        number = float(rate)
        if isinstance(rate, str | bool) or not 0 <= number < math.inf:
            raise ValueError
    except (TypeError, ValueError):
        raise QueryError(f"({kind})", f"{shown(rate)} is not a rate", "give rows per second, zero or more") from None
    return number


def _seconds(kind: str, length: Any) -> float:
    try:
        seconds = micros(length) / 1e6 if isinstance(length, str | timedelta) else float(length)
        if isinstance(length, bool) or not 0 < seconds < math.inf:
            raise ValueError
    except (TypeError, ValueError):
        hint = "give seconds, or a string such as '1m', above zero"
        raise QueryError(f"({kind})", f"{shown(length)} is not a length of time", hint) from None
    return seconds
