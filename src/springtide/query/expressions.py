"""Polars expressions, resolved against a schema while the query is built."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
from polars.exceptions import (
    ColumnNotFoundError,
    DuplicateError,
    PanicException,
    PolarsError,
    SchemaError,
    StructFieldNotFoundError,
)

from springtide.query.as_aggregate import as_aggregate
from springtide.query.errors import QueryError, brief, no_column, shown
from springtide.query.rowwise import calls_python, check_row_wise, evaluate, looks_at_several_rows, made_up, null_row
from springtide.query.spelling import spell_out
from springtide.query.types import type_text

IntoExpr = pl.Expr | str | int | float | bool | datetime | timedelta | None
"""What Polars accepts as an expression; a string is a column's name, as in Polars."""

_SEVERAL = (list, tuple, set, frozenset, range, dict, np.ndarray, pl.Series, pl.DataFrame, pl.LazyFrame)


def named(exprs: Sequence[IntoExpr], more: Mapping[str, IntoExpr], step: str = "(expression)") -> tuple[pl.Expr, ...]:
    """Return positional and named expressions as one tuple of expressions."""
    first = tuple(as_expr(step, e) for e in exprs)
    for given in exprs:
        if not isinstance(given, pl.Expr | str):
            raise QueryError(step, f"the constant {shown(given)} has no name", f"name it, as in x={shown(given)}")
    return first + tuple(as_expr(step, e).alias(name) for name, e in more.items())


def as_expr(step: str, value: Any) -> pl.Expr:
    """Return an expression for a column's name, an expression or a constant, and refuse everything else."""
    if isinstance(value, pl.Expr):
        return value
    if isinstance(value, str):
        return pl.col(value)
    hint = "write the name of a column or an expression, such as pl.col('x') + 1"
    if isinstance(value, list | tuple | set | frozenset):
        hint = "give names one by one, or unpacked: *names; a constant list is pl.lit([...])"
    elif type(value).__name__ == "Aggregate":
        hint = "aggregates go into .aggregate(by=..., window=..., n=st.count())"
    elif type(value).__name__ in ("When", "ChainedWhen"):
        hint = "end it with .then(...).otherwise(...)"
    elif callable(value):
        hint = "write an expression, such as pl.col('x') + 1; Python code goes into .map_elements or an operator"
    try:
        if not isinstance(value, _SEVERAL):
            return pl.lit(value)
    except (TypeError, ValueError, OverflowError, PolarsError):
        pass
    raise QueryError(step, f"{shown(value)} is not an expression", hint)


def resolve(step: str, schema: pl.Schema, exprs: Iterable[pl.Expr]) -> pl.Schema:
    """Return the names and types that row-wise expressions produce from rows of `schema`."""
    exprs = tuple(exprs)
    result = _resolve(step, schema, exprs)
    for expr in exprs:
        check_row_wise(step, schema, expr)
    return result


def resolve_scalars(step: str, schema: pl.Schema, exprs: Iterable[pl.Expr]) -> pl.Schema:
    """Return the names and types of expressions that fold all rows of a group into one value."""
    exprs = tuple(exprs)
    result = _resolve(step, schema, exprs)
    for expr in exprs:
        if not _is_scalar(schema, expr):
            raise QueryError(
                step,
                f"{brief(expr)} gives more than one value for a group",
                "fold the group into one value, for example with .sum()",
            )
    return result


def predicate_of(step: str, schema: pl.Schema, predicate: Any) -> pl.Expr:
    """Check a predicate, and return it with every column named."""
    if not isinstance(predicate, pl.Expr):
        hint = "write an expression, such as pl.col('x') > 1"
        if isinstance(predicate, str):
            hint += f", or pl.sql_expr({predicate!r})"
        raise QueryError(step, f"{shown(predicate)} is not a predicate", hint)
    spelled = spell_out(step, schema, [predicate])
    if len(spelled) != 1:
        problem = f"{brief(predicate)} gives {len(spelled)} truth values per row"
        raise QueryError(step, problem, "combine them: pl.all_horizontal(...) or pl.any_horizontal(...)")
    check_predicate(step, schema, spelled[0])
    return spelled[0]


