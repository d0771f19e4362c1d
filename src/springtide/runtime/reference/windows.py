"""Which tuples of a group a window holds, and which windows are given by a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from springtide.query.windows import LastN, Session, Sliding, Window

Member = TypeVar("Member")
Timed = tuple[int, Member]
"""A member of a group with its ts; groups are in the total order."""


def cut(window: Window, members: list[Timed[Member]], time: int) -> Iterator[tuple[int, int, list[Member]]]:
    """Give (window_start, window_end, members) of each window of a group that is given by the merged time `time`.

    >>> list(cut(Sliding(size=6, every=4), [(1, "a"), (5, "b"), (9, "c")], time=10))
    [(-4, 2, ['a']), (0, 6, ['a', 'b']), (4, 10, ['b', 'c'])]
    """
    if isinstance(window, Sliding):
        yield from _sliding(window, members, time)
    elif isinstance(window, Session):
        yield from _sessions(window, members, time)
    else:
        yield from _last_n(window, members, time)


def _sliding(window: Sliding, members: list[Timed[Member]], time: int) -> Iterator[tuple[int, int, list[Member]]]:
    windows: dict[int, list[Member]] = {}
    for ts, member in members:
        first = (ts - window.size) // window.every + 1  # the smallest k with ts < k·every + size
        for k in range(first, ts // window.every + 1):
            windows.setdefault(k * window.every, []).append(member)
    for start, inside in sorted(windows.items(), key=lambda item: item[0]):
        if start + window.size <= time:
            yield start, start + window.size, inside


def _sessions(window: Session, members: list[Timed[Member]], time: int) -> Iterator[tuple[int, int, list[Member]]]:
    sessions: list[list[Timed[Member]]] = []
    for ts, member in members:
        if sessions and ts - sessions[-1][-1][0] < window.gap:
            sessions[-1].append((ts, member))
        else:
            sessions.append([(ts, member)])
    for session in sessions:
        end = session[-1][0] + window.gap
        if end <= time:
            yield session[0][0], end, [member for _, member in session]


def _last_n(window: LastN, members: list[Timed[Member]], time: int) -> Iterator[tuple[int, int, list[Member]]]:
    ready = [(ts, member) for ts, member in members if ts < time]
    for start in range(0, len(ready) - window.size + 1, window.every):
        inside = ready[start : start + window.size]
        yield inside[0][0], inside[-1][0] + 1, [member for _, member in inside]
