"""Signs of life: who runs a checkpoint, and whether that run is still heard of.

    running    written by the run every few seconds; removed when it ends, or kept with the word that somebody stopped the query

A sign says that a run is there, never that it may write: that is what the log is for (`springtide.state.claims`). Whoever watches compares signs with
each other and times them by a clock of their own, so clocks that differ between machines do no harm.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from springtide.state.errors import CheckpointError
from springtide.state.names import RUNNING
from springtide.state.parsing import parsed
from springtide.state.stores import Store

EVERY = 10.0
"""Seconds between two signs, where nobody stands by."""
_HEARD = 60.0
"""Seconds after which a run that was not heard from is presumed dead."""


@dataclass(frozen=True)
class Sign:
    """One sign of life."""

    by: str
    at: float
    """The time of day, for people."""
    every: float = EVERY
    """Seconds until the next one."""
    number: int = 0
    stopped: bool = False
    """Somebody stopped the query: nobody is to go on with it."""

    @staticmethod
    def of(every: float, number: int) -> Sign:
        """Make one for this process."""
        return Sign(f"process {os.getpid()} on {socket.gethostname()}", time.time(), every, number)

    def encode(self) -> bytes:
        """Write it as JSON."""
        return json.dumps(vars(self)).encode()

    @staticmethod
    def decode(data: bytes) -> Sign:
        """Read what `encode` wrote; a ValueError says that it is something else."""
        found = parsed(data)
        try:
            every = float(found.get("every", EVERY))
            number, stopped = int(found.get("number", 0)), bool(found.get("stopped", False))
            return Sign(str(found["by"]), float(found["at"]), every, number, stopped)
        except (AttributeError, KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"it is not a sign of life: {error}") from None


def read_sign(store: Store) -> Sign | None:
    """Return the last sign of life; None if there is none that can be understood."""
    try:
        return Sign.decode(store.read(RUNNING))
    except (FileNotFoundError, ValueError):
        return None


def is_heard(store: Store) -> bool:
    """Return whether a run was heard from lately, as far as the store can be asked."""
    try:
        sign = read_sign(store)
    except CheckpointError:
        return False
    return sign is not None and not sign.stopped and time.time() - sign.at < _HEARD


class Pulse:
    """The signs of life of one run."""

    def __init__(self, store: Store, every: float, is_lost: Callable[[], bool]) -> None:
        """Begin to give them, in the background, until the run `is_lost`: then they are those of another."""
        self._store, self._every, self._is_lost = store, every, is_lost
        self._last = Sign.of(every, 0)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="springtide-pulse", daemon=True)
        self._thread.start()

    def close(self, *, stopped: bool = False) -> None:
        """Say that nobody runs any more; `stopped`: that somebody wanted it so."""
        self._over.set()
        self._thread.join()
        with suppress(OSError, CheckpointError):  # a store that is away: whoever watches hears nothing either
            if self._is_lost():
                return
            if stopped:
                self._store.write(RUNNING, replace(self._last, stopped=True).encode())
            else:
                self._store.delete(RUNNING)

    def beat(self) -> None:
        """Give a sign now."""
        if not self._is_lost():
            self._last = Sign.of(self._every, self._last.number + 1)
            self._store.write(RUNNING, self._last.encode())

    def _run(self) -> None:
        while True:
            with suppress(OSError, CheckpointError):  # the business of whoever commits
                self.beat()
            if self._over.wait(self._every):
                return
