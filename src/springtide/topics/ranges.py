"""What to read next of which partition: pure decisions about offsets.

    position = {"topics": {topic: id}, "next": {stream: offset}, "ends": {stream: offset}}

`ends` is there only for an input that ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from springtide.topics.records import Range

PIECE = 100_000
"""Offsets in one slice, if a partition can be read by several tasks."""


@dataclass(frozen=True)
class Partition:
    """A partition as the brokers describe it, and how far it was read."""

    topic: str
    id: str
    number: int
    first: int
    """The first offset that is still there."""
    stop: int
    """The offset after the last record that may be read: the end of the partition, or the end of the input."""
    next: int
    """The offset to continue at."""

    @property
    def waiting(self) -> int:
        """How many offsets are still to be read."""
        return max(0, self.stop - self.next)


def share(waiting: Sequence[int], limit: int) -> list[int]:
    """Decide how much to take from each partition: in proportion to what waits, so that all reach their ends together.

    >>> share([10, 30, 0], 20), share([10, 30], 100), share([1, 1000], 10)
    ([5, 15, 0], [10, 30], [1, 10])
    """
    total = sum(waiting)
    if total <= limit:
        return list(waiting)
    return [min(n, -(-n * limit // total)) for n in waiting]


def cut(part: Range, *, apart: bool) -> list[Range]:
    """Cut a range into pieces that several tasks can read, if they may be read `apart`."""
    size = PIECE if apart else max(1, part.stop - part.start)
    starts = range(part.start, part.stop, size)
    return [Range(part.topic, part.id, part.partition, start, min(start + size, part.stop)) for start in starts]


def new_topics(known: Mapping[str, str], found: Mapping[str, str]) -> str | None:
    """Return a topic that is not the one that was read before under the same name; None if there is none.

    >>> new_topics({"a": "1"}, {"a": "1", "b": "2"}), new_topics({"a": "1"}, {"a": "2"})
    (None, 'a')
    """
    return next((name for name, id in known.items() if found.get(name, id) != id), None)
