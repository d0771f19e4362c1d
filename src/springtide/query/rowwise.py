"""Does an expression's value for a row depend on that row alone?

If not, the result would depend on how the input is cut. Polars is asked about every part of the expression. Where it does
not know (Python functions, `list.eval`, literal Series), the expression is tried on made-up rows, both all at once and one by one.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final

import polars as pl
from polars.exceptions import PanicException, PolarsError, ShapeError

from springtide.query.errors import QueryError, brief
from springtide.query.types import instance

_HINTS: Final = (
    (".explode(", "use the step .explode(column)"),
    (".filter(", "use the step .filter(predicate)"),
    (".drop_nulls(", "use the step .filter(predicate)"),
    (".str.strptime(", "give the format, which Polars otherwise guesses from other rows: .str.to_datetime('%Y-%m-%d')"),
    (".over(", "use an aggregate with a window and join its result, or use an operator with state"),
    ("Series", "use pl.lit(value) for one value, .is_in(list) for several, or a join for a stream of values"),
)
_HINT: Final = "use an aggregate with a window, or an operator with state"
_COLUMN_WISE: Final = (".fold(", ".reduce(", ".cum_fold(", ".cum_reduce(")


def check_row_wise(step: str, schema: pl.Schema, expr: pl.Expr) -> None:
    """Refuse an expression whose value depends on other rows."""
    unknown = False
    for part in _parts(expr):
        answer = _row_wise(part)
        if answer is False:
            whole = "" if brief(part) == brief(expr) else f", in {brief(expr)}"
            raise QueryError(step, f"{brief(part)} looks at more than one row{whole}", _hint(part))
        unknown |= answer is None
    if unknown and not _same_one_by_one(schema, expr):
        raise QueryError(step, f"{brief(expr)} gives other values when it is computed row by row", _hint(expr))


def looks_at_several_rows(expr: pl.Expr) -> bool:
    """Return whether Polars says that an expression's value depends on other rows."""
    return any(_row_wise(part) is False for part in _parts(expr))


def calls_python(expr: pl.Expr) -> bool:
    """Return whether the expression calls Python functions."""
    return "python_udf(" in str(expr)


def null_row(schema: pl.Schema) -> pl.DataFrame:
    """Return one row of nulls: enough to see whether types fit, with no value to fail on."""
    return pl.DataFrame({name: pl.Series(name, [None], dtype=dtype) for name, dtype in schema.items()})


def evaluate(frame: pl.DataFrame, expr: pl.Expr) -> pl.DataFrame:
    """Return an expression's values, without the warnings that the user sees anyway when the query runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return frame.select(expr)


def made_up(schema: pl.Schema) -> pl.DataFrame:
    """Return some made-up rows: different ones, a repeated one and, at the end, one of nulls."""
    return pl.DataFrame([_column(name, dtype) for name, dtype in schema.items()])


def _parts(expr: pl.Expr) -> Iterator[pl.Expr]:
    """Return the expression and all of its parts that see the rows (those inside `list.eval` see a list)."""
    todo = [expr]
    while todo:
        part = todo.pop()
        yield part
        todo.extend(inner for inner in part.meta.pop() if "element()" not in str(inner))


def _row_wise(part: pl.Expr) -> bool | None:
    """Return what Polars says about the outermost function; None if it does not know."""
    if part.meta.is_literal():
        return True if part.meta.is_scalar() else None
    try:
        separable, same_length = part.meta.is_row_separable(), part.meta.is_length_preserving()
    except (PolarsError, PanicException):
        return None
    if not separable and any(word in str(part) for word in _COLUMN_WISE):
        return None
    return separable and (same_length or not part.meta.root_names())


def _same_one_by_one(schema: pl.Schema, expr: pl.Expr) -> bool:
    """Return whether rows give the same values all at once as one by one; true if it cannot be tried."""
    if not expr.meta.root_names() and not expr.meta.has_multiple_outputs():
        return expr.meta.is_scalar()
    rows = made_up(schema)
    for frame in (rows, rows[:-1]):  # a Python function may not accept nulls
        try:
            whole = evaluate(frame, expr)
        except ShapeError:
            return False
        except (Exception, PanicException):
            continue
        try:
            parts = [evaluate(frame[i], expr) for i in range(frame.height)]
        except (Exception, PanicException):
            return False
        return all(part.height == 1 for part in parts) and pl.concat(parts).equals(whole)
    return True


def _hint(expr: pl.Expr) -> str:
    text = str(expr)
    return next((hint for word, hint in _HINTS if word in text), _HINT)


def _column(name: str, dtype: pl.DataType) -> pl.Series:
    values = _samples(dtype)
    try:
        return pl.Series(name, [*values, values[0], None], dtype=dtype, strict=False)
    except (TypeError, ValueError, OverflowError, PolarsError):
        return pl.Series(name, [None] * 5, dtype=dtype)


def _samples(dtype: pl.DataType) -> list[Any]:
    """Return three sample values of a type, or nulls if we have none."""
    if isinstance(dtype, pl.List):
        one, two, _ = _samples(instance(dtype.inner))
        return [[one, two, one], [two], []]
    if isinstance(dtype, pl.Array):
        one, two, three = _samples(instance(dtype.inner))
        return [[value] * dtype.size for value in (one, two, three)]
    if isinstance(dtype, pl.Struct) and dtype.fields:
        columns = {f.name: _samples(instance(f.dtype)) for f in dtype.fields}
        return [{name: values[i] for name, values in columns.items()} for i in range(3)]
    if isinstance(dtype, pl.Enum):
        return (list(dtype.categories) * 3)[:3] or [None] * 3
    if isinstance(dtype, pl.Datetime):
        return [datetime(2024, 2, d, d, 1, d, 7, tzinfo=UTC if dtype.time_zone else None) for d in (3, 1, 20)]
    if isinstance(dtype, pl.Duration):
        return [timedelta(seconds=s, microseconds=7) for s in (3, 1, 20)]
    for kind, values in _VALUES:
        if dtype == kind:
            return list(values)
    return [3, 1, 20] if dtype.is_numeric() else [None] * 3


_VALUES: Final[tuple[tuple[Any, tuple[Any, ...]], ...]] = (
    (pl.Boolean, (True, False, False)),
    (pl.String, ("b", "a", "cc")),
    (pl.Categorical, ("b", "a", "cc")),
    (pl.Binary, (b"b", b"a", b"cc")),
    (pl.Date, (date(2024, 2, 3), date(2024, 2, 1), date(2024, 2, 20))),
    (pl.Time, (time(3, 1), time(1, 3), time(20, 7))),
)
