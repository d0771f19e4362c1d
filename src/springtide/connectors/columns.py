"""What is in columns of any type, for sinks whose targets do not hold everything."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

_PYTHONS = -719_162, 2_932_896
"""The first and the last day of the years that Python has, 1 to 9999, in days since 1970; ISO 8601 has agreed on these too."""
_WRITTEN = -36_500_000, 36_500_000
"""Days, some hundred thousand years before and after, that Polars can still write as text."""
_PER_DAY = {"ms": 86_400_000, "us": 86_400_000_000}
_LONGEST = (2**63 - 1) // 1000
"""Milliseconds that are still a number of microseconds."""


def leaves(column: pl.Series) -> Iterator[pl.Series]:
    """Return what is in a column when all lists and structs are taken apart.

    >>> [part.to_list() for part in leaves(pl.Series([[{"a": 1, "b": "x"}], []]))]
    [[1], ['x']]
    """
    if isinstance(column.dtype, pl.List | pl.Array):
        yield from leaves(column.explode())
    elif isinstance(column.dtype, pl.Struct):
        for name in column.struct.fields:
            yield from leaves(column.struct.field(name))
    else:
        yield column


def beyond_calendars(column: pl.Series, *, as_text: bool = False) -> str | None:
    """Say which times in a column, or inside its lists and structs, cannot be written; None if all can.

    Polars keeps any number of microseconds as a time, and fails where it has to write one that no calendar has. `as_text`: Polars writes them; otherwise
    they become Python's on their way, or are to be read by others.

    >>> beyond_calendars(pl.Series([[2**62]]).cast(pl.List(pl.Datetime("us"))))
    'a year before 1 or after 9999'
    """
    for part in leaves(column):
        dtype = part.dtype
        first, last = _WRITTEN if as_text else _PYTHONS
        what = "a time that is too far away" if as_text else "a year before 1 or after 9999"
        if isinstance(dtype, pl.Datetime) and dtype.time_unit in _PER_DAY:
            day = _PER_DAY[dtype.time_unit]
            margin = 0 if dtype.time_zone in (None, "UTC") else day  # elsewhere it is another day
            first, last = first * day + margin, (last + 1) * day - 1 - margin
        elif isinstance(dtype, pl.Duration) and dtype.time_unit == "ms":
            first, last, what = -_LONGEST, _LONGEST, "a length of time of more than 292,000 years"
        elif not isinstance(dtype, pl.Date):
            continue
        if not part.to_physical().is_between(first, last).all():
            return what
    return None
