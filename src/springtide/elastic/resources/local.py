"""The slots of one machine: a fixed number, with nothing to request and nothing to return."""

from __future__ import annotations

from dataclasses import dataclass

from springtide.elastic.resources.sizing import Executors


@dataclass(frozen=True)
class LocalSlots:
    """The threads of `local[N]`; without a number, a process that runs one task after another and can have any number of instances.

    >>> LocalSlots(4).slots(), LocalSlots(4).grows()
    (4, False)
    """

    number: int | None = None

    def slots(self) -> int | None:
        """Count the slots."""
        return self.number

    def executors(self) -> int | None:
        """Count this process, if it has slots."""
        return None if self.number is None else 1

    def most(self) -> int | None:
        """Count the slots: there will never be more."""
        return self.number

    def grows(self) -> bool:
        """Return False: no slots can be requested, and tasks beyond the slots run one after another."""
        return False

    def request(self, slots: int) -> None:
        """Do nothing."""

    def release(self, slots: int) -> None:
        """Keep all slots."""

    def want(self, executors: Executors | None) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
