"""Which types have numbers that can stand for their values, and how far these numbers can be trusted."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

_SIGNED = (pl.Int8, pl.Int16, pl.Int32, pl.Int64)
_FLOATS = (pl.Float32, pl.Float64)
_NUMBERS = (*_SIGNED, *_FLOATS, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Boolean)
_MOMENTS = (pl.Datetime, pl.Date, pl.Time, pl.Duration)


def comparable(types: Sequence[pl.DataType]) -> bool:
    """Return whether numbers can stand for values of these types and keep their order."""
    if all(t in _NUMBERS or isinstance(t, pl.Decimal) for t in types):
        return True
    return isinstance(types[0], _MOMENTS) and all(t == types[0] for t in types)


def summable(types: Sequence[pl.DataType]) -> bool:
    """Return whether sums of these types are sums of numbers, except for overflow. Unsigned types wrap around at 0, so theirs are not."""
    if all(t in _SIGNED or t in _FLOATS for t in types):
        return True
    units = {t.time_unit if isinstance(t, pl.Datetime | pl.Duration) else None for t in types}
    return len(units) == 1 and None not in units


def hashable(dtype: pl.DataType) -> bool:
    """Return whether equal values have equal hashes."""
    return dtype in _NUMBERS or dtype in (pl.String, pl.Binary) or isinstance(dtype, _MOMENTS)


def limit_of_sums(types: Sequence[pl.DataType]) -> float:
    """Return half of what the narrowest of these types can hold: two sums up to this limit can be added without overflow.

    >>> limit_of_sums([pl.Int8(), pl.Int64()])
    64.0
    """
    limits = {pl.Float32: 1e37, pl.Float64: 1e307} | {kind: 2.0 ** ((8 << i) - 2) for i, kind in enumerate(_SIGNED)}
    return min(next((limit for kind, limit in limits.items() if t == kind), 2.0**62) for t in types)


def slack_of_sums(types: Sequence[pl.DataType]) -> float:
    """Return how far rounding may move a sum, relative to its parts, with a wide margin."""
    return 2.0**-18 if any(t == pl.Float32 for t in types) else 2.0**-46


def slack_of_values(types: Sequence[pl.DataType]) -> float:
    """Return how far a number that stands for a value may be off: rounding can disturb the order of decimals and some other types."""
    return 2.0**-46 if any(isinstance(t, pl.Decimal) for t in types) else 0.0
