"""Whose a checkpoint is: what a query must be to go on with it, or with a savepoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from springtide.compiler.plan import Plan
from springtide.kernels.hashing import fingerprint
from springtide.query import steps
from springtide.runtime.layout import layout
from springtide.runtime.shadows import shadow_of
from springtide.state.checkpoint import Checkpoint
from springtide.state.savepoints import adopt
from springtide.state.stores import Store


def begin_from(savepoint: str | Path | Store, plan: Plan, checkpoint: str | Path) -> int:
    """Let a new checkpoint begin with a savepoint; give the epoch that it goes on behind. What does not fit is refused."""
    names = {s for q in plan.subqueries for s in (q.name, shadow_of(q.name))}
    return adopt(savepoint, Checkpoint(checkpoint).root, identity(plan), names)


def identity(plan: Plan) -> dict[str, Any]:
    """Say what a checkpoint must have been made by to be gone on with."""
    inner = {n: s for n, s in plan.graph.steps.items() if not isinstance(s, steps.Source | steps.Sink)}
    described = {name: f"{step.kind}: {step.describe()}" for name, step in inner.items()}
    described |= {name: f"source: {dict(step.schema)}" for name, step in plan.graph.of_kind(steps.Source).items()}
    return {
        "query": plan.graph.name,
        "steps": described,
        "buckets": plan.buckets,
        "hash": fingerprint(),
        "polars": pl.__version__,
        "state": layout(plan),  # for people: two checkpoints that differ in nothing else are the same
    }
