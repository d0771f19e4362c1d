"""What sources that read files have in common: which files, in which order, how far, and what is new."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import polars as pl

from springtide.connectors import POSITION, AwayError, CheckpointError, Feed, Owner, Read, Slice, Source, Take
from springtide.connectors.file_ledger import NOTHING_READ, FileRecord, FoundFile, Ledger
from springtide.query.connectors import ONE_STREAM
from springtide.query.errors import QueryError, SpringtideError
from springtide.query.types import END_OF_TIME
from springtide.sources.places import Place, StorePlace
from springtide.values.row_checks import row_text

STILL_WRITTEN = 60.0
"""A file that cannot be read may still be being written if it was changed within this many seconds."""
_COUNTED = 256
"""How many files are looked into to estimate how many rows wait."""


@dataclass(frozen=True)
class RowRange:
    """Consecutive rows of a file."""

    first: int
    rows: int
    greatest: int | None = None
    """The greatest ts in it, if the file says."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FileSource(Source):
    """The files of a folder or pattern: one physical stream, each file read once.

    Files are read in the order of their names; with `follow`, where new files may have any name, in the order in which they were
    found, and those that were found together by when they were last changed and then by name. A position has the ledger of the files that
    were dealt with, the file that is being read (one that may grow is, until there is another), how many of its rows were read and
    how many are left in it, and how many rows were read in all.
    """

    kind: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    """The suffixes of the files of a folder that are read."""

    beginning = NOTHING_READ
    grows: ClassVar[bool] = False
    """Rows may be added to a file while it is the last one."""

    where: Place
    follow: bool = False
    positions: bool = True
    only: Mapping[str, FileRecord] | None = field(default=None, repr=False)
    """The files that are read, and how many rows of each, if it is read again; None: whatever is there."""

    @property
    def path(self) -> str:
        """The folder, file or pattern, as it was written."""
        return self.where.path

    def open(self, owner: Owner) -> Feed:
        """Refuse a store that cannot be reached before anything is read."""
        if isinstance(self.where, StorePlace):
            try:
                self.where.check()
            except CheckpointError as error:
                if isinstance(error, AwayError):
                    raise
                raise QueryError(owner.step, f"{error.path} {error.problem}", error.hint) from None
        return self

    @abstractmethod
    def schema(self) -> pl.Schema:
        """Names and types of the columns."""

    @abstractmethod
    def pieces(self, file: FoundFile, ts: str | None, *, whole: bool) -> Iterable[RowRange] | None:
        """List what is in a file; `whole` says that nothing more will be added to it. None: it cannot be read yet."""

    @abstractmethod
    def rows_in(self, file: FoundFile, ts: str | None) -> int:
        """Return about how many rows a file has, without reading it; its time may be looked up with it."""

    @abstractmethod
    def place(self, file: FoundFile, start: int, stop: int) -> list[Any]:
        """Return where a task finds the rows from `start` to `stop` of a file."""

    @abstractmethod
    def read(self, part: Slice) -> Read:
        """Read a slice, in a task."""

    def describe(self) -> str:
        """Say which files."""
        return f"{self.kind} {self.path}{', followed' if self.follow else ''}"

    def files(self) -> list[str]:
        """List the files that are there now, by name. Names that begin with . or _ or end with .tmp or .partial are ignored."""
        return [*self.where.listed(self.suffixes).values()]

    @property
    def may_grow(self) -> bool:
        """Whether rows may be added to a file: in a store they cannot."""
        return self.grows and self.where.grows

    def upto(self, position: Any) -> FileSource:
        """Read the same files again, as far as they were read."""
        records = {n: r for n, r in Ledger(position.get("ledger")).records().items() if r.fate != "gone"}
        if begun := position.get("file"):
            records[begun] = FileRecord(
                begun, position.get("size", 0), _UNKNOWN, position["row"], tag=position.get("tag", "")
            )
        return replace(self, only=records)

    def take(self, position: Any, limit: int, ts: str | None) -> Take:
        """Take the next rows, file after file."""
        look = _Look(self, position)
        slices: list[Slice] = []
        taken, backlog, waiting = 0, 0, list[FoundFile]()
        for file in look.queue:
            if taken >= limit:
                waiting.append(file)
                continue
            done, last = look.done(file), file is look.queue[-1]
            pieces = self.pieces(file, ts, whole=not (self.follow and last and self.where.grows))
            if pieces is None:  # somebody is still writing it: it comes later
                look.wait_for(file)
                continue
            rows, left, again = done, 0, None if self.only is None else self.only[file.name]
            for piece in pieces:
                start, end = max(piece.first, done), piece.first + piece.rows
                end = end if again is None else min(end, again.rows)
                stop = min(end, start + limit - taken)
                left += max(0, end - max(start, stop))
                if stop <= start:
                    continue
                # Of a part of a piece it is that of the whole: what came before the part has been read, and what the limit leaves comes in another epoch.
                greatest = piece.greatest if stop in (piece.first + piece.rows, limit - taken + start) else None
                place, there = self.place(file, start, stop), file.modified / 1e9
                slices.append(Slice(ONE_STREAM, look.rows, stop - start, place, greatest, arrived=(there, there)))
                taken, rows, look.rows = taken + stop - start, stop, look.rows + stop - start
            grows = self.follow and self.may_grow and last if again is None else again.modified == _UNKNOWN
            look.read(file, rows, left, open_ended=grows)
            backlog += left
        ended = (not self.follow or self.only is not None) and not waiting and backlog == 0
        times = {ONE_STREAM: END_OF_TIME} if ended else {}
        backlog += self._rows_waiting(waiting, ts)
        return Take(tuple(slices), look.after(), times, (ONE_STREAM,), ended, backlog, notes=tuple(look.notes))

    def _rows_waiting(self, files: Sequence[FoundFile], ts: str | None) -> int:
        """Return about how many rows wait in files; if there are many, only some are looked into."""
        counted = sum(self.rows_in(f, ts) for f in files[:_COUNTED])
        return counted if len(files) <= _COUNTED else counted * len(files) // _COUNTED


