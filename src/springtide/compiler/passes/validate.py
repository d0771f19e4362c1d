"""Pass 1: refuse what cannot run.

Streams check all of this while a query is built. Steps are plain objects, though, and can be made or changed by hand; what the later
passes rely on is therefore checked once more, on the whole graph.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from springtide.compiler.plan import OLD, Plan
from springtide.query import steps
from springtide.query.errors import QueryError, article, nearest
from springtide.query.graph import Graph
from springtide.query.stream import Stream
from springtide.query.types import TIME, TS, schema_text, type_text

MOST_BUCKETS: Final = 2**16
"""More buckets than this cost more in headers than they gain in balance."""


def validate(plan: Plan) -> Plan:
    """Refuse a bad number of buckets, names used twice, cycles, and edges that do not fit."""
    _check_buckets(plan)
    _check_names(plan.graph)
    for name, step in plan.graph.steps.items():
        label = f"{name} ({step.kind})"
        for side, stream in enumerate(step.inputs):
            _check_output(label, stream)
            _check_time(label, step, stream)
            _check_columns(label, step, side, stream.schema)
    return plan


def _check_buckets(plan: Plan) -> None:
    buckets, label = plan.buckets, f"{plan.graph.name} (query)"
    if buckets < 1 or buckets & (buckets - 1):
        raise QueryError(label, f"{buckets} buckets cannot be shared out evenly", "give a power of two, such as 256")
    if buckets > MOST_BUCKETS:
        raise QueryError(
            label, f"{buckets} buckets are too many", f"give at most {MOST_BUCKETS}; about ten per instance are enough"
        )


def _check_names(graph: Graph) -> None:
    """Refuse a name that two steps share, and a step that comes before its inputs, which is how a cycle shows up."""
    seen: dict[steps.Step, str] = {}
    bearers: dict[str, steps.Step] = {}
    for name, step in graph.steps.items():
        label = f"{name} ({step.kind})"
        if step.name is not None and bearers.setdefault(step.name, step) is not step:
            kind = bearers[step.name].kind
            raise QueryError(
                label, f"the name {step.name!r} is already taken by {article(kind)}", "give one of them another name"
            )
        if name.endswith(OLD) and name.removesuffix(OLD) in graph.steps:
            problem = (
                f"{name.removesuffix(OLD)} uses this name for the windows that its old instances still have to finish"
            )
            raise QueryError(label, problem, f"give it a name that does not end in {OLD}")
        for stream in step.inputs:
            if stream.step not in seen:
                origin = stream.step.name or stream.step.kind
                raise QueryError(
                    label,
                    f"its input {origin!r} is not a step before it, so there is a cycle or a gap",
                    "a step can only follow steps that were made before it",
                )
        seen[step] = name


def _check_output(label: str, stream: Stream) -> None:
    """Refuse an input from an output that the previous step does not have, or has with other columns."""
    outputs = stream.step.outputs
    if stream.port not in outputs:
        origin = stream.step.name or stream.step.kind
        raise QueryError(label, f"{origin} has no output {stream.port!r}", nearest(stream.port, outputs))
    schema = outputs[stream.port]
    if schema is not None and schema != stream.schema:
        origin = stream.step.name or stream.step.kind
        raise QueryError(
            label,
            f"it expects {schema_text(stream.schema)}, but {origin} gives {schema_text(schema)}",
            "build it again from the stream that it follows",
        )


def _check_time(label: str, step: steps.Step, stream: Stream) -> None:
    origin = stream.step.name or stream.step.kind
    if step.stateful and not stream.timed:
        raise QueryError(label, f"{origin} has no time, and a step with state needs it", "give the source a ts=")
    if stream.timed and stream.schema.get(TS) != TIME:
        found = type_text(stream.schema[TS]) if TS in stream.schema else "not there"
        raise QueryError(label, f"ts of {origin} is {found}", "every stream with time has a ts in microseconds, UTC")


def _check_columns(label: str, step: steps.Step, side: int, schema: pl.Schema) -> None:
    for column in step.reads(side):
        if column not in schema:
            raise QueryError(label, f"there is no column {column!r}", nearest(column, schema))
    if isinstance(step, steps.Filter | steps.Split | steps.Union | steps.Sink) and schema != step.schema:
        raise QueryError(
            label,
            f"it takes {schema_text(step.schema)}, but gets {schema_text(schema)}",
            "select and cast the same columns before it",
        )
    if isinstance(step, steps.Join) and side == 1:
        for a, b in zip(step.left_on, step.right_on, strict=True):
            left, right = step.inputs[0].schema.get(a), schema[b]
            if left is not None and left != right:
                problem = (
                    f"the key {a!r} is {type_text(left)} on the left, but {b!r} is {type_text(right)} on the right"
                )
                raise QueryError(label, problem, "cast one of them")
    if isinstance(step, steps.Sink) and (refusal := step.connector.check(schema)) is not None:
        raise QueryError(
            label, f"{step.connector.describe()} cannot take these rows: {refusal}", "select or cast first"
        )
