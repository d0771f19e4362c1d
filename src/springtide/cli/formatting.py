"""Numbers for people: counts, rates, sizes, times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

_BARS = "▁▂▃▄▅▆▇█"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def count(number: float) -> str:
    """Write a whole number.

    >>> count(1234567)
    '1,234,567'
    """
    return f"{round(number):,}"


def rate(per_second: float | None) -> str:
    """Write a rate, in at most three digits and a unit.

    >>> rate(1234567), rate(98_700), rate(12.34), rate(0), rate(None)
    ('1.23 M/s', '98.7 k/s', '12.3/s', '0/s', '–')
    """
    if per_second is None:
        return "–"
    for unit, factor in ((" M", 1e6), (" k", 1e3)):
        if per_second >= factor:
            return f"{_three(per_second / factor)}{unit}/s"
    return f"{_three(per_second)}/s"


def size(number: float) -> str:
    """Write a number of bytes.

    >>> size(0), size(1234), size(5_000_000), size(12_345_678_901)
    ('0 B', '1.23 kB', '5 MB', '12.3 GB')
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= factor:
            return f"{_three(number / factor)} {unit}"
    return f"{number:.0f} B"


def seconds(length: float | None) -> str:
    """Write a short time.

    >>> seconds(0.0123), seconds(0.5), seconds(12.34), seconds(75), seconds(3700), seconds(None)
    ('12 ms', '0.50 s', '12.3 s', '1:15', '1:01:40', '–')
    """
    if length is None:
        return "–"
    if length < 0.1:
        return f"{length * 1000:.0f} ms"
    if length < 59.95:
        return f"{length:.2f} s" if length < 10 else f"{length:.1f} s"
    minutes, rest = divmod(round(length), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def extra(length: float) -> str:
    """Write how much longer something took.

    >>> extra(0.0312), extra(-0.2)
    ('+31 ms', '−0.20 s')
    """
    return f"{'+' if length >= 0 else '−'}{seconds(abs(length))}"


def clock(at: float) -> str:
    """Write the time of day, here."""
    return f"{datetime.fromtimestamp(at):%H:%M:%S}"


def event_time(micros: int) -> str:
    """Write an event time, in UTC, as short as it can be.

    >>> event_time(1_714_521_600_000_000), event_time(1_714_521_600_250_000)
    ('2024-05-01 00:00:00', '2024-05-01 00:00:00.25')
    """
    try:
        moment = _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return "the end of time" if micros > 0 else "the beginning of time"
    return f"{moment:%Y-%m-%d %H:%M:%S.%f}".rstrip("0").removesuffix(".") if moment.microsecond else f"{moment:%F %T}"


def sparkline(values: Sequence[float]) -> str:
    """Draw values as bars.

    >>> sparkline([0, 1, 2, 4])
    '▁▂▄█'
    """
    top = max(values, default=0) or 1
    return "".join(_BARS[int(value / top * (len(_BARS) - 1))] for value in values)


def _three(value: float) -> str:
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}".removesuffix(".00").removesuffix(".0")
