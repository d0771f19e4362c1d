"""Aggregates over sessions: pieces in state, each looked at only when it is due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from springtide.compiler.plan import Exchange
from springtide.exchange import gate, order
from springtide.exchange.hashing import HASH, bucket_of_hash, hash_of
from springtide.exchange.routing import Numbering
from springtide.operators.aggregates.partials import divided
from springtide.operators.operator import TIME_MARK, Clock, Operator, OperatorResult, earlier
from springtide.operators.sessions.kernel import DUE, SessionAggregate
from springtide.operators.state_view import StateView
from springtide.operators.tables import StateTable
from springtide.query import steps
from springtide.query.types import END_OF_TIME
from springtide.state.manifest import Marks

PIECES = "pieces"


class SessionOperator(Operator):
    """An aggregate over sessions."""

    def __init__(self, step: steps.Aggregate, buckets: int) -> None:
        """Prepare the kernel."""
        self._kernel, self._buckets, self._step = SessionAggregate(step), buckets, step
        self._columns = list(step.inputs[0].schema)
        self.tables = {PIECES: StateTable(slot=DUE, fold=self._kernel.merge)}

    def adapted(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Convert partial results of an older version to digits."""
        return self._kernel.partials.adapted(rows)

    def send(self, exchange: Exchange, tuples: pl.LazyFrame, numbering: Numbering) -> pl.LazyFrame:
        """Send pieces of sessions."""
        if exchange.ordered:
            tuples = tuples.with_columns(order.content(self._columns))
        pieces = self._kernel.combine(tuples).with_columns(hash_of(self._kernel.keys))
        return pieces.with_columns(bucket_of_hash(pl.col(HASH), self._buckets))

    def run(self, view: StateView, arrived: Sequence[pl.DataFrame | None], clock: Clock) -> OperatorResult:
        """Look at the pieces that are due; return the sessions that are over."""
        kernel, before = self._kernel, view.marks.get(TIME_MARK, gate.BEGINNING)
        time = max(clock.time, before)
        marks = {TIME_MARK: time}
        new = [] if arrived[0] is None else [kernel.merge(arrived[0])]
        old = [f.filter(pl.col(DUE).is_between(before + 1, time)) for f in view.read(PIECES, before + 1, time + 1)]
        due = [f.select(kernel.columns) for f in (*old, *(f.filter(pl.col(DUE) <= time) for f in new)) if f.height]
        later = [f.filter(pl.col(DUE) > time) for f in new]
        if not due:
            return OperatorResult(pl.DataFrame(schema=kernel.schema), marks, {PIECES: later[0]} if later else {})
        hashes = pl.concat([f[HASH] for f in due]).unique().sort()
        others = [f.filter(pl.col(DUE) > time) for f in view.lookup(PIECES, hashes.to_numpy(), time + 1)]
        others += [f.filter(pl.col(HASH).is_in(hashes.implode())) for f in later]
        rows, again = kernel.close(pl.concat([*due, *(f.select(kernel.columns) for f in others)]), time)
        rows, rejected = divided(self._step, rows)
        return OperatorResult(rows, marks, {PIECES: pl.concat([*later, again])}, rejected)

    def expired(self, marks: Marks, arrived: Sequence[pl.DataFrame | None]) -> int:
        """Count the pieces that begin before the time that the operator had reached."""
        return earlier(arrived[0], self._kernel.start, marks.get(TIME_MARK, gate.BEGINNING))

    def oldest(self, marks: Marks) -> Mapping[str, int]:
        """Return what is still needed: pieces that were due have been emitted or written again."""
        return {PIECES: min(marks[TIME_MARK], END_OF_TIME - 1) + 1}
