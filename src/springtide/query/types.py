"""Schemas, event time and lengths of time."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

import polars as pl

from springtide.query.errors import QueryError

TS: Final = "ts"
"""The column with the event time of every timed stream."""

TIME: Final = pl.Datetime("us", "UTC")
"""Its type: microseconds, UTC."""

END_OF_TIME: Final = 2**63 - 1
"""The time after a bounded input has ended: later than every event."""

Length = str | timedelta
"""A length of time as users write it: `"1h30m"` or a `timedelta`."""

_UNITS: Final = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_PART: Final = re.compile(r"(\d+)\s*(us|ms|s|m|h|d|w)\s*")


def micros(length: Length) -> int:
    """Turn a length of time into microseconds.

    >>> st.micros("1h30m"), st.micros("250ms"), st.micros("-2s")
    (5400000000, 250000, -2000000)
    """
    if isinstance(length, timedelta):
        return length // timedelta(microseconds=1)
    text = length.strip()
    sign, body = (-1, text[1:]) if text.startswith("-") else (1, text)
    total, at = 0, 0
    for part in _PART.finditer(body):
        if part.start() != at:
            break
        total, at = total + int(part[1]) * _UNITS[part[2]], part.end()
    if not body or at != len(body):
        raise ValueError(
            f"{length!r} is not a length of time: write for example '10s', '1h30m' or '250ms' (units {', '.join(_UNITS)})"
        )
    return sign * total


def length_text(length: int) -> str:
    """Write microseconds the way a person would.

    >>> length_text(5_400_000_000), length_text(250_000), length_text(0)
    ('1h30m', '250ms', '0s')
    """
    if length == 0:
        return "0s"
    text, rest = "-" if length < 0 else "", abs(length)
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count, rest = divmod(rest, _UNITS[unit])
        text += f"{count}{unit}" if count else ""
    return text


def type_text(dtype: pl.DataType) -> str:
    """Write a column type shortly.

    >>> type_text(pl.Int64()), type_text(pl.List(pl.String())), type_text(TIME)
    ('i64', 'list[str]', 'time')
    """
    if dtype == TIME:
        return "time"
    if isinstance(dtype, pl.List):
        inner = dtype.inner
        return f"list[{type_text(inner if isinstance(inner, pl.DataType) else inner())}]"
    short = {
        pl.Int8: "i8",
        pl.Int16: "i16",
        pl.Int32: "i32",
        pl.Int64: "i64",
        pl.UInt8: "u8",
        pl.UInt16: "u16",
        pl.UInt32: "u32",
        pl.UInt64: "u64",
        pl.Float32: "f32",
        pl.Float64: "f64",
        pl.String: "str",
        pl.Boolean: "bool",
        pl.Binary: "bytes",
        pl.Date: "date",
    }
    return short.get(type(dtype), str(dtype).lower())


def schema_text(schema: pl.Schema) -> str:
    """Write a schema on one line.

    >>> schema_text(pl.Schema({"src": pl.String(), "ts": TIME}))
    'src:str ts:time'
    """
    return " ".join(f"{name}:{type_text(dtype)}" for name, dtype in schema.items())


def is_key_type(dtype: pl.DataType) -> bool:
    """Tell whether values of this type can be grouped by: equality must be plain."""
    return (
        dtype.is_integer() or dtype.is_temporal() or dtype.is_decimal() or dtype in (pl.String, pl.Boolean, pl.Binary)
    )


def check_keys(step: str, keys: tuple[str, ...], schema: pl.Schema) -> None:
    """Refuse keys whose equality is not plain (floats, nested values)."""
    for key in keys:
        if not is_key_type(schema[key]):
            raise QueryError(
                step,
                f"{key!r} is {type_text(schema[key])}, which cannot be a key",
                "cast or round it to an integer, a string or a time first, in a map before this step",
            )
