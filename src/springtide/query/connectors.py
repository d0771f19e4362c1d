"""What the query language needs to know about sources and sinks: their shape, not how they read and write."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

ONE_STREAM = "0"
"""The name of the physical stream of a source that has only one."""


@dataclass(frozen=True)
class Marker:
    """Something that happens between two rows of a physical stream; tests write it among the rows of their input."""

    name: str
    time: int | None = None

    def __repr__(self) -> str:
        """Return it as it is written in the input."""
        return self.name if self.time is None else f"{self.name}({self.time})"


Rows = pl.DataFrame | Sequence[Mapping[str, Any] | Marker]
"""The rows of one physical stream, in position order."""


class SourceConnector(ABC):
    """Where tuples come from, as the query language sees it. To write your own, derive from `springtide.connectors.Source`."""

    positions: bool = True
    """Whether rows have a place in their physical stream; if not, ties are ordered by content."""
    repeats: bool = False
    """Whether several rows may have the same position."""

    @abstractmethod
    def schema(self) -> pl.Schema:
        """Return the names and types of the columns, without reading the data."""

    @abstractmethod
    def describe(self) -> str:
        """Return a short description for people, without any secrets."""

    @abstractmethod
    def read_all(self) -> Mapping[str, Rows]:
        """Return all rows that exist now: physical stream → rows in position order."""

    def incomplete(self) -> str | None:
        """Return what the class lacks; None if it is complete."""
        return None


class SinkConnector(ABC):
    """Where rows go, as the query language sees it. To write your own, derive from `springtide.connectors.Sink`."""

    def check(self, schema: pl.Schema) -> str | None:
        """Return why the sink cannot take rows with these columns; None if it can."""
        return None

    @abstractmethod
    def describe(self) -> str:
        """Return a short description for people, without any secrets."""

    @property
    def place(self) -> Hashable:
        """Where the rows go, if two sinks cannot share that place; None if they can."""
        return None

    def incomplete(self) -> str | None:
        """Return what the class lacks; None if it is complete."""
        return None
