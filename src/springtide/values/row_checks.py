"""Does a row from outside fit the schema of its source? If so, what is its event time?"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Any

import polars as pl

from springtide.query.errors import nearest
from springtide.query.types import FIRST_TIME, LAST_TIME, TIME, instance, type_text

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


_REFUSED = (TypeError, ValueError, OverflowError, RuntimeError, pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""The errors with which Polars says that a value does not fit a type."""


class Misfit(Exception):
    """Why a row or a value does not fit."""


def column(name: str, value: Any, dtype: pl.DataType) -> pl.Series:
    """Return a column of one value. An integer fits a float column; nothing else is converted.

    >>> column("x", 1, pl.Float64()).to_list()
    [1.0]
    >>> column("x", 300, pl.UInt8())
    Traceback (most recent call last):
    springtide.values.row_checks.Misfit: column 'x': 300 is out of range for u8
    """
    if isinstance(value, pl.Series):  # a row of a frame: its type is known already, and exact
        if value.dtype == dtype:
            return value
        value = value.to_list()[0]
    if not _is_of(value, dtype):
        raise Misfit(f"column {name!r}: {brief(value)} is not {type_text(dtype)}")
    try:
        if isinstance(value, datetime) and isinstance(dtype, pl.Datetime):  # Polars is slow with zones
            return time_column(name, micros_of(value), dtype)
        return pl.Series(name, [value], dtype=dtype, strict=True)
    except _REFUSED:
        raise Misfit(f"column {name!r}: {brief(value)} is out of range for {type_text(dtype)}") from None


def column_of(name: str, values: Sequence[Any], dtype: pl.DataType) -> pl.Series:
    """Return a column of many values, each of which must fit by itself; a `Misfit` does not say which one does not.

    >>> column_of("x", [1, None, 2.5], pl.Float64()).to_list()
    [1.0, None, 2.5]
    """
    kinds = set(map(type, values)) - {type(None)}
    if not kinds <= _plain_kinds(dtype):
        if pl.Series in kinds:
            return pl.concat([column(name, value, dtype) for value in values])
        if not all(_is_of(value, dtype) for value in values):
            raise Misfit(f"column {name!r}: not all are {type_text(dtype)}")
    try:
        if isinstance(dtype, pl.Datetime) and kinds:
            micros = [None if v is None else micros_of(v) for v in values]
            moments = pl.Series(name, micros, dtype=pl.Int64).cast(pl.Datetime("us", dtype.time_zone))
            return moments if dtype.time_unit == "us" else moments.cast(dtype)
        return pl.Series(name, values, dtype=dtype, strict=True)
    except _REFUSED:
        raise Misfit(f"column {name!r}: not all are in the range of {type_text(dtype)}") from None


def times_of(name: str, values: Sequence[Any]) -> pl.Series:
    """Return a column of times given as datetimes or as microseconds; null is not a time.

    >>> times_of("ts", [1_000_000]).to_list()[0].isoformat()
    '1970-01-01T00:00:01+00:00'
    """
    if not set(map(type, values)) <= {int}:
        if any(isinstance(v, bool) or not isinstance(v, int | datetime) for v in values):
            raise Misfit(f"column {name!r}: not all are times")
        values = [micros_of(v) if isinstance(v, datetime) else v for v in values]
    try:
        return pl.Series(name, values, dtype=pl.Int64, strict=True).cast(TIME)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        raise Misfit(f"column {name!r}: not all are in the range of times") from None


def frame_of_row(row: Any, columns: pl.Schema, ts: str | None) -> pl.DataFrame:
    """Return a row as a frame with the columns of its source; raise `Misfit` with the reason if it does not fit.

    `ts` names the column of the event time, in which a time without a zone is UTC, regardless of the column's own zone.
    """
    if not isinstance(row, Mapping):
        raise Misfit(f"{brief(row)} is not a row of named columns")
    for name in row:
        if name not in columns:
            raise Misfit(f"there is no column {name!r}; {nearest(str(name), columns)}")
    return pl.DataFrame([column(name, _given(row, name, dtype, ts), dtype) for name, dtype in columns.items()])


def frame_of_rows(rows: Sequence[Any], columns: pl.Schema, ts: str | None) -> pl.DataFrame:
    """Return rows as a frame with the columns of their source, all at once; a `Misfit` does not say which row does not fit.

    >>> frame_of_rows([{"x": 1}, {}], pl.Schema({"x": pl.Float64()}), None)["x"].to_list()
    [1.0, None]
    """
    if not all(isinstance(row, Mapping) and row.keys() <= columns.keys() for row in rows):
        raise Misfit("not all are rows of these columns")
    return pl.DataFrame(
        [column_of(name, [_given(row, name, dtype, ts) for row in rows], dtype) for name, dtype in columns.items()]
    )


def _given(row: Mapping[str, Any], name: str, dtype: pl.DataType, ts: str | None) -> Any:
    """Return a value of a row; an event time without a zone is taken as UTC."""
    value = row.get(name)
    if name == ts and isinstance(dtype, pl.Datetime) and isinstance(value, datetime):
        moment = _in_utc(name, value)
        return moment if dtype.time_zone else moment.replace(tzinfo=None)
    return value


