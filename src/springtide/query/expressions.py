"""Polars expressions, resolved against a schema while the query is built."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import polars as pl
from polars.exceptions import ColumnNotFoundError, PolarsError

from springtide.query.errors import QueryError, nearest
from springtide.query.text import expr_text
from springtide.query.types import type_text

IntoExpr = pl.Expr | str | int | float | bool | datetime | timedelta | None
"""What Polars takes for an expression; a string is a column's name, as in Polars."""


def named(exprs: Sequence[IntoExpr], more: Mapping[str, IntoExpr]) -> tuple[pl.Expr, ...]:
    """Bring positional and named expressions into one tuple of expressions."""

    def as_expr(value: IntoExpr) -> pl.Expr:
        if isinstance(value, pl.Expr):
            return value
        return pl.col(value) if isinstance(value, str) else pl.lit(value)

    return tuple(as_expr(e) for e in exprs) + tuple(as_expr(e).alias(name) for name, e in more.items())


def resolve(step: str, schema: pl.Schema, exprs: Iterable[pl.Expr]) -> pl.Schema:
    """Find the names and types that row-wise expressions give on rows of `schema`."""
    exprs = tuple(exprs)
    result = _resolve(step, schema, exprs)
    for expr in exprs:
        _check_row_wise(step, schema, expr)
    return result


def resolve_scalars(step: str, schema: pl.Schema, exprs: Iterable[pl.Expr]) -> pl.Schema:
    """Find the names and types of expressions that fold all rows of a group into one value."""
    exprs = tuple(exprs)
    result = _resolve(step, schema, exprs)
    for expr in exprs:
        if _evaluate(_probe(schema), expr) not in (None, 1):
            raise QueryError(
                step,
                f"{_short(expr)} gives one value per row",
                "fold the group into one value, for example with .sum()",
            )
    return result


def check_predicate(step: str, schema: pl.Schema, predicate: pl.Expr) -> None:
    """Refuse a predicate that is not one truth value per row."""
    ((_, dtype),) = resolve(step, schema, [predicate.alias("predicate")]).items()
    if dtype != pl.Boolean:
        raise QueryError(
            step,
            f"the predicate {_short(predicate)} is {type_text(dtype)}, not bool",
            "compare it with something, for example `> 0`",
        )


def check_columns(step: str, schema: pl.Schema, names: Iterable[str]) -> None:
    """Refuse a column that is not there, naming the nearest one."""
    for name in names:
        if name not in schema:
            raise QueryError(step, f"there is no column {name!r}", nearest(name, schema))


def _resolve(step: str, schema: pl.Schema, exprs: tuple[pl.Expr, ...]) -> pl.Schema:
    try:
        return pl.LazyFrame(schema=schema).select(exprs).collect_schema()
    except ColumnNotFoundError as error:
        found = re.search(r'column "([^"]*)"', str(error))
        missing = found[1] if found else str(error).splitlines()[0]
        raise QueryError(step, f"there is no column {missing!r}", nearest(missing, schema)) from None
    except PolarsError as error:
        first = str(error).splitlines()[0]
        columns = ", ".join(
            f"{n} is {type_text(t)}" for n, t in schema.items() if any(n in e.meta.root_names() for e in exprs)
        )
        raise QueryError(step, first, f"here {columns}" if columns else "check the expression's types") from None


def _check_row_wise(step: str, schema: pl.Schema, expr: pl.Expr) -> None:
    """Refuse expressions whose value depends on other rows: their result would depend on how the input is cut."""
    probe = _probe(schema)
    whole = _evaluate_column(probe, expr)
    if whole is None:  # these made-up rows do not suit the expression: ask Polars instead
        row_wise = _row_separable(expr)
    elif expr.meta.is_literal() or (whole.len() == 1 != probe.height and not expr.meta.root_names()):
        row_wise = True
    else:
        parts = [_evaluate_column(probe[i], expr) for i in range(probe.height)]
        row_wise = (
            whole.len() == probe.height
            and all(part is not None and part.len() == 1 for part in parts)
            and pl.concat([p for p in parts if p is not None]).equals(whole)
        )
    if not row_wise:
        raise QueryError(
            step,
            f"{_short(expr)} looks at more than one row",
            "use an aggregate with a window, or an operator with state; a text that is parsed needs an explicit format",
        )


def _row_separable(expr: pl.Expr) -> bool:
    try:
        return expr.meta.is_row_separable()
    except PolarsError:  # Python functions inside: theirs is the duty
        return True


def _evaluate_column(frame: pl.DataFrame, expr: pl.Expr) -> pl.Series | None:
    try:
        return frame.select(expr.alias("_")).to_series()
    except (PolarsError, ArithmeticError, ValueError, TypeError):
        return None


def _evaluate(frame: pl.DataFrame, expr: pl.Expr) -> int | None:
    column = _evaluate_column(frame, expr)
    return None if column is None else column.len()


def _probe(schema: pl.Schema) -> pl.DataFrame:
    return pl.DataFrame(
        {name: pl.Series(name, _samples(dtype), dtype=dtype, strict=False) for name, dtype in schema.items()}
    )


def _samples(dtype: pl.DataType) -> list[Any]:
    if isinstance(dtype, pl.List):
        inner = dtype.inner
        one, two, *_ = _samples(inner if isinstance(inner, pl.DataType) else inner())
        return [[one, two], [two], [one], [one, two]]
    if isinstance(dtype, pl.Struct):
        columns = {f.name: _samples(f.dtype if isinstance(f.dtype, pl.DataType) else f.dtype()) for f in dtype.fields}
        return [{name: values[i] for name, values in columns.items()} for i in range(4)]
    if dtype == pl.Boolean:
        return [True, False, False, True]
    if dtype == pl.String:
        return ["b", "a", "cc", "b"]
    if dtype == pl.Binary:
        return [b"b", b"a", b"cc", b"b"]
    if isinstance(dtype, pl.Datetime):
        zone = UTC if dtype.time_zone else None
        return [datetime(2024, 2, day, tzinfo=zone) for day in (3, 1, 29, 3)]
    if dtype == pl.Date:
        return [date(2024, 2, day) for day in (3, 1, 29, 3)]
    if dtype == pl.Time:
        return [time(hour) for hour in (3, 1, 20, 3)]
    if isinstance(dtype, pl.Duration):
        return [timedelta(seconds=s) for s in (3, 1, 20, 3)]
    if dtype.is_numeric():
        return [3, 1, 20, 3]
    return [None] * 4


def _short(expr: pl.Expr) -> str:
    text = expr_text(expr.meta.undo_aliases())
    return text if len(text) <= 80 else text[:77] + "..."
