"""Stateless steps: the chain after a source or a stateful step, as one lazy Polars query per output."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import polars as pl

from springtide.compiler.plan import Plan, Subquery
from springtide.exchange.order import PLACE, PLACES
from springtide.query import steps

Output = tuple[str, str]
"""A step's name and its port."""

_INDEX = "__index"
_LIST_LENGTH = 1 << 20
"""Elements of longer lists are not told apart by their place; with this limit, three explodes fit into 64 bits."""


def run_chain(
    plan: Plan, subquery: Subquery, made: Mapping[Output, pl.LazyFrame], *, ordered: bool
) -> dict[Output, pl.LazyFrame]:
    """Run the stateless steps of a subquery on the output of its stateful step or its sources; return every output.

    With `ordered`, tuples carry their place in the total order in hidden columns, which every step passes on.
    """
    graph = plan.graph
    outputs = dict(made)
    for name in subquery.chain:
        step = graph.step(name)
        inputs = [
            outputs[key] for stream in step.inputs if (key := (graph.name_of(stream.step), stream.port)) in outputs
        ]
        if inputs:
            outputs |= {(name, port): frame for port, frame in _run(step, inputs, ordered).items()}
    return outputs


def _run(step: steps.Step, inputs: list[pl.LazyFrame], ordered: bool) -> dict[str, pl.LazyFrame]:
    frame = inputs[0]
    ordered = ordered and PLACE in frame.collect_schema()  # rejected rows have no place
    match step:
        case steps.Map():
            frame = frame.with_columns(step.exprs)
        case steps.Select():
            frame = frame.select([*step.exprs, *(PLACES if ordered else ())])
        case steps.Filter():
            frame = frame.filter(step.predicate)
        case steps.Explode():
            frame = _explode(frame, step.column, ordered)
        case steps.Union():
            columns = [*step.schema, *(PLACES if ordered else ())]
            frame = pl.concat([i.select(columns) for i in inputs]) if len(inputs) > 1 else frame
        case steps.Split():
            return _split(frame, step)
        case _:
            raise TypeError(f"{step.kind} is not a stateless step")
    return {steps.OUT: frame}


def _explode(frame: pl.LazyFrame, column: str, ordered: bool) -> pl.LazyFrame:
    frame = frame.filter(pl.col(column).list.len() > 0)
    if not ordered:
        return frame.explode(column)
    # The place in the list is added to the place from an earlier explode, which is the more significant one.
    index = pl.int_ranges(0, pl.col(column).list.len(), dtype=pl.UInt64).alias(_INDEX)
    frame = frame.with_columns(index).explode([column, _INDEX])
    return frame.with_columns((pl.col(PLACE) * _LIST_LENGTH + pl.col(_INDEX)).alias(PLACE)).drop(_INDEX)


def _split(frame: pl.LazyFrame, step: steps.Split) -> dict[str, pl.LazyFrame]:
    outputs: dict[str, pl.LazyFrame] = {}
    before: list[pl.Expr] = []
    for port, predicate in step.predicates:
        holds = predicate.fill_null(False)
        outputs[port] = frame.filter(_all([*before, holds]))
        before.append(~holds)
    if step.rest:
        outputs[step.rest] = frame.filter(_all(before))
    return outputs


def _all(predicates: list[pl.Expr]) -> pl.Expr:
    result: Any = reduce(lambda a, b: a & b, predicates)
    return result  # type: ignore[no-any-return]
