"""Slices: what the driver hands to a task of a source that reads its data in Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import polars as pl

UNLIMITED = 2**62

POSITION = "__position"
"""The column of a row's place in its physical stream, where a connector gives it."""

MISFIT = "__misfit"
"""The column that says why a row does not fit, null where it does; where a connector gives it, such rows are rejected."""


@dataclass(frozen=True)
class Slice:
    """Some rows of one physical stream, one after the other."""

    stream: str
    position: int
    """The position of the first row."""
    rows: int
    data: Any
    """The connector's own words: where the rows are."""
    greatest: int | None = None
    """The greatest ts in it, where the connector knows it without reading: then slices of one stream can be read side by side."""
    source: str = ""
    time: int = 0
    """The stream time before the first row."""
    arrived: tuple[float, float] | None = None
    """When, by the clock, its first and its last row were there to be read; None where the connector cannot tell."""
    reader: NativeSource | None = None
    """Who reads it, if not the source's own connector: one that was attached while running."""

    def at(self, source: str, time: int) -> Slice:
        """Say where it belongs and when it begins."""
        return replace(self, source=source, time=time)


@dataclass(frozen=True)
class Take:
    """What a source has for the next epoch."""

    slices: tuple[Slice, ...]
    position: Any
    """Where to go on after this epoch: plain JSON."""
    times: Mapping[str, int] = field(default_factory=dict)
    """Stream times that do not come from rows: dummies, and the end of a physical stream."""
    streams: tuple[str, ...] = ()
    """All physical streams that are known."""
    ended: bool = False
    """Nothing will come after this."""
    backlog: int = 0
    """Rows that are there but not taken."""
    fail: bool = False
    """A test wants the process to die here."""
    greatest: int | None = None
    """The greatest time of a dummy."""
    notes: tuple[str, ...] = ()
    """What people may want to know: files that have changed since they were read, that are gone, that cannot be read."""


@dataclass(frozen=True)
class Read:
    """The rows of a slice, and those that do not fit the source's schema."""

    rows: pl.LazyFrame
    """In the connector's columns; may have a column of positions."""
    rejected: tuple[Mapping[str, Any], ...] = ()
    """Position, reason and the row as JSON."""


@runtime_checkable
class NativeSource(Protocol):
    """A source that is read in Python: the driver takes slices, tasks read them."""

    def schema(self) -> pl.Schema:
        """Names and types of the columns."""
        ...

    def describe(self) -> str:
        """Say in a few words what this is, for people."""
        ...

    def take(self, position: Any, limit: int, ts: str | None) -> Take:
        """Say what to read next, at most about `limit` rows; `position` is where the last epoch ended, None at first.

        `ts` names the column with the event time. A position that is a dict may have a `ledger` of files (see `sources.ledger`).
        """
        ...

    def read(self, part: Slice) -> Read:
        """Read a slice, in a task."""
        ...
