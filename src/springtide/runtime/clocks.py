"""Time that never goes back."""

from __future__ import annotations

import time
from collections.abc import Callable


class SteadyClock:
    """The time of day when it began and the time that has passed since: changes of the machine's clock in the meantime do not matter.

    >>> day, passed = [1000.0], [0.0]
    >>> clock = SteadyClock(lambda: day[0], lambda: passed[0])
    >>> day[0], passed[0] = 400.0, 5.0  # somebody sets the clock back
    >>> clock()
    1005.0
    """

    def __init__(self, clock: Callable[[], float] = time.time, timer: Callable[[], float] = time.monotonic) -> None:
        """Take the time of day from `clock`, once."""
        self._timer = timer
        self._offset = clock() - timer()

    def not_before(self, time: float) -> None:
        """Continue from a time that somebody else's clock has shown, if this one is behind it."""
        self._offset = max(self._offset, time - self._timer())

    def __call__(self) -> float:
        """Return the time."""
        return self._offset + self._timer()
