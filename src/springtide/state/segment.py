"""Segments: immutable Arrow files with the state that one instance wrote in one epoch.

Rows are sorted by bucket, and the file's metadata has a directory bucket → first row, so that a new owner of some buckets reads their
rows and no others. Files are read by memory map. The manifest has the checksum of each file.
"""

from __future__ import annotations

import json
import mmap
import os
import zlib
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from springtide.query.ids import EpochNumber, InstanceId
from springtide.query.plurals import plural
from springtide.state.disk import flush
from springtide.state.errors import CheckpointError
from springtide.state.index import END, LEAST, MAGIC, index_of

FORMAT = 1
_KEY = b"springtide"
_MAGIC = 8
"""Bytes of an Arrow file before its schema."""
_SMALL = 4096
"""Pieces of fewer rows are put together: work on many small ones takes longer than copying them."""


@dataclass(frozen=True)
class Segment:
    """What a manifest says about a segment."""

    file: str
    """Its path below the checkpoint."""
    kind: str
    """What is in it; an operator may keep several kinds."""
    _: KW_ONLY
    epoch: EpochNumber
    instance: InstanceId
    version: int
    """The version of the bucket map under which it was written: that map's `instance` owns all its buckets."""
    rows: int
    bytes: int
    low: int
    high: int
    """The smallest and greatest time slot (pane) in it."""
    crc: int | None = None
    """The checksum (CRC-32) of the file; None: it was written without."""
    index: tuple[int, int] | None = None
    """Bytes and checksum of the index at its end (`springtide.state.index`), where it has one."""

    @property
    def subquery(self) -> str:
        """The subquery whose state it is."""
        return Path(self.file).parent.name

    def __str__(self) -> str:
        """Return what is in it."""
        return (
            f"{self.file} ({plural(self.rows, 'row')} of {self.kind} of {self.subquery}, "
            f"written in epoch {self.epoch} by instance {self.instance})"
        )

    def to_json(self) -> dict[str, Any]:
        """Write it for a manifest."""
        return {name: value for name, value in asdict(self).items() if name != "index" or value is not None}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Segment:
        """Read it from a manifest."""
        index = data.get("index")
        return Segment(**data | {"index": None if index is None else tuple(index)})


class Written(NamedTuple):
    """A file that was written."""

    bytes: int
    crc: int
    trailer: tuple[int, int] | None = None
    """Bytes and checksum of its index, where it has one."""


def write_segment(
    path: Path, frame: pl.DataFrame, bucket: str, *, through: bool = False, indexed: bool = False
) -> Written:
    """Write rows (with a bucket column) as a segment. The file is whole or not there; with `through`, even after a power cut.

    With `indexed`, a large one gets an index, to be read by range.
    """
    if not frame[bucket].is_sorted():
        frame = frame.sort(bucket, maintain_order=True)
    lengths = frame[bucket].rle().struct.unnest()
    starts, at = {}, 0
    for length, value in zip(lengths["len"].to_list(), lengths["value"].to_list(), strict=True):
        starts[value], at = (at, length), at + length
    table = _compact(frame.rechunk() if indexed else frame)
    meta = {"format": FORMAT, "directory": [[b, start, length] for b, (start, length) in starts.items()]}
    table = table.replace_schema_metadata({_KEY: json.dumps(meta, separators=(",", ":")).encode()})
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    try:
        with pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        index = None
        if indexed and partial.stat().st_size >= LEAST:
            index = _add_index(partial, [(b, start, length) for b, (start, length) in starts.items()])
        written = Written(partial.stat().st_size, checksum(partial), index)
        if through:
            flush(partial)
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    return written


def _add_index(path: Path, directory: list[tuple[int, int, int]]) -> tuple[int, int] | None:
    index = index_of(path, directory)
    if index is None:
        return None
    data = index.encode()
    with open(path, "ab") as file:
        file.write(data)
    return len(data), zlib.crc32(data)


