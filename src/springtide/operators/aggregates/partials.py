"""Aggregate functions as partial results: add tuples, merge partials, finish.

A partial result is one row per group with a few columns per aggregate, named `<number>.<part>`; a user's own aggregate is one
struct column `<number>.user`. Polars does all the work, on whole columns. Sums are exact (`digits`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from springtide.exchange.order import ORDER
from springtide.operators.aggregates import quantiles, sketches, sums
from springtide.operators.aggregates.digits import PLACES, REST, FloatScale, carry, placed, split
from springtide.operators.aggregates.sums import ExactSum, gathered, spread_out, squares_of, sum_of, taken_in
from springtide.query import steps
from springtide.query.aggregates import BoundAggregate, UserFunction
from springtide.query.functions import Function

ROWS = "__rows"
"""Hidden in every partial result: the number of tuples in it."""
WHY = "__why"
"""Why a row of results is rejected, where that can happen; usually null."""
_GROUP = "__group"
_LONG = 10_000
"""Rows that a group has on average if it is worth looking at groups one by one."""


@dataclass(frozen=True)
class _Part:
    """One partial column: how it is made from tuples, and from other partial results."""

    name: str
    add: pl.Expr
    merge: pl.Expr


@dataclass(frozen=True)
class _Recipe:
    """One aggregate: its partial columns and how its value is computed from them."""

    parts: tuple[_Part, ...]
    finish: pl.Expr
    sums: tuple[ExactSum, ...] = ()
    """Exact sums among the partial columns."""
    reason: pl.Expr | None = None
    """Why there is no value, null where there is one; None if there always is one."""
    additive: bool = False


class Partials:
    """The partial results of all aggregates of a step."""

    def __init__(self, aggregates: Sequence[BoundAggregate], order: Sequence[str] = ORDER) -> None:
        """Work out the partial columns; `order` names the columns that decide which tuple comes first."""
        plain = {f"{i}": a for i, a in enumerate(aggregates) if a.aggregate.user is None}
        self._users = {f"{i}.user": a for i, a in enumerate(aggregates) if a.aggregate.user is not None}
        self._recipes = {number: _recipe(number, a, order) for number, a in plain.items()}
        exact = [s for r in self._recipes.values() for s in r.sums]
        rows = _Part(ROWS, pl.len().cast(pl.Int64), pl.col(ROWS).sum())
        digits = [
            _Part(c, s.digit(p).sum(), pl.col(c).sum()) for s in exact if not s.split for p, c in s.columns.items()
        ]
        self._parts = [rows, *(p for r in self._recipes.values() for p in r.parts), *digits]
        self._floats = [s for s in exact if s.split]
        self._carries = [e for s in exact if len(s.places) > 1 for e in carry(s.columns)]
        self._names = [a.name for a in aggregates]
        self.ordered = any(a.traits.ordered for a in aggregates)
        """Tuples must carry their place in the total order."""
        self.columns = (
            [p.name for p in self._parts] + [c for s in self._floats for c in s.all_columns] + list(self._users)
        )
        """The names of the partial columns."""
        self.additive = not self._users and all(r.additive for r in self._recipes.values())
        """Every partial column is an integer (or digits elsewhere) that is merged by adding, so that a pane can be subtracted again."""
        self.additive_now = self.additive and not all(_was_additive(a) for a in aggregates)
        """Whether older versions did not add them up as integers."""
        self._sums = exact
        self._reasons = [r.reason for r in self._recipes.values() if r.reason is not None]
        self.hidden = [WHY] if self._reasons else []
        """The column that `finish` adds to the values: why a row has none."""

    def add(self, tuples: pl.LazyFrame, groups: Sequence[str | pl.Expr]) -> pl.LazyFrame:
        """Fold tuples into one partial row per group."""
        parts = [p.add.alias(p.name) for p in self._parts]
        own = [self._added(name, aggregate) for name, aggregate in self._users.items()]
        if own and len(groups) == 1 and not self._floats:
            return _by_runs(tuples, groups[0], [*parts, *own])
        if not self._floats:
            return tuples.group_by(groups, maintain_order=bool(own)).agg(*parts, *own)
        result = self._folded(tuples, groups, parts, self._add_floats)
        if own:
            added = tuples.group_by(groups, maintain_order=True).agg(own).select(self._users.keys())
            result = pl.concat([result, added], how="horizontal")
        return result

    @staticmethod
    def _added(name: str, aggregate: BoundAggregate) -> pl.Expr:
        """Return what user code makes of the tuples of a group."""
        user = aggregate.aggregate.user
        assert user is not None
        return pl.struct([user.add[c].alias(c) for c in aggregate.partial]).alias(name)

    def merge(self, rows: pl.LazyFrame, groups: Sequence[str | pl.Expr]) -> pl.LazyFrame:
        """Fold partial rows into one per group."""
        parts = [p.merge.alias(p.name) for p in self._parts]
        if self._floats:
            result = self._folded(rows, groups, parts, self._merge_floats)
        else:
            result = rows.group_by(groups, maintain_order=bool(self._users)).agg(parts)
        result = result.with_columns(self._carries) if self._carries else result
        # A user's partials have names that the user chose, which may clash with those of keys.
        own = [(pl.col(g) if isinstance(g, str) else g).alias(f"{_GROUP}{i}") for i, g in enumerate(groups)]
        for name, aggregate in self._users.items():
            user = aggregate.aggregate.user
            assert user is not None
            bare = rows.select([*own, pl.col(name).struct.unnest()])
            folded = pl.struct([user.merge[c].alias(c) for c in aggregate.partial]).alias(name)
            merged = bare.group_by(pl.col(f"^{_GROUP}.*$"), maintain_order=True).agg(folded).select(name)
            result = pl.concat([result, merged], how="horizontal")
        return result

    def finish(self, rows: pl.LazyFrame, keep: Sequence[str | pl.Expr]) -> pl.LazyFrame:
        """Turn partial rows into the aggregates' values; `keep` names other columns to keep."""
        values = [r.finish for r in self._recipes.values()]
        why = [pl.coalesce(self._reasons).alias(WHY)] if self._reasons else []
        result = rows.select([*keep, *values, *why])
        for name, aggregate in self._users.items():
            user = aggregate.aggregate.user
            assert user is not None
            value = _with_init(rows.select(pl.col(name).struct.unnest()), aggregate, user)
            result = pl.concat([result, value.select(user.finish.alias(aggregate.name))], how="horizontal")
        kept = [k if isinstance(k, str) else k.meta.output_name() for k in keep]
        return result.select([*kept, *self._names, *self.hidden]) if self._users else result

    # ── sums of floats ────────────────────────────────────────────────────────────────────────────────────────────

    def _folded(
        self,
        rows: pl.LazyFrame,
        groups: Sequence[str | pl.Expr],
        parts: Sequence[pl.Expr],
        fold: Callable[[pl.DataFrame, list[str], Sequence[pl.Expr]], pl.DataFrame],
    ) -> pl.LazyFrame:
        """Fold rows with a function that sees all of them: only then is it known which digits there are."""
        names = [g if isinstance(g, str) else g.meta.output_name() for g in groups]
        ready = rows.with_columns([g for g in groups if not isinstance(g, str)])
        present, wanted = ready.collect_schema(), [*parts, *(s.input for s in self._floats)]
        used = [
            *names,
            *(n for e in wanted for n in e.meta.root_names()),
            *(c for s in self._floats for c in s.all_columns),
        ]
        ready = ready.select([n for n in dict.fromkeys(used) if n in present])
        given = ready.group_by(names).agg(parts).collect_schema()
        exact = {c: REST if c == s.rest else pl.Int64() for s in self._floats for c in s.all_columns}
        schema = pl.Schema({**{n: given[n] for n in names}, **{p.name: given[p.name] for p in self._parts}, **exact})
        return ready.map_batches(
            lambda frame: fold(frame, names, parts).select(schema.names()),
            predicate_pushdown=False,
            projection_pushdown=False,
            slice_pushdown=False,
            schema=schema,
        )

    def _add_floats(self, tuples: pl.DataFrame, names: list[str], parts: Sequence[pl.Expr]) -> pl.DataFrame:
        inputs = tuples.select([s.input.fill_null(0.0).alias(f"__{s.prefix}") for s in self._floats])
        scales = {s.prefix: _scale_of(s, inputs[f"__{s.prefix}"]) for s in self._floats}
        frame = tuples.hstack(inputs)
        if all(scales.values()):
            found = self._add_scaled(frame, names, parts, {n: scale for n, scale in scales.items() if scale})
            if found is not None:
                return found
        return self._add_split(frame, names, parts)

    def _add_scaled(
        self, tuples: pl.DataFrame, names: list[str], parts: Sequence[pl.Expr], scales: dict[str, FloatScale]
    ) -> pl.DataFrame | None:
        """Add floats up as whole numbers of two units, and turn the sums into digits; None if some have lower bits."""
        coarse, fine, left = ({n: f"__{n}{part}" for n in scales} for part in ("coarse", "fine", "left"))
        rows = tuples.lazy().with_columns([s.coarse(pl.col(f"__{n}")).alias(coarse[n]) for n, s in scales.items()])
        rows = rows.with_columns(
            [s.left(pl.col(f"__{n}"), pl.col(coarse[n])).alias(left[n]) for n, s in scales.items()]
        )
        frame = rows.with_columns([pl.col(left[n]).cast(pl.Int64).alias(fine[n]) for n in scales]).collect()
        if any((frame[left[n]] != frame[fine[n]]).any() for n in scales):
            return None
        grouped = frame.lazy().group_by(names, maintain_order=bool(self._users))
        result = grouped.agg([*parts, *(pl.col(c).sum() for c in (*coarse.values(), *fine.values()))]).collect()
        for s in self._floats:
            scale = scales[s.prefix]
            result = result.with_columns(
                s.series(
                    [
                        placed(result[coarse[s.prefix]].to_numpy(), scale.first),
                        placed(result[fine[s.prefix]].to_numpy(), scale.second),
                    ],
                    result.height,
                )
            )
        return self._with_rests(result, names, {})

    def _add_split(self, tuples: pl.DataFrame, names: list[str], parts: Sequence[pl.Expr]) -> pl.DataFrame:
        """Add floats up digit by digit, for any bits that they may have."""
        found = {}
        for s in self._floats:
            assert s.split is not None
            found[s.prefix] = s.split(tuples[f"__{s.prefix}"].to_numpy())
        dense = {s.columns[p]: d for s in self._floats for p, d in found[s.prefix].dense.items()}
        frame = tuples.with_columns([pl.Series(f"__{name}", digits) for name, digits in dense.items()])
        grouped = frame.lazy().group_by(names, maintain_order=bool(self._users))
        result = grouped.agg([*parts, *(pl.col(f"__{name}").sum().alias(name) for name in dense)]).collect()
        none = [c for s in self._floats for c in s.columns.values() if c not in dense]
        result = result.with_columns([pl.lit(0, dtype=pl.Int64).alias(c) for c in none])
        rests = {s.rest: r for s in self._floats if (r := found[s.prefix].rest) is not None}
        return self._with_rests(
            result, names, {c: tuples[names][r["row"].to_numpy()].hstack(r.drop("row")) for c, r in rests.items()}
        )

    def _merge_floats(self, rows: pl.DataFrame, names: list[str], parts: Sequence[pl.Expr]) -> pl.DataFrame:
        digits = [pl.col(c).sum() for s in self._floats for c in s.columns.values()]
        grouped = rows.lazy().group_by(names, maintain_order=bool(self._users))
        result = grouped.agg([*parts, *digits]).collect()
        some = [s.rest for s in self._floats if rows[s.rest].null_count() < rows.height]
        rests = {c: rows.select(*names, c).filter(pl.col(c).is_not_null()).explode(c).unnest(c) for c in some}
        return self._with_rests(result, names, rests)

    def _with_rests(self, result: pl.DataFrame, names: list[str], rests: dict[str, pl.DataFrame]) -> pl.DataFrame:
        for s in self._floats:
            if s.rest in rests:
                rest = gathered(rests[s.rest], names, s.rest)
                result = result.join(rest, on=names, how="left", nulls_equal=True, maintain_order="left")
            else:
                result = result.with_columns(pl.lit(None, dtype=REST).alias(s.rest))
        return result

    def adapted(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Convert partial rows of an older version, which had a single column for a sum, to digits."""
        for s in self._sums:
            if s.columns[s.places[0]] in rows.columns:
                continue
            count, mean = (f"{s.prefix.partition('.')[0]}.{part}" for part in "nm")
            if mean in rows.columns and s.split is not None:  # a mean and squared distances from it
                rows = rows.with_columns(sums.from_spread(s, rows, count, mean))
            elif s.prefix in rows.columns:
                rows = rows.with_columns(sums.from_column(s, rows)).drop(s.prefix)
        old = [f"{s.prefix.partition('.')[0]}.{part}" for s in self._floats for part in "mq"]
        return rows.drop([c for c in old if c in rows.columns and c not in self.columns])

    def spread_out(self, rows: pl.DataFrame) -> dict[str, np.ndarray]:
        """Return additive partial rows as plain integers, with a column for each digit elsewhere that any row has."""
        rests = [s.rest for s in self._floats]
        found = {c: rows[c].to_numpy() for c in self.columns if c not in rests}
        for rest in rests:
            found |= spread_out(rows, rest)
        return found

    def taken_in(self, columns: dict[str, pl.Series]) -> list[pl.Series]:
        """Undo `spread_out`."""
        rests = [s.rest for s in self._floats]
        height = columns[ROWS].len()
        return [
            taken_in(c, {n: s for n, s in columns.items() if n.startswith(f"{c}@")}, height)
            if c in rests
            else columns[c].alias(c)
            for c in self.columns
        ]


def divided(step: steps.Aggregate, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Return the rows that are results, and those that are rejected with their reason, for the side output of their step (None if there are none)."""
    if WHY not in rows.columns:
        return rows, None
    good = rows.drop(WHY)
    if rows[WHY].null_count() == rows.height:
        return good, None
    bad = rows[WHY].is_not_null()
    wrong = rows.filter(bad).with_columns(pl.col(WHY).alias(steps.REASON))
    return good.filter(~bad), wrong.select(step.rejected.names())


def _by_runs(tuples: pl.LazyFrame, group: str | pl.Expr, exprs: Sequence[pl.Expr]) -> pl.LazyFrame:
    """Fold tuples group by group if each group is one long run of them, as windows are in a stream in the order of time: what users write costs half as much there."""
    name = group if isinstance(group, str) else group.meta.output_name()
    ready = tuples if isinstance(group, str) else tuples.with_columns(group)
    used = dict.fromkeys([name, *(n for e in exprs for n in e.meta.root_names())])
    ready = ready.select(list(used))
    schema = ready.group_by(name).agg(exprs).collect_schema()

    def fold(frame: pl.DataFrame) -> pl.DataFrame:
        runs = frame[name].rle().struct.unnest() if frame.height >= _LONG else None
        if runs is None or runs.height * _LONG > frame.height or runs["value"].n_unique() < runs.height:
            return frame.group_by(name, maintain_order=True).agg(exprs)
        starts = runs["len"].cum_sum() - runs["len"]
        parts = [frame[start : start + n].select(exprs) for start, n in zip(starts, runs["len"], strict=True)]
        return pl.concat(parts).select(runs["value"].alias(name), pl.all()).cast(schema)

    return ready.map_batches(
        fold, predicate_pushdown=False, projection_pushdown=False, slice_pushdown=False, schema=schema
    )


def _scale_of(exact: ExactSum, values: pl.Series) -> FloatScale | None:
    """Return units in which floats can be added up; squares have too many bits."""
    return FloatScale.of(values) if exact.split is split else None


def _with_init(partials: pl.LazyFrame, aggregate: BoundAggregate, user: UserFunction) -> pl.LazyFrame:
    """Merge each of a user's partial results with the initial one."""
    rows = partials.select(list(aggregate.partial)).with_row_index(_GROUP)
    init = rows.select(_GROUP, *(pl.lit(user.init[n], dtype=t).alias(n) for n, t in aggregate.partial.items()))
    merged = [user.merge[n].alias(n) for n in aggregate.partial]
    return pl.concat([init, rows]).group_by(_GROUP, maintain_order=True).agg(merged)


def _recipe(number: str, aggregate: BoundAggregate, order: Sequence[str]) -> _Recipe:
    x, name = aggregate.aggregate.input, aggregate.name
    if x is None:
        n = f"{number}.n"
        return _Recipe((_Part(n, pl.len().cast(pl.Int64), pl.col(n).sum()),), pl.col(n).alias(name), additive=True)
    if (definition := aggregate.aggregate.definition) is not None:
        return _defined(number, aggregate, definition, x)
    function = aggregate.aggregate.function
    if aggregate.traits.ordered:
        return _ORDERED[function](number, aggregate, x, order)
    return _RECIPES[function](number, aggregate, x)


def _defined(number: str, aggregate: BoundAggregate, definition: Function, x: pl.Expr) -> _Recipe:
    """Follow a function's own definition."""
    columns = {name: f"{number}.{name}" for name in definition.partials(x)}
    parts = tuple(
        _Part(columns[name], part.add, part.merge(pl.col(columns[name])))
        for name, part in definition.partials(x).items()
    )
    value = definition.finish({name: pl.col(column) for name, column in columns.items()})
    value = value.cast(aggregate.output_type).alias(aggregate.name)
    return _Recipe(parts, value, additive=definition.additive)


def _count(number: str, aggregate: BoundAggregate, x: pl.Expr) -> _Recipe:
    n = f"{number}.n"
    return _Recipe(
        (_Part(n, x.count().cast(pl.Int64), pl.col(n).sum()),), pl.col(n).alias(aggregate.name), additive=True
    )


def _sum(number: str, aggregate: BoundAggregate, x: pl.Expr) -> _Recipe:
    s = sum_of(f"{number}.s", aggregate, x)
    value = sums.total(s, aggregate).alias(aggregate.name)
    return _Recipe((), value, (s,), sums.reason(s, aggregate), additive=True)


def _weigh(number: str, aggregate: BoundAggregate, x: pl.Expr) -> _Recipe:
    """Add up weights for a ranking, which has no way to report a sum that does not fit."""
    s = sum_of(f"{number}.s", aggregate, x)
    return _Recipe((), sums.bounded(s).alias(aggregate.name), (s,), additive=True)


def _mean(number: str, aggregate: BoundAggregate, x: pl.Expr) -> _Recipe:
    s, n = sum_of(f"{number}.s", aggregate, x), f"{number}.n"
    count = _Part(n, x.count().cast(pl.Int64), pl.col(n).sum())
    return _Recipe((count,), sums.mean(s, n, aggregate).alias(aggregate.name), (s,), additive=True)


def _extreme(number: str, aggregate: BoundAggregate, x: pl.Expr) -> _Recipe:
    m = f"{number}.m"
    best = pl.Expr.min if aggregate.aggregate.function == "min" else pl.Expr.max
    return _Recipe((_Part(m, best(x), best(pl.col(m))),), pl.col(m).alias(aggregate.name))


def _spread(number: str, aggregate: BoundAggregate, x: pl.Expr) -> _Recipe:
    n, values = f"{number}.n", x.cast(pl.Float64)
    s, q = ExactSum(f"{number}.s", PLACES, values, split), squares_of(f"{number}.q", values)
    count = _Part(n, x.count().cast(pl.Int64), pl.col(n).sum())
    value = sums.spread(s, q, n, root=aggregate.aggregate.function == "std")
    return _Recipe((count,), value.alias(aggregate.name), (s, q), additive=True)


def _edge(number: str, aggregate: BoundAggregate, x: pl.Expr, order: Sequence[str]) -> _Recipe:
    """Keep the value with the smallest or largest place in the total order, together with its place."""
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
    "weigh": _weigh,
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


def _was_additive(aggregate: BoundAggregate) -> bool:
    """Return whether older versions kept integers for this aggregate."""
    dtype = aggregate.input_type
    return (
        dtype is None
        or aggregate.aggregate.function == "count"
        or (
            aggregate.aggregate.function not in ("var", "std")
            and (dtype.is_integer() or isinstance(dtype, pl.Duration) or dtype == pl.Boolean)
        )
    )
