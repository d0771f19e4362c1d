"""What a sink is: tasks write the rows of an epoch to files, and the driver publishes them once the epoch is committed."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol, runtime_checkable

import polars as pl

from springtide.connectors.complete import lacking
from springtide.connectors.owner import Owner
from springtide.query.connectors import SinkConnector
from springtide.query.ids import EpochNumber


@runtime_checkable
class Outbox(Protocol):
    """What tasks do with the rows for a sink: the only part of a sink that leaves the driver (with `cloudpickle`).

    A sink for a store that tasks can reach may have an outbox of its own: one that writes the rows there under a name that nobody reads, and
    puts what the driver needs to publish them into the file. The file's name is unique: `path.stem` will do as a name there.
    """

    @property
    def suffix(self) -> str:
        """How the names of the files end, such as ".arrow"."""
        ...

    def write(self, rows: pl.DataFrame, path: Path) -> None:
        """Write the rows of one task to a new file. A task may be tried again, with another file: only one of them counts."""
        ...


@dataclass(frozen=True)
class ArrowFiles:
    """Tasks write Arrow files: quick to write, quick to read."""

    suffix: str = ".arrow"

    def write(self, rows: pl.DataFrame, path: Path) -> None:
        """Write an Arrow file."""
        rows.write_ipc(path, compression="uncompressed")


@dataclass(frozen=True)
class ParquetFiles:
    """Tasks write Parquet files, for a sink that publishes them as they are."""

    suffix: str = ".parquet"

    def write(self, rows: pl.DataFrame, path: Path) -> None:
        """Write a Parquet file."""
        rows.write_parquet(path, compression="zstd", compression_level=1, statistics=True)


@dataclass(frozen=True)
class Publication:
    """The rows of one committed epoch for one sink. (query, checkpoint, sink, epoch) name it, and mean the same rows whenever it comes."""

    sink: str
    epoch: EpochNumber
    schema: pl.Schema
    outbox: tuple[Path, ...]
    """Where tasks wrote the files, in a fixed order; none if there are no rows."""
    rows: tuple[int, ...]
    """How many rows each file has."""
    find: Callable[[Path], Path] = lambda path: path
    """Fetches a file if it is elsewhere; raises an error if it is lost."""
    query: str = ""
    checkpoint: str = ""
    """The id of the checkpoint: that of the owner's lineage."""
    mark: str = ""
    """The mark of this commit where the names of the files do not make it: among replicas."""

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """The files, each of them here."""
        return tuple(self.find(path) for path in self.outbox)

    @property
    def commit(self) -> str:
        """A mark that no other commit of an epoch has, not even one with the same number: it tells two histories apart."""
        return self.mark or commit_of([path.name for path in self.outbox])

    def frame(self) -> pl.DataFrame:
        """Return all rows; for an epoch without rows an empty frame. For Arrow and Parquet files."""
        parts = [*self.frames()]
        return pl.concat(parts) if parts else pl.DataFrame(schema=self.schema)

    def frames(self) -> Iterator[pl.DataFrame]:
        """Return the rows of one file after the other. For Arrow and Parquet files."""
        for file in self.files:
            # the name of a folder may have characters of a pattern, and is none
            scan = pl.scan_parquet(file, glob=False) if file.suffix == ".parquet" else pl.scan_ipc(file, glob=False)
            yield scan.collect()


def commit_of(names: list[str]) -> str:
    """Return the mark of an epoch's files, a hash of their names: each name has a random part."""
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]


@runtime_checkable
class InMemory(Protocol):
    """A sink whose rows are in this process, and gone with it."""

    epochs: Mapping[int, pl.DataFrame]
    """Epoch → its rows, for each that was published, including those without rows. It grows while a run publishes."""


class Writer(ABC):
    """A sink at work in the driver, from `open` to `close`. Only one thread uses it."""

    @abstractmethod
    def publish(self, publication: Publication) -> None:
        """Publish the rows of a committed epoch.

        Epochs come in order, each after the last one was published, including those without rows. After a fault or a crash the same one comes
        again: look first whether it is there. An exception that is not a `SpringtideError` is treated as a temporary fault: the call is tried again
        for as long as the run's patience lasts.
        """

    def has(self, epoch: int, commit: str) -> bool:
        """Tell whether the rows of the last epoch, which were published, are still there; if not they are published again. Asked at the start."""
        return True

    def committed(self, epoch: int) -> None:  # noqa: B027 (a hook that need not be there)
        """Called when epochs up to this one will never come again: the next one is committed, or the run has ended."""

    def close(self) -> None:  # noqa: B027 (a hook that need not be there)
        """Make durable what was published, and release whatever `open` acquired. It is called once, whatever has happened."""


class Sink(SinkConnector, Writer):
    """A sink: derive from it, and define `describe`, and either `publish` or `open`.

    An instance describes where the rows go. It stays in the driver, with all that it holds; only its `outbox` goes to tasks. What a run
    needs, such as a connection, belongs to the `Writer` that `open` returns. A sink without such needs is its own writer.
    """

    @property
    def outbox(self) -> Outbox:
        """What tasks do with the rows."""
        return ArrowFiles()

    def admit(self, owner: Owner) -> None:
        """Refuse a run, with a `SinkError`, if its rows do not belong with those that are there: look, but change nothing.

        All sinks of a query are asked before any of them is opened.
        """

    def open(self, owner: Owner) -> Writer:
        """Return what publishes for one run; it is called once every sink has admitted the run, before the first `publish`."""
        return self

    def publish(self, publication: Publication) -> None:
        """Publish the rows of a committed epoch: see `Writer.publish`."""
        raise NotImplementedError

    def incomplete(self) -> str | None:
        """Return what the class lacks; None if it is complete."""
        if not isinstance(self.outbox, Outbox):
            return f"{type(self).__name__}.outbox has no suffix and no write(rows, path)"
        return lacking(type(self), Sink, {"publish": "open", "open": "publish"})
