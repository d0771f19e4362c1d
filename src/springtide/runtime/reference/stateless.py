"""Steps that look at one tuple at a time."""

from __future__ import annotations

import polars as pl

from springtide.query import steps
from springtide.runtime.reference.evaluate import evaluate, holds
from springtide.runtime.reference.tuples import Tuple


def map_each(label: str, step: steps.Map | steps.Select, tuples: list[Tuple]) -> list[Tuple]:
    """Add, replace or choose columns."""
    made = {e.meta.output_name(): e for e in step.exprs}
    # Columns that a map does not make stay as they are; a select names everything it keeps.
    exprs = [made.get(name, pl.col(name)) for name in step.schema] if isinstance(step, steps.Map) else step.exprs
    return [t.with_frame(evaluate(label, t.frame, exprs, step.schema)) for t in tuples]


def filter_each(label: str, step: steps.Filter, tuples: list[Tuple]) -> list[Tuple]:
    """Keep the tuples for which the predicate is true."""
    return [t for t in tuples if holds(label, t.frame, step.predicate)]


def explode_each(step: steps.Explode, tuples: list[Tuple]) -> list[Tuple]:
    """Make one tuple for each element, in the list's order."""
    exploded = []
    for t in tuples:
        elements = t.frame[step.column].to_list()[0]
        if elements:  # neither null nor empty
            frame = t.frame.explode(step.column)
            for i in range(len(elements)):
                exploded.append(Tuple(t.ts, t.place.in_list(i), frame.slice(i, 1), step.schema))
    return exploded


def split_each(label: str, step: steps.Split, tuples: list[Tuple]) -> dict[str, list[Tuple]]:
    """Send each tuple to the first output whose predicate is true; if none is, to the rest if there is one."""
    ports: dict[str, list[Tuple]] = {port: [] for port, _ in step.predicates}
    if step.rest is not None:
        ports[step.rest] = []
    for t in tuples:
        true = (port for port, predicate in step.predicates if holds(label, t.frame, predicate))
        port = next(true, step.rest)
        if port is not None:
            ports[port].append(t)
    return ports
