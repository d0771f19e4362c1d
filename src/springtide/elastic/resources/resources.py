"""What a query asks of the machines that it runs on."""

from __future__ import annotations

from typing import Protocol


class Resources(Protocol):
    """Slots for tasks, and who provides them. Nothing here waits: what was asked for is there when `slots` says so.

    To scale out, `request`, wait for `slots`, then move buckets; to scale in, move buckets away, then `release` (SC-12).
    """

    def slots(self) -> int | None:
        """Count the tasks of the query that can run at once now; None where nobody knows."""
        ...

    def executors(self) -> int | None:
        """Count the processes that run them; None where nobody knows."""
        ...

    def most(self) -> int | None:
        """Count the slots that there can ever be; None where nobody knows."""
        ...

    def grows(self) -> bool:
        """Return whether slots that are requested can come; False: what is there is all there will be."""
        ...

    def request(self, slots: int) -> None:
        """Ask for what is missing to have so many slots, and the warm pool besides."""
        ...

    def release(self, slots: int) -> None:
        """Give back, between two epochs, what is not needed to have so many slots and the warm pool."""
        ...

    def close(self) -> None:
        """Ask for nothing any more."""
        ...
