"""Rows that a function makes, the same every time, at the pace of a clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import polars as pl

from springtide.connectors import Read, Slice, Source, Take
from springtide.query.connectors import Rows
from springtide.query.errors import QueryError, UserCodeError, shown
from springtide.query.plurals import plural
from springtide.query.types import END_OF_TIME, schema_from, whole
from springtide.query.usage import usage
from springtide.sources.profiles import Profile, constant

MakeRows = Callable[[int, int, int], pl.DataFrame]
"""Makes `count` rows of physical stream number `stream`, beginning at position `first`: `(stream, first, count)`."""

_LABEL = "(generate)"


@dataclass(frozen=True, eq=False, kw_only=True)
class Generator(Source):
    """A function's rows. Row number i of all goes to physical stream i modulo their number.

    A position is how many rows were taken, and when the clock would have shown zero.
    """

    rows: MakeRows = field(repr=False)
    columns: pl.Schema
    rate: Profile | None
    streams: int
    total: int | None
    start: float | None
    max_backlog: int | None
    clock: Callable[[], float] = time.time
    positions: bool = True

    def schema(self) -> pl.Schema:
        """Names and types of the columns."""
        return self.columns

    def describe(self) -> str:
        """Say how many rows and how fast."""
        many = f", {self.total} rows" if self.total is not None else ""
        streams = f" in {self.streams} physical streams" if self.streams > 1 else ""
        return f"generated{many}{streams}{f', {self.rate}' if self.rate is not None else ''}"

    def read_all(self) -> Mapping[str, Rows]:
        """Make all rows there will be."""
        if self.total is None:
            raise QueryError(_LABEL, "the generator has no end", "give a total, such as total=100_000")
        parts = self._parts(0, self.total)
        return {str(s): self._make(s, 0, parts[s][1]) for s in range(self.streams)}

    def take(self, position: Any, limit: int, ts: str | None) -> Take:
        """Take the rows that are due by now."""
        taken, origin = (position["rows"], position["origin"]) if position else (0, self._beginning())
        due, origin = self._due(taken, origin)
        upto = min(due, taken + limit)
        slices = [
            Slice(str(stream), first, stop - first, stream, arrived=self._arrived(taken, upto, origin))
            for stream, (first, stop) in enumerate(self._parts(taken, upto))
            if stop > first
        ]
        ended = upto == self.total
        names = tuple(str(s) for s in range(self.streams))
        times = dict.fromkeys(names, END_OF_TIME) if ended else {}
        return Take(tuple(slices), {"rows": upto, "origin": origin}, times, names, ended, due - upto)

    def upto(self, position: Any) -> Generator:
        """Make the same rows again, as fast as they are taken."""
        return replace(self, total=position["rows"], rate=None)

    def read(self, part: Slice) -> Read:
        """Call the function."""
        return Read(self._make(part.data, part.position, part.rows).lazy())

    def _beginning(self) -> float | None:
        if self.rate is None:
            return None
        return self.start if self.start is not None else self.clock()

    def _due(self, taken: int, origin: float | None) -> tuple[int, float | None]:
        """Count the rows that are due, and say when the clock would have shown zero: the clock stands still while the backlog is full."""
        end = END_OF_TIME if self.total is None else self.total
        if self.rate is None or origin is None:
            return end, origin
        now = self.clock()
        seconds = now - origin
        full = END_OF_TIME if self.max_backlog is None else taken + self.max_backlog
        if self.rate.due(seconds) > full:
            seconds = _when(self.rate, full, seconds)
            origin = now - seconds
        return max(taken, min(self.rate.due(seconds), end, full)), origin

    def _arrived(self, first: int, stop: int, origin: float | None) -> tuple[float, float] | None:
        """Return when rows became due."""
        if self.rate is None or origin is None:
            return None
        late = self.clock() - origin
        return origin + _when(self.rate, first, late), origin + _when(self.rate, stop - 1, late)

    def _parts(self, first: int, stop: int) -> list[tuple[int, int]]:
        """Return, for each physical stream, the range of positions that the rows `first` to `stop` of all streams make up."""
        return [(-(-(first - s) // self.streams), -(-(stop - s) // self.streams)) for s in range(self.streams)]

    def _make(self, stream: int, first: int, count: int) -> pl.DataFrame:
        made = self.rows(stream, first, count)
        what = f"{getattr(self.rows, '__name__', 'the function')}({stream}, {first}, {count})"
        if not isinstance(made, pl.DataFrame) or made.schema != self.columns:
            found = dict(made.schema) if isinstance(made, pl.DataFrame) else shown(made)
            raise UserCodeError(_LABEL, f"{what} gave {found}", f"give a frame with {dict(self.columns)}")
        if made.height != count:
            raise UserCodeError(_LABEL, f"{what} gave {plural(made.height, 'row')}", "give as many as were asked for")
        return made


@usage("st.generate(st.call_records(), rate=1000)")
def generate(
    rows: MakeRows,
    *,
    rate: float | Profile | None,
    streams: int = 1,
    total: int | None = None,
    schema: Mapping[str, Any] | None = None,
    start: datetime | None = None,
    max_backlog: int | None = None,
) -> Generator:
    """Make rows with a function, at a rate.

    `rows(stream, first, count)` makes `count` rows beginning at position `first` of physical stream number `stream`, the same every
    time. `rate` is rows per second of all physical streams together, or `st.constant`, `st.steps`, `st.sine` or `st.trace`; None is as fast
    as rows are taken, and needs a `total`. Without `schema`, the columns are those of the first row.

    The clock begins at `start`, or when the query first runs, and keeps going while the query does not run. With `max_backlog`, it stands
    still while that many rows are due but not taken: then a burst that the query cannot keep up with takes longer, but loses nothing.

    >>> def numbers(stream, first, count):
    ...     return pl.select(x=pl.int_range(first, first + count))
    >>> st.generate(numbers, rate=st.sine(100, 50, "1m"), streams=2, total=1000).describe()
    'generated, 1000 rows in 2 physical streams, 100 ± 50 rows/s every 1m'
    """
    if not callable(rows):
        raise QueryError(_LABEL, f"{shown(rows)} is not a function", "give one that takes (stream, first, count)")
    counts = {"streams": streams, "total": total, "max_backlog": max_backlog}
    for option, value in counts.items():
        if value is not None and whole(_LABEL, option, value) < (option != "total"):
            raise QueryError(_LABEL, f"{option}={value} is too small", "give a number above zero")
    if rate is None and total is None:
        raise QueryError(
            _LABEL, "neither rate nor total is given", "without a rate, say how many rows there are: total=100_000"
        )
    if start is not None and not isinstance(start, datetime):
        raise QueryError(_LABEL, f"start={shown(start)} is not a time", "give a datetime")
    profile: Any = rate if rate is None or callable(getattr(rate, "due", None)) else constant(rate)  # type: ignore[arg-type]
    return Generator(
        rows=rows,
        columns=_schema(rows) if schema is None else schema_from(_LABEL, "schema", schema),
        rate=profile,
        streams=streams,
        total=total,
        start=None if start is None else (start if start.tzinfo else start.replace(tzinfo=UTC)).timestamp(),
        max_backlog=max_backlog,
    )


def _schema(rows: MakeRows) -> pl.Schema:
    first = rows(0, 0, 1)
    if not isinstance(first, pl.DataFrame):
        raise QueryError(_LABEL, f"the function gave {shown(first)}", "let it give a Polars frame")
    return first.schema


def _when(rate: Profile, rows: int, late: float) -> float:
    """Return the last moment up to `late` at which no more than `rows` are due."""
    early = 0.0
    while late - early > 1e-6 and (middle := (early + late) / 2) not in (early, late):
        early, late = (middle, late) if rate.due(middle) <= rows else (early, middle)
    return early
