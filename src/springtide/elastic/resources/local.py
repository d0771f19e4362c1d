"""The slots of one machine: as many as there are, nothing to ask for and nothing to give back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LocalSlots:
    """The threads of `local[N]`; without a number, a process that runs one task after the other and can have any number of instances.

    >>> LocalSlots(4).slots(), LocalSlots(4).grows()
    (4, False)
    """

    number: int | None = None

    def slots(self) -> int | None:
        """Count them."""
        return self.number

    def executors(self) -> int | None:
        """Count this process, if it has slots."""
        return None if self.number is None else 1

    def most(self) -> int | None:
        """Count them: there will never be more."""
        return self.number

    def grows(self) -> bool:
        """Say that there is nobody to ask: what is more than the slots runs one after the other."""
        return False

    def request(self, slots: int) -> None:
        """Do nothing."""

    def release(self, slots: int) -> None:
        """Keep them."""

    def close(self) -> None:
        """Do nothing."""
