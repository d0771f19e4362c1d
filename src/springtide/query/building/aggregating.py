"""Steps over the tuples of a window: aggregates and rankings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import polars as pl

from springtide.query import steps
from springtide.query.aggregates import Aggregate
from springtide.query.as_aggregate import as_aggregate
from springtide.query.building.checks import check_timed, check_unique, check_window, keys_of
from springtide.query.building.labels import label_after
from springtide.query.errors import QueryError, shown
from springtide.query.expressions import check_columns
from springtide.query.types import COUNT, RANK, TIME, TS, WINDOW_END, WINDOW_START, Names, type_text, whole
from springtide.query.windows import Sliding, Window

if TYPE_CHECKING:
    from springtide.query.stream import Stream


def aggregate_step(
    stream: Stream, by: Names, aggregates: Mapping[str, Aggregate], *, window: Window, name: str | None
) -> steps.Aggregate:
    """Compute aggregates for each group in each window."""
    label = label_after(stream, "aggregate", name)
    if isinstance(by, Aggregate):
        hint = "write for example n=st.count(); by= names the columns to group by"
        raise QueryError(label, f"the aggregate {by} has no name", hint)
    keys = keys_of(label, stream, "by", by)
    check_timed(label, stream)
    check_window(label, window)
    if not aggregates:
        raise QueryError(label, "there is no aggregate", "name at least one: n=st.count()")
    for column, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            problem = f"{column}={shown(aggregate)} is not an aggregate"
            same = as_aggregate(aggregate) if isinstance(aggregate, pl.Expr) else None
            hint = f"write {column}={same}" if same else "use st.count(), st.mean('x') and the like"
            raise QueryError(label, problem, hint)
    check_unique(label, [TS, *keys, WINDOW_START, WINDOW_END, *aggregates])
    bound = tuple(a.bind(label, column, stream.schema) for column, a in aggregates.items())
    schema = pl.Schema(
        {
            TS: TIME,
            **_types(stream.schema, keys),
            WINDOW_START: TIME,
            WINDOW_END: TIME,
            **{b.name: b.output_type for b in bound},
        }
    )
    return steps.Aggregate(name=name, inputs=(stream,), schema=schema, by=keys, window=window, aggregates=bound)


def top_k_step(
    stream: Stream,
    k: int,
    by: Names,
    *,
    window: Sliding,
    per: Names,
    weight: str | None,
    sketch: int | None,
    name: str | None,
) -> steps.TopK:
    """Rank the most frequent or heaviest values in each window."""
    label = label_after(stream, "top_k", name)
    k = whole(label, "k", k)
    keys, groups = keys_of(label, stream, "by", by), keys_of(label, stream, "per", per)
    check_timed(label, stream)
    check_window(label, window)
    if not keys:
        raise QueryError(label, "there is nothing to rank", "name the columns: by='page'")
    if not isinstance(window, Sliding):
        raise QueryError(label, f"a ranking needs a window of time, not {window}", "use st.tumbling or st.sliding")
    if k < 1:
        raise QueryError(label, f"k={k} ranks nothing", "give a number above zero")
    if weight is not None:
        _check_weight(label, stream.schema, weight)
    if sketch is not None:
        sketch = _sketch_size(label, sketch, k)
    check_unique(label, [TS, *groups, WINDOW_START, WINDOW_END, RANK, *keys, COUNT])
    schema = pl.Schema(
        {
            TS: TIME,
            **_types(stream.schema, groups),
            WINDOW_START: TIME,
            WINDOW_END: TIME,
            RANK: pl.Int64(),
            **_types(stream.schema, keys),
            COUNT: pl.Int64(),
        }
    )
    return steps.TopK(
        name=name,
        inputs=(stream,),
        schema=schema,
        k=k,
        by=keys,
        per=groups,
        window=window,
        weight=weight,
        sketch=sketch,
    )


def _check_weight(label: str, schema: pl.Schema, weight: str) -> None:
    check_columns(label, schema, [weight])
    if not schema[weight].is_integer():
        raise QueryError(
            label,
            f"the weight {weight!r} is {type_text(schema[weight])}, not an integer",
            "give an integer column, so that ranks do not depend on rounding",
        )


def _sketch_size(label: str, sketch: int, k: int) -> int:
    size = whole(label, "sketch", sketch)
    if size < k or size < 8 or size & (size - 1):
        hint = "give a power of two that is at least 8 and several times k"
        raise QueryError(label, f"sketch={size} cannot rank the first {k}", hint)
    return size


def _types(schema: pl.Schema, names: tuple[str, ...]) -> dict[str, pl.DataType]:
    return {n: schema[n] for n in names}