class _Look:
    """One look at the files of a source: which of them to read, in which order, and what to report about the others."""

    def __init__(self, source: FileSource, position: Any) -> None:
        """List the files and compare them with the ledger."""
        self._source, self._before, self._where = source, position or {}, source.where
        self.ledger, self.notes = Ledger(self._before.get("ledger")), list[str]()
        self._begun = {k: v for k, v in self._before.items() if k in ("file", "row", "left", "size", "tag")} or dict(
            _NONE
        )
        self.rows: int = self._before.get("rows", 0)
        paths = self._listed()
        self._root = self._where.root()
        if self._before and "ledger" not in self._before:
            self._adopt(paths)
        self._check_missing(paths)
        self.queue = self._in_order(paths)
        self._note_changes(paths)
        self.ledger.wait_for(f.name for f in self.queue)

    def done(self, file: FoundFile) -> int:
        """Return how many rows of a file were read."""
        return int(self._begun["row"]) if file.name == self._begun["file"] else 0

    def read(self, file: FoundFile, rows: int, left: int, *, open_ended: bool) -> None:
        """Write down how far a file was read; lines may be added to one that is `open_ended`."""
        if left or open_ended:
            self._begun = {"file": file.name, "row": rows, "size": file.size}
            self._begun |= ({"left": left} if left else {}) | ({"tag": file.tag} if file.tag else {})
        else:
            self._close(file.record(rows))

    def wait_for(self, file: FoundFile) -> None:
        """Report a file that cannot be read, unless it is just being written."""
        if time.time() - file.modified / 1e9 >= STILL_WRITTEN:
            self.notes.append(f"{file.path} cannot be read; the query waits until it is repaired or removed")

    def after(self) -> Any:
        """Return the position after this look; the same as before if nothing happened."""
        after = self._begun | {"rows": self.rows, "ledger": self.ledger.written()}
        moved = any(after[k] != self._before.get(k, _NONE.get(k, 0)) for k in ("file", "row", "rows"))
        return after if moved or self.ledger.is_new else (self._before or None)

    def _listed(self, *, again: bool = False) -> dict[str, str]:
        listed = self._where.listed(self._source.suffixes, again=again)
        if (only := self._source.only) is None:
            return listed
        if missing := [n for n in only if n not in listed and not self.ledger.is_done(n)]:
            raise SpringtideError(f"{missing[0]} is no longer in {self._where.root()}, and cannot be read again")
        return {name: path for name, path in listed.items() if name in only}

    def _close(self, record: FileRecord) -> None:
        self.ledger.add(record)
        self._begun = dict(_NONE)

    def _adopt(self, paths: Mapping[str, str]) -> None:
        """Begin the ledger of an older position, which has none: there, every name up to the last one counted as read."""
        last = self._begun["file"]
        is_read = not self._begun.get("left") and not self._source.may_grow
        for name in (n for n in paths if n < last or (n == last and is_read)):
            if (file := self._where.look(name, paths[name])) is not None:
                self.ledger.add(file.record(self._begun["row"] if name == last else 0))
        if self.ledger.is_done(last):
            self._begun = dict(_NONE)

    def _check_missing(self, paths: Mapping[str, str]) -> None:
        """Raise if a file that is missing must come back: its absence is not the end of the input, and it must not be skipped."""
        source, begun = self._source, self._begun
        waiting = [n for n in self.ledger.base.waiting if n not in paths and self.ledger.get(n) is None]
        if begun.get("left") and begun["file"] not in paths:
            raise FileNotFoundError(
                f"{begun['file']} is no longer in {self._root}; it was read up to row {begun['row']}"
            )
        if waiting and waiting != [begun["file"]] and not (source.follow and paths):
            raise FileNotFoundError(f"{waiting[0]} is no longer in {self._root}, and has not been read yet")
        if not paths and not source.follow:
            if begun["file"] or not self.ledger.is_empty:
                raise FileNotFoundError(f"there are no longer any files in {self._root}")
            if not self._where.is_folder():
                raise SpringtideError(
                    f"there is no file {source.path}; check the path, or wait for it with follow=True"
                )

    def _in_order(self, paths: Mapping[str, str]) -> list[FoundFile]:
        """Return the files to read: the one that was begun, then the others."""
        some = self._found(paths)
        if self._source.follow and some:
            # A folder that grows while it is listed may show a file but not one that came before it.
            newest, again = some[-1], self._listed(again=True)
            self._check_missing(again)
            some = [f for f in self._found(again) if _by_age(f) <= _by_age(newest)]
        name = self._begun["file"]
        begun = next((f for f in some if f.name == name), None)
        others = [f for f in some if f.name != name]
        if not name:
            return others
        if begun is None:  # all of it was read, and now it is gone
            self._close(FileRecord(name, self._begun.get("size", 0), 0, self._begun["row"]))
            return others
        size = self._begun.get("size", begun.size)
        is_other = begun.tag != self._begun.get("tag", begun.tag)
        if is_other or begun.size < size or (begun.size > size and not self._source.may_grow):
            self._close(begun.record(self._begun["row"], "changed"))
            self.notes.append(f"{begun.path} {_change(size, begun.size)} while it was read: {_ONCE}")
            return others
        return [begun, *others]

    def _found(self, paths: Mapping[str, str]) -> list[FoundFile]:
        some = [self._where.look(name, paths[name]) for name in self.ledger.unread(paths.keys())]
        for file in filter(None, some if self._source.only is not None else ()):
            self._check_same(file, self._source.only[file.name])  # type: ignore[index]
        order = _by_age if self._source.follow else _by_name
        return sorted((f for f in some if f is not None), key=order)

    def _check_same(self, file: FoundFile, record: FileRecord) -> None:
        """Refuse to read a file again that is not what it was."""
        if record.modified == _UNKNOWN:
            grown = file.size > record.size and self._source.may_grow
            same = file.tag == record.tag and (file.size == record.size or grown)
        else:
            same = record.fate == "read" and (file.size, file.modified, file.tag) == (
                record.size,
                record.modified,
                record.tag,
            )
        if not same:
            raise SpringtideError(f"{file.path} has changed since it was read, and cannot be read again")

    def _note_changes(self, paths: Mapping[str, str]) -> None:
        for was, now in self.ledger.look_again(paths, self._where.look):
            self.notes.append(f"{paths[now.name]} {_change(was.size, now.size)} since it was read: {_ONCE}")
        for name in self.ledger.miss(paths):
            self.notes.append(f"{self._root}{name} is gone and was not read: put it back if you want its rows")


_NONE: dict[str, Any] = {"file": "", "row": 0}
"""No file was begun."""
_UNKNOWN = -1
"""When a file was changed last that is still being read."""
_ONCE = "a file is read once, so put new rows into a file with another name"


def _change(was: int, now: int) -> str:
    return f"has changed from {was:,} to {now:,} bytes" if was != now else "was written again"


def _by_age(file: FoundFile) -> tuple[int, str]:
    return file.modified, file.name


def _by_name(file: FoundFile) -> tuple[int, str]:
    return 0, file.name


def judged(
    part: Slice, rows: pl.DataFrame, numbers: pl.Series, rejected: Mapping[int, tuple[str, Mapping[str, Any]]]
) -> Read:
    """Return the rows of a slice: those that fit, and those that do not.

    `numbers` says which rows of the slice `rows` are; `rejected` has the reason and the content of each other row by its number.
    """
    places = (numbers.cast(pl.Int64) + part.position).alias(POSITION)
    wrong = tuple(
        {"position": part.position + i, "reason": reason, "row": row_text(row)}
        for i, (reason, row) in sorted(rejected.items())
    )
    return Read(rows.with_columns(places).lazy(), wrong)
