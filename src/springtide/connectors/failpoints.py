"""Places where a test can make the process die, to see what is left behind.

`SPRINGTIDE_FAIL=after-manifest:3` kills the process with SIGKILL when it reaches that place for the third time. In its own process, a test may instead
be told of every place (`watched`), and raise an exception there that nobody catches. A connector that publishes in several steps calls `failpoint("mine: …")`
between them; `springtide.testing.check_sink` then kills it at each.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_VARIABLE = "SPRINGTIDE_FAIL"
_visits: Counter[str] = Counter()
_watchers: list[Callable[[str], None]] = []


def failpoint(place: str) -> None:
    """Die here if a test asked for it."""
    for watcher in _watchers:
        watcher(place)
    wanted = os.environ.get(_VARIABLE)
    if wanted is None:
        return
    _visits[place] += 1
    name, _, number = wanted.rpartition(":") if wanted[-1:].isdigit() else (wanted, "", "")
    if name == place and _visits[place] == int(number or 1):
        os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def watched(watcher: Callable[[str], None]) -> Iterator[None]:
    """Tell a test of every place that this process reaches."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)
