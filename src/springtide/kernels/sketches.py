"""Sketches: partial results of bounded size, exact while they are small. All of it on whole columns, but for quantiles of many values.

- Different values: the k + 1 smallest hashes. The last of them says how dense hashes lie (a theta sketch whose theta is that hash). Which
  hashes are kept does not depend on the order of tuples or merges: nor does the estimate.
- Frequent values: counts of at most 3/4 · map_size values. When there are more, the largest count that does not fit is taken off all
  and those at zero go; what was taken off so far is as much as an estimate can be wrong by (Misra and Gries; mergeable as in Agarwal et al.,
  "Mergeable Summaries", 2012).
- Quantiles: all values up to k of them, a KLL sketch of Apache DataSketches beyond.
"""

from __future__ import annotations

import datasketches
import polars as pl

from springtide.kernels.folds import Groups, names_of
from springtide.query.aggregates import BoundAggregate

_SEED = 20040901  # other than that of buckets
_VALUE, _WEIGHT, _OFF = "__value", "__weight", "__off"
_ROW = "__row"


# ── different values ──────────────────────────────────────────────────────────────────────────────────────────────────


def smallest_hashes(x: pl.Expr, k: int) -> pl.Expr:
    """Keep the k + 1 smallest hashes of values."""
    return _smallest(x.drop_nulls().hash(_SEED), k)


def merged_hashes(column: pl.Expr, k: int) -> pl.Expr:
    """Keep the k + 1 smallest of several lists of hashes."""
    return _smallest(column.explode().drop_nulls(), k)


def estimated_distinct(column: pl.Expr, k: int) -> pl.Expr:
    """Estimate the number of different values from their smallest hashes: of k hashes below a share of all, k over that share."""
    share = column.list.max().cast(pl.Float64) / 2**64
    count = column.list.len().cast(pl.Int64)
    return pl.when(count <= k).then(count).otherwise((k / share).round().cast(pl.Int64))


def _smallest(hashes: pl.Expr, k: int) -> pl.Expr:
    return hashes.unique().bottom_k(k + 1).implode()


# ── frequent values ───────────────────────────────────────────────────────────────────────────────────────────────────


