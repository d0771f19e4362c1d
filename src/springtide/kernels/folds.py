"""Partial results that take more than an expression per column: each such aggregate folds frames of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import polars as pl

from springtide.query.aggregates import BoundAggregate

Groups = Sequence[str | pl.Expr]
"""What rows are grouped by."""


class Fold(Protocol):
    """One aggregate with partial columns of its own. Groups come in the order of their first rows."""

    @property
    def name(self) -> str:
        """The column with its value."""
        ...

    @property
    def columns(self) -> Sequence[str]:
        """Its partial columns."""
        ...

    def add(self, tuples: pl.LazyFrame, groups: Groups) -> pl.LazyFrame:
        """Fold tuples into partial columns, a row per group."""
        ...

    def merge(self, rows: pl.LazyFrame, groups: Groups) -> pl.LazyFrame:
        """Fold partial columns into one row per group. The groups' columns, and those of this aggregate, are all that `rows` has."""
        ...

    def finish(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Turn partial columns into values, a column."""
        ...


class UserFold:
    """A user's own aggregate: one column of structs."""

    def __init__(self, number: str, aggregate: BoundAggregate) -> None:
        """Prepare the expressions."""
        user = aggregate.aggregate.user
        assert user is not None
        self.name, self._user, self._partial = aggregate.name, user, list(aggregate.partial)
        self._column = f"{number}.user"
        self.columns = (self._column,)

    def add(self, tuples: pl.LazyFrame, groups: Groups) -> pl.LazyFrame:
        """Run the user's `add` over the tuples of each group."""
        parts = pl.struct([self._user.add[c].alias(c) for c in self._partial]).alias(self._column)
        return tuples.group_by(groups, maintain_order=True).agg(parts).select(self._column)

    def merge(self, rows: pl.LazyFrame, groups: Groups) -> pl.LazyFrame:
        """Run the user's `merge` over the partial results of each group."""
        bare = rows.select(pl.exclude(self._column), pl.col(self._column).struct.unnest())
        parts = pl.struct([self._user.merge[c].alias(c) for c in self._partial]).alias(self._column)
        return bare.group_by(groups, maintain_order=True).agg(parts).select(self._column)

    def finish(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Run the user's `finish` over each partial result."""
        bare = rows.select(pl.col(self._column).struct.unnest())
        return bare.select(self._user.finish.alias(self.name))


def names_of(groups: Groups) -> list[str]:
    """Name the columns of groups."""
    return [g if isinstance(g, str) else g.meta.output_name() for g in groups]
