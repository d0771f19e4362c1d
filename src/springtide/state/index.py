"""The index of a segment: which bytes of its file have the rows of which bucket, each with a checksum of its own.

A segment is an Arrow file of one record batch, so that it is read by memory map as it is: column after column. The rows of a bucket are a range of each column. A node that needs
some buckets of a file that is in an object store reads those ranges and no others, and a file with holes is as good as the whole one, for these buckets.

    Arrow file │ index as JSON │ its length, 8 bytes │ "SPRINGTI"

The manifest has the length and the checksum of what follows the Arrow file. Whoever knows the index can check each range: no whole file is needed for that.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

LEAST = 1 << 20
"""Segments of at least this many bytes have an index; smaller ones are read as a whole."""
MAGIC = b"SPRINGTI"
"""How a file with an index ends; others end like Arrow files."""
END = 8 + len(MAGIC)
"""Bytes after the index."""
_LONG = 12
"""Strings of up to this many bytes are stored in their views; longer ones are elsewhere."""


class ByteRange(NamedTuple):
    """Some bytes of a file."""

    start: int
    length: int
    crc: int

    @property
    def stop(self) -> int:
        """The first byte after it."""
        return self.start + self.length


@dataclass(frozen=True)
class Index:
    """Where everything is in a segment's file."""

    size: int
    """Bytes of the Arrow file, without what follows it."""
    frame: tuple[ByteRange, ...]
    """What is always needed: the beginning and the end."""
    buckets: Mapping[int, tuple[ByteRange, ...]]

    def ranges(self, buckets: Iterable[int]) -> list[ByteRange]:
        """Return what is needed for some buckets."""
        return sorted({*self.frame, *(r for b in buckets for r in self.buckets.get(b, ()))})

    def encode(self) -> bytes:
        """Write it as it follows an Arrow file."""
        body = {"size": self.size, "frame": self.frame, "buckets": [[b, r] for b, r in self.buckets.items()]}
        data = json.dumps(body, separators=(",", ":")).encode()
        return data + len(data).to_bytes(8, "little") + MAGIC

    @staticmethod
    def decode(data: bytes) -> Index:
        """Read what `encode` wrote."""
        body = json.loads(data[:-END])
        buckets = {b: tuple(ByteRange(*r) for r in ranges) for b, ranges in body["buckets"]}
        return Index(body["size"], tuple(ByteRange(*r) for r in body["frame"]), buckets)


def joined(ranges: Iterable[ByteRange], gap: int) -> Iterator[tuple[int, int]]:
    """Return (start, stop) of what is read at once: ranges that are no farther apart than `gap`.

    >>> [*joined([ByteRange(0, 10, 0), ByteRange(12, 4, 0), ByteRange(90, 5, 0)], gap=4)]
    [(0, 16), (90, 95)]
    """
    first = last = -1
    for found in sorted(ranges):
        if last >= 0 and found.start <= last + gap:
            last = max(last, found.stop)
            continue
        if last >= 0:
            yield first, last
        first, last = found.start, found.stop
    if last >= 0:
        yield first, last


def index_of(path: Path, directory: Iterable[tuple[int, int, int]]) -> Index | None:
    """Work out the index of an Arrow file from its directory, (bucket, first row, rows); None if it has a column whose bytes cannot be told by row."""
    with pa.memory_map(str(path)) as mapped:
        size = int(mapped.size())
        whole = mapped.read_buffer(size)
        mapped.seek(0)
        reader = pa.ipc.open_file(mapped)
        if reader.num_record_batches != 1:
            return None
        batch, seen = reader.get_batch(0), memoryview(whole)
        content = [b for column in batch.columns for b in _buffers(column)]
        first = min((b.address - whole.address for b in content), default=size)
        last = max((b.address - whole.address + b.size for b in content), default=size)

        def checked(start: int, stop: int) -> ByteRange:
            return ByteRange(start, stop - start, zlib.crc32(seen[start:stop]))

        buckets = {}
        for bucket, start, rows in directory:
            found: set[tuple[int, int]] = set()
            for column in batch.columns:
                parts = _parts(column, start, start + rows)
                if parts is None:
                    return None
                found.update((a - whole.address, b - whole.address) for a, b in parts if b > a)
            buckets[bucket] = tuple(checked(a, b) for a, b in sorted(found))
        return Index(size, (checked(0, first), checked(last, size)), buckets)


def _buffers(array: pa.Array) -> list[pa.Buffer]:
    return [b for b in array.buffers() if b is not None and b.size]


def _parts(array: pa.Array, start: int, stop: int) -> list[tuple[int, int]] | None:
    """Return the address ranges of an array's data for some rows; None for a type that is not supported."""
    kind, buffers = array.type, array.buffers()
    if pa.types.is_null(kind):
        return []
    if pa.types.is_dictionary(kind) or pa.types.is_map(kind) or pa.types.is_union(kind):
        return None
    found = [_bits(buffers[0], start, stop)] if buffers[0] is not None else []
    if pa.types.is_struct(kind):
        return _all(found, (_parts(array.field(i), start, stop) for i in range(kind.num_fields)))
    if pa.types.is_fixed_size_list(kind):
        return _all(found, [_parts(array.values, start * kind.list_size, stop * kind.list_size)])
    if buffers[1] is None:
        return found
    if pa.types.is_boolean(kind):
        return [*found, _bits(buffers[1], start, stop)]
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return [*found, _items(buffers[1], start, stop, 16), *_long_texts(buffers[1], buffers[2:], start, stop)]
    large = pa.types.is_large_list(kind) or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    if large or pa.types.is_list(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind):
        width = 8 if large else 4
        offsets = np.frombuffer(buffers[1], dtype=f"i{width}")
        found.append(_items(buffers[1], start, stop + 1, width))
        low, high = int(offsets[start]), int(offsets[stop])
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return _all(found, [_parts(array.values, low, high)])
        return found if buffers[2] is None else [*found, _items(buffers[2], low, high, 1)]
    try:
        return [*found, _items(buffers[1], start, stop, kind.bit_width // 8)]
    except ValueError:  # of no fixed width
        return None


def _all(own: list[tuple[int, int]], children: Iterable[list[tuple[int, int]] | None]) -> list[tuple[int, int]] | None:
    for parts in children:
        if parts is None:
            return None
        own = [*own, *parts]
    return own


def _bits(buffer: pa.Buffer, start: int, stop: int) -> tuple[int, int]:
    return buffer.address + start // 8, buffer.address + (stop + 7) // 8


def _items(buffer: pa.Buffer, start: int, stop: int, width: int) -> tuple[int, int]:
    return buffer.address + start * width, buffer.address + stop * width


def _long_texts(views: pa.Buffer, data: list[pa.Buffer], start: int, stop: int) -> list[tuple[int, int]]:
    """Return where the strings are that did not fit into their views: in each buffer, from the first to the last of them."""
    fields = np.frombuffer(views, dtype="<i4").reshape(-1, 4)[start:stop]
    long = fields[fields[:, 0] > _LONG].astype(np.int64)
    found = []
    for number in np.unique(long[:, 2]).tolist():
        own = long[long[:, 2] == number]
        found.append(_items(data[number], int(own[:, 3].min()), int((own[:, 3] + own[:, 0]).max()), 1))
    return found
