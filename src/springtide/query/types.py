"""Schemas, names of columns, event time and lengths of time."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import polars as pl

from springtide.query.errors import QueryError, shown
from springtide.query.ids import Micros

TS: Final = "ts"
"""The column with the event time of every timed stream."""

TIME: Final = pl.Datetime("us", "UTC")
"""Its type: microseconds, UTC."""

WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"
"""The columns with the bounds of a window, in the results of windowed steps."""

RANK: Final = "rank"
COUNT: Final = "count"
"""The columns of a ranking: the rank, and the count or weight."""

Names = str | Sequence[str]
"""Columns as users name them: one, or several."""

END_OF_TIME: Final = Micros(2**63 - 1)
"""The time once a bounded input has ended: later than every event."""

FIRST_TIME: Final = -62_135_596_800_000_000
LAST_TIME: Final = 253_402_300_799_999_999
"""The range of event times: from the beginning of the year 1 to the end of the year 9999, as in calendars and in Python."""

LONGEST: Final = 366 * 86_400_000_000 * 10_000
"""The longest length of time. Times and lengths are so far from the limits of 64 bits that the sum of a few of them never wraps."""

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
    """Return a length of time in microseconds.

    >>> st.micros("1h30m"), st.micros("250ms"), st.micros("-2s")
    (5400000000, 250000, -2000000)
    """
    if isinstance(length, timedelta):
        return _bounded(length, length // timedelta(microseconds=1))
    text = length.strip() if isinstance(length, str) else ""
    sign, body = (-1, text[1:]) if text.startswith("-") else (1, text)
    total, at = 0, 0
    for part in _PART.finditer(body):
        if part.start() != at:
            break
        total, at = total + int(part[1]) * _UNITS[part[2]], part.end()
    if not body or at != len(body):
        units = ", ".join(_UNITS)
        raise ValueError(
            f"{shown(length)} is not a length of time: write for example '10s', '1h30m' or '250ms' (units {units})"
        )
    return _bounded(length, sign * total)


def _bounded(length: Length, total: int) -> int:
    if abs(total) > LONGEST:
        raise ValueError(f"{shown(length)} is too long: give a length of at most 10000 years")
    return total


def micros_of(step: str, length: Length, option: str | None = None) -> Micros:
    """Return a length of time that is given to a step in microseconds, and refuse anything else.

    >>> micros_of("events (source)", "soon", "idle_after")
    Traceback (most recent call last):
    springtide.query.errors.QueryError: step events (source): idle_after: 'soon' is not a length of time; write for example ...
    """
    try:
        return Micros(micros(length))
    except ValueError as error:
        problem, _, hint = str(error).partition(": ")
        raise QueryError(step, problem if option is None else f"{option}: {problem}", hint) from None


def length_text(length: int) -> str:
    """Return microseconds as a person would write them.

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
    """Return a short name for a column type.

    >>> type_text(pl.Int64()), type_text(pl.List(pl.String())), type_text(TIME)
    ('i64', 'list[str]', 'time')
    """
    if dtype == TIME:
        return "time"
    if isinstance(dtype, pl.List):
        return f"list[{type_text(instance(dtype.inner))}]"
    if isinstance(dtype, pl.Array):
        return f"array[{type_text(instance(dtype.inner))}, {dtype.size}]"
    if isinstance(dtype, pl.Struct):
        return f"struct[{', '.join(f'{f.name}:{type_text(instance(f.dtype))}' for f in dtype.fields)}]"
    if isinstance(dtype, pl.Datetime):
        return f"datetime[{dtype.time_unit}{f', {dtype.time_zone}' if dtype.time_zone else ''}]"
    if isinstance(dtype, pl.Duration):
        return f"duration[{dtype.time_unit}]"
    if isinstance(dtype, pl.Decimal):
        return f"decimal[{dtype.precision}, {dtype.scale}]"
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
        pl.Time: "time of day",
    }
    return short.get(type(dtype), type(dtype).__name__.lower())


def instance(dtype: Any) -> pl.DataType:
    """Return `pl.Int64()` for `pl.Int64`: both occur inside nested types."""
    made: pl.DataType = dtype if isinstance(dtype, pl.DataType) else dtype()
    return made