def check_predicate(step: str, schema: pl.Schema, predicate: pl.Expr) -> None:
    """Refuse a predicate that does not give one truth value per row."""
    ((_, dtype),) = resolve(step, schema, [predicate.alias("predicate")]).items()
    if dtype != pl.Boolean:
        raise QueryError(
            step,
            f"the predicate {brief(predicate)} is {type_text(dtype)}, not bool",
            "compare it with something, for example `> 0`",
        )


def check_columns(step: str, schema: pl.Schema, names: Iterable[str]) -> None:
    """Refuse a column that does not exist, and name the nearest one that does."""
    for name in names:
        if not isinstance(name, str):
            raise QueryError(step, f"{shown(name)} is not the name of a column", name_hint(name))
        if name not in schema:
            raise no_column(step, name, schema)


def name_hint(value: Any) -> str:
    """Return what to write instead of something that is not a column's name."""
    if isinstance(value, pl.Expr):
        column = value.meta.output_name(raise_if_undetermined=False)
        if column is not None and value.meta.eq(pl.col(column)):
            return f"write {column!r}"
        if looks_at_several_rows(value):
            aggregate = as_aggregate(value) or "st.sum('x')"
            return f"aggregate with {aggregate}: n={aggregate}"
        return "make a column of it first, with .map(key=...), and write 'key'"
    if isinstance(value, list | tuple | set | frozenset):
        return "give the names one by one, or unpacked: *names"
    return "write the name of a column as a string"


def _resolve(step: str, schema: pl.Schema, exprs: tuple[pl.Expr, ...]) -> pl.Schema:
    try:
        result = pl.LazyFrame(schema=schema).select(exprs).collect_schema()
        _check_types(step, schema, exprs, result)
    except (PolarsError, PanicException) as error:
        raise _query_error(step, schema, exprs, error) from None
    return result


def _check_types(step: str, schema: pl.Schema, exprs: tuple[pl.Expr, ...], result: pl.Schema) -> None:
    """Evaluate on a row of nulls: only then does Polars notice `text > 1`; it notices a wrong `return_dtype` only on values."""
    row = null_row(schema)
    for expr in exprs:
        for frame in (row, made_up(schema)) if calls_python(expr) else (row,):
            try:
                found = evaluate(frame, expr).schema
            except SchemaError as error:
                if not calls_python(expr):
                    raise
                raise QueryError(
                    step, f"{brief(expr)}: {_first_line(error)}", "give the function's return_dtype="
                ) from None
            except (Exception, PanicException):
                if not calls_python(expr):
                    raise
                continue  # a function that cannot take made-up rows; rows like them may never come
            for name, dtype in found.items():
                if dtype != result[name]:
                    raise QueryError(
                        step,
                        f"{brief(expr)} should be {type_text(result[name])}, but the values are {type_text(dtype)}",
                        "cast its input or its result",
                    )


def _query_error(step: str, schema: pl.Schema, exprs: tuple[pl.Expr, ...], error: BaseException) -> QueryError:
    """Return an error of Polars in our own words where we have them."""
    first = _first_line(error)
    quoted = re.search(r"\"([^\"]*)\"|'([^']*)'", first)
    name = next((group for group in quoted.groups() if group is not None), first) if quoted else first
    if isinstance(error, ColumnNotFoundError):
        if any(c in name for c in " +*/<>=("):
            hint = f"to compute something write pl.col('x') * 2 or pl.sql_expr({name!r})"
            return QueryError(step, f"there is no column {name!r}", hint)
        return no_column(step, name, schema)
    if isinstance(error, DuplicateError):
        return QueryError(step, f"the column {name!r} is made twice", "give one of them another name with .alias(...)")
    if isinstance(error, StructFieldNotFoundError):
        first = f"there is no field {name!r}"
    roots = {root for expr in exprs for root in expr.meta.root_names()}
    columns = ", ".join(f"{n} is {type_text(t)}" for n, t in schema.items() if n in roots)
    return QueryError(step, first, f"check the types: {columns}" if columns else "check the types in the expression")


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(":;. ")


def _is_scalar(schema: pl.Schema, expr: pl.Expr) -> bool:
    try:
        return expr.meta.is_scalar()
    except (PolarsError, PanicException):  # a Python function: try it
        try:
            return evaluate(made_up(schema), expr).height == 1
        except (Exception, PanicException):
            return True
