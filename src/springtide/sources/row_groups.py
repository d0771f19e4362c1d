"""Parquet files of an object store: only their footers and the wanted columns and row groups are read, by range."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import BinaryIO

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from polars.io.plugins import register_io_source

from springtide.connectors.file_ledger import FoundFile
from springtide.sources.places import Place, Ranged, StorePlace

TOGETHER = 1 << 20
"""Rows of a file that a task reads together at most: to read a slice takes a millisecond or two, however few rows it has."""
_MAGIC = b"PAR1"
_END = 8
"""Bytes at the end of a file: how long its footer is, and the magic word."""
_TAIL = 1 << 16
"""Bytes at the end of a file that are fetched first; most footers are shorter."""
_SMALL = 1 << 20
"""Files of up to this many bytes are fetched whole: one request instead of several."""


def footer(where: Place, path: str, version: FoundFile | None) -> str | io.BytesIO:
    """Return something from which a file's structure can be read: the file itself if it is on this machine, else its footer as a file without rows."""
    version = version or where.now(path)
    if not isinstance(where, StorePlace) or version is None:
        return path
    return io.BytesIO(_MAGIC + _footer(where.ranged(version)))


def _footer(file: BinaryIO | Ranged) -> bytes:
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - _TAIL))
    tail = file.read(_TAIL) or b""
    length = int.from_bytes(tail[-_END:-4], "little") + _END
    if len(tail) < _END or not tail.endswith(_MAGIC) or length + 4 > size:
        raise pa.ArrowInvalid("it does not end like a Parquet file")
    if length > len(tail):
        file.seek(size - length)
        tail = file.read(length) or b""
    return tail[-length:]


def scanned(where: StorePlace, file: FoundFile, start: int, rows: int) -> tuple[pl.LazyFrame, pl.Schema]:
    """Return a number of rows of a file from `start` on, read lazily, and the columns that the file has."""
    ranged = where.ranged(file)
    content: BinaryIO | Ranged = io.BytesIO(ranged.read()) if file.size <= _SMALL else ranged
    described = io.BytesIO(_MAGIC + _footer(content))
    schema, meta = pl.Schema(pl.read_parquet_schema(described)), pq.ParquetFile(described).metadata

    def read(
        columns: list[str] | None, predicate: pl.Expr | None, limit: int | None, batch: int | None
    ) -> Iterator[pl.DataFrame]:
        wanted = pl.Schema({n: schema[n] for n in columns or schema})
        first, left = 0, rows if limit is None else min(rows, limit)
        reader = pq.ParquetFile(pa.PythonFile(content, mode="r"), metadata=meta, pre_buffer=True)
        for number in range(meta.num_row_groups):
            there = meta.row_group(number).num_rows
            skipped = max(0, start - first)
            first += there
            if skipped >= there or left <= 0:
                continue
            frame = pl.DataFrame(reader.read_row_group(number, columns=[*wanted], use_threads=False))
            frame = frame.slice(skipped, left).cast(wanted).select([*wanted])
            left -= frame.height
            yield frame if predicate is None else frame.filter(predicate)

    return register_io_source(read, schema=schema), schema
