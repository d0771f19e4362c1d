"""A user's expressions, evaluated on one row."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from springtide.query.errors import UserCodeError
from springtide.query.plurals import plural
from springtide.query.types import schema_text
from springtide.values.user_code import row_of


def evaluate(
    label: str, frame: pl.DataFrame, exprs: Sequence[pl.Expr], schema: pl.Schema | None = None
) -> pl.DataFrame:
    """Evaluate expressions on a frame, and check that one row of the promised columns comes out."""
    try:
        out = frame.select(exprs)
    except Exception as error:
        problem = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        raise UserCodeError(
            label, problem, "filter such rows out before, or write the expression so that it gives null", row_of(frame)
        ) from error
    if out.height != 1:
        raise UserCodeError(
            label, f"the expression makes {plural(out.height, 'row')} of one", "give one value per row", row_of(frame)
        )
    if schema is not None and out.schema != schema:
        problem = f"the expression gives {schema_text(out.schema)}, the query says {schema_text(schema)}"
        raise UserCodeError(label, problem, "cast to the type that is wanted, or give return_dtype", row_of(frame))
    return out


def holds(label: str, frame: pl.DataFrame, predicate: pl.Expr) -> bool:
    """Return whether a predicate is true for a row; null is not true."""
    return evaluate(label, frame, [predicate.alias("holds")]).to_series().to_list()[0] is True
