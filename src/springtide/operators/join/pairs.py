"""What a pair of a join looks like: the columns of both tuples, the later time, and the predicate that must hold."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import polars as pl

from springtide.query.steps import Join, ThetaJoin
from springtide.query.types import TS

_RIGHT_TS = "__right_ts"
_HOLDS = "__holds"


@dataclass(frozen=True)
class Pairs:
    """Pairs, and for each of them the numbers of the left and the right tuple that it was made from."""

    rows: pl.DataFrame
    left: np.ndarray
    right: np.ndarray


class PairShape:
    """The pairs of one join. Inputs may have more columns than the streams (buckets, hashes): those are left out."""

    def __init__(self, step: Join | ThetaJoin) -> None:
        """Work out which columns of each side a pair and its predicate need."""
        self.schema = step.schema
        """The columns of a pair."""
        self.predicate = step.where if isinstance(step, Join) else step.predicate
        """What must be true of a pair, in terms of its column names; None if matching keys are enough."""
        self._left = [n for n in step.inputs[0].schema if n != TS]
        self._right = dict(step.right_columns)
        self._conditions = (
            [] if self.predicate is None else [self._condition(part) for part in conjuncts(self.predicate)]
        )

    def made(self, left: pl.DataFrame, right: pl.DataFrame, i: np.ndarray, j: np.ndarray) -> Pairs:
        """Pair the left tuples `i` with the right tuples `j`, one by one, and keep the pairs for which the predicate is true.

        The predicate is evaluated part by part, with only the columns that the part reads; the others are gathered for the pairs that are left. It
        is up to the caller to limit how many pairs are made at once.
        """
        mine, theirs = (pl.Series(numbers.astype(np.uint32)) for numbers in (i, j))
        for condition in self._conditions:
            asked = _beside(left, right, mine, theirs, condition.left, condition.right, time=condition.time)
            holds = asked.with_columns(condition.expr.alias(_HOLDS))[_HOLDS]
            mine, theirs = mine.filter(holds), theirs.filter(holds)  # null is not true
        rows = _beside(left, right, mine, theirs, self._left, self._right, time=True)
        return Pairs(rows.select(self.schema.names()), mine.to_numpy(), theirs.to_numpy())

    def alone(self, left: pl.DataFrame, ts: pl.Expr) -> pl.DataFrame:
        """Return left tuples that are in no pair, with nulls on the right and this time."""
        nulls = [pl.lit(None, dtype=self.schema[here]).alias(here) for here in self._right.values()]
        return left.select(*self._left, ts.cast(self.schema[TS]).alias(TS), *nulls).select(self.schema.names())

    def _condition(self, expr: pl.Expr) -> _Condition:
        names = set(expr.meta.root_names())
        right = {there: here for there, here in self._right.items() if here in names}
        # A condition that reads nothing still needs a column, for its length.
        return _Condition(expr, [n for n in self._left if n in names], right, time=TS in names or not names)

    def none(self) -> pl.DataFrame:
        """Return an empty frame of pairs."""
        return pl.DataFrame(schema=self.schema)


@dataclass(frozen=True)
class _Condition:
    """A part of the predicate, and what it reads: columns of the left, of the right (name there, name here), and whether it reads the pair's time."""

    expr: pl.Expr
    left: list[str]
    right: dict[str, str]
    time: bool


def conjuncts(predicate: pl.Expr) -> list[pl.Expr]:
    """Split a predicate into parts, all of which must be true. They stay in the order in which they were written.

    >>> [str(part) for part in conjuncts(pl.col("a") & (pl.col("b") | pl.col("c")) & pl.col("d"))]
    ['col("a")', '[(col("b")) | (col("c"))]', 'col("d")']
    """
    written = json.loads(predicate.meta.serialize(format="json"))
    if not isinstance(written, dict) or written.get("BinaryExpr", {}).get("op") not in ("And", "LogicalAnd"):
        return [predicate]
    right, left = predicate.meta.pop()
    return [*conjuncts(left), *conjuncts(right)]


def _beside(
    left: pl.DataFrame,
    right: pl.DataFrame,
    i: pl.Series,
    j: pl.Series,
    left_names: list[str],
    right_names: dict[str, str],
    *,
    time: bool,
) -> pl.DataFrame:
    """Put tuples next to each other: columns of the left, columns of the right under their names in a pair, and the later time."""
    times = [TS] if time else []
    mine = left.select(*left_names, *times)
    renamed = [pl.col(there).alias(here) for there, here in (*right_names.items(), *((n, _RIGHT_TS) for n in times))]
    sides = ((mine, i), (right.select(renamed), j))
    pairs = pl.concat([side[rows] for side, rows in sides if side.width], how="horizontal")
    return pairs.with_columns(pl.max_horizontal(TS, _RIGHT_TS)).drop(_RIGHT_TS) if time else pairs
