"""Windows: which tuples an aggregate sees together.

Time windows are aligned to the Unix epoch and half open:

    time      0    10    20    30    40
    tumbling  |-----|-----|-----|-----|          st.tumbling("10s")
    sliding   |-----------|                      st.sliding("20s", every="10s")
                    |-----------|
    session      x x----|      x-----|           st.session("5s"): open until nothing has come for 5 s
    last_n    the last n tuples of each group    st.last_n(5, every=1)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from springtide.query.errors import QueryError
from springtide.query.ids import Micros
from springtide.query.plurals import plural
from springtide.query.types import Length, length_text, micros_of, whole
from springtide.query.usage import usage

Member = TypeVar("Member")


class Window(ABC):
    """What a window says about itself. The operator that runs it is registered alongside it (docs/contributing.md)."""

    ordered: ClassVar[bool] = False
    """Whether the tuples in a window depend on the total order of all tuples, not on their times alone."""
    combines: ClassVar[bool] = True
    """Whether senders can compute partial results: they need not see the other tuples of a key to know where a tuple belongs."""

    @abstractmethod
    def check(self, step: str) -> None:
        """Refuse a window that can hold nothing; `step` names the step in the error."""

    @abstractmethod
    def cut(self, members: Sequence[tuple[int, Member]], time: int) -> Iterator[tuple[int, int, list[Member]]]:
        """Return (window_start, window_end, members) for each window of a group that is complete at the merged time `time`.

        `members` are (ts, member) in the total order. This defines what the window means: the reference interpreter calls it,
        and the engine must give the same rows.
        """

    def lengths(self) -> Mapping[str, int]:
        """Return the lengths that a person needs to make sense of its state: `size` and `every` in microseconds if it has panes."""
        return {}


@dataclass(frozen=True)
class Sliding(Window):
    """Windows `[k·every, k·every + size)` of event time, in microseconds; tumbling when `size` and `every` are equal."""

    size: Micros
    every: Micros

    def check(self, step: str) -> None:
        """Refuse windows without length, and ones that would leave some rows outside every window."""
        what = f"a window of size {length_text(self.size)} every {length_text(self.every)}"
        _check_advance(step, self.size, self.every, what, "lengths", repr(length_text(self.size)))

    def cut(self, members: Sequence[tuple[int, Member]], time: int) -> Iterator[tuple[int, int, list[Member]]]:
        """Return the windows that end by `time`.

        >>> list(Sliding(size=6, every=4).cut([(1, "a"), (5, "b"), (9, "c")], time=10))
        [(-4, 2, ['a']), (0, 6, ['a', 'b']), (4, 10, ['b', 'c'])]
        """
        windows: dict[int, list[Member]] = {}
        for ts, member in members:
            first = (ts - self.size) // self.every + 1  # the smallest k with ts < k·every + size
            for k in range(first, ts // self.every + 1):
                windows.setdefault(k * self.every, []).append(member)
        for start, inside in sorted(windows.items(), key=lambda item: item[0]):
            if start + self.size <= time:
                yield start, start + self.size, inside

    def lengths(self) -> Mapping[str, int]:
        """Return its size and its advance: a pane is as long as their greatest common divisor."""
        return {"size": self.size, "every": self.every}

    def __str__(self) -> str:
        """Return it as the user wrote it."""
        size = length_text(self.size)
        return f"tumbling {size}" if self.size == self.every else f"sliding {size} every {length_text(self.every)}"


@dataclass(frozen=True)
class LastN(Window):
    """Windows over the numbered tuples of one group, in order: tuples `[k·every, k·every + size)`, emitted when full."""

    ordered: ClassVar[bool] = True
    combines: ClassVar[bool] = False

    size: int
    every: int

    def check(self, step: str) -> None:
        """Refuse windows without tuples, and ones that would leave some tuples outside every window."""
        what = f"a window of {plural(self.size, 'tuple')} every {self.every}"
        _check_advance(step, self.size, self.every, what, "numbers", str(self.size))

    def cut(self, members: Sequence[tuple[int, Member]], time: int) -> Iterator[tuple[int, int, list[Member]]]:
        """Return the windows that are full, counting only tuples from before `time`."""
        ready = [(ts, member) for ts, member in members if ts < time]
        for start in range(0, len(ready) - self.size + 1, self.every):
            inside = ready[start : start + self.size]
            yield inside[0][0], inside[-1][0] + 1, [member for _, member in inside]

    def __str__(self) -> str:
        """Return it as the user wrote it."""
        return f"last {self.size} every {self.every}"


@dataclass(frozen=True)
class Session(Window):
    """Windows of one group that stay open until no tuple has come for `gap` microseconds."""

    gap: Micros

    def check(self, step: str) -> None:
        """Refuse a gap that is not above zero."""
        if self.gap <= 0:
            raise QueryError(step, f"a session cannot have a gap of {length_text(self.gap)}", "give a gap above zero")

    def cut(self, members: Sequence[tuple[int, Member]], time: int) -> Iterator[tuple[int, int, list[Member]]]:
        """Return the sessions that no further tuple can join."""
        sessions: list[list[tuple[int, Member]]] = []
        for ts, member in members:
            if sessions and ts - sessions[-1][-1][0] < self.gap:
                sessions[-1].append((ts, member))
            else:
                sessions.append([(ts, member)])
        for session in sessions:
            end = session[-1][0] + self.gap
            if end <= time:
                yield session[0][0], end, [member for _, member in session]

    def __str__(self) -> str:
        """Return it as the user wrote it."""
        return f"session gap {length_text(self.gap)}"


@usage("st.tumbling('1m')")
def tumbling(size: Length) -> Sliding:
    """Cut time into windows of `size`, one after the other.

    >>> print(st.tumbling("1m"))
    tumbling 1m
    """
    return sliding(size, every=size)


@usage("st.sliding('1h', every='1m')")
def sliding(size: Length, *, every: Length) -> Sliding:
    """Make windows of length `size`, one starting every `every`; the size need not be a multiple of it.

    >>> print(st.sliding("1h", every="1m"))
    sliding 1h every 1m
    """
    return Sliding(micros_of("(window)", size), micros_of("(window)", every))


@usage("st.last_n(5, every=1)")
def last_n(size: int, *, every: int = 1) -> LastN:
    """Make a window of the last `size` tuples of each group after every `every` tuples.

    >>> print(st.last_n(5))
    last 5 every 1
    """
    return LastN(whole("(window)", "size", size), whole("(window)", "every", every))


@usage("st.session('30m')")
def session(gap: Length) -> Session:
    """Make windows that end when a group has had no tuple for `gap`.

    >>> print(st.session("30m"))
    session gap 30m
    """
    return Session(micros_of("(window)", gap))


def _check_advance(step: str, size: int, every: int, what: str, kind: str, most: str) -> None:
    if size <= 0 or every <= 0:
        raise QueryError(step, f"{what} can hold no tuples", f"give {kind} above zero")
    if every > size:
        problem = f"{what} leaves gaps, with tuples that are in no window"
        raise QueryError(step, problem, f"use every={most} or less, and filter what you do not want")
