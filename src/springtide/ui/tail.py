"""Lines of the history, read as they are written: the newest first, then what is added, and in the meantime what came before.

    ┌──────────── earlier ────────────┐┌─ newest ─┐┌─ new ─ ─
    snapshots-000001-000000.jsonl  …  snapshots-000001-000003.jsonl
                    ◀── a piece at a time           followed ──▶

A page that is opened for a query with many epochs shows the last ones at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from springtide.state.history import HistoryKind
from springtide.state.names import HISTORY
from springtide.ui.files import Files

FIRST = 1 << 18
"""Bytes that are read at first."""
PIECE = 1 << 19
"""Bytes of earlier lines that are read at once."""


class LinePlace(NamedTuple):
    """Where a line is."""

    file: str
    start: int
    end: int


Line = tuple[LinePlace, bytes]


@dataclass
class _Span:
    file: str
    start: int
    end: int


class Tail:
    """The lines of one kind of record in a checkpoint's history."""

    def __init__(self, files: Files, kind: HistoryKind, first: int = FIRST, piece: int = PIECE) -> None:
        """Nothing is read yet."""
        self._files, self._prefix = files, f"{kind}-"
        self._first, self._piece = first, piece
        self._at: dict[str, int] = {}
        """File → up to where it was read."""
        self._earlier: list[_Span] = []
        """What was skipped at first, oldest first."""
        self._begun = False

    @property
    def is_whole(self) -> bool:
        """Return whether there is nothing earlier left to read."""
        return not self._earlier

    def new(self) -> list[Line]:
        """Return what was added since the last call; the first call returns the newest lines."""
        sizes = self._files.sizes(HISTORY, self._prefix)
        if not self._begun and sizes:
            self._begin(sizes)
        found: list[Line] = []
        for file, size in sizes.items():
            start = self._at.get(file, 0)
            if size > start:
                lines = list(self._lines(file, start, size))
                found += lines
                self._at[file] = lines[-1][0].end if lines else start
        return found

    def earlier(self) -> list[Line]:
        """Return a piece of the lines before all those returned so far."""
        if not self._earlier:
            return []
        span = self._earlier[-1]
        start = max(span.start, span.end - self._piece)
        lines = list(self._lines(span.file, start, span.end, skip=start > span.start))
        begin = lines[0][0].start if lines else start
        if start == span.start:
            self._earlier.pop()
        else:
            span.end = begin
        return lines

    def line(self, place: LinePlace) -> bytes:
        """Read a line once more."""
        return self._files.read(*place)

    def _begin(self, sizes: dict[str, int]) -> None:
        self._begun = True
        left = self._first
        for file, size in reversed(sizes.items()):
            start = max(0, size - left)
            left -= size - start
            if 0 < start < size:
                ahead = self._files.read(file, start, size)
                newline = ahead.find(b"\n")
                start = start + newline + 1 if newline >= 0 else 0
            if start:
                self._earlier.insert(0, _Span(file, 0, start))
            self._at[file] = start

    def _lines(self, file: str, start: int, end: int, *, skip: bool = False) -> Iterator[Line]:
        """Yield the whole lines of a span; `skip` leaves out the first, which began before it."""
        data = self._files.read(file, start, end)
        at = 0
        while (newline := data.find(b"\n", at)) >= 0:
            if not skip:
                yield LinePlace(file, start + at, start + newline + 1), data[at:newline]
            skip, at = False, newline + 1
