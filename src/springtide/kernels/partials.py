"""Aggregate functions as partial results: add tuples, merge partials, finish.

A partial result is one row per group with a few columns per aggregate, named `<number>.<part>`. All work is done by Polars, on whole columns:
by an expression per column where that does it (`_Recipe`), otherwise on frames (`Fold`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from springtide.kernels import sketches
from springtide.kernels.folds import Fold, Groups, UserFold, names_of
from springtide.kernels.order import ORDER
from springtide.query.aggregates import BoundAggregate

ROWS = "__rows"
"""Hidden in every partial result: how many tuples are in it."""


@dataclass(frozen=True)
class _Part:
    """One partial column: how it comes from tuples, and from other partial results."""

    name: str
    add: pl.Expr
    merge: pl.Expr


@dataclass(frozen=True)
class _Recipe:
    """One aggregate: its partial columns and how its value comes from them."""

    parts: tuple[_Part, ...]
    finish: pl.Expr
    additive: bool = False


class Partials:
    """The partial results of all aggregates of a step."""

    def __init__(self, aggregates: Sequence[BoundAggregate], order: Sequence[str] = ORDER) -> None:
        """Work out the partial columns; `order` names the columns of the tuples that tell which one comes first."""
        numbered = {str(i): a for i, a in enumerate(aggregates)}
        self._folds = [
            _FOLDS[a.aggregate.function](n, a) for n, a in numbered.items() if a.aggregate.function in _FOLDS
        ]
        self._recipes = [_recipe(n, a, order) for n, a in numbered.items() if a.aggregate.function not in _FOLDS]
        rows = _Part(ROWS, pl.len().cast(pl.Int64), pl.col(ROWS).sum())
        self._parts = [rows, *(p for r in self._recipes for p in r.parts)]
        self._names = [a.name for a in aggregates]
        self.ordered = any(a.traits.ordered for a in aggregates)
        """Tuples must carry their place in the total order."""
        self.columns = [p.name for p in self._parts] + [c for f in self._folds for c in f.columns]
        """The names of the partial columns."""
        self.additive = not self._folds and all(r.additive for r in self._recipes)
        """Every partial column is an integer that is merged by adding: a pane can be taken out again."""

    def add(self, tuples: pl.LazyFrame, groups: Groups) -> pl.LazyFrame:
        """Fold tuples into one partial row per group."""
        parts = [p.add.alias(p.name) for p in self._parts]
        plain = tuples.group_by(groups, maintain_order=bool(self._folds)).agg(parts)
        return _side_by_side(plain, [fold.add(tuples, groups) for fold in self._folds])

    def merge(self, rows: pl.LazyFrame, groups: Groups) -> pl.LazyFrame:
        """Fold partial rows into one per group."""
        parts = [p.merge.alias(p.name) for p in self._parts]
        plain = rows.group_by(groups, maintain_order=bool(self._folds)).agg(parts)
        others = [c for c in rows.collect_schema() if c not in self.columns] if self._folds else []
        return _side_by_side(plain, [f.merge(rows.select(*others, *f.columns), groups) for f in self._folds])

    def finish(self, rows: pl.LazyFrame, keep: Groups) -> pl.LazyFrame:
        """Turn partial rows into the aggregates' values; `keep` names other columns that stay."""
        plain = rows.select([*keep, *(r.finish for r in self._recipes)])
        if not self._folds:
            return plain
        values = [fold.finish(rows.select(fold.columns)) for fold in self._folds]
        return _side_by_side(plain, values).select([*names_of(keep), *self._names])


def _side_by_side(first: pl.LazyFrame, others: Sequence[pl.LazyFrame]) -> pl.LazyFrame:
    return pl.concat([first, *others], how="horizontal") if others else first


def _recipe(number: str, aggregate: BoundAggregate, order: Sequence[str]) -> _Recipe:
    x, name = aggregate.aggregate.input, aggregate.name
    if x is None:
        n = f"{number}.n"
        return _Recipe((_Part(n, pl.len().cast(pl.Int64), pl.col(n).sum()),), pl.col(n).alias(name), additive=True)
    function = aggregate.aggregate.function
    if aggregate.traits.ordered:
        return _ORDERED[function](number, aggregate, x, order)
    return _RECIPES[function](number, aggregate, x)


def _count(number: str, aggregate: BoundAggregate, x: pl.Expr) -> _Recipe:
    n = f"{number}.n"
    return _Recipe(
        (_Part(n, x.count().cast(pl.Int64), pl.col(n).sum()),), pl.col(n).alias(aggregate.name), additive=True
    )


def _sum(number: str, aggregate: BoundAggregate, x: pl.Expr) -> _Recipe:
    s = f"{number}.s"
    part = _Part(s, x.cast(_sum_type(aggregate)).sum(), pl.col(s).sum())
    return _Recipe((part,), pl.col(s).cast(aggregate.output_type).alias(aggregate.name), additive=_exact(aggregate))


