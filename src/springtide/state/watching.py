"""Whether a run is still there: how a run that stands by decides. Pure.

a sign of life that changes              it is there
the same sign for too long               it is gone, unless it has committed something meanwhile
no sign                                  nobody runs: it has ended, or handed over
a sign that says `stopped`               somebody stopped the query: nobody is to go on with it
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from springtide.state.claims import Sighting
from springtide.state.pulse import Sign

_MISSED = 3
"""At least this many signs must be missing, however short a time was asked for."""


class Verdict(Enum):
    """What a run that stands by should do."""

    WAIT = "a run is there"
    GO = "nobody runs: take over"
    END = "somebody stopped the query"


@dataclass(frozen=True)
class Watcher:
    """What was seen last, and since when nothing else has been seen."""

    after: float
    """Seconds without a sign after which a run is presumed dead."""
    sign: Sign | None = None
    sighting: Sighting | None = None
    """What the log had when the sign had become old; looked at only then."""
    since: float = 0.0

    def saw(self, sign: Sign | None, sighting: Sighting | None, now: float) -> Watcher:
        """Take note of a look; `now` is by a clock that never goes back. Without a `sighting` nobody has looked at the log."""
        if sign != self.sign or (sighting is not None and self.sighting is not None and sighting != self.sighting):
            return Watcher(self.after, sign, sighting, now)
        return self if sighting is None or sighting == self.sighting else replace(self, sighting=sighting)

    def verdict(self, now: float, *, first: bool = False) -> Verdict:
        """Decide what follows from what was seen; at the `first` look nobody was there to be stopped."""
        if self.sign is None:
            return Verdict.GO
        if self.sign.stopped:
            return Verdict.GO if first else Verdict.END
        return Verdict.GO if now - self.since >= max(self.after, _MISSED * self.sign.every) else Verdict.WAIT
