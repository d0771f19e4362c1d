"""What this process requested from object stores, and how much state it read: requests cost money, and bytes from afar cost time."""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass(frozen=True)
class Traffic:
    """What was asked for and read in some time."""

    requests: int = 0
    """Requests to object stores, including those that failed."""
    read: int = 0
    """Bytes of state that tasks needed."""
    fetched: int = 0
    """Bytes of it that came from an object store, since no node had them."""

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.requests + other.requests, self.read + other.read, self.fetched + other.fetched)

    @property
    def near(self) -> float | None:
        """The share of what was read that the nodes had themselves; None if nothing was.

        >>> Traffic(read=200, fetched=50).near
        0.75
        """
        return max(0.0, 1 - self.fetched / self.read) if self.read else None


NONE = Traffic()
_counting = threading.Lock()
_since = NONE


def count(requests: int = 0, read: int = 0, fetched: int = 0) -> None:
    """Count what is asked for or read."""
    global _since
    with _counting:
        _since += Traffic(requests, read, fetched)


def taken() -> Traffic:
    """Return what was counted since this was last asked, in this process."""
    global _since
    with _counting:
        found, _since = _since, NONE
    return found
