"""What all stateful operators have in common: what they are sent, what they are given, what they give, and how their state is kept.

sender:    tuples ── send ──→ rows with buckets ──→ blobs
receiver:  blobs ──→ arrived, a frame per side ──┐
           segments ── view ───→ old state ──────┴─ run ──→ rows out · new state by table · marks
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from springtide.compiler.plan import Exchange
from springtide.exchange.routing import Numbering
from springtide.operators.state_view import StateView
from springtide.operators.tables import ALIVE, FIRST_SLOT, VERSION, StateTable
from springtide.query.types import END_OF_TIME, TS
from springtide.state.manifest import Marks, SubqueryState
from springtide.state.segment import Segment

TIME_MARK = "time"
"""The mark of most operators: the time up to which they have come."""


@dataclass(frozen=True)
class Clock:
    """Where time stands at an operator in an epoch. All instances see the same."""

    time: int
    """The merged time of all that it takes."""
    sides: tuple[int, ...]
    """The merged time of each input."""
    greatest: int
    """The greatest time that a tuple or a dummy had at any source upstream of it."""


@dataclass(frozen=True)
class OperatorResult:
    """What an operator gives, and what it puts into state."""

    rows: pl.DataFrame | Iterable[pl.DataFrame]
    """In one piece, or in several (at least one) when all might be too much for memory: then `writes` may be filled up to the last piece."""
    marks: Marks = field(default_factory=dict)
    """How far it has come; the same in all instances."""
    writes: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    """StateTable → new state rows, with `__bucket`. A `whole` table that is named is replaced, also by nothing."""
    rejected: pl.DataFrame | None = None
    """Rows for the operator's side output."""

    @property
    def pieces(self) -> Iterable[pl.DataFrame]:
        """The rows, piece by piece."""
        return [self.rows] if isinstance(self.rows, pl.DataFrame) else self.rows


class Operator(ABC):
    """One stateful step at work. It keeps nothing between epochs: what it remembers is in its state."""

    tables: Mapping[str, StateTable]
    """Its state; what people want to see first comes first."""

    windowed: bool = False
    """Its windows can be shared out between two owners: see `within`, `last_begun` and `beginning` (window recreation, SC-9)."""

    def within(self, windows: tuple[int | None, int | None]) -> pl.Expr:
        """Return which of the rows that are sent are needed for windows from the first to the last; None is without bound."""
        raise NotImplementedError

    def beginning(self, first: int) -> Marks:
        """Return the marks of a new owner whose first window this is."""
        raise NotImplementedError

    def last_begun(self, state: SubqueryState) -> int | None:
        """Return the last window that has anything in state."""
        raise NotImplementedError

    def adapted(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows of state as they are written now; an older version may have written them otherwise."""
        return rows

    def migrated(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows of state as this operator writes them, where other code of the user's has written them."""
        return self.adapted(rows)

    @abstractmethod
    def send(self, exchange: Exchange, tuples: pl.LazyFrame, numbering: Numbering) -> pl.LazyFrame:
        """Make the rows that go over an exchange to this operator, with their buckets; `numbering` numbers them, where they are dealt out in turn."""

    @abstractmethod
    def run(self, view: StateView, arrived: Sequence[pl.DataFrame | None], clock: Clock) -> OperatorResult:
        """Take what arrived at each side in this epoch, and the time it brought."""

    def expired(self, marks: Marks, arrived: Sequence[pl.DataFrame | None]) -> int:
        """Count the rows that came after their time: the operator had come past it, as its marks from before say. There must be none."""
        time = marks.get(TIME_MARK)
        return 0 if time is None else sum(earlier(frame, TS, time) for frame in arrived)

    @abstractmethod
    def oldest(self, marks: Marks) -> Mapping[str, int]:
        """Return the first slot of each table that is still needed once the operator has come so far; tables not named are needed."""

    def write(self, view: StateView, result: OperatorResult) -> tuple[Segment, ...]:
        """Write the new state of an instance; segments that are to be merged are written with it."""
        oldest = self.oldest(result.marks)
        segments: tuple[Segment, ...] = ()
        for name, table in self.tables.items():
            parts = [result.writes[name]] if name in result.writes else []
            first = oldest.get(name, FIRST_SLOT)
            replaced = table.whole and name in result.writes
            if not replaced and first <= END_OF_TIME and (old := view.to_merge(name)):
                if table.slot is not None and first != FIRST_SLOT:
                    slot = table.slot
                    old = [f.filter(f[slot].to_physical() >= first) for f in old]
                parts = [p for p in (*old, *parts) if p.height]
                if parts:
                    merged = pl.concat([p.select(parts[0].columns) for p in parts])
                    merged = merged if table.fold is None else table.fold(merged)
                    if table.versions and ALIVE in merged.columns:
                        merged = merged.filter(pl.col(ALIVE) | (pl.col(VERSION) > view.oldest_elsewhere(name)))
                    parts = [merged]
            for part in parts:
                segments += view.write(name, part, table.slot)
        return segments


def earlier(rows: pl.DataFrame | None, column: str, than: int) -> int:
    """Count the rows with a value below another one, in a column of times or integers."""
    if rows is None or column not in rows.columns:
        return 0
    values = rows[column].to_physical()
    least = values.min()
    return int((values < than).sum()) if isinstance(least, int) and least < than else 0
