"""Places where a test can make the process die, to see what is left behind.

`SPRINGTIDE_FAIL=after-manifest:3` kills the process with SIGKILL when it comes to that place for the third time.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

PLACES = ("before-job", "after-job", "after-manifest", "during-publish", "after-publish", "after-clean")
"""The steps of a commit, in order."""

_VARIABLE = "SPRINGTIDE_FAIL"
_visits: Counter[str] = Counter()


def failpoint(place: str) -> None:
    """Die here if a test asked for it."""
    wanted = os.environ.get(_VARIABLE)
    if wanted is None:
        return
    assert place in PLACES
    _visits[place] += 1
    name, _, number = wanted.partition(":")
    if name == place and _visits[place] == int(number or 1):
        os.kill(os.getpid(), signal.SIGKILL)
