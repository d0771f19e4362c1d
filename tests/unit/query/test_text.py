"""Expressions as a person would write them, in explain and in messages (SC-3)."""

from __future__ import annotations

import polars as pl
import polars.selectors as cs
import pytest
from hypothesis import given
from hypothesis import strategies as some

from springtide.query.text import expr_text

x, y = pl.col("x"), pl.col("y")


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (x, "x"),
        (x.alias("x"), "x"),
        (x.alias("z"), "z = x"),
        (x + 1, "x + 1"),
        ((x + 1).alias("z"), "z = x + 1"),
        ((x + 1).alias("x"), "x = x + 1"),
        ((x + 1) * (y - 2), "(x + 1) * (y - 2)"),
        (((x + 1) * 2 - y) / 3, "(((x + 1) * 2) - y) / 3"),
        ((x > 1) & (y == "z"), '(x > 1) & (y == "z")'),
        (~(x > 1), "(x > 1).not()"),
        (x.abs(), "x.abs()"),
        ((x - y).abs() <= 10, "(x - y).abs() <= 10"),
        (x.cast(pl.Int32), "x.cast(Int32)"),
        (x.is_in([1, 2]), "x.is_in([1, 2])"),
        (x.is_between(1, y + 1), "x.is_between(1, (y + 1))"),
        (x.dt.truncate("1h"), 'x.dt.truncate("1h")'),
        (x.str.split(" ").list.get(0), 'x.str.split(" ").list.get(0)'),
        (pl.when(x > 1).then(y).otherwise(0), "when(x > 1).then(y).otherwise(0)"),
        (x.list.eval(pl.element() * 2), "x.list.eval(element() * 2)"),
        (x.sum().over("y"), "x.sum().over(y)"),
        (pl.sum_horizontal(x + 1, y), "(x + 1).sum_horizontal(y)"),
        (pl.lit("a b"), '"a b"'),
        (pl.lit(1.5), "1.5"),
        (pl.lit(None), "null"),
        (pl.lit(pl.Series([1])), "Series"),
        (pl.lit("a [(b) + (c)] d"), '"a [(b) + (c)] d"'),
        (x == "(", 'x == "("'),
        (cs.numeric() * 2, "cs.numeric() * 2"),
        (pl.all(), "cs.all()"),
    ],
)
def test_text(expr: pl.Expr, text: str) -> None:
    assert expr_text(expr) == text


words = some.text(alphabet="ab[](){}\"' \\,.:+-=\n", min_size=1, max_size=12)


@given(words, words, words)
def test_no_name_and_no_text_is_too_odd(name: str, text: str, alias: str) -> None:
    column = pl.col("x") if name == "*" else pl.col(name)
    for expr in (column, column + 1, (column == text) & ~(column == pl.lit(text)), column.str.split(text).list.len()):
        assert "\n" not in expr_text(expr)
        assert "\n" not in expr_text(expr.alias(alias)).replace(alias, "")
