"""Aggregate functions over the plain values of a window, in the total order."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, Final

import polars as pl

from springtide.query.aggregates import BoundAggregate
from springtide.runtime.reference import sketches

Values = list[Any]


def apply(bound: BoundAggregate, values: Values) -> Any:
    """Return one aggregate of the values of its input column, including nulls."""
    if bound.aggregate.definition is None and bound.aggregate.function in _OVER_ALL:
        return _OVER_ALL[bound.aggregate.function](values)
    present = [v for v in values if v is not None]
    if bound.aggregate.definition is not None:
        return bound.aggregate.definition.meaning(present)
    return _OVER_PRESENT[bound.aggregate.function](present, bound)


def fits(bound: BoundAggregate, value: Any) -> bool:
    """Return whether a value fits the aggregate's type; a sum of integers or decimals may be too large."""
    dtype = bound.output_type
    if bound.aggregate.definition is not None or bound.aggregate.function != "sum" or dtype.is_float():
        return True
    if isinstance(dtype, pl.Decimal):
        return bool(abs(value) < Decimal(10) ** (38 - dtype.scale))
    least, greatest = (0, 2**64 - 1) if dtype.is_unsigned_integer() else (-(2**63), 2**63 - 1)
    return bool(least <= value <= greatest)


def bounded(total: int) -> int:
    """Return the nearest 64-bit integer.

    >>> bounded(2**63), bounded(-5)
    (9223372036854775807, -5)
    """
    return min(max(total, -(2**63)), 2**63 - 1)


def add_up(values: Sequence[Any]) -> Any:
    """Return the sum of numbers, without rounding in between.

    >>> add_up([1e100, 1.0, -1e100])
    1.0
    """
    if values and isinstance(values[0], float):
        return _float_sum(values)
    with localcontext(prec=200):  # a sum of decimals is exact too
        return sum(values)


def _float_sum(values: Sequence[float]) -> float:
    special = {v for v in values if not math.isfinite(v)}
    if special:  # NaN, or infinities that cancel each other
        return special.pop() if len(special) == 1 else math.nan
    try:
        return math.fsum(values)
    except OverflowError:  # in between, or in the result
        return _as_float(sum(map(Fraction, values)))


def _as_float(exact: Fraction | int | float | Decimal) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _sum(values: Values, bound: BoundAggregate) -> Any:
    dtype = bound.output_type
    if isinstance(dtype, pl.Decimal):
        return add_up([Decimal(0), *values])
    if dtype.is_float():
        return add_up([0.0, *values])
    return add_up(values)


def _mean(values: Values, bound: BoundAggregate) -> Any:
    if not values:
        return None
    total = add_up(values)
    if isinstance(bound.output_type, pl.Duration):
        return abs(total) // len(values) * (1 if total > 0 else -1)
    return _as_float(total) / len(values)


def _extreme(pick: Callable[[Values], Any]) -> Callable[[Values, BoundAggregate], Any]:
    def of(values: Values, _: BoundAggregate) -> Any:
        numbers = [v for v in values if v == v]  # NaN is not equal to itself
        return pick(numbers or values) if values else None

    return of


def _var(values: Values, _: BoundAggregate) -> float | None:
    values = [float(v) for v in values]
    if len(values) < 2:
        return None
    if not all(math.isfinite(v) for v in values):
        return math.nan
    exact = [Fraction(v) for v in values]
    mean = sum(exact) / len(exact)
    return _as_float(sum((v - mean) ** 2 for v in exact) / (len(exact) - 1))


def _std(values: Values, bound: BoundAggregate) -> float | None:
    var = _var(values, bound)
    return None if var is None else math.sqrt(var)


_OVER_ALL: Final[Mapping[str, Callable[[Values], Any]]] = {
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    "collect": lambda values: values,
}
_OVER_PRESENT: Final[Mapping[str, Callable[[Values, BoundAggregate], Any]]] = {
    "count": lambda values, _: len(values),
    "sum": _sum,
    "mean": _mean,
    "min": _extreme(min),
    "max": _extreme(max),
    "var": _var,
    "std": _std,
    "count_distinct": lambda values, _: len(set(values)),
    "approx_distinct": lambda values, bound: sketches.distinct(values, bound.input_type, **bound.aggregate.options),
    "approx_quantile": lambda values, bound: sketches.quantile(values, **bound.aggregate.options),
    "approx_frequent": lambda values, bound: sketches.frequent(values, **bound.aggregate.options),
}
