"""Aggregates over windows of n tuples: tuples wait until they are ready, then they are numbered; panes of unfilled windows in state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from springtide.compiler.plan import Exchange
from springtide.kernels import order
from springtide.kernels.counting import CountingAggregate
from springtide.kernels.hashing import HASH, bucket_of_hash, hash_of
from springtide.kernels.routing import Turn
from springtide.query import steps
from springtide.query.types import END_OF_TIME
from springtide.runtime.heads import ordered
from springtide.runtime.heads.head import Clock, Head, HeadResult, Kind, Shelf
from springtide.runtime.heads.rejecting import divided
from springtide.state.manifest import Marks

HELD = "held"
PANES = "panes"


class CountingHead(Head):
    """An aggregate over windows of n tuples."""

    def __init__(self, step: steps.Aggregate, buckets: int) -> None:
        """Prepare the kernel."""
        self._kernel, self._buckets, self._step = CountingAggregate(step), buckets, step
        self.kinds = {HELD: ordered.HELD, PANES: Kind(fold=self._kernel.fold, versions=True)}

    def adapted(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Bring partial results of an older version to digits."""
        return self._kernel.partials.adapted(rows)

    def send(self, exchange: Exchange, tuples: pl.LazyFrame, turn: Turn) -> pl.LazyFrame:
        """Send the columns that are needed, with their places."""
        kernel = self._kernel
        bucket = bucket_of_hash(pl.col(HASH), self._buckets)
        return tuples.select([*kernel.inputs, *order.PLACES, hash_of(kernel.keys)]).with_columns(bucket)

    def run(self, shelf: Shelf, arrived: Sequence[pl.DataFrame | None], clock: Clock) -> HeadResult:
        """Number the tuples that are ready; give the windows that are full."""
        kernel, writes = self._kernel, {}
        ready, held = ordered.release(shelf, HELD, arrived[0], clock)
        rows = pl.DataFrame(schema=kernel.schema)
        if ready is not None:
            found = shelf.lookup(PANES, ready[HASH].unique().sort().to_numpy())
            old = pl.concat([f.select(kernel.columns) for f in found]) if found else None
            rows, writes[PANES] = kernel.advance(old, ready)
        if held is not None:
            writes[HELD] = held
        marks = {ordered.TIME_MARK: max(clock.time, ordered.ready_before(shelf))}
        rows, rejected = divided(self._step, rows)
        return HeadResult(rows, marks, {} if clock.time == END_OF_TIME else writes, rejected)

    def oldest(self, marks: Marks) -> Mapping[str, int]:
        """Tuples are held until they are ready. How many a key had is known until the end."""
        time = marks[ordered.TIME_MARK]
        return {HELD: time, PANES: END_OF_TIME + 1} if time == END_OF_TIME else {HELD: time}
