"""Aggregate functions as partial results: add tuples, merge partials, finish.

A partial result is one row per group with a few columns per aggregate, named `<number>.<part>`; a user's own aggregate is one
struct column `<number>.user`. All work is done by Polars, on whole columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from springtide.kernels import quantiles, sketches
from springtide.kernels.order import ORDER
from springtide.query.aggregates import BoundAggregate

ROWS = "__rows"
"""Hidden in every partial result: how many tuples are in it."""
_GROUP = "__group"


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
        plain = {f"{i}": a for i, a in enumerate(aggregates) if a.aggregate.user is None}
        self._users = {f"{i}.user": a for i, a in enumerate(aggregates) if a.aggregate.user is not None}
        self._recipes = {number: _recipe(number, a, order) for number, a in plain.items()}
        rows = _Part(ROWS, pl.len().cast(pl.Int64), pl.col(ROWS).sum())
        self._parts = [rows, *(p for r in self._recipes.values() for p in r.parts)]
        self._names = [a.name for a in aggregates]
        self.ordered = any(a.traits.ordered for a in aggregates)
        """Tuples must carry their place in the total order."""
        self.columns = [p.name for p in self._parts] + list(self._users)
        """The names of the partial columns."""
        self.additive = not self._users and all(r.additive for r in self._recipes.values())
        """Every partial column is an integer that is merged by adding: a pane can be taken out again."""

    def add(self, tuples: pl.LazyFrame, groups: Sequence[str | pl.Expr]) -> pl.LazyFrame:
        """Fold tuples into one partial row per group."""
        result = tuples.group_by(groups, maintain_order=bool(self._users)).agg(
            [p.add.alias(p.name) for p in self._parts]
        )
        for name, aggregate in self._users.items():
            user = aggregate.aggregate.user
            assert user is not None
            parts = pl.struct([user.add[c].alias(c) for c in aggregate.partial]).alias(name)
            own = tuples.group_by(groups, maintain_order=True).agg(parts).select(name)
            result = pl.concat([result, own], how="horizontal")
        return result

    def merge(self, rows: pl.LazyFrame, groups: Sequence[str | pl.Expr]) -> pl.LazyFrame:
        """Fold partial rows into one per group."""
        result = rows.group_by(groups, maintain_order=bool(self._users)).agg(
            [p.merge.alias(p.name) for p in self._parts]
        )
        # A user's partials have names of their own choice, which may be those of keys.
        own = [(pl.col(g) if isinstance(g, str) else g).alias(f"{_GROUP}{i}") for i, g in enumerate(groups)]
        for name, aggregate in self._users.items():
            user = aggregate.aggregate.user
            assert user is not None
            bare = rows.select([*own, pl.col(name).struct.unnest()])
            parts = pl.struct([user.merge[c].alias(c) for c in aggregate.partial]).alias(name)
            merged = bare.group_by(pl.col(f"^{_GROUP}.*$"), maintain_order=True).agg(parts).select(name)
            result = pl.concat([result, merged], how="horizontal")
        return result

    def finish(self, rows: pl.LazyFrame, keep: Sequence[str | pl.Expr]) -> pl.LazyFrame:
        """Turn partial rows into the aggregates' values; `keep` names other columns that stay."""
        values = [r.finish for r in self._recipes.values()]
        result = rows.select([*keep, *values])
        for name, aggregate in self._users.items():
            user = aggregate.aggregate.user
            assert user is not None
            value = rows.select(pl.col(name).struct.unnest()).select(user.finish.alias(aggregate.name))
            result = pl.concat([result, value], how="horizontal")
        kept = [k if isinstance(k, str) else k.meta.output_name() for k in keep]
        return result.select([*kept, *self._names]) if self._users else result


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


def _sketch(
    number: str,
    aggregate: BoundAggregate,
    x: pl.Expr,
    add: Callable[[pl.Series], bytes],
    merge: Callable[[pl.Series], bytes],
    finish: Callable[[bytes], object],
) -> _Recipe:
    """Keep the bytes of a sketch."""
    b = f"{number}.b"

    def folded(values: pl.Expr, fold: Callable[[pl.Series], bytes]) -> pl.Expr:
        def one(series: pl.Series) -> pl.Series:
            return pl.Series([fold(series)], dtype=pl.Binary)

        return values.map_batches(one, return_dtype=pl.Binary, returns_scalar=True)

    def asked(sketches: pl.Series) -> pl.Series:
        return pl.Series([finish(sketch) for sketch in sketches], dtype=aggregate.output_type)

    value = pl.col(b).map_batches(asked, return_dtype=aggregate.output_type, is_elementwise=True)
    return _Recipe((_Part(b, folded(x, add), folded(pl.col(b), merge)),), value.alias(aggregate.name))


def _approx_distinct(number: str, aggregate: BoundAggregate, x: pl.Expr) -> _Recipe:
    k = dict(aggregate.aggregate.options)["k"]
    return _sketch(number, aggregate, x, sketches.distinct_add(k), sketches.distinct_merge(k), sketches.distinct_finish)


def _approx_quantile(number: str, aggregate: BoundAggregate, x: pl.Expr) -> _Recipe:
    options = dict(aggregate.aggregate.options)
    add, merge = quantiles.quantile_add(options["k"]), quantiles.quantile_merge(options["k"])
    return _sketch(number, aggregate, x, add, merge, quantiles.quantile_finish(options["q"]))


def _approx_frequent(number: str, aggregate: BoundAggregate, x: pl.Expr) -> _Recipe:
    options = dict(aggregate.aggregate.options)
    assert isinstance(aggregate.output_type, pl.List)
    fields = aggregate.output_type.inner.fields  # type: ignore[union-attr]
    schema = pl.Schema({f.name: f.dtype for f in fields[:-1]})
    add, merge = sketches.heavy_add(options["map_size"]), sketches.heavy_merge(options["map_size"])
    return _sketch(number, aggregate, x, add, merge, sketches.heavy_finish(schema, options["n"], fields[-1].name))


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
    "approx_quantile": _approx_quantile,
    "approx_frequent": _approx_frequent,
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
