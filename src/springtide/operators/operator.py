"""What all stateful operators have in common: what is sent to them, what they receive, what they return, and how their state is kept.

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
from springtide.query.ids import Micros
from springtide.query.types import END_OF_TIME, TS
from springtide.state.manifest import Marks, SubqueryState
from springtide.state.segment import Segment

TIME_MARK = "time"
"""The mark that most operators use: the time up to which they have processed."""


@dataclass(frozen=True)
class Clock:
    """The current time at an operator in an epoch. All instances see the same values."""

    time: Micros
    """The merged time of all inputs."""
    sides: tuple[Micros, ...]
    """The merged time of each input."""
    greatest: Micros
    """The greatest time of any tuple or dummy at any source upstream."""


@dataclass(frozen=True)
class OperatorResult:
    """The rows that an operator returns, and what it writes to state."""

    rows: pl.DataFrame | Iterable[pl.DataFrame]
    """In one piece, or in several (at least one) when all of them might not fit in memory; `writes` is then complete only after the last piece."""
    marks: Marks = field(default_factory=dict)
    """How far the operator has come; the same in all instances."""
    writes: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    """StateTable → new state rows, with `__bucket`. A `whole` table that is named here is replaced, even if there are no rows."""
    rejected: pl.DataFrame | None = None
    """Rows for the operator's side output."""

    @property
    def pieces(self) -> Iterable[pl.DataFrame]:
        """The rows, piece by piece."""
        return [self.rows] if isinstance(self.rows, pl.DataFrame) else self.rows


class Operator(ABC):
    """A stateful step at runtime. It keeps nothing between epochs: everything that it remembers is in its state."""

    tables: Mapping[str, StateTable]
    """Its state tables; those that people want to see first come first."""

    tuple_columns: Mapping[str, Sequence[str]] = {}
    """Table → the columns of tuples that are in it, where these are some of them and depend on what the step does with them."""

    windowed: bool = False
    """Whether its windows can be divided between two owners: see `within`, `last_begun` and `beginning` (window recreation, SC-9)."""

    def within(self, windows: tuple[int | None, int | None]) -> pl.Expr:
        """Return an expression that selects the sent rows needed for the windows from the first to the last; None means no bound."""
        raise NotImplementedError

    def beginning(self, first: int) -> Marks:
        """Return the marks of a new owner whose first window is `first`."""
        raise NotImplementedError

    def last_begun(self, state: SubqueryState) -> int | None:
        """Return the last window that has anything in state."""
        raise NotImplementedError

    def adapted(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return state rows in the current format; an older version may have written them differently."""
        return rows

    def migrated(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return state rows as this operator writes them, given rows that other user code has written."""
        return self.adapted(rows)

    @abstractmethod
    def send(self, exchange: Exchange, tuples: pl.LazyFrame, numbering: Numbering) -> pl.LazyFrame:
        """Make the rows that go over an exchange to this operator, with their buckets; `numbering` numbers them where they are distributed in turn."""

    @abstractmethod
    def run(self, view: StateView, arrived: Sequence[pl.DataFrame | None], clock: Clock) -> OperatorResult:
        """Process what arrived at each side in this epoch, and the progress of time that came with it."""

    def expired(self, marks: Marks, arrived: Sequence[pl.DataFrame | None]) -> int:
        """Count the rows that arrived too late: after the operator had already passed their time, according to its earlier marks. There must be none."""
        time = marks.get(TIME_MARK)
        return 0 if time is None else sum(earlier(frame, TS, time) for frame in arrived)

    @abstractmethod
    def oldest(self, marks: Marks) -> Mapping[str, int]:
        """Return the first slot of each table that is still needed once the operator has come this far; tables not named are needed in full."""

    def write(self, view: StateView, result: OperatorResult) -> tuple[Segment, ...]:
        """Write the new state of an instance, together with the rows of segments that are to be merged."""
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
                    if table.versions and ALIVE in merged.columns and not merged[ALIVE].all():
                        merged = merged.filter(pl.col(ALIVE) | (pl.col(VERSION) > view.oldest_elsewhere(name)))
                    parts = [merged]
            for part in parts:
                segments += view.write(name, part, table.slot)
        return segments


def earlier(rows: pl.DataFrame | None, column: str, than: int) -> int:
    """Count the rows whose value in a column of times or integers is below `than`."""
    if rows is None or column not in rows.columns:
        return 0
    values = rows[column].to_physical()
    least = values.min()
    return int((values < than).sum()) if isinstance(least, int) and least < than else 0
