"""Whose turn it is to publish an epoch: what a replica that has finished it decides. Pure.

    no replica has the turn        take it; the replica that published the epoch before, and has the sinks open, gets a short head start
    another has it                 wait until the epoch is done; take the next turn if that takes too long
    it is done                     compare the rows, and go on

A turn is created conditionally, so each has one owner. Its term is the generation that the sinks see: they refuse any replica with an older one, so
a replica that is late, or that was paused, cannot publish what another has published meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from springtide.query.plurals import plural
from springtide.state.manifest import Delivery
from springtide.state.parsing import parsed
from springtide.state.published import Published

Digests = Mapping[str, tuple[int, str]]
"""Sink → the number of its rows in an epoch, and a digest of them that depends neither on their order nor on the number of instances; only sinks that have rows."""

_MASK = (1 << 64) - 1
_DOUBLINGS = 10


class TurnChoice(Enum):
    """What a replica does about an epoch that it has finished."""

    SKIP = "it is published"
    TAKE = "take the turn"
    WAIT = "another is at it"


@dataclass(frozen=True)
class Turn:
    """The right of a replica to publish an epoch, until another takes the next turn."""

    epoch: int
    number: int
    """1, or more if others had a turn before and did not finish."""
    term: int
    """The generation that sinks see."""
    by: str
    token: str
    """Distinguishes one run of a replica from the next."""
    digests: Digests
    marks: Mapping[str, str]
    """Sink → the mark of this commit (`Publication.commit`)."""

    def encode(self) -> bytes:
        """Write it as JSON."""
        return json.dumps(vars(self) | {"digests": dict(self.digests)}, separators=(",", ":")).encode()

    @staticmethod
    def decode(data: bytes) -> Turn:
        """Read what `encode` wrote; raise a ValueError if it is something else."""
        body = parsed(data)
        try:
            epoch, number, term = (int(body[name]) for name in ("epoch", "number", "term"))
            marks = {str(sink): str(mark) for sink, mark in body["marks"].items()}
            return Turn(epoch, number, term, str(body["by"]), str(body["token"]), _digests(body["digests"]), marks)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is not a turn: {error}") from None


@dataclass(frozen=True)
class EpochDone:
    """The sinks have the rows of an epoch."""

    epoch: int
    by: str
    digests: Digests
    published: Published
    """What the sinks have, with the marks of the last epochs."""

    def encode(self) -> bytes:
        """Write it as JSON."""
        published = self.published.encode().decode()
        return json.dumps(vars(self) | {"published": published}, separators=(",", ":")).encode()

    @staticmethod
    def decode(data: bytes) -> EpochDone:
        """Read what `encode` wrote; raise a ValueError if it is something else."""
        body = parsed(data)
        try:
            published = Published.decode(body["published"].encode())
            if published is None:
                raise ValueError("it does not say what was published")
            return EpochDone(int(body["epoch"]), str(body["by"]), _digests(body["digests"]), published)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it does not say what was published: {error}") from None


def choose_turn(
    *, done: bool, turns: Sequence[Turn], name: str, token: str, first: bool, waited: float, grace: float, after: float
) -> TurnChoice:
    """Decide what a replica does once it has finished an epoch; it has waited `waited` seconds since the turns last changed.

    `first`: it published the epoch before. `after`: how long a replica may take to publish; each further turn has twice as long.
    """
    if done:
        return TurnChoice.SKIP
    if not turns:
        return TurnChoice.TAKE if first or waited >= grace else TurnChoice.WAIT
    last = turns[-1]
    if last.by == name and last.token != token:  # an earlier run of this same replica, which has ended
        return TurnChoice.TAKE
    limit = after * 2 ** min(last.number - 1, _DOUBLINGS)
    return TurnChoice.TAKE if waited >= limit else TurnChoice.WAIT


def term_after(last: Turn | None, token: str) -> int:
    """Return the term of the next turn: a new one, unless it is for the run that had the last turn and has the sinks open."""
    if last is None:
        return 1
    return last.term if last.token == token else last.term + 1


def digests_of(outbox: Sequence[Delivery]) -> dict[str, tuple[int, str]]:
    """Return the digests of the rows in an outbox, combined from what tasks report about the rows that they wrote.

    >>> digests_of([Delivery("out", "a", 2, 0, "ff"), Delivery("out", "b", 1, 1, "1")])
    {'out': (3, '0000000000000100')}
    """
    found: dict[str, tuple[int, int]] = {}
    for delivery in outbox:
        rows, total = found.get(delivery.sink, (0, 0))
        found[delivery.sink] = rows + delivery.rows, (total + int(delivery.digest or "0", 16)) & _MASK
    return {sink: (rows, f"{total:016x}") for sink, (rows, total) in sorted(found.items())}


def difference(digests: Mapping[str, Digests]) -> str | None:
    """Return how the rows of two replicas differ, given by their names; None if they do not.

    >>> difference({"a": {"out": (3, "0f")}, "b": {"out": (2, "01")}})
    'for the sink out a has 3 rows, b 2'
    """
    (one, these), (other, those) = digests.items()
    for sink in sorted({*these, *those}):
        here, there = these.get(sink, (0, "")), those.get(sink, (0, ""))
        if here[0] != there[0]:
            return f"for the sink {sink} {one} has {plural(here[0], 'row')}, {other} {there[0]:,}"
        if here != there:
            return f"for the sink {sink} both have {plural(here[0], 'row')}, but not the same"
    return None


def _digests(data: Any) -> dict[str, tuple[int, str]]:
    return {str(sink): (int(rows), str(digest)) for sink, (rows, digest) in data.items()}
