"""Times written as text, on whole columns."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import polars as pl
import pyarrow as pa

from springtide.query.types import TIME

_DAY = r"[12]\d{3}-\d\d-\d\d"
_MINUTE = r"\d\d:\d\d"
_SECOND = r":[0-5]\d(?:\.\d{1,6})?"
_ZONE = r"(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
_SHAPES = (
    (f"^{_DAY}T{_MINUTE}{_SECOND}$", "%Y-%m-%dT%H:%M:%S%.f", False),
    (f"^{_DAY}T{_MINUTE}{_SECOND}{_ZONE}$", "%Y-%m-%dT%H:%M:%S%.f%#z", True),
    (f"^{_DAY} {_MINUTE}{_SECOND}$", "%Y-%m-%d %H:%M:%S%.f", False),
    (f"^{_DAY} {_MINUTE}{_SECOND}{_ZONE}$", "%Y-%m-%d %H:%M:%S%.f%#z", True),
    (f"^{_DAY}$", "%Y-%m-%d", False),
    (f"^{_DAY}T{_MINUTE}$", "%Y-%m-%dT%H:%M", False),
    (f"^{_DAY} {_MINUTE}$", "%Y-%m-%d %H:%M", False),
)
"""How most people write a time: the pattern, Polars' format, and whether it has a zone."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_times(texts: pl.Series) -> pl.Series:
    """Return ISO 8601 texts as event times: one without a zone is UTC, one that cannot be read is null.

    Polars reads the common shapes; texts of any other shape are left to Python's own `datetime.fromisoformat`, which
    thereby decides what ISO 8601 is.

    >>> read_times(pl.Series(["1970-01-01T00:00:01", "1970-01-01 01:00:00.5+01:00", "19700102", "soon"])).cast(
    ...     pl.Int64
    ... ).to_list()
    [1000000, 500000, 86400000000, None]
    """
    times = pl.Series(texts.name, [None], dtype=pl.Int64).new_from_index(0, texts.len())
    left = texts.is_not_null()
    for pattern, format, zoned in _SHAPES:
        if not left.any():
            return times.cast(TIME)
        these = left & texts.str.contains(pattern).fill_null(False)
        if these.any():
            common = texts if these.all() else texts.set(~these, None)
            parsed = _parsed(common, format, zoned)
            times, left = parsed.zip_with(these, times), left & ~these
    rest = left.arg_true()
    return times.scatter(rest, [_micros(text) for text in texts.gather(rest)]).cast(TIME)


def _parsed(texts: pl.Series, format: str, zoned: bool) -> pl.Series:
    """Read texts of one shape: all at once with Arrow, which is ten times as fast, or with Polars if one of them is not a time, such as 30 February."""
    if "%S" in format:
        with suppress(pa.ArrowInvalid):
            made = texts.to_arrow().cast(pa.timestamp("us", "UTC" if zoned else None))
            return pl.Series(texts.name, made.cast(pa.int64()))
    zone = "UTC" if zoned else None
    return texts.str.to_datetime(format, time_unit="us", time_zone=zone, strict=False).cast(pl.Int64)


def _micros(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)
