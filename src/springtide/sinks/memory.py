"""Rows kept in memory, for tests and first steps."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from springtide.connectors import Owner, Publication, Sink
from springtide.query.errors import SinkError
from springtide.query.usage import usage


@dataclass(eq=False)
class MemorySink(Sink):
    """Keeps the rows of each epoch; a replayed epoch replaces what it gave before."""

    epochs: dict[int, pl.DataFrame] = field(default_factory=dict, repr=False)
    checkpoint: str = field(default="", repr=False)
    """Whose rows it has: the id of a checkpoint."""

    def describe(self) -> str:
        """Say where the rows go."""
        return "memory"

    def publish(self, publication: Publication) -> None:
        """Keep the rows of an epoch."""
        self.epochs[publication.epoch] = publication.frame()

    @property
    def place(self) -> int:
        """Where the rows go: no two sinks can share it."""
        return id(self)

    def admit(self, owner: Owner) -> None:
        """Refuse to mix the rows of two runs."""
        last = max(self.epochs, default=-1)
        known = owner.epoch if self.checkpoint == owner.lineage.id else owner.lineage.shared_with(self.checkpoint)
        if self.epochs and self.checkpoint and (known is None or last > known):
            whose = "of another run" if known is None else f"up to epoch {last}, which this checkpoint does not have"
            raise SinkError(
                owner.step, f"the memory sink has rows {whose}", "give each run an st.memory_sink() of its own"
            )

    def open(self, owner: Owner) -> MemorySink:
        """Note whose rows these will be."""
        self.checkpoint = owner.lineage.id
        return self

    def rows(self) -> pl.DataFrame:
        """Return all rows, epoch after epoch."""
        return pl.concat([self.epochs[n] for n in sorted(self.epochs)]) if self.epochs else pl.DataFrame()


@usage("st.memory_sink()")
def memory_sink() -> MemorySink:
    """Keep the rows in memory.

    >>> st.memory_sink().rows().height
    0
    """
    return MemorySink()
