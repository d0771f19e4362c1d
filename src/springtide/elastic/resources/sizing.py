"""How many executors to have, which ones to release, and what to do while some are missing. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from springtide.state.instructions import Instruction


@dataclass(frozen=True)
class Executors:
    """A user's settings for the executors of an elastic query.

    >>> Executors(warm=1).target(slots=5, each=2)
    4
    >>> Executors(warm=1, most=3).target(slots=5, each=2)
    3
    """

    warm: int = 1
    """Executors kept ready beyond those needed (SE-6): the next ones are available at once, and one that dies leaves no gap."""
    most: int | None = None
    """The maximum number of executors, including warm ones; None: as many as the cluster provides."""
    wait: float = 60.0
    """Seconds to wait for executors; after that, the change is made as far as the available ones allow, or dropped."""

    def __post_init__(self) -> None:
        """Refuse impossible settings."""
        if self.warm < 0 or self.wait < 0 or (self.most is not None and self.most < 1):
            raise ValueError("warm and wait cannot be negative, and most is at least 1")

    def target(self, slots: int, each: int) -> int:
        """Return how many executors there should be so that this many tasks can run at once; each executor runs `each`."""
        wanted = -(-slots // each) + self.warm
        return max(1, wanted if self.most is None else min(wanted, self.most))


def leaving(executors: Iterable[str]) -> list[str]:
    """Return executors in the order in which they are released: the newest first, because the oldest have the warmest workers.

    >>> leaving(["9", "driver", "10", "2"])
    ['10', '9', '2']
    """
    return sorted((e for e in executors if e.isdigit()), key=int, reverse=True)


@dataclass(frozen=True)
class Waiting:
    """An instruction that is waiting for slots."""

    instruction: Instruction
    since: float

    def instances(self, missing: int, now: float, wait: float) -> int | None:
        """Return how many instances the subquery can have now that `missing` slots are missing; None: keep waiting.

        What has become available in time is used: never fewer instances than before, and never more than instructed.
        """
        told = self.instruction.after.instances
        if missing <= 0:
            return told
        return max(self.instruction.before.instances, told - missing) if now - self.since >= wait else None
