"""Aggregate functions: what they take, what they return, and what the compiler may do with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
import polars as pl

from springtide.query.errors import QueryError, brief, nearest, shown
from springtide.query.expressions import IntoExpr, as_expr, resolve, resolve_scalars
from springtide.query.functions import RULES, Function
from springtide.query.habits import AGGREGATE, unknown
from springtide.query.spelling import spell_out
from springtide.query.text import expr_text
from springtide.query.types import type_text, whole
from springtide.query.usage import usage

INPUT: Final = "_input"

_PLAIN: Final = (bool, int, float, str, bytes, Decimal, date, time, timedelta, list, dict, np.generic, type(None))
"""The types of values that a partial result may start from."""


@dataclass(frozen=True)
class Traits:
    """What the compiler needs to know about a function."""

    ordered: bool
    """The result depends on the total order of the tuples."""


@dataclass(frozen=True, eq=False)
class UserFunction:
    """A user's own aggregate: four parts, each an expression over columns."""

    init: Mapping[str, Any]
    add: Mapping[str, pl.Expr]
    merge: Mapping[str, pl.Expr]
    finish: pl.Expr


@dataclass(frozen=True, eq=False)
class Aggregate:
    """One aggregate of a query, not yet bound to a schema."""

    function: str
    input: pl.Expr | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    user: UserFunction | None = None
    definition: Function | None = None
    """What it does, if it is not one of the built-in functions."""

    def bind(self, step: str, name: str, schema: pl.Schema) -> BoundAggregate:
        """Resolve types against the aggregate's input."""
        where = f"{step}, aggregate {name!r}"
        if self.user is not None:
            return _bind_user(where, name, self, self.user, schema)
        if self.definition is None and self.function not in RULES:
            raise QueryError(where, f"there is no aggregate {self.function!r}", nearest(self.function, RULES))
        rule = self.definition or RULES[self.function]
        if self.input is None:
            if self.function != "count":
                raise QueryError(where, f"{self.function} needs a column", f"write st.{self.function}('x')")
            return BoundAggregate(name, self, None, pl.Int64(), pl.Schema(), Traits(ordered=False))
        column = _one(where, schema, self.function, self.input)
        dtype = resolve(where, schema, [column.alias(INPUT)])[INPUT]
        if self.function == "count" and dtype == pl.Boolean and not column.meta.is_column():
            hint = "to count the rows where a condition holds, use st.sum(condition); st.count('x') counts the values that are not null"
            raise QueryError(where, f"count({brief(column)}) also counts the rows where it is false", hint)
        output = rule.output(dtype)
        if output is None:
            raise QueryError(
                where,
                f"{self.function} cannot take {type_text(dtype)}",
                f"it takes {rule.takes}; cast the column first",
            )
        traits = Traits(not isinstance(rule, Function) and rule.ordered)
        return BoundAggregate(name, replace(self, input=column), dtype, output, pl.Schema(), traits)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Refuse attributes that an aggregate does not have, and say what to write instead."""
            if name not in AGGREGATE:
                raise AttributeError(f"an aggregate has no {name!r}")
            raise unknown(f"({self.function})", name, AGGREGATE, ())

    def _compute(self, *_: object) -> NoReturn:
        """Refuse `st.sum("x") / st.count()`: a window's results can only be computed with in the next step."""
        hint = "name it, and compute in the next step: .aggregate(..., n=st.count()).map(half=pl.col('n') / 2)"
        raise QueryError(f"({self.function})", "an aggregate is not a number to compute with", hint)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _compute
    __floordiv__ = __mod__ = __pow__ = __neg__ = __round__ = __lt__ = __le__ = __gt__ = __ge__ = _compute

    def __str__(self) -> str:
        """Return it as the user wrote it."""
        names = [] if self.input is None else [expr_text(self.input.meta.undo_aliases())]
        return f"{self.function}({', '.join(names + [f'{k}={v}' for k, v in self.options.items()])})"


@dataclass(frozen=True, eq=False)
class BoundAggregate:
    """One aggregate of a step, with its types and traits."""

    name: str
    aggregate: Aggregate
    input_type: pl.DataType | None
    output_type: pl.DataType
    partial: pl.Schema
    """The columns of a user function's partial result."""
    traits: Traits

    def __str__(self) -> str:
        """Return it as the user wrote it."""
        return f"{self.name}={self.aggregate}"


def overflow_text(aggregate: BoundAggregate, total: int | Decimal) -> str:
    """Return the reason why a group is rejected: a sum does not fit its type."""
    number = f"{total:f}" if isinstance(total, Decimal) else f"{total}"
    return f"{aggregate} is {number}, which does not fit {type_text(aggregate.output_type)}"


@usage("st.count(), or st.count('x') for one column")
def count(column: IntoExpr = None) -> Aggregate:
    """Count the tuples of a window, or those whose `column` is not null.

    >>> print(st.count(), st.count("dst"))
    count() count(dst)
    """
    return Aggregate("count") if column is None else _over("count", column)


