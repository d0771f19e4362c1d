"""Windows: which tuples an aggregate sees together.

Time windows are aligned to the Unix epoch and half open:

    time      0    10    20    30    40
    tumbling  |-----|-----|-----|-----|          st.tumbling("10s")
    sliding   |-----------|                      st.sliding("20s", every="10s")
                    |-----------|
    session      x x----|      x-----|           st.session("5s"): open until nothing came for 5 s
    last_n    the last n tuples of each group    st.last_n(5, every=1)
"""

from __future__ import annotations

from dataclasses import dataclass

from springtide.query.errors import QueryError
from springtide.query.types import Length, length_text, micros_of, whole


@dataclass(frozen=True)
class Sliding:
    """Windows `[k·every, k·every + size)` of event time, in microseconds; tumbling when both are the same."""

    size: int
    every: int

    def check(self, step: str) -> None:
        """Refuse a window without length, and one that would leave rows in no window."""
        if self.size <= 0 or self.every <= 0:
            raise QueryError(
                step,
                f"a window of size {length_text(self.size)} every {length_text(self.every)} has no time in it",
                "give lengths above zero",
            )
        if self.every > self.size:
            raise QueryError(
                step,
                f"a window of {length_text(self.size)} every {length_text(self.every)} leaves rows that are in no window",
                f"use every={length_text(self.size)!r} or less, and filter what you do not want",
            )

    def __str__(self) -> str:
        """Say it as the user wrote it."""
        size = length_text(self.size)
        return f"tumbling {size}" if self.size == self.every else f"sliding {size} every {length_text(self.every)}"


@dataclass(frozen=True)
class LastN:
    """Windows over the tuples of one group in order: numbers `[k·every, k·every + size)`, emitted when full."""

    size: int
    every: int

    def check(self, step: str) -> None:
        """Refuse windows without tuples, and ones that would leave tuples in no window."""
        if self.size <= 0 or self.every <= 0:
            raise QueryError(
                step, f"a window of {self.size} tuples every {self.every} has nothing in it", "give numbers above zero"
            )
        if self.every > self.size:
            raise QueryError(
                step,
                f"a window of {self.size} tuples every {self.every} leaves tuples that are in no window",
                f"use every={self.size} or less",
            )

    def __str__(self) -> str:
        """Say it as the user wrote it."""
        return f"last {self.size} every {self.every}"


@dataclass(frozen=True)
class Session:
    """Windows of one group that stay open until no tuple came for `gap` microseconds."""

    gap: int

    def check(self, step: str) -> None:
        """Refuse a gap without length."""
        if self.gap <= 0:
            raise QueryError(
                step, f"a session with a gap of {length_text(self.gap)} has no time in it", "give a gap above zero"
            )

    def __str__(self) -> str:
        """Say it as the user wrote it."""
        return f"session gap {length_text(self.gap)}"


Window = Sliding | LastN | Session
"""Any window."""


def tumbling(size: Length) -> Sliding:
    """Cut time into windows of `size`, one after the other.

    >>> print(st.tumbling("1m"))
    tumbling 1m
    """
    return sliding(size, every=size)


def sliding(size: Length, *, every: Length) -> Sliding:
    """Make windows of `size` that start every `every`; the size need not be a multiple.

    >>> print(st.sliding("1h", every="1m"))
    sliding 1h every 1m
    """
    return Sliding(micros_of("(window)", size), micros_of("(window)", every))


def last_n(size: int, *, every: int = 1) -> LastN:
    """Make windows of the last `size` tuples of each group, after every `every` of them.

    >>> print(st.last_n(5))
    last 5 every 1
    """
    return LastN(whole("(window)", "size", size), whole("(window)", "every", every))


def session(gap: Length) -> Session:
    """Make windows that end when a group had no tuple for `gap`.

    >>> print(st.session("30m"))
    session gap 30m
    """
    return Session(micros_of("(window)", gap))
