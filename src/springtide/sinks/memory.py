"""Rows kept in memory, for tests and first steps."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from springtide.sinks.publication import Publication


@dataclass(eq=False)
class MemorySink:
    """Keeps the rows of each epoch; a replayed epoch replaces what it gave before."""

    epochs: dict[int, pl.DataFrame] = field(default_factory=dict, repr=False)

    def check(self, schema: pl.Schema) -> str | None:
        """Take anything."""
        return None

    def describe(self) -> str:
        """Say where."""
        return "memory"

    def publish(self, publication: Publication) -> None:
        """Keep the rows of an epoch."""
        self.epochs[publication.epoch] = publication.frame()

    def __getstate__(self) -> dict[str, object]:
        """Leave the rows in the driver: tasks need none of them."""
        return {"epochs": {}}

    def rows(self) -> pl.DataFrame:
        """Give all rows, epoch after epoch."""
        return pl.concat([self.epochs[n] for n in sorted(self.epochs)]) if self.epochs else pl.DataFrame()


def memory_sink() -> MemorySink:
    """Keep the rows in memory.

    >>> st.memory_sink().rows().height
    0
    """
    return MemorySink()
