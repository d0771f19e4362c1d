"""Which aggregate of Springtide means the same as an aggregating expression of Polars."""

from __future__ import annotations

from typing import Final

import polars as pl

from springtide.query.rowwise import looks_at_several_rows

_SAME: Final = {
    "sum": "sum",
    "mean": "mean",
    "min": "min",
    "max": "max",
    "std": "std",
    "var": "var",
    "first": "first",
    "last": "last",
    "count": "count",
    "n_unique": "count_distinct",
    "approx_n_unique": "approx_distinct",
    "implode": "collect",
}
"""Method of an expression → aggregate."""


def as_aggregate(expr: pl.Expr) -> str | None:
    """Return how to write an expression over several rows as an aggregate; None if no aggregate means the same.

    >>> as_aggregate(pl.col("price").sum()), as_aggregate((pl.col("price") * 2).max()), as_aggregate(pl.len())
    ("st.sum('price')", 'st.max(...)', 'st.count()')
    >>> as_aggregate(pl.col("price").round()) is as_aggregate(pl.col("price").shift()) is None
    True
    """
    expr = expr.meta.undo_aliases()
    if not looks_at_several_rows(expr):
        return None
    parts = expr.meta.pop()
    if not parts and str(expr) == "len()":
        return "st.count()"
    if len(parts) != 1:
        return None
    part, text = parts[0], str(expr)
    same = _SAME.get(text[len(str(part)) + 1 :].partition("(")[0]) if text.startswith(f"{part}.") else None
    name = part.meta.output_name(raise_if_undetermined=False)
    column = repr(name) if name is not None and part.meta.eq(pl.col(name)) else "..."
    return same and f"st.{same}({column})"
