"""Exact rankings: each instance counts the values of its buckets and ranks them; the rankings of all instances are merged.

    tuples ── hash of per and by ──→ counts of panes in state ── window closes ──→ the first k
                                                                   of every instance ── hash of per ──→ the first k

All instances close a window in the same epoch, so the operator that merges their rankings keeps no state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from springtide.compiler.plan import Exchange, Hash
from springtide.exchange.hashing import bucket_of
from springtide.exchange.routing import Numbering
from springtide.operators.operator import Clock, Operator, OperatorResult
from springtide.operators.ranking.kernel import counting_step, ranked, sketching_step, unfolded
from springtide.operators.sliding.operator import SlidingOperator
from springtide.operators.state_view import StateView
from springtide.operators.tables import StateTable
from springtide.query import steps
from springtide.query.errors import UserCodeError
from springtide.state.manifest import Marks


class RankingOperator(Operator):
    """A ranking of the values of some buckets."""

    def __init__(self, step: steps.TopK, buckets: int) -> None:
        """Prepare the counting."""
        self._step, self._counting = step, SlidingOperator(counting_step(step), buckets)
        self.tables = self._counting.tables

    def adapted(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Convert counts of an older version to digits."""
        return self._counting.adapted(rows)

    def send(self, exchange: Exchange, tuples: pl.LazyFrame, numbering: Numbering) -> pl.LazyFrame:
        """Send counts per value and pane."""
        return self._counting.send(exchange, tuples, numbering)

    def run(self, view: StateView, arrived: Sequence[pl.DataFrame | None], clock: Clock) -> OperatorResult:
        """Count the values, and rank those of the windows that have ended by now."""
        result = self._counting.run(view, arrived, clock)
        assert isinstance(result.rows, pl.DataFrame)
        return replace(result, rows=ranked(self._step, result.rows))

    def expired(self, marks: Marks, arrived: Sequence[pl.DataFrame | None]) -> int:
        """Count the rows whose panes belong to a closed window."""
        return self._counting.expired(marks, arrived)

    def oldest(self, marks: Marks) -> Mapping[str, int]:
        """Return what is still needed: panes from the first open window on."""
        return self._counting.oldest(marks)


class SketchRankingOperator(RankingOperator):
    """A ranking by estimates: a frequent-items sketch for each group and pane, merged where the group is processed."""

    def __init__(self, step: steps.TopK, buckets: int, where: str) -> None:
        """Prepare the sketches."""
        self._step, self._counting, self._where = step, SlidingOperator(sketching_step(step), buckets), where
        self.tables = self._counting.tables

    def send(self, exchange: Exchange, tuples: pl.LazyFrame, numbering: Numbering) -> pl.LazyFrame:
        """Send sketches per group and pane."""
        if self._step.weight is not None:
            self._check(tuples.collect())
        return self._counting.send(exchange, tuples, numbering)

    def run(self, view: StateView, arrived: Sequence[pl.DataFrame | None], clock: Clock) -> OperatorResult:
        """Merge sketches, and rank the estimates of the windows that have ended by now."""
        result = self._counting.run(view, arrived, clock)
        assert isinstance(result.rows, pl.DataFrame)
        return replace(result, rows=ranked(self._step, unfolded(result.rows)))

    def _check(self, tuples: pl.DataFrame) -> None:
        """Refuse weights below zero."""
        weight = self._step.weight
        assert weight is not None
        wrong = tuples.filter(pl.col(weight) < 0)
        if wrong.height:
            row = wrong.select(list(self._step.inputs[0].schema)).row(0, named=True)
            hint = "a sketch can only add: filter such rows out, or rank without sketch="
            raise UserCodeError(self._where, f"the weight {row[weight]} is below zero", hint, row)


class RankingMergeOperator(Operator):
    """Merges the rankings of several instances into one."""

    tables: Mapping[str, StateTable] = {}

    def __init__(self, step: steps.TopK, buckets: int) -> None:
        """Remember what is ranked."""
        self._step, self._buckets = step, buckets

    def send(self, exchange: Exchange, tuples: pl.LazyFrame, numbering: Numbering) -> pl.LazyFrame:
        """Send the rankings, those of each group to one place."""
        keys = exchange.routing.keys if isinstance(exchange.routing, Hash) else ()
        return tuples.with_columns(bucket_of(keys, self._buckets))

    def run(self, view: StateView, arrived: Sequence[pl.DataFrame | None], clock: Clock) -> OperatorResult:
        """Rank the rankings together."""
        if arrived[0] is None:
            return OperatorResult(pl.DataFrame(schema=self._step.schema))
        return OperatorResult(ranked(self._step, arrived[0]))

    def oldest(self, marks: Marks) -> Mapping[str, int]:
        """Return nothing: no state is kept."""
        return {}
