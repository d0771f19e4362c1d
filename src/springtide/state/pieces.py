"""Pieces: the parts of a segment that a node has, if it needs only some buckets. They are read by range, and kept in its cache.

    CACHE/pieces/state/sums/…arrow/index       what follows the Arrow file in the segment (`springtide.state.index`)
    CACHE/pieces/state/sums/…arrow/1a2b.arrow  the file with holes: what it has of some buckets, and of no others
    CACHE/pieces/state/sums/…arrow/1a2b.json   which these are; written last

Like all of a cache they may go at any moment, and nothing in them counts without its checksum. Whoever needs more buckets later reads only what no piece has.
"""

from __future__ import annotations

import json
import os
import uuid
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import polars as pl

from springtide.state.caches import used
from springtide.state.errors import CheckpointError
from springtide.state.index import ByteRange, Index, joined
from springtide.state.names import PIECES
from springtide.state.segment import Segment, read_segment
from springtide.state.stores import Store
from springtide.state.traffic import count

WORTH = 0.8
"""If at least this share of a segment is wanted, all of it is read: that is one request, and more buckets may be wanted later."""
_GAP = 16 << 10
"""Gaps of up to this many bytes between two ranges are read too: another request would take longer."""
_AT_ONCE = 8
_whole: set[tuple[str, int, int]] = set()
"""Pieces that this process has read or verified."""


class Piece(NamedTuple):
    """A file with holes, and the buckets that it has."""

    path: Path
    buckets: frozenset[int]


def rows_of(here: Path, store: Store, segment: Segment, buckets: Iterable[int]) -> pl.DataFrame | None:
    """Read the rows of some buckets of a segment that is not on this node; None if it is better read as a whole."""
    if segment.index is None:
        return None
    folder = here / PIECES / segment.file
    with suppress(FileNotFoundError, ValueError, KeyError, TypeError):  # what is missing or damaged is read again
        return _read(folder, store, segment, frozenset(buckets))
    return _read(folder, store, segment, frozenset(buckets))


def _read(folder: Path, store: Store, segment: Segment, buckets: frozenset[int]) -> pl.DataFrame | None:
    index = _index(folder, store, segment)
    wanted = buckets & index.buckets.keys()
    parts, missing = chosen(_found(folder, index), wanted)
    if missing:
        if not parts and sum(r.length for r in index.ranges(missing)) >= WORTH * index.size:
            return None
        parts.append((_fetched(folder, store, segment, index, missing), missing))
    if not parts:  # no row of these buckets, but the columns
        parts.append((_fetched(folder, store, segment, index, frozenset()), frozenset()))
    for piece, _ in parts:
        used(piece.path)
    try:
        return pl.concat([read_segment(piece.path, part) for piece, part in parts])
    except CheckpointError:
        for piece, _ in parts:
            _remove(piece.path)
        raise FileNotFoundError(f"a piece of {segment.file} is gone") from None


def chosen(
    pieces: Iterable[Piece], wanted: frozenset[int]
) -> tuple[list[tuple[Piece, frozenset[int]]], frozenset[int]]:
    """Choose what is read from which piece, the largest first, and what no piece has.

    >>> one, two = Piece(Path("1"), frozenset({1, 2})), Piece(Path("2"), frozenset({2, 3, 4}))
    >>> chosen([one, two], frozenset({1, 2, 3, 9}))[1]
    frozenset({9})
    """
    taken, left = [], wanted
    for piece in sorted(pieces, key=lambda p: (-len(p.buckets & wanted), p.path)):
        if part := piece.buckets & left:
            taken.append((piece, part))
            left -= part
    return taken, left


def _index(folder: Path, store: Store, segment: Segment) -> Index:
    assert segment.index is not None
    size, crc = segment.index
    path = folder / "index"
    with suppress(FileNotFoundError):
        data = path.read_bytes()
        if zlib.crc32(data) == crc:
            return Index.decode(data)
    data = store.read(segment.file, segment.bytes - size, size)
    if zlib.crc32(data) != crc:
        raise ValueError(f"the index of {segment.file} is damaged")
    count(fetched=size)
    _write(path, data)
    return Index.decode(data)


def _found(folder: Path, index: Index) -> list[Piece]:
    """Return the pieces that are here and whole."""
    found = []
    for described in folder.glob("*.json"):
        with suppress(OSError, ValueError, TypeError):
            piece = Piece(described.with_suffix(".arrow"), frozenset(json.loads(described.read_bytes())))
            if _is_whole(piece, index):
                found.append(piece)
            else:
                _remove(piece.path)
    return found


def _is_whole(piece: Piece, index: Index) -> bool:
    stat = os.stat(piece.path)
    key = str(piece.path), stat.st_ino, stat.st_mtime_ns
    if key in _whole:
        return True
    if stat.st_size != index.size:
        return False
    with open(piece.path, "rb") as file:
        for part in index.ranges(piece.buckets):
            file.seek(part.start)
            if zlib.crc32(file.read(part.length)) != part.crc:
                return False
    _whole.add(key)
    return True


def _fetched(folder: Path, store: Store, segment: Segment, index: Index, buckets: frozenset[int]) -> Piece:
    """Read what the store has of some buckets into a file with holes."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{uuid.uuid4().hex[:12]}.arrow"
    partial = path.with_suffix(".partial")
    ranges = index.ranges(buckets)
    try:
        with open(partial, "w+b") as file, ThreadPoolExecutor(_AT_ONCE) as pool:
            file.truncate(index.size)
            spans = [*joined(ranges, _GAP)]
            parts = pool.map(lambda span: (span[0], store.read(segment.file, span[0], span[1] - span[0])), spans)
            for start, data in parts:
                count(fetched=len(data))
                _check(segment, start, data, ranges)
                os.pwrite(file.fileno(), data, start)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    stat = os.stat(path)
    _whole.add((str(path), stat.st_ino, stat.st_mtime_ns))
    _write(path.with_suffix(".json"), json.dumps(sorted(buckets)).encode())
    return Piece(path, buckets)


def _check(segment: Segment, start: int, data: bytes, ranges: Sequence[ByteRange]) -> None:
    """Compare the checksums of what was read."""
    seen = memoryview(data)
    for part in ranges:
        if start <= part.start and part.stop <= start + len(data):
            at = part.start - start
            if zlib.crc32(seen[at : at + part.length]) != part.crc:
                raise ValueError(f"bytes {part.start} to {part.stop} of {segment.file} are damaged")


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.partial")
    partial.write_bytes(data)
    os.replace(partial, path)


def _remove(path: Path) -> None:
    for name in (path.with_suffix(".json"), path):
        name.unlink(missing_ok=True)