@usage("st.sum('x')")
def sum(column: IntoExpr) -> Aggregate:
    """Add up the values, exactly; nulls are skipped, and the sum of no values is 0.

    Floats are rounded once, at the end. A group whose sum of integers does not fit into 64 bits goes to `.rejected` of the step.

    >>> print(st.sum("bytes"))
    sum(bytes)
    """
    return _over("sum", column)


@usage("st.mean('x')")
def mean(column: IntoExpr) -> Aggregate:
    """Take the mean of the values that are not null.

    >>> print(st.mean("duration"))
    mean(duration)
    """
    return _over("mean", column)


@usage("st.min('x')")
def min(column: IntoExpr) -> Aggregate:
    """Take the smallest value; nulls are skipped, and so are NaNs unless there is nothing else.

    >>> print(st.min("duration"))
    min(duration)
    """
    return _over("min", column)


@usage("st.max('x')")
def max(column: IntoExpr) -> Aggregate:
    """Take the largest value; nulls are skipped, and so are NaNs unless there is nothing else.

    >>> print(st.max("duration"))
    max(duration)
    """
    return _over("max", column)


@usage("st.var('x')")
def var(column: IntoExpr) -> Aggregate:
    """Take the sample variance (n - 1); null for fewer than two values.

    >>> print(st.var("duration"))
    var(duration)
    """
    return _over("var", column)


@usage("st.std('x')")
def std(column: IntoExpr) -> Aggregate:
    """Take the sample standard deviation (n - 1); null for fewer than two values.

    >>> print(st.std("duration"))
    std(duration)
    """
    return _over("std", column)


@usage("st.first('x')")
def first(column: IntoExpr) -> Aggregate:
    """Take the value of the first tuple in the total order, null or not.

    >>> print(st.first("page"))
    first(page)
    """
    return _over("first", column)


@usage("st.last('x')")
def last(column: IntoExpr) -> Aggregate:
    """Take the value of the last tuple in the total order, null or not.

    >>> print(st.last("page"))
    last(page)
    """
    return _over("last", column)


@usage("st.count_distinct('x')")
def count_distinct(column: IntoExpr) -> Aggregate:
    """Count the distinct values that are not null, exactly.

    >>> print(st.count_distinct("user"))
    count_distinct(user)
    """
    return _over("count_distinct", column)


@usage("st.collect('x')")
def collect(column: IntoExpr) -> Aggregate:
    """Gather all values into a list, in the total order.

    >>> print(st.collect("page"))
    collect(page)
    """
    return _over("collect", column)


@usage("st.approx_distinct('x')")
def approx_distinct(column: IntoExpr, *, k: int = 4096) -> Aggregate:
    """Estimate the number of distinct values with a theta sketch of `k` entries, a power of two; exact up to `k` values.

    >>> print(st.approx_distinct("user"))
    approx_distinct(user, k=4096)
    """
    return _over("approx_distinct", column, k=_power("approx_distinct", "k", k, 32, 2**26))


@usage("st.approx_quantile('x', 0.99)")
def approx_quantile(column: IntoExpr, q: float, *, k: int = 200) -> Aggregate:
    """Estimate the `q`-quantile from the counts of at most `k` buckets; exact up to `k` distinct values.

    >>> print(st.approx_quantile("latency", 0.99))
    approx_quantile(latency, q=0.99, k=200)
    """
    return _over(
        "approx_quantile",
        column,
        q=float(_within("approx_quantile", "q", q, 0, 1)),
        k=_within("approx_quantile", "k", whole("(approx_quantile)", "k", k), 8, 65535),
    )


@usage("st.approx_frequent('x', 10)")
def approx_frequent(column: IntoExpr, n: int, *, map_size: int = 1024) -> Aggregate:
    """Estimate the `n` most frequent values with a frequent-items sketch of `map_size`, a power of two, as a list of (value, count).

    Exact for up to 3/4 of `map_size` distinct values; beyond that, estimates depend on how the input was cut (docs/semantics.md says by how much).

    >>> print(st.approx_frequent("page", 3))
    approx_frequent(page, n=3, map_size=1024)
    """
    map_size = _power("approx_frequent", "map_size", map_size, 8, 2**26)
    n = _within("approx_frequent", "n", whole("(approx_frequent)", "n", n), 1, map_size)
    return _over("approx_frequent", column, n=n, map_size=map_size)


def defined(name: str, definition: Function, column: IntoExpr) -> Aggregate:
    """Make an aggregate from a function with its own definition; `name` is the name that people see.

    >>> from springtide.query.functions import Function, Partial
    >>> span = Function(
    ...     output=lambda dtype: dtype if dtype.is_integer() else None,
    ...     takes="integers",
    ...     partials=lambda x: {"low": Partial(x.min(), pl.Expr.min), "high": Partial(x.max(), pl.Expr.max)},
    ...     finish=lambda part: part["high"] - part["low"],
    ...     meaning=lambda values: max(values) - min(values) if values else None,
    ... )
    >>> print(defined("span", span, "x"))
    span(x)
    """
    return Aggregate(name, as_expr(f"({name})", column), definition=definition)


