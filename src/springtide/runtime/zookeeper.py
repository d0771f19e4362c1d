"""A lock in ZooKeeper tells which run is at work (SM-6): its server notices that a run is gone when the session ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from springtide.query.errors import QueryError, SpringtideError
from springtide.runtime.standby import (
    STOPPED,
    Seen,
    Standby,
    StandbyEnded,
    StoreLead,
    check_cancelled,
)
from springtide.state.claims import Sighting
from springtide.state.errors import CheckpointError
from springtide.state.pulse import Sign, read_sign

try:
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException
    from kazoo.handlers.threading import KazooTimeoutError
except ImportError:  # pragma: no cover - the extra is not there
    raise QueryError("(standby)", "a lease in ZooKeeper needs kazoo", "pip install 'springtide[zookeeper]'") from None

_CONNECT = 15.0
"""Seconds in which a server must answer at the start."""


class ZooKeeperLead:
    """Holds, or waits for, the lock of a query.

    A run whose session has ended has lost the lock, and may not know it yet. It continues until another run claims its checkpoint: if ZooKeeper is
    unavailable, nobody can be told to take over. Whoever then gets the lock, and finds that the other run still commits, waits until it gives no more
    signs of life.
    """

    def __init__(self, standby: Standby, seen: Seen) -> None:
        """Connect; a server that does not answer is an error now, not later."""
        self._standby, self._seen = standby, seen
        hosts, _, path = str(standby.lease).removeprefix("zk://").partition("/")
        self._client = KazooClient(hosts=hosts, timeout=standby.seconds)
        try:
            self._client.start(timeout=_CONNECT)
        except KazooTimeoutError:
            raise SpringtideError(
                f"step (standby): ZooKeeper does not answer at {hosts}; check the address, and that it runs"
            ) from None
        self._over = False
        self._lock = self._client.Lock(f"/{path.strip('/') or 'springtide'}")

    def wait(self, keep_warm: Callable[[], None]) -> Sighting:
        """Wait for the lock, and then for the store, should that be away."""
        if self._lock.is_acquired:
            return StoreLead(self._standby, self._seen).wait(keep_warm)
        before, told, got = self._sign(), False, threading.Event()
        threading.Thread(target=self._acquire, args=(got,), name="springtide-lease", daemon=True).start()
        while not got.wait(self._standby.signs):
            check_cancelled(self._standby)
            if not told:
                self._standby.say(f"standing by for whoever holds {self._standby.lease}")
                told = True
            keep_warm()
        while (sighting := self._sighting(before)) is None:
            keep_warm()
            check_cancelled(self._standby)
            time.sleep(self._standby.signs)
        return sighting

    def _sighting(self, before: Sign | None) -> Sighting | None:
        """Return what there is now that nobody has the lock; None if the store cannot tell. Nobody is to go on with a query that was stopped meanwhile."""
        try:
            sign = read_sign(self._seen.store)
            if sign is not None and sign.stopped and sign != before:
                raise StandbyEnded(STOPPED)
            return self._seen.sighting()
        except (OSError, CheckpointError) as error:
            self._standby.say_away(error)
            return None

    def _sign(self) -> Sign | None:
        with suppress(OSError, CheckpointError):
            return read_sign(self._seen.store)
        return None

    def _acquire(self, got: threading.Event) -> None:
        """Wait for the lock, for as long as it takes: a call does not return while no server answers, so this has a thread of its own."""
        while not self._over:
            try:
                if self._lock.acquire():
                    got.set()
                    return
            except KazooException:  # the session was lost while it waited: it is made again
                time.sleep(self._standby.signs)

    def resign(self) -> None:
        """Release the lock; a session that is over has released it already."""
        self._over = True
        self._client.stop()
        self._client.close()
