"""The load balancer's second half: which instance gets which rows (SC-6, ST-6)."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from springtide.compiler.plan import Broadcast, Grid, Hash, Routing
from springtide.exchange.hashing import BUCKET, bucket_of_hash, hashed

BUCKETS = "__buckets"
"""If the key is a list: the distinct buckets that a tuple goes to."""

_OWNER = "__owner"
_FEW = 4
"""Up to this many instances, going over the rows once for each is faster than partitioning them."""
Part = tuple[int, pl.DataFrame | None]
"""An instance and its rows; None if it gets no rows, only a header."""


def split_by_instance(
    rows: pl.DataFrame, routing: Routing | None, side: int, owners: Sequence[int], instances: int
) -> Iterator[Part]:
    """Return every instance with the rows that it needs, each row at most once; instances without rows are included.

    - One bucket per row (`__bucket`): to the owner of the bucket.
    - `Hash(many)`: a row with the buckets of all its keys (`__buckets`) goes to every owner of one of them.
    - `Grid`: a left row goes to all owners of cells in the row of its cell, a right one to all in the column of its cell.
    - `Broadcast`: to every instance.
    """
    if not rows.height:
        yield from ((i, None) for i in range(instances))
    elif instances == 1 or isinstance(routing, Broadcast):
        yield from ((i, rows) for i in range(instances))
    elif isinstance(routing, Grid):
        yield from _by_cells(rows, routing, side, owners, instances)
    elif isinstance(routing, Hash) and routing.many:
        owner = pl.Series(owners, dtype=pl.Int32)
        own = rows[BUCKETS].list.eval(pl.lit(owner).gather(pl.element()))
        for i in range(instances):
            yield i, _some(rows.filter(own.list.contains(i)))
    else:
        owner = pl.Series(_OWNER, owners, dtype=pl.Int32).gather(rows[BUCKET])
        if instances <= _FEW:
            yield from ((i, _some(rows.filter(owner == i))) for i in range(instances))
            return
        parts = rows.with_columns(owner).partition_by(_OWNER, as_dict=True, include_key=False)
        yield from ((i, parts.get((i,))) for i in range(instances))


def _by_cells(rows: pl.DataFrame, grid: Grid, side: int, owners: Sequence[int], instances: int) -> Iterator[Part]:
    for i in range(instances):
        cells = cells_beside(grid, side, owners, i)
        yield i, rows if len(cells) == grid.rows * grid.columns else _some(rows.filter(pl.col(BUCKET).is_in(cells)))


def cells_beside(grid: Grid, side: int, owners: Sequence[int], instance: int) -> list[int]:
    """Return all cells of those rows (side 0) or columns (side 1) of a grid in which an instance owns a cell.

    >>> cells_beside(Grid(2, 2), 0, [0, 1, 0, 1], 1), cells_beside(Grid(2, 2), 1, [0, 1, 0, 1], 1)
    ([0, 1, 2, 3], [1, 3])
    """
    own = [divmod(b, grid.columns)[side] for b in range(grid.rows * grid.columns) if owners[b] == instance]
    return _cells(grid, side, set(own))


def rectangles(grid: Grid, owners: Sequence[int], instance: int) -> list[tuple[list[int], list[int]]]:
    """Cover the cells of an instance with rectangles, each cell once; return for each one all cells of its rows, and all cells of its columns.

    >>> rectangles(Grid(2, 2), [0, 0, 0, 1], 0)
    [([0, 1], [0, 1, 2, 3]), ([2, 3], [0, 2])]
    """
    by_columns: dict[tuple[int, ...], set[int]] = {}
    for row in range(grid.rows):
        columns = tuple(c for c in range(grid.columns) if owners[row * grid.columns + c] == instance)
        by_columns.setdefault(columns, set()).add(row)
    return [(_cells(grid, 0, rows), _cells(grid, 1, set(cs))) for cs, rows in by_columns.items() if cs]


def _cells(grid: Grid, side: int, wanted: Container[int]) -> list[int]:
    return [b for b in range(grid.rows * grid.columns) if divmod(b, grid.columns)[side] in wanted]


@dataclass(frozen=True)
class Numbering:
    """How a sender numbers the tuples that it distributes in turn.

    A task that is run again gives every tuple the same number as before: some readers have what the first attempt sent, others what the second one sent.
    """

    start: int = 0
    """A different number in every task and epoch."""
    rows: Literal["kept", "whole", "pieces"] = "whole"
    """Whether tuples are in an order that every attempt repeats (kept), or in any order: all of them together (whole), or an unknown part of them (pieces)."""

    def numbers(self, columns: Sequence[str]) -> pl.Expr:
        """Return the numbers of tuples; these columns are all that tells two of them apart.

        They are numbered by their order if it is kept. Otherwise by the order of their hashes, if all are there, so that equal ones are shared out as
        evenly as others; if not, a tuple's number can come only from the tuple itself.
        """
        if self.rows == "kept":
            return pl.int_range(self.start, self.start + pl.len(), dtype=pl.UInt64)
        content = hashed(pl.struct(columns))
        return content if self.rows == "pieces" else content.rank("ordinal").cast(pl.UInt64) + self.start


def in_turn(routing: Routing | None, side: int, buckets: int, numbers: pl.Expr) -> pl.Expr:
    """Return the buckets of rows by their numbers. In a grid, neighbours go to different rows (or columns, on side 1), and take turns at the places there."""
    if isinstance(routing, Grid) and side == 0:
        places = numbers % routing.rows * routing.columns + numbers // routing.rows % routing.columns
    elif isinstance(routing, Grid):
        places = numbers % routing.columns + numbers // routing.columns % routing.rows * routing.columns
    else:
        places = numbers % buckets
    return places.cast(pl.UInt16).alias(BUCKET)


def buckets_of_list(rows: pl.LazyFrame, column: str, buckets: int) -> pl.LazyFrame:
    """Return rows together with the buckets of all the keys in their list; a row without keys goes nowhere."""
    each = bucket_of_hash(hashed(pl.element()), buckets)
    listed = pl.col(column).list.eval(each).list.unique(maintain_order=False).alias(BUCKETS)
    return rows.filter(pl.col(column).list.len() > 0).with_columns(listed)


def _some(rows: pl.DataFrame) -> pl.DataFrame | None:
    return rows if rows.height else None
