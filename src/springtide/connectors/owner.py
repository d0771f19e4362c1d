"""What a connector learns about the run that opens it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import polars as pl

from springtide.query.ids import NO_EPOCH, EpochNumber, Generation
from springtide.state.checkpoint import Lineage
from springtide.state.published import Commit

__all__ = ["Lineage", "Owner"]


def _say_nothing(_: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Owner:
    """One run of one query on one checkpoint, as one of its sources or sinks sees it."""

    query: str
    name: str
    """The name of the source or the sink in the query."""
    lineage: Lineage
    """Which checkpoint it is, and which others it was made from. `lineage.id` stays the same for every run on this checkpoint."""
    generation: Generation
    """Which run on this checkpoint it is: a later run has a greater number, and then earlier ones must not write."""
    epoch: EpochNumber = NO_EPOCH
    """The last epoch that was committed when the run began; -1: none yet."""
    commit: str | None = None
    """For a sink: the mark of that epoch's rows (`Publication.commit`), if there are any to publish."""
    published: tuple[Commit, ...] = ()
    """For a sink: the last epochs with rows that its target was given, oldest first, each with its mark, as far as the checkpoint remembers."""
    older: bool = False
    """For a sink: that epoch was committed by a version of Springtide that kept no record of what was published."""
    kind: Literal["source", "sink"] = "sink"
    schema: pl.Schema = field(default_factory=pl.Schema, repr=False)
    """For a sink: the columns of the rows that it will get. For a source: its columns."""
    note: Callable[[str], None] = field(default=_say_nothing, repr=False, compare=False)
    """Call this with a sentence that people should find among `run.events()`."""

    @property
    def last(self) -> Commit:
        """The last epoch with rows that the sink's target was given, with its mark; -1: none."""
        return self.published[-1] if self.published else (NO_EPOCH, "")

    @property
    def step(self) -> str:
        """The source or the sink, as errors name it."""
        return f"{self.name} ({self.kind})"