class FrequentFold:
    """The heaviest values of a group. With `weight` among its options, that column is added up, and null is a value like others."""

    def __init__(self, number: str, aggregate: BoundAggregate) -> None:
        """Prepare the expressions."""
        options, x = aggregate.aggregate.options, aggregate.aggregate.input
        assert x is not None
        self.name, self._n, self._type = aggregate.name, options["n"], aggregate.output_type
        self._most = options["map_size"] * 3 // 4
        self._items, self._taken = f"{number}.f", f"{number}.o"
        self.columns = (self._items, self._taken)
        weight = options.get("weight")
        one = x.is_not_null() if weight is None else weight.fill_null(0)
        self._weighed = [x.alias(_VALUE), one.cast(pl.UInt64).alias(_WEIGHT)]

    def add(self, tuples: pl.LazyFrame, groups: Groups) -> pl.LazyFrame:
        """Add up the weights of each value."""
        nothing = pl.lit(0, dtype=pl.UInt64).alias(self._taken)
        summed = self._summed(tuples.select(*groups, *self._weighed), names_of(groups))
        return summed.with_columns(nothing).map_batches(self._shortened)

    def merge(self, rows: pl.LazyFrame, groups: Groups) -> pl.LazyFrame:
        """Add up the weights that several sketches have of each value, and what was taken off."""
        names = names_of(groups)
        grouped = rows.select(*groups, *self.columns)
        items = grouped.drop(self._taken).explode(self._items, empty_as_null=True).unnest(self._items)
        taken = grouped.group_by(names, maintain_order=True).agg(pl.col(self._taken).sum()).select(self._taken)
        return pl.concat([self._summed(items, names), taken], how="horizontal").map_batches(self._shortened)

    def finish(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Give the n largest estimates, larger ones first, ties to the smaller value."""
        return rows.map_batches(self._largest, schema=pl.Schema({self.name: self._type}))

    def _summed(self, weighed: pl.LazyFrame, names: list[str]) -> pl.LazyFrame:
        """Make a list of values with their weights for each group; what has no weight is not in it."""
        counted = weighed.group_by([*names, _VALUE], maintain_order=True).agg(pl.col(_WEIGHT).sum())
        items = pl.struct(_VALUE, _WEIGHT).filter(pl.col(_WEIGHT) > 0).implode().alias(self._items)
        return counted.group_by(names, maintain_order=True).agg(items).select(self._items)

    def _shortened(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Take as much off the values of a group that has too many of them that enough are left."""
        too_many = rows[self._items].list.len() > self._most
        if not too_many.any():
            return rows
        numbered = rows.with_row_index(_ROW)
        each = numbered.filter(too_many).explode(self._items).unnest(self._items)
        off = each.group_by(_ROW).agg(
            pl.col(self._taken).first(), pl.col(_WEIGHT).top_k(self._most + 1).min().alias(_OFF)
        )
        left = each.join(off.drop(self._taken), on=_ROW).filter(pl.col(_WEIGHT) > pl.col(_OFF))
        items = pl.struct(_VALUE, pl.col(_WEIGHT) - pl.col(_OFF)).implode().alias(self._items)
        short = off.join(left.group_by(_ROW).agg(items), on=_ROW, how="left").select(
            _ROW,
            pl.col(self._items).fill_null(pl.lit([], dtype=rows.schema[self._items])),
            pl.col(self._taken) + pl.col(_OFF),
        )
        return pl.concat([numbered.filter(~too_many), short]).sort(_ROW).drop(_ROW)

    def _largest(self, rows: pl.DataFrame) -> pl.DataFrame:
        numbered = rows.with_row_index(_ROW)
        estimate = (pl.col(_WEIGHT) + pl.col(self._taken)).cast(pl.Int64, wrap_numerical=True).alias("count")
        each = numbered.explode(self._items).unnest(self._items).select(_ROW, pl.col(_VALUE).alias("value"), estimate)
        ordered = each.sort([_ROW, "count", "value"], descending=[False, True, False], nulls_last=False)
        best = ordered.group_by(_ROW, maintain_order=True).agg(
            pl.struct("value", "count").head(self._n).alias(self.name)
        )
        every = numbered.select(_ROW).join(best, on=_ROW, how="left", maintain_order="left")
        return every.select(pl.col(self.name).fill_null(pl.lit([], dtype=best.schema[self.name])).cast(self._type))


# ── quantiles ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class QuantileFold:
    """Numbers: all of them in a list up to k of them, then a KLL sketch beside an empty list. NaN is skipped."""

    def __init__(self, number: str, aggregate: BoundAggregate) -> None:
        """Prepare the expressions."""
        options, x = aggregate.aggregate.options, aggregate.aggregate.input
        assert x is not None
        self.name, self._k, self._q = aggregate.name, options["k"], options["q"]
        self._values, self._sketch = f"{number}.v", f"{number}.b"
        self.columns = (self._values, self._sketch)
        self._number = x.cast(pl.Float64)
        self._schema = pl.Schema({self._values: pl.List(pl.Float64()), self._sketch: pl.Binary()})

    def add(self, tuples: pl.LazyFrame, groups: Groups) -> pl.LazyFrame:
        """Gather the numbers of each group."""
        values = self._number.drop_nulls().drop_nans().implode().alias(self._values)
        none = pl.lit([], dtype=pl.List(pl.Binary)).alias(self._sketch)
        return self._put(tuples.group_by(groups, maintain_order=True).agg(values).with_columns(none))

    def merge(self, rows: pl.LazyFrame, groups: Groups) -> pl.LazyFrame:
        """Gather the numbers and sketches of each group."""
        values = pl.col(self._values).explode().implode()
        sketches = pl.col(self._sketch).drop_nulls().implode()
        return self._put(rows.group_by(groups, maintain_order=True).agg(values, sketches))

    def finish(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Give the smallest value with at least the share q of values not above it."""
        values = pl.col(self._values).list.sort()
        place = ((values.list.len() * self._q).ceil().cast(pl.Int64) - 1).clip(lower_bound=0)
        exact = values.list.get(place, null_on_oob=True)
        asked = pl.col(self._sketch).map_batches(self._asked, return_dtype=pl.Float64(), is_elementwise=True)
        return rows.select(pl.coalesce(asked, exact).alias(self.name))

    def _put(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        return rows.select(self.columns).map_batches(self._sketched, schema=self._schema)

    def _sketched(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Put the numbers of a group with many of them, or with sketches, into one sketch."""
        values, sketches = rows[self._values], rows[self._sketch]
        many = (values.list.len() > self._k) | (sketches.list.len() > 0)
        made: list[bytes | None] = [None] * rows.height
        for i in many.arg_true():
            sketch = datasketches.kll_doubles_sketch(k=self._k)
            for other in sketches[i]:
                sketch.merge(datasketches.kll_doubles_sketch.deserialize(other))
            sketch.update(values[i].to_numpy(writable=True))
            made[i] = bytes(sketch.serialize())
        kept = pl.when(many).then(pl.lit([], dtype=pl.List(pl.Float64))).otherwise(values)
        return rows.select(kept.alias(self._values), pl.Series(self._sketch, made, dtype=pl.Binary))

    def _asked(self, sketches: pl.Series) -> pl.Series:
        found: list[float | None] = [None] * sketches.len()
        for i in sketches.is_not_null().arg_true():
            sketch = datasketches.kll_doubles_sketch.deserialize(sketches[i])
            found[i] = sketch.get_quantile(self._q, True)
        return pl.Series(sketches.name, found, dtype=pl.Float64)
