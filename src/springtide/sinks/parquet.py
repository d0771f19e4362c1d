"""Parquet files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from springtide.connectors import CheckpointError, Outbox, Owner, ParquetFiles, Sink, Store, Writer
from springtide.query.errors import QueryError, shown
from springtide.query.places import local, scheme_of
from springtide.query.types import Length
from springtide.query.usage import usage
from springtide.sinks import bucket
from springtide.sinks.columns import nested
from springtide.sinks.folder import Folder
from springtide.sinks.ledger import look, refuse
from springtide.sinks.partitions import PartitionedFiles, key_of
from springtide.sinks.rolling import Layout, layout_of


@dataclass(frozen=True)
class ParquetSink(Sink):
    """A folder of Parquet files."""

    path: str
    layout: Layout = field(default_factory=Layout, repr=False)
    store: Store | None = field(default=None, repr=False)
    """Where they go, if that is an object store."""

    @property
    def outbox(self) -> Outbox:
        """Tasks write Parquet files; publishing only gives them other names, or distributes their rows to folders."""
        if not self.layout.partition_by:
            return ParquetFiles()
        above = None if self.store is None else key_of(self.store.url)
        return PartitionedFiles(sink="parquet_sink", columns=self.layout.partition_by, above=above)

    def check(self, schema: pl.Schema) -> str | None:
        """Refuse what a Parquet file cannot hold."""
        for name, dtype in schema.items():
            if any(isinstance(t, pl.Object) for t in nested(dtype)):
                return f"{name!r} holds Python objects"
            if any(isinstance(t, pl.Struct) and not t.fields for t in nested(dtype)):
                return f"{name!r} is a struct without fields"
        return self.layout.refusal(schema)

    def describe(self) -> str:
        """Say where the rows go."""
        by = f", partitioned by {' and '.join(self.layout.partition_by)}" if self.layout.partition_by else ""
        return f"parquet {self.path}{by}"

    @property
    def place(self) -> str:
        """Where the rows go: no two sinks can share it."""
        return os.path.realpath(self.path) if self.store is None else self.path

    def admit(self, owner: Owner) -> None:
        """Refuse a folder with files of others, or of epochs that the run does not have."""
        if self.store is not None:
            bucket.check(self.store, owner)
            return
        refuse(Path(self.path), look(Path(self.path)), owner)

    def open(self, owner: Owner) -> Writer:
        """Claim the folder for a run."""
        if self.store is not None:
            return bucket.Bucket(self.store, owner, self.layout)
        return Folder(Path(self.path), owner, self.layout)


@usage("st.parquet_sink('out/')")
def parquet_sink(
    path: str | Path,
    *,
    partition_by: str | Sequence[str] = (),
    roll: Length | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> ParquetSink:
    """Write rows to a folder of Parquet files, each row exactly once. Readers may take files away at any time.

    The folder belongs to this sink alone: an empty file in it, with a name that begins with `.springtide`, says whose it is and how far it was written.
    Files that are being written are hidden too: while a query runs, read `out/*.parquet` rather than `out/`.

    Every epoch has files of its own. With `roll`, a time such as "5m" or a size such as "128MB", rows are held back and put together: readers see
    them in one file and in one step, when that time has passed, when that much has come, or when the run ends. With `partition_by` the
    values of these columns are in the names of folders, such as `out/day=2024-05-01/part-….parquet`, and not in the files.

    The folder may be in an object store, `s3://bucket/folder`, with `storage_options` if the environment and profiles do not say enough. There,
    a file appears under its name at once, and whole; `_springtide/` says whose the folder is. If you take files away, leave those that the newest record in `_springtide/` names.

    >>> st.parquet_sink("out/").describe()
    'parquet out/'
    >>> st.parquet_sink("out/", partition_by="day", roll="5m").describe()
    'parquet out/, partitioned by day'
    """
    if not isinstance(path, str | Path) or not str(path):
        raise QueryError("(parquet_sink)", f"{shown(path)} is not a path", "give the folder to write to")
    folder = local(path)
    if folder is None:
        return _in_store(path, layout_of(partition_by, roll), storage_options)
    if storage_options:
        hint = "leave storage_options out, or give an address such as s3://bucket/folder"
        raise QueryError("(parquet_sink)", f"{path} is a path, but storage_options are only for object stores", hint)
    where = str(path) if scheme_of(path) is None else str(folder)
    return ParquetSink(where, layout_of(partition_by, roll))


def _in_store(path: str | Path, layout: Layout, options: Mapping[str, Any] | None) -> ParquetSink:
    try:
        store = Store.at(path, options)
    except CheckpointError as error:
        hint = f"{error.hint}; st.spark_sink writes wherever Spark can"
        raise QueryError("(parquet_sink)", f"{error.path} {error.problem}", hint) from None
    return ParquetSink(store.url.partition("?")[0].rstrip("/"), layout, store)
