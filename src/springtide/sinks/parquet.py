"""Parquet files."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import polars as pl

from springtide.query.errors import QueryError, shown
from springtide.query.places import local, scheme_of, without_secrets
from springtide.sinks.publication import Publication
from springtide.state.segment import flush


@dataclass(frozen=True)
class ParquetSink:
    """A folder of Parquet files."""

    path: str
    outbox: ClassVar[str] = "parquet"
    """Tasks write Parquet files; publishing only moves them."""

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

    def publish(self, publication: Publication) -> None:
        """Move the epoch's files into the folder. A file that is there already is not moved again."""
        folder = Path(self.path)
        folder.mkdir(parents=True, exist_ok=True)
        for number, file in enumerate(publication.files):
            target = folder / f"part-{publication.epoch:09d}-{number:04d}.parquet"
            if target.exists() or not file.exists():  # published before, and perhaps taken away by a reader since
                file.unlink(missing_ok=True)
                continue
            try:
                os.replace(file, target)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                # another file system: copy under a hidden name, then rename
                hidden = folder / f".{target.name}.partial"
                shutil.copyfile(file, hidden)
                flush(hidden)
                os.replace(hidden, target)
                flush(folder)
                file.unlink()


def parquet_sink(path: str | Path) -> ParquetSink:
    """Write rows to a folder of Parquet files, each row exactly once.

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