def checksum(path: Path) -> int:
    """Return the CRC-32 of a file."""
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return 0
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            return zlib.crc32(mapped)


def _compact(frame: pl.DataFrame) -> pa.Table:
    """Return rows as Arrow: strings as views, which Polars reads without copying, but only the strings of these rows.

    A view points into the strings of the frame that the rows were taken from; written as it is, all of those would be written.
    """
    views = frame.clear().to_arrow(compat_level=pl.CompatLevel.newest()).schema
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(views)


def read_segment(path: Path, buckets: Iterable[int] | None = None) -> pl.DataFrame:
    """Map a segment; with `buckets`, only their rows."""
    try:
        mapped = pa.memory_map(str(path))
        reader = pa.ipc.open_file(mapped, footer_offset=_arrow_bytes(mapped))
        meta = json.loads((reader.schema.metadata or {})[_KEY])
        version = meta["format"]
        if version == FORMAT:
            directory, frame = meta["directory"], pl.from_arrow(reader.read_all(), rechunk=False)
    except FileNotFoundError:
        raise CheckpointError(str(path), "is missing", "restore the file, or start from an older checkpoint") from None
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            str(path), f"is damaged ({error})", "restore the file, or start from an older checkpoint"
        ) from None
    if version != FORMAT:
        raise CheckpointError(
            str(path), f"has format {version}", f"this version of Springtide reads format {FORMAT}; use a newer one"
        )
    assert isinstance(frame, pl.DataFrame)
    if buckets is None:
        return frame
    wanted = set(buckets)
    runs: list[tuple[int, int]] = []
    for bucket, start, length in directory:
        if bucket in wanted:  # neighbours are read in one piece
            first, before = runs.pop() if runs and sum(runs[-1]) == start else (start, 0)
            runs.append((first, before + length))
    if not runs:
        return frame.clear()
    small = sum(length for _, length in runs) < _SMALL * len(runs)
    return pl.concat([frame.slice(*run) for run in runs], rechunk=small)


def _arrow_bytes(mapped: pa.MemoryMappedFile) -> int:
    """Return where the Arrow file ends in a segment's file: there may be an index after it."""
    size = int(mapped.size())
    if size < END:
        return size
    mapped.seek(size - END)
    end = mapped.read(END)
    mapped.seek(0)
    return size - END - int.from_bytes(end[:8], "little") if end.endswith(MAGIC) else size


class BucketSizes:
    """How much state each bucket has. Segments never change, so each is looked at once."""

    def __init__(self, find: Callable[[Segment], Path | None]) -> None:
        """Take a function that finds segments; if one is not on this machine, its bytes are divided evenly between its buckets."""
        self._find = find
        self._known: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def of(self, segments: Iterable[Segment], buckets: int) -> tuple[int, ...]:
        """Return the bytes of each bucket in these segments."""
        sizes = np.zeros(buckets)
        for segment in segments:
            if segment.file not in self._known:
                self._known[segment.file] = self._shares(segment, buckets)
            places, shares = self._known[segment.file]
            np.add.at(sizes, places, shares)
        if len(self._known) > 10_000:
            self._known.clear()
        return tuple(sizes.astype(np.int64).tolist())

    def _shares(self, segment: Segment, buckets: int) -> tuple[np.ndarray, np.ndarray]:
        alike = np.arange(buckets), np.full(buckets, segment.bytes / buckets)
        path = self._find(segment)
        if path is None:
            return alike
        try:
            with open(path, "rb") as file:
                file.seek(_MAGIC)
                schema = pa.ipc.read_schema(file)  # all that is needed, in a tenth of the time that opening takes
        except OSError:  # just lost: the next epoch will notice
            return alike
        directory = np.array(json.loads((schema.metadata or {})[_KEY])["directory"], dtype=np.int64)
        return directory[:, 0], directory[:, 2] * (segment.bytes / segment.rows)