@usage(
    "st.user_aggregate(init={'n': 0}, add={'n': pl.col('x').sum()}, merge={'n': pl.col('n').sum()}, finish=pl.col('n'))"
)
def user_aggregate(
    *,
    init: Mapping[str, Any],
    add: Mapping[str, pl.Expr],
    merge: Mapping[str, pl.Expr],
    finish: pl.Expr,
) -> Aggregate:
    """Define your own aggregate in four parts, each of which works on columns.

    `init` is the partial result of no tuples; `add` folds tuples into a partial result; `merge` folds partial results
    into one; `finish` turns a partial result into the value. The order of tuples must not matter.

    >>> geometric_mean = st.user_aggregate(
    ...     init={"n": 0, "logs": 0.0},
    ...     add={"n": pl.len().cast(pl.Int64), "logs": pl.col("x").log().sum()},
    ...     merge={"n": pl.col("n").sum(), "logs": pl.col("logs").sum()},
    ...     finish=(pl.col("logs") / pl.col("n")).exp(),
    ... )
    >>> print(geometric_mean)
    user_aggregate()
    """
    label = "(user_aggregate)"
    for part, given in (("init", init), ("add", add), ("merge", merge)):
        if not isinstance(given, Mapping) or not given:
            raise QueryError(label, f"{part}={shown(given)} names no columns", f"write {part}={{'n': ...}}")
    for part, value in [
        *(("add", e) for e in add.values()),
        *(("merge", e) for e in merge.values()),
        ("finish", finish),
    ]:
        if not isinstance(value, pl.Expr):
            raise QueryError(
                label, f"{part}: {shown(value)} is not an expression", "write for example pl.col('x').sum()"
            )
    return Aggregate("user_aggregate", user=UserFunction(init, add, merge, finish))


def _over(function: str, column: IntoExpr, **options: Any) -> Aggregate:
    return Aggregate(function, as_expr(f"({function})", column), options)


def _one(where: str, schema: pl.Schema, function: str, expr: pl.Expr) -> pl.Expr:
    spelled = spell_out(where, schema, [expr])
    if len(spelled) != 1:
        hint = "st.count() counts tuples" if function == "count" else "write one aggregate for each column"
        raise QueryError(where, f"{function} takes one column, but {brief(expr)} stands for {len(spelled)}", hint)
    return spelled[0]


def _within(function: str, option: str, value: Any, low: float, high: float) -> Any:
    try:
        fits = bool(low <= value <= high)
    except (TypeError, ValueError):
        fits = False
    if not fits:
        problem = f"{option}={shown(value)} is out of range"
        raise QueryError(f"({function})", problem, f"give a number from {low} to {high}")
    return value


def _power(function: str, option: str, value: Any, low: int, high: int) -> int:
    size = whole(f"({function})", option, value)
    if not low <= size <= high or size & (size - 1):
        problem = f"{option}={size} is not a valid size for a sketch"
        raise QueryError(f"({function})", problem, f"give a power of two from {low} to {high}")
    return size


def _bind_user(where: str, name: str, aggregate: Aggregate, user: UserFunction, schema: pl.Schema) -> BoundAggregate:
    if set(user.init) != set(user.add) or set(user.init) != set(user.merge):
        raise QueryError(
            where,
            "init, add and merge name different columns",
            "give all three the same names: those of the columns of a partial result",
        )
    add = {n: _one(f"{where}, add", schema, f"add of {n!r}", e) for n, e in user.add.items()}
    partial = resolve_scalars(f"{where}, add", schema, [e.alias(n) for n, e in add.items()])
    merge = {n: _one(f"{where}, merge", partial, f"merge of {n!r}", user.merge[n]) for n in partial}
    merged = resolve_scalars(f"{where}, merge", partial, [e.alias(n) for n, e in merge.items()])
    for column, dtype in partial.items():
        if merged[column] != dtype:
            raise QueryError(
                f"{where}, merge",
                f"merge makes {column!r} {type_text(merged[column])}, but add makes it {type_text(dtype)}",
                "cast one of them: merged results are merged again",
            )
        if not _is_value(user.init[column], dtype):
            problem = f"{column!r} = {shown(user.init[column])} is not {type_text(dtype)}"
            raise QueryError(f"{where}, init", problem, "give a value of that type")
    finish = _one(f"{where}, finish", partial, "finish", user.finish)
    output = resolve(f"{where}, finish", partial, [finish.alias(INPUT)])[INPUT]
    aggregate = replace(aggregate, user=UserFunction(user.init, add, merge, finish))
    traits = Traits(ordered=False)
    return BoundAggregate(name, aggregate, None, output, partial, traits)


def _is_value(value: Any, dtype: pl.DataType) -> bool:
    if not isinstance(value, _PLAIN):
        return False
    try:
        pl.Series([value], dtype=dtype, strict=True)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        return False
    return True
