"""The plan on its way to tasks: each kind of task gets what it needs of it, and no more.

Only tasks of the first level read sources. The others get the columns of a source and how its rows are ordered, but not where they come from: no path,
no rows of a list, and no password.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
from pyspark import cloudpickle

from springtide.compiler.plan import Plan
from springtide.connectors import Source
from springtide.query import steps
from springtide.query.connectors import Rows, SourceConnector
from springtide.query.errors import QueryError
from springtide.runtime.patience import said
from springtide.runtime.shipping import Shipped


@dataclass(frozen=True)
class Elsewhere(SourceConnector):
    """A source as seen by tasks that do not read it."""

    columns: Mapping[str, pl.DataType]
    positions: bool
    repeats: bool

    def schema(self) -> pl.Schema:
        """Names and types of the columns."""
        return pl.Schema(self.columns)

    def describe(self) -> str:
        """Say that it is not here."""
        return "read by other tasks"

    def read_all(self) -> Mapping[str, Rows]:
        """Refuse."""
        raise NotImplementedError("this task reads no source")


def packed(plan: Plan, *, reads: bool) -> bytes:
    """Pack a plan for tasks that read sources, or for those that do not; refuse what cannot be sent to them."""
    _check(plan)
    try:
        if reads:
            whole: bytes = cloudpickle.dumps(plan)  # type: ignore[no-untyped-call]
            return whole
        buffer = io.BytesIO()
        _Packer(buffer, [s.connector for s in plan.graph.of_kind(steps.Source).values()]).dump(plan)  # type: ignore[no-untyped-call]
        return buffer.getvalue()
    except Exception as error:
        raise _unfit(plan, error) from error


def _unfit(plan: Plan, error: Exception) -> QueryError:
    """Return the error that names the step whose code cannot be sent to tasks."""
    for name, step in plan.graph.steps.items():  # each one comes after its inputs, and is packed with them
        try:
            cloudpickle.dumps(step)  # type: ignore[no-untyped-call]
        except Exception as found:
            problem = f"its code cannot be sent to the workers: {said(found)}"
            hint = "make what cannot be pickled, such as a lock or a connection, where it is needed: in a function that the workers call"
            return QueryError(f"{name} ({step.kind})", problem, hint)
    return QueryError(f"{plan.graph.name} (query)", f"it cannot be sent to the workers: {said(error)}", "simplify it")


def _check(plan: Plan) -> None:
    """Refuse a connector that cannot be sent to tasks, and say which."""
    sources = {f"{name} (source)": s.connector for name, s in plan.graph.of_kind(steps.Source).items()}
    sinks = {f"{name} (sink)": s.connector for name, s in plan.graph.of_kind(steps.Sink).items()}
    for step, connector in {**sources, **sinks}.items():
        if isinstance(connector, Source | Shipped):
            try:
                cloudpickle.dumps(connector)  # type: ignore[no-untyped-call]
            except Exception as error:
                raise QueryError(
                    step,
                    f"{connector.describe()} cannot be sent to the workers: {said(error)}",
                    "put what cannot be pickled into the object that open() returns, or leave it out in __getstate__",
                ) from error


class _Packer(cloudpickle.CloudPickler):
    """Leaves sources behind."""

    def __init__(self, buffer: io.BytesIO, sources: list[SourceConnector]) -> None:
        super().__init__(buffer)  # type: ignore[no-untyped-call]
        self._sources = {id(s): Elsewhere(s.schema(), s.positions, s.repeats) for s in sources}

    def reducer_override(self, obj: Any) -> Any:
        if (stand_in := self._sources.get(id(obj))) is not None:
            return Elsewhere, (dict(stand_in.columns), stand_in.positions, stand_in.repeats)
        return super().reducer_override(obj)  # type: ignore[no-untyped-call]
