"""The aggregate functions by name: which types each takes and gives, and what may be done with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from springtide.query.types import is_key_type


@dataclass(frozen=True)
class Rule:
    """What is true of a function wherever it is used; `Traits` says what is true of one use."""

    output: Callable[[pl.DataType], pl.DataType | None]
    """The type of the result, by the type of the input; None where it cannot take that."""
    takes: str
    """What it can take, for people."""
    combines: bool = True
    invertible: bool = False
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
    "count": Rule(lambda _: pl.Int64(), "anything", invertible=True),
    "sum": Rule(_sum_type, "numbers, bools and durations", invertible=True),
    "mean": Rule(_mean_type, "numbers, bools and durations", invertible=True),
    "min": Rule(_ordered_type, "numbers, strings, times, bools and bytes"),
    "max": Rule(_ordered_type, "numbers, strings, times, bools and bytes"),
    "var": Rule(_numeric(pl.Float64()), _NUMBERS, invertible=True),
    "std": Rule(_numeric(pl.Float64()), _NUMBERS, invertible=True),
    "first": Rule(lambda dtype: dtype, "anything", ordered=True),
    "last": Rule(lambda dtype: dtype, "anything", ordered=True),
    "count_distinct": Rule(_key(lambda _: pl.Int64()), _KEYS),
    "collect": Rule(lambda dtype: pl.List(dtype), "anything", combines=False, ordered=True),
    "approx_distinct": Rule(_key(lambda _: pl.Int64()), _KEYS),
    "approx_quantile": Rule(_numeric(pl.Float64()), _NUMBERS),
    "approx_frequent": Rule(_key(_frequent_type), _KEYS),
}
