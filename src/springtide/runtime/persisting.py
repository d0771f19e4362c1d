"""Making state durable (SE-4): with every epoch, or every few seconds in the background.

Every epoch's manifest, its input (`log`) and its rows for sinks are durable when it is committed. Its segments may be in shared memory
only, until a checkpoint takes those that are still needed to the durable tiers. An epoch whose segments have all got there is whole:
a recovery goes back no further than to the last of these.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Sequence

from springtide.query.errors import SpringtideError, UnavailableError
from springtide.runtime.patience import of_the_outside, said
from springtide.state.errors import LostError
from springtide.state.manifest import Manifest
from springtide.state.tiers import Tiers


class Persister:
    """Takes segments to the durable tiers; one checkpoint at a time."""

    def __init__(self, tiers: Tiers, interval: float, timer: Callable[[], float], note: Callable[[str], None]) -> None:
        """Begin without any whole epoch; with an interval of 0, every epoch is whole by itself."""
        self._tiers, self._interval, self._timer, self._note = tiers, interval, timer, note
        self._last = timer()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None
        self.whole: set[int] = set()
        """The epochs that are kept and whose state is durable."""
        self._done: int | None = None
        """The epoch of the checkpoint that ended last, if it ended well."""
        self.pinned: frozenset[str] = frozenset()
        """Segments that are being copied."""

    @property
    def in_background(self) -> bool:
        """Whether epochs are committed before their state is durable."""
        return self._interval > 0

    def committed(self, manifest: Manifest) -> None:
        """Take note of an epoch; begin a checkpoint if it is time."""
        if not self.in_background:
            self.whole.add(manifest.epoch)
            return
        self._finish()
        if self._thread is None and self._timer() - self._last >= self._interval:
            self._begin(manifest)

    def checkpoint(self, manifest: Manifest) -> None:
        """Make the state of an epoch durable before anything else."""
        if self.in_background:
            self._begin(manifest)
            self.wait()
        if self._failure is not None:
            failure = self._failure
            if isinstance(failure, LostError):
                raise failure
            if of_the_outside(failure):
                raise UnavailableError(f"checkpoint of epoch {manifest.epoch}", said(failure)) from failure
            raise SpringtideError(f"the checkpoint of epoch {manifest.epoch} failed: {failure}") from failure
        self.whole.add(manifest.epoch)

    def forget(self, epoch: int) -> None:
        """Take note that an epoch's state is in other files now: what was made durable of it no longer counts."""
        if self.in_background:
            self.wait()
            self.whole.discard(epoch)

    def wait(self) -> None:
        """Wait for the checkpoint that is under way."""
        if self._thread is not None:
            self._thread.join()
        self._finish()

    def _begin(self, manifest: Manifest) -> None:
        self.wait()
        self._last = self._timer()
        self._failure, self._done = None, None
        self.pinned = frozenset(manifest.files())
        self._thread = threading.Thread(
            target=self._persist, args=(manifest,), name="springtide-checkpoint", daemon=True
        )
        self._thread.start()

    def _persist(self, manifest: Manifest) -> None:
        try:
            self._tiers.persist(manifest.segments())
            self._done = manifest.epoch
        except Exception as error:  # whatever it is, the epoch is not whole
            self._failure = error

    def _finish(self) -> None:
        """Take note of a checkpoint that has ended. If it failed, the query continues: the next one includes its segments."""
        if self._thread is None or self._thread.is_alive():
            return
        self._thread, self.pinned = None, frozenset()
        if self._done is not None:
            self.whole.add(self._done)
        if self._failure is not None:
            self._note(f"a checkpoint failed and will be tried again: {self._failure}")


def kept_after(kept: Sequence[Manifest], retain: int, whole: Container[int]) -> tuple[list[Manifest], list[Manifest]]:
    """Divide manifests into those that stay and those that go (trim, SE-2).

    The last `retain` whole ones stay, and all since the last of these: a recovery replays them.

    >>> from springtide.state.manifest import Manifest
    >>> stay, go = kept_after([Manifest(n, 1) for n in range(8)], retain=2, whole={0, 2, 5})
    >>> [m.epoch for m in stay], [m.epoch for m in go]
    ([2, 5, 6, 7], [0, 1, 3, 4])
    """
    checkpoints = [m.epoch for m in kept if m.epoch in whole][-retain:]
    last = checkpoints[-1] if checkpoints else -1
    stay = [m for m in kept if m.epoch > last or m.epoch in checkpoints]
    return stay, [m for m in kept if m.epoch <= last and m.epoch not in checkpoints]
