"""Parquet files."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import polars as pl

from springtide.query.errors import QueryError, shown
from springtide.query.places import local, scheme_of, without_secrets
from springtide.sinks.folder import Folder
from springtide.sinks.ledger import look, refuse
from springtide.sinks.publication import Owner


@dataclass(frozen=True)
class ParquetSink:
    """A folder of Parquet files."""

    path: str
    outbox: ClassVar[str] = "parquet"
    """Tasks write Parquet files; publishing only gives them other names."""

    def check(self, schema: pl.Schema) -> str | None:
        """Refuse what a Parquet file cannot hold."""
        for name, dtype in schema.items():
            if any(isinstance(t, pl.Object) for t in _nested(dtype)):
                return f"{name!r} holds Python objects"
            if any(isinstance(t, pl.Struct) and not t.fields for t in _nested(dtype)):
                return f"{name!r} is a struct without fields"
        return None

    def describe(self) -> str:
        """Say where."""
        return f"parquet {self.path}"

    @property
    def place(self) -> str:
        """Where the rows go: no two sinks can share it."""
        return os.path.realpath(self.path)

    def admit(self, owner: Owner) -> None:
        """Refuse a folder with files of others, or of epochs that the run does not have."""
        refuse(Path(self.path), look(Path(self.path)), owner)

    def open(self, owner: Owner, note: Callable[[str], None]) -> Folder:
        """Claim the folder for a run."""
        return Folder(Path(self.path), owner, note)


def parquet_sink(path: str | Path) -> ParquetSink:
    """Write rows to a folder of Parquet files, each row exactly once. Readers may take files away at any time.

    The folder is this sink's alone: an empty file in it, with a name that begins with `.springtide`, says whose it is and how far it was written.
    Files that are being written are hidden too: while a query runs, read `out/*.parquet` rather than `out/`.

    >>> st.parquet_sink("out/").describe()
    'parquet out/'
    """
    if not isinstance(path, str | Path) or not str(path):
        raise QueryError("(parquet_sink)", f"{shown(path)} is not a path", "give the folder to write to")
    folder = local(path)
    if folder is None:
        where, hint = without_secrets(path), "give a folder; st.spark_sink writes to wherever Spark can"
        raise QueryError("(parquet_sink)", f"{where} is not a folder of a mounted file system", hint)
    return ParquetSink(str(path) if scheme_of(path) is None else str(folder))


def _nested(dtype: pl.DataType) -> list[pl.DataType]:
    inner: list[pl.DataType] = []
    if isinstance(dtype, pl.List | pl.Array):
        inner = [dtype.inner if isinstance(dtype.inner, pl.DataType) else dtype.inner()]
    elif isinstance(dtype, pl.Struct):
        inner = [f.dtype if isinstance(f.dtype, pl.DataType) else f.dtype() for f in dtype.fields]
    return [dtype, *(t for i in inner for t in _nested(i))]
