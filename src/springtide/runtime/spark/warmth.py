"""Workers are ready before tasks need them: in every slot that a query may use there is one that has imported everything and unpacked the plan.

A new Python worker takes a second until it can begin. The first epoch with more instances than before would wait for it, and so would one after a worker has died or after
minutes without input, since Spark ends workers that have been idle for one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

EVERY = 20.0
"""Seconds between two calls of the workers."""
_LOOK = 1.0
"""Seconds between two looks for new slots."""
_AT_END = 5.0
"""Seconds that the end of a run waits for workers that are being started."""


class Warmth:
    """Calls the workers of a session again and again, beside the epochs, in jobs of tiny tasks."""

    def __init__(self, slots: Callable[[], int], call: Callable[[int], object]) -> None:
        """Begin; `slots` counts where workers should be, and `call` runs a task in each."""
        self._slots, self._call = slots, call
        self._over = threading.Event()
        self._called, self._last = 0, 0.0
        self._thread = threading.Thread(target=self._run, name="springtide-warmth", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop calling; when this returns, no task of a call is running."""
        self._over.set()
        self._thread.join(_AT_END)

    def _run(self) -> None:
        while not self._over.is_set():
            with suppress(
                Exception
            ):  # executors come and go, and one day Spark is gone: whoever runs the query notices
                self._look()
            self._over.wait(_LOOK)

    def _look(self) -> None:
        slots, now = self._slots(), time.monotonic()
        if slots > self._called or now - self._last >= EVERY:
            self._called, self._last = slots, now
            self._call(slots)
        self._called = min(self._called, slots)
