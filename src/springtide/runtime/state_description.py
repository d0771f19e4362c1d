"""Describes how to read the state of a query: written into the checkpoint, for `springtide state`, and for savepoints, which must match."""

from __future__ import annotations

from typing import Any

import polars as pl

from springtide.compiler.plan import Grid, Plan
from springtide.operators import operator_of
from springtide.query.steps import Aggregate, ThetaJoin
from springtide.query.types import schema_text
from springtide.state.forms import CONTENT, ITSELF, ROUTING, TUPLES, StateDescription


def state_description(plan: Plan) -> dict[str, StateDescription]:
    """Return for each stateful subquery what its state is about: columns, keys, aggregates, and the window's lengths in microseconds.

    Some of it depends on what comes before a step (`springtide.state.forms.changed_state`).

    >>> hourly = calls.aggregate(by="src", window=st.sliding("1h", every="1m"), n=st.count(), name="hourly")
    >>> state_description(st.Query("hourly", hourly.to(st.memory_sink())).plan())
    {'hourly': {'columns': 'src:str n:i64', 'tables': ['panes'], 'keys': ['src'], 'aggregates': ['n'], 'size': 3600000000, 'every': 60000000}}
    """
    stateful_steps = {q.name: plan.step(q.head) for q in plan.subqueries if q.head is not None and not q.merges}
    found: dict[str, Any] = {name: step.describe_state() for name, step in stateful_steps.items()}
    for name, step in stateful_steps.items():
        if isinstance(step, Aggregate) and step.combines and any(a.traits.ordered for a in step.aggregates):
            found[name][CONTENT] = schema_text(step.inputs[0].schema)
        if tables := operator_of(plan, name).tuple_columns:
            schema = step.inputs[0].schema
            found[name][TUPLES] = {
                table: [schema_text(pl.Schema({column: schema[column]})) for column in columns]
                for table, columns in tables.items()
            }
    for exchange in plan.exchanges:
        if isinstance(step := plan.target(exchange), ThetaJoin):
            left, right = ((stream.step, stream.port) for stream in step.inputs)
            kept = ITSELF if left == right else "broadcast"
            found[exchange.target][ROUTING] = "grid" if isinstance(exchange.routing, Grid) else kept
    described: dict[str, Any] = {
        name: {"columns": own["columns"], "tables": _tables(plan, name), **own} for name, own in found.items()
    }
    return described


def _tables(plan: Plan, name: str) -> list[str]:
    """Return the tables of state that people are shown, the most telling one first."""
    return [table for table, what in operator_of(plan, name).tables.items() if not what.derived]
