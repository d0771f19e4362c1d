"""What a source is: the driver takes slices of its physical streams, tasks read them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from springtide.connectors.complete import lacking
from springtide.connectors.owner import Owner
from springtide.query.connectors import Rows, SourceConnector
from springtide.query.ids import Micros

UNLIMITED = 2**62
"""More rows than any source has."""

POSITION = "__position"
"""The column with a row's position in its physical stream, for a source that sets positions itself: 64-bit integers."""

MISFIT = "__misfit"
"""The column that says why a row does not fit, null if it does; rows with a reason are rejected."""

_NO_TIME = Micros(0)
"""Before the engine has filled it in."""


@dataclass(frozen=True)
class Slice:
    """Consecutive rows of one physical stream."""

    stream: str
    """The name of the physical stream."""
    position: int
    """The position of the first row. Positions grow along a physical stream."""
    rows: int
    """How many rows there are; if not `exact`, about how many."""
    data: Any
    """Where the rows are, in the connector's own words. If it is plain JSON (and the source is `replayable`) the slice can be read again
    by a later run; otherwise what was computed from it is kept for as long as it may be needed. Never put a secret here: it is written down."""
    greatest: int | None = None
    """The greatest event time in it, in microseconds, if that is known without reading: then slices of one stream can be read side by side."""
    source: str = ""
    """The name of the source; filled in by the engine."""
    time: Micros = _NO_TIME
    """The stream time before the first row; filled in by the engine."""
    arrived: tuple[float, float] | None = None
    """When, by the clock, its first and its last row were there to be read; None if that is not known."""
    reader: Source | None = None
    """Who reads it, if not the source's own connector; filled in by the engine."""
    exact: bool = True
    """Whether `rows` is exact. It is not, say, for a range of offsets in which some have no row. If it is, any other number is an error."""

    def at(self, source: str, time: Micros) -> Slice:
        """Return the slice with the source that it belongs to and the time at which it begins."""
        return replace(self, source=source, time=time)

    def is_before(self, other: Slice) -> bool:
        """Return whether the other one has the next rows of the same physical stream."""
        same = (self.source, self.stream, self.reader) == (other.source, other.stream, other.reader)
        return same and self.exact and other.exact and self.position + self.rows == other.position

    def with_next(self, other: Slice, data: Any) -> Slice:
        """Return a slice with the rows of both, which are where `data` says."""
        known = self.arrived is not None and other.arrived is not None
        arrived = (self.arrived[0], other.arrived[1]) if known else None  # type: ignore[index]
        return replace(self, rows=self.rows + other.rows, data=data, greatest=None, arrived=arrived)


@dataclass(frozen=True)
class Take:
    """What a source has for the next epoch."""

    slices: tuple[Slice, ...]
    position: Any
    """Where to continue after this epoch, as plain JSON: the next `take` gets it. If there was nothing, the same position as before."""
    times: Mapping[str, int] = field(default_factory=dict)
    """Physical stream → a stream time that does not come from its rows: nothing before that time will come. `st.END_OF_TIME`: it has ended."""
    streams: tuple[str, ...] = ()
    """All physical streams that are known. One that is new while the query runs begins at the time that the others have reached."""
    ended: bool = False
    """Nothing will come after this: the input is bounded, and this is its end."""
    backlog: int = 0
    """About how many rows are there but not taken: this is how policies see a lag."""
    fail: bool = False
    """Whether a test wants the process to die here."""
    greatest: int | None = None
    """The greatest event time that is known though no row had it."""
    notes: tuple[str, ...] = ()
    """What people should know, such as a file that cannot be read. A note is shown once for as long as it is repeated."""


@dataclass(frozen=True)
class Read:
    """The rows of a slice, and those that do not fit the source's schema."""

    rows: pl.LazyFrame
    """In the columns of `schema()`, in the order of their positions; may have the columns POSITION and MISFIT."""
    rejected: tuple[Mapping[str, Any], ...] = ()
    """For each row that does not fit `position`, `reason` and `row`, a JSON text for people."""


class Feed(ABC):
    """A source at work in the driver, from `open` to `close`. Only one thread uses it."""

    @abstractmethod
    def take(self, position: Any, limit: int, ts: str | None) -> Take:
        """Return what to read next, at most about `limit` rows. Nothing is read or changed here.

        `position` is where the last epoch ended; at first it is the source's `beginning`. `ts` names the column with the event time. It is
        called again with the same position if the epoch fails; it may return another cut then. An exception that is not a `SpringtideError` is
        treated as a temporary fault: the call is tried again for as long as the run's patience lasts.
        """

    def committed(self, position: Any) -> None:  # noqa: B027 (a hook that need not be there)
        """Called when neither this run nor any later one on this checkpoint will read what is before `position` again.

        It is called after the epoch, and the state that it changed, are durable. After a crash it may be called again, or only for a later
        position. This is the place to acknowledge messages; nothing of a user's may be removed unless the user asked for it.
        """

    def close(self) -> None:  # noqa: B027 (a hook that need not be there)
        """Release whatever `open` acquired. It is called once at the end of a run, whatever has happened."""


class Source(SourceConnector, Feed):
    """A source: derive from it, and define `schema`, `describe`, `read`, and either `take` or `open`.

    An instance describes where the rows are; it can be in several queries, and goes to the tasks that read it (by `cloudpickle`). What a run
    needs in the driver, such as a connection, belongs to the `Feed` that `open` returns. A source without such needs is its own feed.
    """

    replayable: bool = True
    """Whether a slice gives the same rows whenever it is read, by whichever driver, even after `committed`. Before `committed`, every
    source must be able to do that: tasks are tried again."""
    beginning: Any = None
    """The position before anything was read."""

    @property
    def shareable(self) -> bool:
        """Whether runs on other machines can read the same slices at about the same time, as replicas do. Those hear no `committed`."""
        return self.replayable

    def open(self, owner: Owner) -> Feed:
        """Return what takes slices for one run; it is called before the first `take`. Nothing outside may be changed."""
        return self

    def take(self, position: Any, limit: int, ts: str | None) -> Take:
        """Return what to read next: see `Feed.take`."""
        raise NotImplementedError

    def upto(self, position: Any) -> Source | None:
        """Return this source as it was read up to `position`: it begins at its beginning, ends there, and has no other rows. None: it cannot be read again.

        A step that is added to a running query can begin with the history of its sources. What was read before may be given in another order, and
        the result is asked again, with a later position, from where it has been read to. Tasks read its slices with the source itself.
        """
        return None

    def joined(self, one: Slice, other: Slice) -> Any:
        """Return the `data` of a slice with the rows of both, where `other` begins at the position behind `one`; None: they are read one by one.

        It is asked in a task, for neighbours that this task reads: it pays if every slice costs something, as with row groups of one file.
        """
        return None

    @abstractmethod
    def read(self, part: Slice) -> Read:
        """Read a slice, in a task, in any process; the same slice gives the same rows. A connection may be kept for the next one."""

    def read_all(self) -> Mapping[str, Rows]:
        """Return all rows that are there now, by physical stream: for `query.run_reference()`."""
        from springtide.connectors.reading import read_everything

        return read_everything(self)

    def incomplete(self) -> str | None:
        """Return what the class lacks; None if it is complete."""
        return lacking(type(self), Source, {"take": "open", "open": "take"})
