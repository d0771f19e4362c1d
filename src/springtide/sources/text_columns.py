"""From text to typed columns: a value fits its column's type or its row is rejected."""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

from springtide.query.errors import QueryError
from springtide.query.types import instance, type_text
from springtide.values.row_checks import brief
from springtide.values.text_times import read_times


def typed(texts: pl.DataFrame, columns: pl.Schema) -> tuple[pl.DataFrame, pl.Series, dict[int, str]]:
    """Convert columns of text; columns that have their type stay, missing ones are null.

    Return the rows that fit, their numbers, and the reason for each other row by its number.

    >>> texts = pl.DataFrame({"x": ["1", "one", None]})
    >>> rows, numbers, reasons = typed(texts, pl.Schema({"x": pl.Int8(), "y": pl.String()}))
    >>> rows["x"].to_list(), numbers.to_list(), reasons
    ([1, None], [0, 2], {1: "column 'x': 'one' is not i8"})
    """
    reasons: dict[int, str] = {}
    made = []
    for name, dtype in columns.items():
        if name not in texts.columns:
            made.append(pl.Series(name, [None], dtype=dtype).new_from_index(0, texts.height))
            continue
        found = texts[name]
        made.append(found if found.dtype == dtype else read_text(found, dtype).alias(name))
        for i in (made[-1].is_null() & found.is_not_null()).arg_true():
            reasons.setdefault(i, f"column {name!r}: {brief(found[i])} is not {type_text(dtype)}")
    rows, numbers = pl.DataFrame(made), others(texts.height, reasons)
    return (rows[numbers] if reasons else rows), numbers, reasons


def others(count: int, numbers: Collection[int]) -> pl.Series:
    """Return the numbers below `count` that are not among these.

    >>> others(4, [1, 2]).to_list()
    [0, 3]
    """
    every = pl.int_range(count, eager=True)
    return every.filter(~every.is_in(list(numbers))) if numbers else every


def read_text(texts: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Convert a column of text; null where a value does not fit."""
    if texts.dtype != pl.String:
        return texts.cast(dtype, strict=False)
    if isinstance(dtype, pl.Datetime):
        times = read_times(texts)
        zoned = times.dt.convert_time_zone(dtype.time_zone) if dtype.time_zone else times.dt.replace_time_zone(None)
        return zoned.cast(dtype, strict=False)  # nanoseconds end in the year 2262
    if dtype == pl.Date:
        return _shaped(texts, r"^\d{4}-\d\d-\d\d$").str.to_date("%Y-%m-%d", strict=False)
    if dtype == pl.Time:
        return _shaped(texts, r"^\d\d:\d\d:[0-5]\d(\.\d{1,9})?$").str.to_time("%H:%M:%S%.f", strict=False)
    if dtype == pl.Boolean:
        lower = texts.str.to_lowercase()
        return (lower == "true").set(~lower.is_in(["true", "false"]).fill_null(False), None)
    if isinstance(dtype, pl.Decimal):  # a cast would round
        return _shaped(texts, rf"^[+-]?\d+(\.\d{{0,{dtype.scale}}}0*)?$").cast(dtype, strict=False)
    return texts.cast(dtype, strict=False)


def is_text_type(dtype: pl.DataType) -> bool:
    """Return whether values of this type are always written as text: there is no number, list or object for it in JSON."""
    return dtype in (pl.Date, pl.Time) or isinstance(dtype, pl.Datetime | pl.Categorical | pl.Enum)


def check_types(label: str, columns: pl.Schema, *, nested: bool) -> None:
    """Refuse types that a text file cannot hold."""
    for name, dtype in columns.items():
        if not (_is_plain(dtype) or is_text_type(dtype) or isinstance(dtype, pl.Decimal) or (nested and _nests(dtype))):
            problem = f"{name!r} is {type_text(dtype)}, which cannot be read from text"
            raise QueryError(label, problem, "declare it as pl.String and convert it in a map")


def _is_plain(dtype: pl.DataType) -> bool:
    return (dtype.is_integer() and dtype not in (pl.Int128, pl.UInt128)) or dtype in (
        pl.Float32,
        pl.Float64,
        pl.String,
        pl.Boolean,
    )


def _nests(dtype: pl.DataType) -> bool:
    if isinstance(dtype, pl.List):
        return _nests(instance(dtype.inner))
    if isinstance(dtype, pl.Struct):
        return bool(dtype.fields) and all(_nests(instance(f.dtype)) for f in dtype.fields)
    return _is_plain(dtype)


def _shaped(texts: pl.Series, pattern: str) -> pl.Series:
    return texts.set(~texts.str.contains(pattern).fill_null(False), None)
