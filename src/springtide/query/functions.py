"""The aggregate functions by name: which types each one takes and returns, and what the compiler may do with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from springtide.query.types import is_key_type


@dataclass(frozen=True)
class Partial:
    """One column of a function's partial result, one value for each group."""

    add: pl.Expr
    """Computes it from the tuples of a group."""
    merge: Callable[[pl.Expr], pl.Expr]
    """Combines the values of this column from several partial results into one."""


@dataclass(frozen=True)
class Function:
    """Everything there is to know about an aggregate function that is defined in one file (docs/contributing.md).

    Partial results are computed by the senders, merged in any order and any number of times, and finished once. The order of tuples must not matter.
    """

    output: Callable[[pl.DataType], pl.DataType | None]
    """Returns the type of the result for a type of the input; None if the function cannot take that type."""
    takes: str
    """What it can take, in words."""
    partials: Callable[[pl.Expr], Mapping[str, Partial]]
    """Returns the columns of the partial result for an input column, by name. `springtide state` shows them under these names."""
    finish: Callable[[Mapping[str, pl.Expr]], pl.Expr]
    """Computes the value of an aggregate from the columns of its partial result."""
    meaning: Callable[[list[Any]], Any]
    """Computes the value in plain Python from the values that are not null; the reference interpreter calls it."""
    additive: bool = False
    """Every partial column is an `Int64` that is merged by addition. Running totals are then kept, and old panes are subtracted from them."""


@dataclass(frozen=True)
class Rule:
    """What is true of a function wherever it is used; `Traits` describes a single use."""

    output: Callable[[pl.DataType], pl.DataType | None]
    """Returns the type of the result for a type of the input; None if the function cannot take that type."""
    takes: str
    """What it can take, in words."""
    ordered: bool = False


def _sum_type(dtype: pl.DataType) -> pl.DataType | None:
    if dtype.is_float():
        return pl.Float64()
    if dtype.is_unsigned_integer():
        return pl.UInt64()
    if dtype.is_integer() or dtype == pl.Boolean:
        return pl.Int64()
    if isinstance(dtype, pl.Decimal):
        return pl.Decimal(38, dtype.scale)
    return dtype if isinstance(dtype, pl.Duration) else None


def _mean_type(dtype: pl.DataType) -> pl.DataType | None:
    if isinstance(dtype, pl.Duration):
        return dtype
    return pl.Float64() if dtype.is_numeric() or dtype == pl.Boolean else None


def _ordered_type(dtype: pl.DataType) -> pl.DataType | None:
    return dtype if dtype.is_numeric() or dtype.is_temporal() or dtype in (pl.String, pl.Boolean, pl.Binary) else None


def _numeric(output: pl.DataType) -> Callable[[pl.DataType], pl.DataType | None]:
    return lambda dtype: output if dtype.is_numeric() else None


def _key(output: Callable[[pl.DataType], pl.DataType]) -> Callable[[pl.DataType], pl.DataType | None]:
    return lambda dtype: output(dtype) if is_key_type(dtype) else None


def _frequent_type(dtype: pl.DataType) -> pl.DataType:
    return pl.List(pl.Struct({"value": dtype, "count": pl.Int64()}))


_NUMBERS: Final = "numbers"
_KEYS: Final = "integers, strings, times, bools, bytes and decimals"
RULES: Final[Mapping[str, Rule]] = {
    "count": Rule(lambda _: pl.Int64(), "anything"),
    "sum": Rule(_sum_type, "numbers, bools and durations"),
    "mean": Rule(_mean_type, "numbers, bools and durations"),
    "min": Rule(_ordered_type, "numbers, strings, times, bools and bytes"),
    "max": Rule(_ordered_type, "numbers, strings, times, bools and bytes"),
    "var": Rule(_numeric(pl.Float64()), _NUMBERS),
    "std": Rule(_numeric(pl.Float64()), _NUMBERS),
    "first": Rule(lambda dtype: dtype, "anything", ordered=True),
    "last": Rule(lambda dtype: dtype, "anything", ordered=True),
    "count_distinct": Rule(_key(lambda _: pl.Int64()), _KEYS),
    "collect": Rule(lambda dtype: pl.List(dtype), "anything", ordered=True),
    "approx_distinct": Rule(_key(lambda _: pl.Int64()), _KEYS),
    "approx_quantile": Rule(_numeric(pl.Float64()), _NUMBERS),
    "approx_frequent": Rule(_key(_frequent_type), _KEYS),
}
