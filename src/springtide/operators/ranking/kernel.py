"""Rankings of the most frequent or heaviest values: an aggregate that counts, and the top k of each window."""

from __future__ import annotations

import polars as pl

from springtide.operators.aggregates.sketches import WEIGHT
from springtide.query import steps
from springtide.query.aggregates import Aggregate as Function
from springtide.query.aggregates import BoundAggregate, Traits
from springtide.query.types import COUNT, RANK, TS, WINDOW_END, WINDOW_START

_HEAVY = "__heavy"


def counting_step(step: steps.TopK) -> steps.Aggregate:
    """Return the aggregate that counts each value or adds up its weights; `ranked` takes its rows."""
    dtype = pl.Int64() if step.weight is None else step.inputs[0].schema[step.weight]
    bound = BoundAggregate(COUNT, _function(step), dtype, pl.Int64(), pl.Schema(), Traits(ordered=False))
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
    return Function("count") if step.weight is None else Function("weigh", pl.col(step.weight))


def sketching_step(step: steps.TopK) -> steps.Aggregate:
    """Return the aggregate that keeps a frequent-items sketch for each group; `unfolded` takes its rows."""
    weight = [] if step.weight is None else [pl.col(step.weight).fill_null(0).cast(pl.Int64).alias(WEIGHT)]
    values = {n: step.schema[n] for n in step.by}
    options = {"map_size": step.sketch, "n": step.k}
    bound = BoundAggregate(
        _HEAVY,
        Function("approx_frequent", pl.struct(*step.by, *weight), options),
        pl.Struct(values),
        pl.List(pl.Struct({**values, COUNT: pl.Int64()})),
        pl.Schema(),
        Traits(ordered=False),
    )
    schema = pl.Schema(
        {n: step.schema[n] for n in (TS, *step.per, WINDOW_START, WINDOW_END)} | {_HEAVY: bound.output_type}
    )
    return steps.Aggregate(
        name=step.name, inputs=step.inputs, schema=schema, by=step.per, window=step.window, aggregates=(bound,)
    )


def unfolded(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the estimates of each window as rows."""
    return rows.filter(pl.col(_HEAVY).list.len() > 0).explode(_HEAVY).unnest(_HEAVY)


def ranked(step: steps.TopK, counts: pl.DataFrame) -> pl.DataFrame:
    """Rank the values of each window (and group of `per`) and cut the ranking off after k; ties go to the smaller value, nulls first.

    Rankings of parts of the values can themselves be ranked together.
    """
    groups = [WINDOW_START, *step.per]
    if counts.height > step.k:  # most values are far from the top: do not sort them
        least = pl.col(COUNT).top_k(step.k).min().over(groups)
        counts = counts.filter(pl.col(COUNT) >= least)
    descending = [*(False for _ in groups), True, *(False for _ in step.by)]
    counts = counts.sort([*groups, COUNT, *step.by], descending=descending, nulls_last=False)
    rank = pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over(groups).alias(RANK)
    return counts.with_columns(rank).filter(pl.col(RANK) <= step.k).select(step.schema.names())
