"""What a sink gets: the rows of one committed epoch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import polars as pl


@dataclass(frozen=True)
class Publication:
    """The rows of one epoch for one sink, as files that tasks wrote."""

    sink: str
    epoch: int
    schema: pl.Schema
    files: tuple[Path, ...]
    rows: tuple[int, ...]

    def frame(self) -> pl.DataFrame:
        """Read all rows; an epoch without rows gives an empty frame."""
        parts = [pl.read_parquet(f) if f.suffix == ".parquet" else pl.read_ipc(f) for f in self.files]
        return pl.concat(parts) if parts else pl.DataFrame(schema=self.schema)


@runtime_checkable
class Publisher(Protocol):
    """A sink at work, in the driver."""

    def publish(self, publication: Publication) -> None:
        """Take the rows of an epoch; the same epoch may come again after a crash."""
        ...