def schema_text(schema: pl.Schema) -> str:
    """Return a schema as one line of text.

    >>> schema_text(pl.Schema({"src": pl.String(), "ts": TIME}))
    'src:str ts:time'
    """
    return " ".join(f"{name}:{type_text(dtype)}" for name, dtype in schema.items())


def check_carried(step: str, schema: pl.Schema) -> None:
    """Refuse columns that cannot travel from task to task because Arrow has no type for their values.

    >>> check_carried("events (source)", pl.Schema({"x": pl.Int128()}))
    Traceback (most recent call last):
    springtide.query.errors.QueryError: step events (source): 'x' is int128, which Arrow does not have; cast it to pl.Int64 or to pl.Decimal(38, 0)
    """
    for name, dtype in schema.items():
        for inner in _parts(dtype):
            if inner in _FOREIGN:
                raise QueryError(step, f"{name!r} is {type_text(dtype)}, which Arrow does not have", _FOREIGN[inner])


_FOREIGN: Final[dict[Any, str]] = {
    pl.Int128: "cast it to pl.Int64 or to pl.Decimal(38, 0)",
    pl.UInt128: "cast it to pl.UInt64 or to pl.Decimal(38, 0)",
    pl.Object: "make it a number, a text, a list or a struct",
    pl.Unknown: "cast it to the type that it should have",
}


def _parts(dtype: pl.DataType) -> Iterator[type[pl.DataType]]:
    """Return a type and all the types inside it."""
    yield type(dtype)
    if isinstance(dtype, pl.List | pl.Array):
        yield from _parts(instance(dtype.inner))
    if isinstance(dtype, pl.Struct):
        for inner in dtype.fields:
            yield from _parts(instance(inner.dtype))


def is_key_type(dtype: pl.DataType) -> bool:
    """Return whether rows can be grouped by values of this type: it must be clear when two are equal."""
    return (
        dtype.is_integer() or dtype.is_temporal() or dtype.is_decimal() or dtype in (pl.String, pl.Boolean, pl.Binary)
    )


def check_keys(step: str, keys: tuple[str, ...], schema: pl.Schema) -> None:
    """Refuse keys of types where it is not clear when two values are equal (floats, nested values)."""
    for key in keys:
        if not is_key_type(schema[key]):
            hint = "cast or round it to an integer, a string or a time first, in a map before this step"
            if isinstance(schema[key], pl.List):
                hint = "explode it first"
            raise QueryError(step, f"{key!r} is {type_text(schema[key])}, which cannot be a key", hint)


def whole(step: str, option: str, value: Any) -> int:
    """Return a whole number, which may be one of NumPy's, and refuse everything else.

    >>> whole("top (top_k)", "k", 3)
    3
    >>> whole("top (top_k)", "k", "3")
    Traceback (most recent call last):
    springtide.query.errors.QueryError: step top (top_k): k='3' is not a whole number; give an integer, such as 10
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        problem = f"{option}={shown(value)} is not a whole number"
        raise QueryError(step, problem, "give an integer, such as 10") from None
    if abs(number) >= 2**31:
        raise QueryError(step, f"{option}={number} is too large", f"give at most {2**31 - 1}")
    return number


def schema_from(step: str, what: str, columns: Any) -> pl.Schema:
    """Return a schema made from names and types as users write them, and refuse anything else.

    >>> schema_from("events (source)", "schema", {"x": pl.Int64, "name": str})
    Schema([('x', Int64), ('name', String)])
    """
    if not isinstance(columns, Mapping):
        raise QueryError(step, f"{what}={shown(columns)} is not a schema", "give names and types: {'x': pl.Int64, ...}")
    for name, dtype in columns.items():
        if not isinstance(name, str):
            raise QueryError(
                step, f"{what}: the column name {shown(name)} is not a string", "write {'x': pl.Int64, ...}"
            )
        try:
            pl.Schema({name: dtype})
        except (TypeError, ValueError, pl.exceptions.PolarsError):
            if isinstance(dtype, type):
                problem, hint = (
                    f"has the type {dtype.__name__} without its details",
                    "write them too: pl.List(pl.Int64), pl.Datetime('us')",
                )
            else:
                problem, hint = (
                    f"has the type {shown(dtype)}, which is not a type",
                    "write for example pl.Int64, pl.String or st.TIME",
                )
            raise QueryError(step, f"{what}: {name!r} {problem}", hint) from None
    return pl.Schema(columns)
