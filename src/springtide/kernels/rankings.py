"""Rankings of the most frequent or heaviest values: an aggregate that counts, and the k first of each window."""

from __future__ import annotations

import polars as pl

from springtide.query import steps
from springtide.query.aggregates import Aggregate as Function
from springtide.query.aggregates import BoundAggregate, Traits
from springtide.query.types import COUNT, RANK, TS, WINDOW_END, WINDOW_START

_HEAVY = "__heavy"


def counting_step(step: steps.TopK) -> steps.Aggregate:
    """Give the aggregate that counts each value, or adds its weights up in 64 bits; its rows are what `ranked` takes."""
    bound = BoundAggregate(COUNT, _function(step), pl.Int64(), pl.Int64(), pl.Schema(), Traits(True, True, False))
    schema = pl.Schema({n: step.schema[n] for n in (TS, *step.per, *step.by, WINDOW_START, WINDOW_END, COUNT)})
    return steps.Aggregate(
        name=step.name,
        inputs=step.inputs,
        schema=schema,
        by=(*step.per, *step.by),
        window=step.window,
        aggregates=(bound,),
    )


def _function(step: steps.TopK) -> Function:
    return Function("count") if step.weight is None else Function("sum", as_weight(pl.col(step.weight)))


def as_weight(column: pl.Expr) -> pl.Expr:
    """Take the lowest 64 bits."""
    return column.cast(pl.Int64, wrap_numerical=True)


def sketching_step(step: steps.TopK) -> steps.Aggregate:
    """Give the aggregate that keeps a frequent-items sketch of each group; its rows are what `unfolded` takes."""
    value = pl.Struct({n: step.schema[n] for n in step.by})
    options = {"map_size": step.sketch, "n": step.k} | ({} if step.weight is None else {"weight": pl.col(step.weight)})
    function = Function("approx_frequent", pl.struct(*step.by), options)
    estimates = pl.List(pl.Struct({"value": value, "count": pl.Int64()}))
    bound = BoundAggregate(_HEAVY, function, value, estimates, pl.Schema(), Traits(True, False, False))
    schema = pl.Schema({n: step.schema[n] for n in (TS, *step.per, WINDOW_START, WINDOW_END)} | {_HEAVY: estimates})
    return steps.Aggregate(
        name=step.name, inputs=step.inputs, schema=schema, by=step.per, window=step.window, aggregates=(bound,)
    )


def unfolded(rows: pl.DataFrame) -> pl.DataFrame:
    """Give the estimates of each window as rows."""
    heavy = pl.col(_HEAVY).struct
    value, count = heavy.field("value").struct.unnest(), heavy.field("count").alias(COUNT)
    return rows.explode(_HEAVY).select(pl.exclude(_HEAVY), value, count)


def ranked(step: steps.TopK, counts: pl.DataFrame) -> pl.DataFrame:
    """Rank the values of each window (and group of `per`) and cut the ranking to k; ties go to the smaller value, nulls first.

    Rankings of parts of the values can be ranked again, as one.
    """
    groups = [WINDOW_START, *step.per]
    if counts.height > step.k:  # most values are far from the top: do not sort them
        least = pl.col(COUNT).top_k(step.k).min().over(groups)
        counts = counts.filter(pl.col(COUNT) >= least)
    descending = [*(False for _ in groups), True, *(False for _ in step.by)]
    counts = counts.sort([*groups, COUNT, *step.by], descending=descending, nulls_last=False)
    rank = pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over(groups).alias(RANK)
    return counts.with_columns(rank).filter(pl.col(RANK) <= step.k).select(step.schema.names())
