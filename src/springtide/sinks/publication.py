"""What a sink gets: the rows of one committed epoch, and, at the start of a run, whose rows they will be."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol, runtime_checkable

import polars as pl

from springtide.state.checkpoint import Lineage


@dataclass(frozen=True)
class Owner:
    """Who gives rows to a sink: one run of one query on one checkpoint."""

    query: str
    sink: str
    lineage: Lineage
    """Which checkpoint it is, and of which others it was made."""
    generation: int
    epoch: int = -1
    """The last epoch that is committed when the run begins."""
    commit: str | None = None
    """The mark of that epoch's rows for this sink, if there are any to publish."""
    older: bool = False
    """That epoch was committed by a version of Springtide that kept no record of what was published."""

    @property
    def step(self) -> str:
        """The sink, as errors name it."""
        return f"{self.sink} (sink)"


@dataclass(frozen=True)
class Publication:
    """The rows of one epoch for one sink, as files that tasks wrote."""

    sink: str
    epoch: int
    schema: pl.Schema
    outbox: tuple[Path, ...]
    """Where tasks wrote the files."""
    rows: tuple[int, ...]
    find: Callable[[Path], Path] = lambda path: path
    """Brings a file here if it is elsewhere; one that is lost is an error."""

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """The files, each of them here."""
        return tuple(self.find(path) for path in self.outbox)

    @property
    def commit(self) -> str:
        """A mark that no other commit of an epoch has, not even of one with the same number."""
        return commit_of([path.name for path in self.outbox])

    def frame(self) -> pl.DataFrame:
        """Read all rows; an epoch without rows gives an empty frame."""
        parts = [pl.read_parquet(f) if f.suffix == ".parquet" else pl.read_ipc(f) for f in self.files]
        return pl.concat(parts) if parts else pl.DataFrame(schema=self.schema)


def commit_of(names: list[str]) -> str:
    """Give the mark of an epoch's files: a part of every name is random."""
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]


@runtime_checkable
class Publisher(Protocol):
    """A sink at work, in the driver."""

    def publish(self, publication: Publication) -> None:
        """Take the rows of an epoch; the same epoch may come again after a crash."""
        ...


@runtime_checkable
class Opener(Protocol):
    """A sink that remembers by itself what was published to it, and so knows whose rows it has."""

    def admit(self, owner: Owner) -> None:
        """Refuse a run whose rows do not go with what is there. Nothing is changed: the other sinks may refuse too."""
        ...

    def open(self, owner: Owner, note: Callable[[str], None]) -> Opened:
        """Let a run in, once every sink admits it; `note` tells people what they may want to know."""
        ...


class Opened(Publisher, Protocol):
    """A sink that a run has opened."""

    def close(self) -> None:
        """Make durable what was published, and let the next run in."""
        ...
