"""What sources that read files have in common: which files, in which order, how far, and what is new."""

from __future__ import annotations

import glob
import json
import os
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from springtide.kernels.slices import POSITION, UNLIMITED, Read, Slice, Take
from springtide.query.connectors import ONE_STREAM, Rows
from springtide.query.errors import QueryError, SpringtideError, shown
from springtide.query.places import local, scheme_of, without_secrets
from springtide.query.types import END_OF_TIME
from springtide.sources.fit import Misfit, row_text


@dataclass(frozen=True)
class Piece:
    """Rows of a file that stand one after the other."""

    first: int
    rows: int
    greatest: int | None = None
    """The greatest ts in it, if the file says."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FileSource(ABC):
    """The files of a folder or pattern: one physical stream, files in the order of their names.

    A position is the name of the last file that was read, how many of its rows, how many are left in it, and how many were read in all. With
    `follow`, files that come later are read when their names sort after that one.
    """

    kind: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    """Which files of a folder are meant."""

    path: str
    follow: bool = False
    positions: bool = True

    @abstractmethod
    def schema(self) -> pl.Schema:
        """Names and types of the columns."""

    @abstractmethod
    def pieces(self, file: str, ts: str | None, *, whole: bool) -> Iterable[Piece] | None:
        """List what is in a file; `whole` says that nothing will be added to it. None: it cannot be read yet."""

    @abstractmethod
    def rows_in(self, file: str) -> int:
        """Say how many rows a file has, at least about, without reading it."""

    @abstractmethod
    def place(self, file: str, start: int, stop: int) -> list[Any]:
        """Say where a task finds the rows from `start` to `stop` of a file."""

    @abstractmethod
    def read(self, part: Slice) -> Read:
        """Read a slice, in a task."""

    def describe(self) -> str:
        """Say which files."""
        return f"{self.kind} {self.path}{', followed' if self.follow else ''}"

    def files(self) -> list[str]:
        """List the files that are there now, in order. Names that begin with . or _ are not meant."""
        path = os.path.abspath(self.path)
        if os.path.isdir(path):
            with os.scandir(path) as entries:
                found = [e.path for e in entries if e.name.endswith(self.suffixes) and e.is_file()]
        else:
            found = [f for f in ([path] if os.path.exists(path) else glob.glob(path)) if os.path.isfile(f)]
        return sorted(f for f in found if not os.path.basename(f).startswith((".", "_")))

    def take(self, position: Any, limit: int, ts: str | None) -> Take:
        """Take the next rows, file after file."""
        at = position or {"file": "", "row": 0, "rows": 0}
        slices: list[Slice] = []
        backlog, taken, unseen = 0, 0, False
        root = self._root()
        found = self._files_to_read() if position is None else self.files()
        if self.follow and found and found[-1][len(root) :] > at["file"]:
            # A folder that grows while it is listed may show a file and not an earlier one, which came before it.
            found = [f for f in self.files() if f <= found[-1]]
        files = {f[len(root) :]: f for f in found if f[len(root) :] >= at["file"]}
        if at["file"] not in files and (at.get("left") or (position and not files and not self.follow)):
            # Not the end, and not to be passed over: it was there, and rows of it or behind it were not read yet.
            raise FileNotFoundError(f"{at['file']} is not in {root} any more; it was read up to row {at['row']}")
        for name, file in files.items():
            done = at["row"] if name == at["file"] else 0
            if taken >= limit:
                backlog, unseen = backlog + max(0, self.rows_in(file) - done), True
                continue
            there = os.stat(file).st_mtime
            last = name == next(reversed(files))
            pieces = self.pieces(file, ts, whole=not (self.follow and last))
            if pieces is None:  # somebody is still writing it: those behind it wait, or it would be passed over
                break
            left = 0
            for piece in pieces:
                start, end = max(piece.first, done), piece.first + piece.rows
                stop = min(end, start + limit - taken)
                left += max(0, end - max(start, stop))
                if stop <= start:
                    continue
                greatest = piece.greatest if (start, stop) == (piece.first, end) else None
                place = self.place(file, start, stop)
                slices.append(Slice(ONE_STREAM, at["rows"], stop - start, place, greatest, arrived=(there, there)))
                taken += stop - start
                at = {"file": name, "row": stop, "rows": at["rows"] + stop - start}
            backlog += left
            if left and slices:
                at = at | {"left": left}
        ended = not self.follow and not unseen and backlog == 0
        times = {ONE_STREAM: END_OF_TIME} if ended else {}
        return Take(tuple(slices), at if slices else position, times, (ONE_STREAM,), ended, backlog)

    def read_all(self) -> Mapping[str, Rows]:
        """Read all files that are there now."""
        columns = self.schema()
        reads = [self.read(part) for part in self.take(None, UNLIMITED, None).slices]
        frames = [read.rows.collect() for read in reads]
        if any(read.rejected for read in reads):
            return {ONE_STREAM: list(_in_order(reads, frames, columns))}
        return {ONE_STREAM: pl.concat([pl.DataFrame(schema=columns), *(f.select(list(columns)) for f in frames)])}

    def _root(self) -> str:
        """Give what all files have before their names in positions: a folder may be moved, or named in another way."""
        path = os.path.abspath(self.path)
        if os.path.isdir(path):
            return os.path.join(path, "")
        while glob.has_magic(path) and not os.path.exists(path):
            path = os.path.dirname(path)
        return os.path.join(path if os.path.isdir(path) else os.path.dirname(path), "")

    def _files_to_read(self) -> list[str]:
        files = self.files()
        if not files and not self.follow and not os.path.isdir(self.path):
            raise SpringtideError(f"there is no file {self.path}; check the path, or wait for it with follow=True")
        return files


def path_text(kind: str, path: Any) -> str:
    """Take a path as users write it."""
    if not isinstance(path, str | Path) or not str(path):
        raise QueryError(f"({kind})", f"{shown(path)} is not a path", "give the folder, a file or a pattern")
    found = local(path)
    if found is None:
        where, hint = without_secrets(path), "give a folder, a file or a pattern; st.spark reads whatever Spark can"
        raise QueryError(f"({kind})", f"{where} is not a path of a mounted file system", hint)
    return str(path) if scheme_of(path) is None else str(found)


def judged(
    part: Slice, rows: pl.DataFrame, numbers: pl.Series, rejected: Mapping[int, tuple[str, Mapping[str, Any]]]
) -> Read:
    """Put the rows of a slice that fit beside those that do not.

    `numbers` says which rows of the slice `rows` are; `rejected` has reason and content of the others by number.
    """
    places = (numbers.cast(pl.Int64) + part.position).alias(POSITION)
    wrong = tuple(
        {"position": part.position + i, "reason": reason, "row": row_text(row)}
        for i, (reason, row) in sorted(rejected.items())
    )
    return Read(rows.with_columns(places).lazy(), wrong)


def cut(value: object) -> str:
    """Write a value so that it fits into a reason."""
    return reprlib.repr(value)


class _Rejected(dict[str, Any]):
    """A row that was rejected while it was read, for the reference: it asks a row for its columns, and hears the reason."""

    def __init__(self, reason: str, row: str) -> None:
        super().__init__(json.loads(row))
        self._reason = reason

    def __iter__(self) -> Iterator[str]:
        raise Misfit(self._reason)


def _in_order(reads: list[Read], frames: list[pl.DataFrame], columns: pl.Schema) -> Iterator[Mapping[str, Any]]:
    """Give all rows one by one, rejected ones at their places."""
    for read, frame in zip(reads, frames, strict=True):
        wrong = {r["position"]: _Rejected(r["reason"], r["row"]) for r in read.rejected}
        places = frame[POSITION].to_list() if POSITION in frame.columns else range(frame.height)
        right = {p: {c.name: c for c in frame.select(list(columns))[i].get_columns()} for i, p in enumerate(places)}
        yield from (row for _, row in sorted({**wrong, **right}.items()))