def event_time(times: pl.Series) -> int:
    """Return the event time from a column of one value.

    >>> event_time(pl.Series("when", ["1970-01-01T00:00:01+01:00"]))
    -3599000000
    """
    what = f"the time {times.name!r}"
    if times.null_count():
        raise Misfit(f"{what} is null")
    if times.dtype == pl.String:
        text = times.to_list()[0]
        try:
            micros = micros_of(datetime.fromisoformat(text))
        except ValueError:
            raise Misfit(f"{what} cannot be read: {reprlib.repr(text)} is not ISO 8601") from None
        return _in_range(what, micros)
    return _in_range(what, _micros(times))


def _micros(times: pl.Series) -> int:
    """Return a time in microseconds, however far away it is; anything finer is rounded down."""
    given: int = times.to_physical().to_list()[0]
    if times.dtype == pl.Date:
        return given * 86_400_000_000
    unit = times.dtype.time_unit if isinstance(times.dtype, pl.Datetime) else "us"
    return given // 1_000 if unit == "ns" else given * 1_000 if unit == "ms" else given


def _in_range(what: str, micros: int) -> int:
    if not FIRST_TIME <= micros <= LAST_TIME:
        raise Misfit(f"{what} is not in the years 1 to 9999")
    return micros


def micros_of(moment: datetime) -> int:
    """Return microseconds since 1970; a time without a zone is UTC.

    >>> micros_of(datetime(1970, 1, 1, 0, 0, 1))
    1000000
    """
    return ((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND


def time_column(name: str, micros: int, dtype: pl.Datetime = TIME) -> pl.Series:
    """Return a column of one time."""
    time = pl.Series(name, [micros], dtype=pl.Int64).cast(pl.Datetime("us", dtype.time_zone))
    return time if dtype.time_unit == "us" else time.cast(dtype)


def row_text(row: Any) -> str:
    """Return a row as JSON, for people who want to know what was wrong with it.

    >>> row_text({"x": b"hi", "when": date(2024, 2, 29)})
    '{"x": "6869", "when": "2024-02-29"}'
    """

    try:
        text = json.dumps(row, default=_plain, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):  # keys that are not strings, overlong numbers, deep nesting
        text = json.dumps({"row": brief(row)}, ensure_ascii=False)
    return text.encode(errors="replace").decode()  # half of a surrogate pair is not text


def _plain(value: Any) -> Any:
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, pl.Series):
        try:
            return value.to_list()[0]
        except (ValueError, OverflowError, pl.exceptions.PanicException):  # a time beyond Python's calendar
            return value.to_physical().to_list()[0]
    return value.hex() if isinstance(value, bytes) else str(value)


def brief(value: object) -> str:
    """Return a value as text that fits into a reason.

    >>> brief("x" * 100)
    "'xxxxxxxxxxxx...xxxxxxxxxxxxx'"
    """
    try:
        return reprlib.repr(value)
    except Exception:  # a user's `__repr__` may raise anything; a number may have 5,000 digits
        return f"a {type(value).__name__}"


def _in_utc(name: str, moment: datetime) -> datetime:
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:  # it is in its own zone, but not in UTC
        raise Misfit(f"the time {name!r} is not in the years 1 to 9999") from None


def _is_of(value: Any, dtype: pl.DataType) -> bool:
    """Return whether a value has the kind that the type asks for; ranges are left to Polars."""
    if value is None:
        return True
    if isinstance(dtype, pl.List | pl.Array):
        return isinstance(value, list | tuple) and all(_is_of(v, instance(dtype.inner)) for v in value)
    if isinstance(dtype, pl.Struct):
        fields = {f.name: instance(f.dtype) for f in dtype.fields}
        return isinstance(value, Mapping) and all(n in fields and _is_of(v, fields[n]) for n, v in value.items())
    if isinstance(dtype, pl.Decimal):
        return isinstance(value, Decimal) and _has_scale(value, dtype.scale)
    if isinstance(dtype, pl.Datetime):
        return isinstance(value, datetime) and (value.tzinfo is None) == (dtype.time_zone is None)
    if dtype == pl.Date:
        return isinstance(value, date) and not isinstance(value, datetime)
    if dtype.is_integer():
        return isinstance(value, int) and not isinstance(value, bool)
    if dtype.is_float():
        return isinstance(value, int | float) and not isinstance(value, bool)
    kinds = {pl.Boolean: bool, pl.Binary: bytes, pl.Time: time, pl.Duration: timedelta}
    texts = (pl.String, pl.Categorical, pl.Enum)
    kind = str if isinstance(dtype, texts) else kinds.get(type(dtype))
    return kind is not None and isinstance(value, kind)


@lru_cache(maxsize=1024)
def _plain_kinds(dtype: pl.DataType) -> frozenset[type]:
    """Return the classes whose values are always of the kind that the type asks for."""
    if dtype.is_integer():
        return frozenset([int])
    if dtype.is_float():
        return frozenset([int, float])
    kinds: dict[type, type] = {pl.Boolean: bool, pl.Binary: bytes, pl.String: str, pl.Duration: timedelta}
    kind = kinds.get(type(dtype))
    return frozenset([kind] if kind else [])


def _has_scale(value: Decimal, scale: int) -> bool:
    if not value.is_finite() or value.adjusted() >= 38:  # no decimal has more digits
        return False
    with localcontext(prec=200):
        return value.scaleb(scale) % 1 == 0
