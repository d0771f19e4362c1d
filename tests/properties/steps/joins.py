"""Joins by keys: of two streams or of one with itself, over time or over the last n, inner and left, with and without a predicate."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import polars as pl

import springtide as st

MOST = 2
"""Joins in one query: pairs of pairs of pairs are many."""


def make(maker: Any, pool: list[Any], made: Any) -> Any:
    """Join with a stream of the pool; None where no columns can be keys."""
    r = maker.random
    by_count = r.random() < 0.4
    other = made if r.random() < 0.3 else r.choice(pool)
    left, right = made, other
    keys = _keys(left, right)
    if not keys or maker.numbers.get("_", 0) >= MOST:
        return None
    pairs = r.sample(keys, min(len(keys), r.choice([1, 1, 1, 2])))
    if len({a for a, _ in pairs}) < len(pairs) or len({b for _, b in pairs}) < len(pairs):
        pairs = pairs[:1]
    options: dict[str, Any] = {
        "left_on": [a for a, _ in pairs],
        "right_on": [b for _, b in pairs],
        "within": st.last_n(r.choice([1, 1, 2, 3, 10])) if by_count else _length(maker),
        "how": r.choice(["inner", "left"]),
        "suffix": maker.fresh("_"),
    }
    joined = _made(maker, left, right, **options)
    if r.random() < 0.5:
        joined = _made(maker, left, right, **options, where=_predicate(maker, joined))
    return joined


def _keys(left: Any, right: Any) -> list[tuple[str, str]]:
    """Find columns of the same type; those with the same name come first and often."""
    fits = [
        (a, b)
        for a in left.columns(_is_key)
        for b in right.columns(_is_key)
        if left.stream.schema[a] == right.stream.schema[b]
    ]
    return [(a, b) for a, b in fits if a == b] * 3 + fits


def _is_key(dtype: pl.DataType) -> bool:
    return dtype.is_integer() or dtype.is_temporal() or dtype.is_decimal() or dtype in (pl.String, pl.Boolean)


def _length(maker: Any) -> timedelta:
    units = maker.random.choice([0, 1, 1, 2, 5, 20])
    return timedelta(microseconds=units * maker.random.choice([maker.unit, max(1, maker.unit // 3)]))


def _made(maker: Any, left: Any, right: Any, **options: Any) -> Any:
    stream = left.stream.join(right.stream, **options)
    return type(left)(stream)


def _predicate(maker: Any, joined: Any) -> pl.Expr:
    """Ask for something of one side, of both, or of several columns; null is not true."""
    r, schema = maker.random, joined.stream.schema
    exact = joined.columns(lambda t: t.is_integer() or t == pl.String)
    two = [(a, b) for a in exact for b in exact if a != b and schema[a] == schema[b]]
    parts = [maker.predicate(joined)]
    if two:
        a, b = r.choice(two)
        parts += [pl.col(a) <= pl.col(b), pl.col(a) != pl.col(b)]
    chosen = r.sample(parts, r.randint(1, len(parts)))
    return (
        chosen[0]
        if len(chosen) == 1
        else r.choice([pl.all_horizontal(chosen), chosen[0] & chosen[1], chosen[0] | chosen[1]])
    )
