"""From the columns that were written to the columns that are wanted: fields are added and removed, types widened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from springtide.query.types import instance, type_text
from springtide.topics.wire import Undecodable
from springtide.values.row_checks import brief

RowsAndFaults = tuple[pl.DataFrame, dict[int, str]]


class Other(Exception):
    """Raised when a type cannot be read as the one that is wanted."""


def adapted(
    found: pl.DataFrame, columns: pl.Schema, defaults: Mapping[str, Any], aliases: Mapping[str, str]
) -> RowsAndFaults:
    """Bring rows into the wanted columns, and say which do not fit. A column that was not written has its default, or null; `aliases`: column → field.

    Raise `Undecodable` if something inside a list or an object does not fit, in any of the rows.

    >>> rows, wrong = adapted(
    ...     pl.DataFrame({"n": [1, 300]}), pl.Schema({"n": pl.UInt8(), "s": pl.String()}), {"s": "?"}, {}
    ... )
    >>> rows["s"].to_list(), wrong
    (['?', '?'], {1: "column 'n': 300 is not u8"})
    """
    made: list[pl.Series] = []
    wrong: dict[int, str] = {}
    for name, dtype in columns.items():
        field = name if name in found.columns else aliases.get(name, name)
        if field not in found.columns:
            made.append(pl.Series(name, [defaults.get(name)], dtype=dtype).new_from_index(0, found.height))
            continue
        have = found[field]
        try:
            column = found.select(_as(pl.col(field), have.dtype, dtype, strict=False).alias(name)).to_series()
        except pl.exceptions.PolarsError:
            raise Undecodable(f"column {name!r}: {_shown(have, 0)} is not {type_text(dtype)}") from None
        except Other:
            reason = f"column {name!r}: it was written as {type_text(have.dtype)}, which is not {type_text(dtype)}"
            return pl.DataFrame(schema=columns), dict.fromkeys(range(found.height), reason)
        made.append(column)
        for i in (column.is_null() & have.is_not_null()).arg_true():
            wrong.setdefault(i, f"column {name!r}: {_shown(have, i)} is not {type_text(dtype)}")
    return pl.DataFrame(made), wrong


def _shown(column: pl.Series, i: int) -> str:
    """Write a value for a message; one that Python has not, such as a time of no calendar, as the number that it is."""
    try:
        return brief(column[i])
    except (pl.exceptions.PanicException, ValueError, OverflowError):
        return str(column.to_physical()[i])


def _as(value: pl.Expr, have: pl.DataType, want: pl.DataType, *, strict: bool) -> pl.Expr:
    """Read values as another type: one that does not fit is null, or an error if `strict`; raise `Other` if no value could ever fit."""
    if have == want:
        return value
    if isinstance(want, pl.Struct) and isinstance(have, pl.Struct):
        inside = {f.name: instance(f.dtype) for f in have.fields}
        fields = [
            _as(value.struct.field(f.name), inside[f.name], instance(f.dtype), strict=True).alias(f.name)
            if f.name in inside
            else pl.lit(None, f.dtype).alias(f.name)
            for f in want.fields
        ]
        return pl.when(value.is_not_null()).then(pl.struct(fields))
    if isinstance(want, pl.List) and isinstance(have, pl.List):
        return value.list.eval(_as(pl.element(), instance(have.inner), instance(want.inner), strict=True))
    if isinstance(want, pl.Datetime) and isinstance(have, pl.Datetime):
        zoned = value if have.time_zone else value.dt.replace_time_zone("UTC")
        if want.time_zone is None:
            zoned = zoned.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return zoned.cast(want, strict=strict)
    if isinstance(want, pl.Decimal) and isinstance(have, pl.Decimal):
        cast = value.cast(want, strict=strict)  # which rounds
        return pl.when(cast.cast(pl.Decimal(38, have.scale), strict=False) == value).then(cast)
    if _grows(have, want):
        return value.cast(want, strict=strict)
    raise Other


def _grows(have: pl.DataType, want: pl.DataType) -> bool:
    if have.is_integer():
        return want.is_integer() or want.is_float() or isinstance(want, pl.Decimal)
    if have.is_float():
        return want == pl.Float64
    text = have == pl.String or isinstance(have, pl.Categorical | pl.Enum)
    return (
        have == pl.Null
        or (text and (want in (pl.String, pl.Binary) or isinstance(want, pl.Categorical | pl.Enum)))
        or (have == pl.Binary and want == pl.String)
        or (isinstance(have, pl.Duration) and isinstance(want, pl.Duration))
    )


def grown(have: pl.DataType, want: pl.DataType) -> bool:
    """Return whether values of a type can be read as another one.

    >>> grown(pl.Int32(), pl.Int64()), grown(pl.String(), pl.Int64())
    (True, False)
    """
    try:
        _as(pl.col("x"), have, want, strict=False)
    except Other:
        return False
    return True
