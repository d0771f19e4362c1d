"""Files with one row per line: how many lines there are, and where in the file each begins."""

from __future__ import annotations

import io
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any, BinaryIO, ClassVar

import numpy as np
import polars as pl

from springtide.connectors import Slice
from springtide.connectors.file_ledger import FoundFile
from springtide.query.errors import SpringtideError
from springtide.query.plurals import plural
from springtide.sources.files import FileSource, RowRange
from springtide.sources.places import Disk, Place, check_tag

_CHUNK = 1 << 20
BOM = b"\xef\xbb\xbf"
"""The byte order mark that some programs put before UTF-8."""
_NEWLINE = 10
_KEPT = 4096
DISK = Disk("")
"""The place of a file that is named by its path alone."""


@dataclass
class LineFile:
    """A file as lines, which are counted once; if the file grows, the count continues."""

    path: str
    where: Place = DISK
    changed: tuple[int, str] = (0, "")
    """When it was last written, and what else distinguishes this version from others."""
    size: int = 0
    marks: list[int] = field(default_factory=lambda: [0])
    """How many line ends there are before each chunk, and in all."""
    first: int = 0
    """Where the first line begins: after a byte order mark."""
    terminated: bool = True
    """Whether the last line has its end."""

    @property
    def ends(self) -> int:
        """How many lines have their end."""
        return self.marks[-1]

    @property
    def lines(self) -> int:
        """How many lines there are, including a last one that has no end yet."""
        return self.ends + (not self.terminated)

    def refresh(self, found: FoundFile | None = None) -> None:
        """Count what is new; `found` is what is already known of the file."""
        found = found or self.where.now(self.path)
        if found is None:
            raise FileNotFoundError(f"{self.path} is gone")
        if ((found.modified, found.tag), found.size) == (self.changed, self.size):
            return
        if found.size <= self.size or not self.where.grows:  # it has changed: begin again
            self.marks = [0]
        whole = len(self.marks) - 2 if len(self.marks) > 1 else 0  # the last chunk may have been incomplete
        del self.marks[whole + 1 :]
        with self.where.open(self.path) as file:
            head = file.read(len(BOM))
            self.first = len(BOM) if head == BOM else 0
            self._count(file, whole, found.size)
        self.changed, self.size = (found.modified, found.tag), found.size

    def _count(self, file: BinaryIO, chunk: int, size: int) -> None:
        """Count line ends from a chunk on, up to `size`: what is written meanwhile is for the next time."""
        file.seek(chunk * _CHUNK)
        left, data = size - chunk * _CHUNK, b""
        while left > 0 and (data := file.read(min(_CHUNK, left))):
            self.marks.append(self.marks[-1] + data.count(b"\n"))
            left -= len(data)
        self.terminated = size <= self.first or data.endswith(b"\n")

    def offset(self, line: int) -> int:
        """Return the offset of the first byte of a line; for the line after the last one, the end of the file."""
        if line == 0:
            return self.first
        if line > self.ends:
            return self.size
        chunk = bisect_left(self.marks, line) - 1
        with self.where.open(self.path) as file:
            file.seek(chunk * _CHUNK)
            data = np.frombuffer(file.read(_CHUNK), dtype=np.uint8)
        ends = np.flatnonzero(data == _NEWLINE)
        return chunk * _CHUNK + int(ends[line - self.marks[chunk] - 1]) + 1


_known: dict[str, LineFile] = {}


def line_file(path: str, where: Place = DISK, found: FoundFile | None = None) -> LineFile:
    """Return a file, counted."""
    file = _known.pop(path, None)
    file = file if file is not None and file.where is where else LineFile(path, where)
    file.refresh(found)
    _known[path] = file
    if len(_known) > _KEPT:
        del _known[next(iter(_known))]
    return file


def estimated_lines(path: str, size: int) -> int:
    """Return how many lines a file has: as counted, or estimated by its size from the file that was counted last."""
    if path in _known and _known[path].size == size:
        return _known[path].lines
    last = next(reversed(_known.values()), None)
    return -(-size * last.lines // last.size) if last is not None and last.lines else size


def first_line(path: str, where: Place = DISK) -> bytes:
    """Read the first line of a file, without its end."""
    with where.open(path) as file:
        return file.readline().removeprefix(BOM).rstrip(b"\r\n")


def split_lines(data: bytes) -> tuple[pl.Series, dict[int, str]]:
    """Split bytes into lines without their ends; return the reason for each line that is not UTF-8 by its number.

    >>> lines, reasons = split_lines(b"one\\r\\n\\ntw\\xff\\nthree")
    >>> lines.to_list(), reasons
    (['one', '', 'tw�', 'three'], {2: 'the line is not UTF-8'})
    """
    try:
        return pl.read_lines(io.BytesIO(data)).to_series(), {}
    except pl.exceptions.ComputeError:  # not UTF-8, somewhere
        lines = pl.read_lines(io.BytesIO(data.decode(errors="replace").encode())).to_series()
    suspects, raw = lines.str.contains("\ufffd", literal=True).arg_true(), data.split(b"\n")
    return lines, {i: "the line is not UTF-8" for i in suspects if not _is_utf8(raw[i])}


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True, eq=False, kw_only=True)
class LineSource(FileSource):
    """Files in which each line is a row, after a header if there is one."""

    grows: ClassVar[bool] = True

    columns: pl.Schema
    header: bool = False

    def schema(self) -> pl.Schema:
        """Names and types of the columns."""
        return self.columns

    def pieces(self, file: FoundFile, ts: str | None, *, whole: bool) -> list[RowRange]:
        """Return all lines of a file; the last one only when it has its end or nothing will be added to it."""
        lines = line_file(file.path, self.where, file)
        return [RowRange(0, max(0, (lines.lines if whole else lines.ends) - self.header))]

    def rows_in(self, file: FoundFile, ts: str | None) -> int:
        """Return how many rows a file has."""
        return max(0, estimated_lines(file.path, file.size) - self.header)

    def place(self, file: FoundFile, start: int, stop: int) -> list[Any]:
        """Return which bytes hold the rows."""
        lines = line_file(file.path, self.where, file)
        bytes_of = [file.path, lines.offset(start + self.header), lines.offset(stop + self.header)]
        return [*bytes_of, file.tag] if file.tag else bytes_of

    def load(self, part: Slice) -> tuple[bytes, pl.Series, dict[int, str]]:
        """Read the bytes of a slice and split them into lines; return the reason for each line that cannot be one by its number."""
        path, start, stop, *tag = part.data
        check_tag(self.where, path, tag)
        with self.where.open(path) as file:
            file.seek(start)
            data = file.read(stop - start)
        lines, reasons = split_lines(data)
        if lines.len() != part.rows:
            raise SpringtideError(
                f"{path} was changed while it was read: it had {plural(part.rows, 'line')} here, now {lines.len()}; "
                "files of a source may grow, but not change"
            )
        return data, lines, reasons


def raw(line: str) -> dict[str, str]:
    """Return a line that cannot be parsed in the form of a rejected row."""
    return {"line": line}
