"""Aggregates over windows of n tuples: tuples wait until they are ready and are then numbered; panes of unfilled windows are kept in state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from springtide.compiler.plan import Exchange
from springtide.exchange import order
from springtide.exchange.hashing import HASH, bucket_of_hash, hash_of
from springtide.exchange.routing import Numbering
from springtide.operators import holding
from springtide.operators.aggregates.partials import divided
from springtide.operators.counting.kernel import CountingAggregate
from springtide.operators.operator import Clock, Operator, OperatorResult
from springtide.operators.state_view import StateView
from springtide.operators.tables import StateTable
from springtide.query import steps
from springtide.query.types import END_OF_TIME
from springtide.state.manifest import Marks

HELD = "held"
PANES = "panes"


class CountingOperator(Operator):
    """An aggregate over windows of n tuples."""

    def __init__(self, step: steps.Aggregate, buckets: int) -> None:
        """Prepare the kernel."""
        self._kernel, self._buckets, self._step = CountingAggregate(step), buckets, step
        self.tables = {PANES: StateTable(fold=self._kernel.fold, versions=True), HELD: holding.HELD}
        self.tuple_columns = {HELD: self._kernel.inputs} | ({PANES: self._kernel.kept} if self._kernel.single else {})

    def adapted(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Convert partial results of an older version to digits."""
        return self._kernel.partials.adapted(rows)

    def send(self, exchange: Exchange, tuples: pl.LazyFrame, numbering: Numbering) -> pl.LazyFrame:
        """Send the columns that are needed, with the tuples' places."""
        kernel = self._kernel
        bucket = bucket_of_hash(pl.col(HASH), self._buckets)
        return tuples.select([*kernel.inputs, *order.PLACES, hash_of(kernel.keys)]).with_columns(bucket)

    def run(self, view: StateView, arrived: Sequence[pl.DataFrame | None], clock: Clock) -> OperatorResult:
        """Number the tuples that are ready, and return the windows that are full."""
        kernel, writes = self._kernel, {}
        ready, held = holding.release(view, HELD, arrived[0], clock)
        rows = pl.DataFrame(schema=kernel.schema)
        if ready is not None:
            found = view.lookup(PANES, ready[HASH].unique().sort().to_numpy())
            old = pl.concat([f.select(kernel.columns) for f in found]) if found else None
            rows, writes[PANES] = kernel.advance(old, ready)
        if held is not None:
            writes[HELD] = held
        marks = {holding.TIME_MARK: max(clock.time, holding.ready_before(view))}
        rows, rejected = divided(self._step, rows)
        return OperatorResult(rows, marks, {} if clock.time == END_OF_TIME else writes, rejected)

    def oldest(self, marks: Marks) -> Mapping[str, int]:
        """Return what is still needed: tuples until they are ready, and a key's number of tuples until the end."""
        time = marks[holding.TIME_MARK]
        return {HELD: time, PANES: END_OF_TIME + 1} if time == END_OF_TIME else {HELD: time}
