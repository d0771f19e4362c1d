"""What a query requests from the machines that it runs on."""

from __future__ import annotations

from typing import Protocol

from springtide.elastic.resources.sizing import Executors


class Resources(Protocol):
    """Slots for tasks, and their provider. Nothing here blocks: what was requested is there when `slots` says so.

    To scale out, call `request`, wait for `slots`, then move buckets; to scale in, move buckets away, then call `release` (SC-12).
    """

    def slots(self) -> int | None:
        """Count the tasks of the query that can run at once now; None if unknown."""
        ...

    def executors(self) -> int | None:
        """Count the processes that run the tasks; None if unknown."""
        ...

    def most(self) -> int | None:
        """Count the slots that there can ever be; None if unknown."""
        ...

    def grows(self) -> bool:
        """Return whether requested slots can be added; if False, there will never be more than now."""
        ...

    def request(self, slots: int) -> None:
        """Request as many slots as are missing to reach this number, plus the warm pool."""
        ...

    def release(self, slots: int) -> None:
        """Release, between two epochs, everything that is not needed for this number of slots plus the warm pool."""
        ...

    def want(self, executors: Executors | None) -> None:
        """From now on request executors by other settings, or none."""
        ...

    def close(self) -> None:
        """Stop requesting anything."""
        ...
