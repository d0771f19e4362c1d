"""Which query a checkpoint belongs to: what a query must match to continue with it, or with a savepoint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import polars as pl

from springtide.compiler.plan import Plan
from springtide.exchange.hashing import fingerprint
from springtide.query import steps
from springtide.query.aggregates import Aggregate, BoundAggregate, UserFunction
from springtide.query.functions import Function
from springtide.query.graph import Graph
from springtide.query.operators import BucketOperator, KeyOperator
from springtide.query.plurals import plural
from springtide.query.text import expr_text
from springtide.query.types import length_text
from springtide.runtime.digests import of_code, of_expression
from springtide.runtime.drawing import drawing
from springtide.runtime.old_owners import at_old_owners
from springtide.runtime.state_description import state_description
from springtide.state.checkpoint import Checkpoint
from springtide.state.forms import INPUTS, ORIGINS, FormPart, Identity
from springtide.state.manifest import Manifest
from springtide.state.names import MARKER
from springtide.state.savepoints import adopt
from springtide.state.stores import Store

_ELSEWHERE = ("name", "inputs", "schema", "connector")
"""Fields of a step that are not part of its form, or are described in another way."""
_parts_known: WeakKeyDictionary[steps.Step, dict[str, FormPart]] = WeakKeyDictionary()
"""Computed when a step is first asked for, before its code runs: what that caches must not count as a change."""


def begin_from(
    savepoint: str | Path | Store, plan: Plan, checkpoint: str | Path | Checkpoint, backup: Store | None = None
) -> int:
    """Let a new checkpoint begin with a savepoint; return the epoch after which it continues. What does not fit is refused.

    If another machine has begun already, and its `backup` is there, that is the checkpoint: the folder here is filled from it.
    """
    names = {s for q in plan.subqueries for s in (q.name, at_old_owners(q.name))}
    target = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
    if backup is not None and target.found() is None and backup.exists(MARKER):
        target = Checkpoint(backup)
    return adopt(savepoint, target, identity(plan), names)


def identity(plan: Plan) -> Identity:
    """Return what a checkpoint has to match so that this plan can continue from it."""
    inner = {n: s for n, s in plan.graph.steps.items() if not isinstance(s, steps.Source | steps.Sink)}
    described = {name: f"{step.kind}: {step.describe()}" for name, step in inner.items()}
    described |= {name: f"source: {dict(step.schema)}" for name, step in plan.graph.of_kind(steps.Source).items()}
    return {
        "query": plan.graph.name,
        "steps": described,
        "forms": {n: form(plan.graph, n) for n in plan.graph.steps if not isinstance(plan.graph.steps[n], steps.Sink)},
        "buckets": plan.buckets,
        "hash": fingerprint(),
        "polars": pl.__version__,
        # for people only: checkpoints that differ in nothing else match
        "state": state_description(plan),
        "graph": drawing(plan),
    }


def places_of(plan: Plan) -> str:
    """Return a few hex digits for where rows come from and go to, as far as connectors say. Every start may have other places; whoever stands by must know if they change while the query runs."""
    graph = plan.graph
    places: dict[str, steps.Source | steps.Sink] = {**graph.of_kind(steps.Source), **graph.of_kind(steps.Sink)}
    lines = [f"{name} {step.connector.describe()}" for name, step in sorted(places.items())]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def misfit(plan: Plan, manifest: Manifest) -> str | None:
    """Say why a manifest cannot belong to this plan, though its checkpoint does; None if it can."""
    if manifest.epoch < 0:
        return None
    for source in plan.graph.of_kind(steps.Source):
        if source not in manifest.sources:
            return f"it does not say how far {source} was read"
    for subquery in plan.subqueries:
        found = manifest.maps.get(subquery.name)
        if found is not None and subquery.buckets and len(found.owners) != subquery.buckets:
            return f"it has owners for {plural(len(found.owners), 'bucket')} of {subquery.name}, which has {subquery.buckets}"
    return None


def form(graph: Graph, name: str) -> dict[str, list[str]]:
    """Return what a step is, part by part: what goes into it, and everything that decides what it makes of that."""
    step = graph.steps[name]
    found = {INPUTS: FormPart(", ".join(_stream(graph, s.step, s.port) for s in step.inputs))} if step.inputs else {}
    if step.stateful:
        found[ORIGINS] = FormPart(" | ".join(", ".join(sorted(_origins(graph, s.step, s.port))) for s in step.inputs))
    if step not in _parts_known:
        own = _of_source(step) if isinstance(step, steps.Source) else dict(_of_step(step))
        _parts_known[step] = own
    return {name: part.to_json() for name, part in (found | _parts_known[step]).items()}


def _stream(graph: Graph, step: steps.Step, port: str) -> str:
    return graph.name_of(step) if port == steps.OUT else f"{graph.name_of(step)}.{port}"


def _origins(graph: Graph, step: steps.Step, port: str) -> set[str]:
    """Return the sources and stateful steps that a stream comes from."""
    if step.stateful or isinstance(step, steps.Source):
        return {_stream(graph, step, port)}
    return {origin for s in step.inputs for origin in _origins(graph, s.step, s.port)}


def _of_source(source: steps.Source) -> dict[str, FormPart]:
    """Return how rows are read: what is late and in which order they are depends on it. Where they are may change."""
    connector = source.connector
    parts = {
        "kind": type(connector).__name__,
        "columns": str(dict(source.columns)),
        "ts": str(source.ts),
        "max_disorder": length_text(source.max_disorder),
        "positions": str(getattr(connector, "positions", True)),
        "stream": str(getattr(connector, "stream", None)),
        "position": str(getattr(connector, "position", None)),
    }
    return {name: FormPart(text) for name, text in parts.items()}


def _of_step(step: steps.Step) -> Iterator[tuple[str, FormPart]]:
    for field in fields(step):
        if field.name not in _ELSEWHERE:
            yield from _parts(field.name, getattr(step, field.name))


def _parts(name: str, value: Any) -> Iterator[tuple[str, FormPart]]:
    """Take a value apart down to expressions, code and plain values."""
    if isinstance(value, pl.Expr):
        yield name, of_expression(value, expr_text(value))
    elif isinstance(value, BucketOperator | KeyOperator):
        yield name, of_code(value)
    elif isinstance(value, pl.DataType | pl.Schema):
        yield name, FormPart(str(value))
    elif isinstance(value, Mapping):
        for key, held in value.items():
            yield from _parts(f"{name}.{key}", held)
    elif isinstance(value, BoundAggregate):  # what it was bound to follows from the rest
        yield from _parts(name, value.aggregate)
    elif isinstance(value, Function):
        yield name, of_code(value)
    elif isinstance(value, Aggregate | UserFunction):
        for field in fields(value):
            if field.name == "definition" and value.definition is None:  # type: ignore[union-attr]
                continue  # built in: its name identifies it, and older checkpoints have no such part
            yield from _parts(f"{name}.{field.name}".removesuffix(".user"), getattr(value, field.name))
    elif isinstance(value, tuple | list) and any(isinstance(v, pl.Expr | tuple | BoundAggregate) for v in value):
        for number, held in enumerate(value):
            yield from _parts(f"{name}.{held.name if isinstance(held, BoundAggregate) else number + 1}", held)
    else:
        yield name, FormPart(f"{value}" if is_dataclass(value) else repr(value))
