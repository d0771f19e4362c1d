"""Joins by any predicate: in a grid, broadcast, or as the compiler likes; over time or over the last n; predicates of every kind."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import polars as pl

import springtide as st


def make(maker: Any, pool: list[Any], made: Any) -> Any:
    """Join with a stream of the pool, or with itself."""
    r = maker.random
    by_count = r.random() < 0.4
    other = made if r.random() < 0.3 else r.choice(pool)
    left, right = made, other
    if "_" in maker.numbers:
        return None
    maker.fresh("_")  # no other join: pairs of pairs are many, and the reference asks the predicate of each
    options: dict[str, Any] = {
        "within": st.last_n(r.choice([1, 2, 3, 10])) if by_count else _length(maker),
        "routing": r.choice([None, "broadcast"] if by_count else [None, "broadcast", "grid", "grid"]),
        "suffix": maker.fresh("_"),
    }
    all_pairs = left.stream.theta_join(right.stream, pl.lit(True), **options)
    renamed = dict(all_pairs.step.right_columns)
    joined = type(left)(all_pairs)
    mine, theirs = left.columns(), [renamed[n] for n in right.columns()]
    predicate = _predicate(maker, joined, mine, theirs)
    return type(left)(left.stream.theta_join(right.stream, predicate, **options))


def _length(maker: Any) -> timedelta:
    units = maker.random.choice([0, 1, 1, 2, 5, 20])
    return timedelta(microseconds=units * maker.random.choice([maker.unit, max(1, maker.unit // 3)]))


def _predicate(maker: Any, joined: Any, left: list[str], right: list[str], depth: int = 2) -> pl.Expr:
    """Join comparisons with and, or, not; now and then in a way that nobody sees through."""
    r = maker.random
    if depth == 0 or r.random() < 0.3:
        return _comparison(maker, joined, left, right)
    parts = [_predicate(maker, joined, left, right, depth - 1) for _ in range(r.choice([2, 2, 3]))]
    match r.randrange(7):
        case 0 | 1 | 2:
            return pl.all_horizontal(parts) if r.random() < 0.2 else parts[0] & parts[1]
        case 3 | 4:
            return pl.any_horizontal(parts) if r.random() < 0.2 else parts[0] | parts[1]
        case 5:
            return ~parts[0]
    return pl.when(parts[0]).then(parts[1]).otherwise(parts[-1])


def _comparison(maker: Any, joined: Any, left: list[str], right: list[str]) -> pl.Expr:
    r, schema = maker.random, joined.stream.schema
    two = [(a, b) for a in left for b in right if _alike(schema[a], schema[b])]
    if not two or r.random() < 0.15:
        return maker.predicate(joined)
    name, other = r.choice(two)
    a, b, dtype = pl.col(name), pl.col(other), schema[name]
    if r.random() < 0.3:
        a, b = b, a
    options = [a == b, a != b]
    if not isinstance(dtype, pl.List):
        options += [a <= b, a < b, a >= b, a.eq_missing(b)]
    if dtype.is_numeric() and not dtype.is_decimal():
        c = r.choice([0, 1, 3, 100])
        near = (a - b).abs()
        options += [near <= c, near < c, near > c, c >= near, a.is_between(b - c, b + c), a - c < b, a + b <= c]
        less = b - a if schema[name].is_unsigned_integer() and schema[other].is_unsigned_integer() else -(a - b)
        options += [less < c + a, a * b > c, near <= b, ~a.is_between(b - c, b + c)]
    elif isinstance(dtype, pl.Duration | pl.Datetime):
        c = timedelta(microseconds=r.choice([0, 1, 10**6, 10**11]))
        options += [(a - b).abs() <= c, a + c > b, a.is_between(b - c, b + c)]
        if isinstance(dtype, pl.Datetime):
            options += [a <= pl.col("ts"), b - pl.col("ts") < c]
    elif dtype == pl.String:
        options += [(a + b).str.contains("A|a"), a.str.len_bytes() <= b.str.len_bytes()]
    return r.choice(options)


def _alike(one: pl.DataType, other: pl.DataType) -> bool:
    """Tell whether values can be compared: of one type, or numbers of two."""
    numbers = [t.is_numeric() and not t.is_decimal() for t in (one, other)]
    return one == other or all(numbers)