def _mean(number: str, aggregate: BoundAggregate, x: pl.Expr) -> _Recipe:
    s, n = f"{number}.s", f"{number}.n"
    some = pl.col(n) > 0
    if isinstance(aggregate.output_type, pl.Duration):  # cut towards zero, in whole numbers
        size = pl.col(s).abs() // pl.when(some).then(pl.col(n))
        value = pl.when(pl.col(s) < 0).then(-size).otherwise(size).cast(aggregate.output_type)
    else:
        value = pl.when(some).then(pl.col(s).cast(pl.Float64) / pl.col(n).cast(pl.Float64))
    parts = (
        _Part(s, x.cast(_sum_type(aggregate)).sum(), pl.col(s).sum()),
        _Part(n, x.count().cast(pl.Int64), pl.col(n).sum()),
    )
    return _Recipe(parts, value.alias(aggregate.name), additive=_exact(aggregate))


def _extreme(number: str, aggregate: BoundAggregate, x: pl.Expr) -> _Recipe:
    m = f"{number}.m"
    best = pl.Expr.min if aggregate.aggregate.function == "min" else pl.Expr.max
    return _Recipe((_Part(m, best(x), best(pl.col(m))),), pl.col(m).alias(aggregate.name))


def _spread(number: str, aggregate: BoundAggregate, x: pl.Expr) -> _Recipe:
    """Keep count, mean and sum of squared distances: they merge without cancellation (Chan et al.)."""
    n, m, q = (f"{number}.{part}" for part in "nmq")
    values = x.cast(pl.Float64).drop_nulls()
    count, mean = pl.col(n), pl.col(m)
    merged = pl.when(count.sum() > 0).then((count * mean).sum() / count.sum()).otherwise(0.0)
    parts = (
        _Part(n, values.len().cast(pl.Int64), count.sum()),
        _Part(m, values.mean().fill_null(0.0), merged),
        _Part(q, ((values - values.mean()) ** 2).sum(), pl.col(q).sum() + (count * (mean - merged) ** 2).sum()),
    )
    variance = pl.when(count > 1).then(pl.col(q) / (count - 1))
    value = variance.sqrt() if aggregate.aggregate.function == "std" else variance
    return _Recipe(parts, value.alias(aggregate.name))


def _edge(number: str, aggregate: BoundAggregate, x: pl.Expr, order: Sequence[str]) -> _Recipe:
    """Keep the value with the smallest or largest place in the total order beside its place."""
    v = f"{number}.v"

    def keep(pairs: pl.Expr) -> pl.Expr:
        return pairs.sort().first() if aggregate.aggregate.function == "first" else pairs.sort().last()

    pairs = pl.struct(*order, x.alias("value"))
    return _Recipe((_Part(v, keep(pairs), keep(pl.col(v))),), pl.col(v).struct.field("value").alias(aggregate.name))


def _distinct(number: str, aggregate: BoundAggregate, x: pl.Expr) -> _Recipe:
    d = f"{number}.d"
    merged = pl.col(d).explode().drop_nulls().unique().implode()
    return _Recipe(
        (_Part(d, x.drop_nulls().unique().implode(), merged),),
        pl.col(d).list.len().cast(pl.Int64).alias(aggregate.name),
    )


def _collect(number: str, aggregate: BoundAggregate, x: pl.Expr, order: Sequence[str]) -> _Recipe:
    c = f"{number}.c"
    part = _Part(c, pl.struct(*order, x.alias("value")).implode(), pl.col(c).explode().implode())
    return _Recipe((part,), pl.col(c).list.sort().list.eval(pl.element().struct.field("value")).alias(aggregate.name))


def _approx_distinct(number: str, aggregate: BoundAggregate, x: pl.Expr) -> _Recipe:
    d, k = f"{number}.d", aggregate.aggregate.options["k"]
    part = _Part(d, sketches.smallest_hashes(x, k), sketches.merged_hashes(pl.col(d), k))
    return _Recipe((part,), sketches.estimated_distinct(pl.col(d), k).alias(aggregate.name))


_RECIPES: dict[str, Callable[[str, BoundAggregate, pl.Expr], _Recipe]] = {
    "count": _count,
    "sum": _sum,
    "mean": _mean,
    "min": _extreme,
    "max": _extreme,
    "var": _spread,
    "std": _spread,
    "count_distinct": _distinct,
    "approx_distinct": _approx_distinct,
}
_FOLDS: dict[str, Callable[[str, BoundAggregate], Fold]] = {
    "user_aggregate": UserFold,
    "approx_quantile": sketches.QuantileFold,
    "approx_frequent": sketches.FrequentFold,
}
_ORDERED: dict[str, Callable[[str, BoundAggregate, pl.Expr, Sequence[str]], _Recipe]] = {
    "first": _edge,
    "last": _edge,
    "collect": _collect,
}


def _exact(aggregate: BoundAggregate) -> bool:
    dtype = aggregate.input_type
    return dtype is not None and (dtype.is_integer() or isinstance(dtype, pl.Duration) or dtype == pl.Boolean)


def _sum_type(aggregate: BoundAggregate) -> pl.DataType:
    """Add up in 64 bits, durations as integers of their unit."""
    dtype = aggregate.input_type
    assert dtype is not None
    if dtype.is_unsigned_integer():
        return pl.UInt64()
    if _exact(aggregate):
        return pl.Int64()
    return pl.Decimal(38, dtype.scale) if isinstance(dtype, pl.Decimal) else pl.Float64()
