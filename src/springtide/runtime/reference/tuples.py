"""Tuples with their place in the total order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import polars as pl

from springtide.runtime.reference.values import Plain, content_key, frame_of, plain_rows

BEGINNING_OF_TIME = -(2**63)
"""The time of a physical stream about which nothing is known yet."""

_LONGEST_LIST = 2**32


class OrderPlace(NamedTuple):
    """Where a tuple stands among others with the same ts. A tuple that a stateful step makes has only an origin."""

    origin: str
    stream: str = ""
    position: int = -1
    place: int = 0
    """After an `explode`, the place in the list; after several of them, the earlier one is more significant."""

    def in_list(self, index: int) -> OrderPlace:
        """Return the place of an element of the tuple's list."""
        return self._replace(place=self.place * _LONGEST_LIST + index)


@dataclass(frozen=True, eq=False)
class Tuple:
    """One tuple: its time (0 in streams without time), its place, and its row as a frame or as plain values."""

    ts: int
    place: OrderPlace
    row: pl.DataFrame | Plain
    schema: pl.Schema

    @cached_property
    def frame(self) -> pl.DataFrame:
        """The row as a frame, for expressions and operators."""
        return self.row if isinstance(self.row, pl.DataFrame) else frame_of([self.row], self.schema)

    @cached_property
    def values(self) -> Plain:
        """The plain values of the row."""
        return plain_rows(self.row)[0] if isinstance(self.row, pl.DataFrame) else self.row

    @cached_property
    def content(self) -> list[Any]:
        """The last part of the total order."""
        return content_key(self.values)

    def with_frame(self, frame: pl.DataFrame) -> Tuple:
        """Return the same tuple with other columns."""
        return Tuple(self.ts, self.place, frame, frame.schema)


def in_order(tuples: Iterable[Tuple]) -> list[Tuple]:
    """Return tuples in the total order."""
    return sorted(tuples, key=lambda t: (t.ts, t.place, t.content))


def in_frame(tuples: Iterable[Tuple], schema: pl.Schema) -> pl.DataFrame:
    """Return tuples as one frame, in the order given."""
    return frame_of([t.values for t in tuples], schema)
