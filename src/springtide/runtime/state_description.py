"""Describes how to read the state of a query: written into the checkpoint, for `springtide state`, and for savepoints, which must match."""

from __future__ import annotations

from typing import Any

import polars as pl

from springtide.compiler.plan import Plan
from springtide.operators import operator_of
from springtide.query import steps
from springtide.query.types import COUNT, schema_text


def state_description(plan: Plan) -> dict[str, dict[str, Any]]:
    """Return for each stateful subquery what its state is about: columns, keys, aggregates, and the window's lengths in microseconds.

    >>> hourly = calls.aggregate(by="src", window=st.sliding("1h", every="1m"), n=st.count(), name="hourly")
    >>> state_description(st.Query("hourly", hourly.to(st.memory_sink())).plan())
    {'hourly': {'columns': 'src:str n:i64', 'tables': ['panes'], 'keys': ['src'], 'aggregates': ['n'], 'size': 3600000000, 'every': 60000000}}
    """
    stateful_steps = {q.name: plan.step(q.head) for q in plan.subqueries if q.head is not None and not q.merges}
    found: dict[str, dict[str, Any]] = {}
    for name, head in stateful_steps.items():
        found[name] = {"columns": _columns(head), "tables": _tables(plan, name)}
        if isinstance(head, steps.Aggregate):
            found[name] |= {"keys": list(head.by), "aggregates": [a.name for a in head.aggregates]}
        elif isinstance(head, steps.TopK):
            found[name] |= {"keys": [*head.per, *head.by], "aggregates": [COUNT]}
        elif isinstance(head, steps.Join):
            found[name] |= {"keys": [k for k in head.left_on if k in head.right_on]}
        elif isinstance(head, steps.Operate):
            found[name] |= {"keys": list(head.keys)}
        if isinstance(head, steps.Aggregate | steps.TopK):
            found[name] |= head.window.lengths()
    return found


def _tables(plan: Plan, name: str) -> list[str]:
    """Return the tables of state that people are shown, the most telling one first."""
    return [table for table, what in operator_of(plan, name).tables.items() if not what.derived]


def _columns(head: steps.Step) -> str:
    """Return the columns of the state, with their types: what is aggregated, or all columns of the tuples that are kept."""
    schema = head.inputs[0].schema
    if isinstance(head, steps.Aggregate):
        values = {a.name: a.input_type or a.output_type for a in head.aggregates}
        return schema_text(pl.Schema({**{k: schema[k] for k in head.by}, **values}))
    if isinstance(head, steps.TopK):
        used = [*head.per, *head.by, *([head.weight] if head.weight else [])]
        return schema_text(pl.Schema({column: schema[column] for column in used}))
    return " | ".join(schema_text(stream.schema) for stream in head.inputs)
