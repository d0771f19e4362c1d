"""What the query language needs of sources and sinks: their shape, not how they read and write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import polars as pl

ONE_STREAM = "0"
"""The name of the physical stream of a source that has only one."""


@dataclass(frozen=True)
class Marker:
    """Something that happens between two rows of a physical stream, written among the rows of a test's input."""

    name: str
    time: int | None = None

    def __repr__(self) -> str:
        """Write it as it is written in the input."""
        return self.name if self.time is None else f"{self.name}({self.time})"


Rows = pl.DataFrame | Sequence[Mapping[str, Any] | Marker]
"""The rows of one physical stream, in position order."""


@runtime_checkable
class SourceConnector(Protocol):
    """Where tuples come from."""

    def schema(self) -> pl.Schema:
        """Names and types of the columns, found without reading the data."""
        ...

    @property
    def positions(self) -> bool:
        """Whether rows have a place in their physical stream; if not, ties are ordered by content."""
        ...

    def describe(self) -> str:
        """Say in a few words what this is, for people."""
        ...

    def read_all(self) -> Mapping[str, Rows]:
        """Read all that is there now: physical stream → rows in position order."""
        ...


@runtime_checkable
class SinkConnector(Protocol):
    """Where rows go."""

    def check(self, schema: pl.Schema) -> str | None:
        """Say what the sink cannot take of this schema, or None."""
        ...

    def describe(self) -> str:
        """Say in a few words what this is, for people."""
        ...
