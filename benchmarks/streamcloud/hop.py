"""A hop: rows are dealt to the instances of a subcluster of their own, which pass them on as they are. Where a query is cut before a stateless operator.

Springtide never cuts a query there, so this is an aggregate over a window that is none: an exchange, a task, and nothing to do in it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

import springtide as st
from springtide.compiler.plan import Exchange
from springtide.exchange.hashing import bucket_of
from springtide.exchange.routing import Numbering
from springtide.operators import register_window
from springtide.operators.operator import TIME_MARK, Clock, Operator, OperatorResult
from springtide.operators.state_view import StateView
from springtide.query import steps
from springtide.query.windows import Window
from springtide.state.manifest import Marks


@dataclass(frozen=True)
class Passing(Window):
    """No window: every row is passed on at once."""

    combines: ClassVar[bool] = False

    def check(self, step: str) -> None:
        """Accept it."""

    def cut(self, members: Sequence[tuple[int, Any]], time: int) -> Iterator[tuple[int, int, list[Any]]]:
        """Refuse: it has no windows to return."""
        raise NotImplementedError

    def __str__(self) -> str:
        """Name it."""
        return "passing on"


class PassingOperator(Operator):
    """Gives rows as they came, and has no state."""

    def __init__(self, step: steps.Aggregate, buckets: int) -> None:
        self._columns, self._step, self._buckets = list(step.schema), step, buckets
        self.tables = {}

    def send(self, exchange: Exchange, tuples: pl.LazyFrame, numbering: Numbering) -> pl.LazyFrame:
        return tuples.select(self._columns).with_columns(bucket_of(self._step.by, self._buckets))

    def run(self, view: StateView, arrived: Sequence[pl.DataFrame | None], clock: Clock) -> OperatorResult:
        rows = arrived[0]
        found = pl.DataFrame(schema=self._step.schema) if rows is None else rows.select(self._columns)
        return OperatorResult(found, {TIME_MARK: clock.time})

    def oldest(self, marks: Marks) -> Mapping[str, int]:
        return {}


def hop(stream: st.Stream, by: str, name: str) -> st.Stream:
    """Deal a stream's rows to a subcluster, by a column."""
    step = steps.Aggregate(name=name, inputs=(stream,), schema=stream.schema, by=(by,), window=Passing(), aggregates=())
    return st.Stream(step, steps.OUT, stream.schema)


register_window(Passing, PassingOperator)
