"""The ledger of a target: whose rows are there, and up to which epoch. It is what makes a sink exactly once.

A sink whose target can keep rows and a small entry in one transaction (a database, a table with a log, a topic) derives from `LedgerSink` and has
to provide the transaction only. The rest is here: looking up, refusing rows of others, claiming the target for a run, and recognising an epoch that
is already there, even when nobody knows how the last transaction ended.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self, TypeVar

from springtide.connectors.owner import Owner
from springtide.connectors.sink import Publication, Sink, Writer
from springtide.query.errors import SinkError
from springtide.query.ids import NO_EPOCH, EpochNumber, Generation

T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """What the ledger of a target says."""

    query: str
    sink: str
    checkpoint: str
    generation: Generation
    """The run that wrote it."""
    epoch: EpochNumber = NO_EPOCH
    """The last epoch with rows for this sink; -1: none yet."""
    commit: str = ""
    """Which commit of that epoch."""

    @staticmethod
    def of(owner: Owner) -> Entry:
        """Return the entry of a run that has published nothing yet."""
        return Entry(owner.query, owner.name, owner.lineage.id, owner.generation)

    @staticmethod
    def anew(owner: Owner) -> Entry:
        """Return the entry of a run for a target that has none: if anything was published there before, somebody has removed it."""
        epoch, commit = owner.last
        return replace(Entry.of(owner), epoch=epoch, commit=commit)

    def after(self, publication: Publication) -> Self:
        """Return the entry once an epoch is published."""
        return replace(self, epoch=publication.epoch, commit=publication.commit)

    def taken_by(self, owner: Owner) -> Entry:
        """Return the entry once a run has claimed the target: the rows stay."""
        return replace(Entry.of(owner), epoch=self.epoch, commit=self.commit)

    def __str__(self) -> str:
        """Say whose it is."""
        return f"the sink {self.sink} of the query {self.query!r} (checkpoint {self.checkpoint[:8]}, published up to epoch {self.epoch})"


@dataclass(frozen=True)
class Advice:
    """What people can do about a target that is refused, worded for its kind."""

    elsewhere: str = "give this sink another target"
    anew: str = "to start over, empty the target and its ledger"
    back: str = "remove what came after epoch {epoch}, and the entry of the ledger"
    """{epoch} is the last one that may stay."""
    lost: str = "restore a newer copy of it, or go back as well: springtide checkpoint restore … --at {epoch}"
    """{epoch} is the last one that is there."""


def refusal(entry: Entry | None, owner: Owner, advice: Advice | None = None) -> tuple[str, str] | None:
    """Return why a run must not write to a target with this entry, and what to do; None: it may. A target without an entry belongs to nobody."""
    if entry is None:
        return None
    advice = advice or Advice()
    known: int = owner.epoch
    if entry.checkpoint == owner.lineage.id:
        whose = f"this checkpoint ends with epoch {owner.epoch}"
    else:
        shared = owner.lineage.shared_with(entry.checkpoint)
        if shared is None:
            return f"belongs to {entry}", f"{advice.elsewhere}, or continue with that checkpoint; {advice.anew}"
        known, whose = shared, f"this checkpoint was made from it at epoch {shared}"
    if entry.sink != owner.name:
        return f"belongs to {entry}", f"call this sink {entry.sink} again, or {advice.elsewhere}"
    if entry.epoch > known:
        return (
            f"has rows of {entry}, and {whose}: later rows would come twice",
            f"{advice.elsewhere}, or remove what came later: {advice.back.format(epoch=known)}",
        )
    if entry.checkpoint == owner.lineage.id and entry.generation > owner.generation:
        return (
            f"was taken over by a newer run of {entry}",
            "this run is stale: start it again if it is the one you want",
        )
    if _lacks_more(entry, owner):
        return (
            f"ends with epoch {entry.epoch} of {entry}, though epoch {owner.last[0]} was published there: it has lost rows",
            f"{advice.lost.format(epoch=entry.epoch)}, or {advice.elsewhere}",
        )
    if (entry.epoch == owner.epoch and owner.commit not in (None, entry.commit)) or (
        entry.epoch == owner.last[0] and entry.commit != owner.last[1]
    ):
        return (
            f"has another epoch {entry.epoch} of {entry}: two runs continued from the same checkpoint",
            f"{advice.elsewhere}, or continue with the checkpoint of the other run",
        )
    return None


def _lacks_more(entry: Entry, owner: Owner) -> bool:
    """Tell whether a target has lost more published rows than those of the last epoch, which can be published again."""
    if entry.epoch >= owner.last[0]:
        return False
    before = owner.published[-2] if len(owner.published) > 1 else (-1, "")
    return (entry.epoch, entry.commit) != before or owner.last != (owner.epoch, owner.commit)


class Target(ABC):
    """A place that keeps rows and a ledger, as one run is connected to it."""

    @abstractmethod
    def entry(self) -> Entry | None:
        """Look up what the ledger says now; None if it says nothing yet."""

    @abstractmethod
    def swap(self, before: Entry | None, after: Entry, publication: Publication | None) -> bool:
        """In one transaction: replace the entry `before` by `after`, and add the rows of the publication if there is one.

        False, and nothing is changed, if the ledger says anything but `before`: another run was faster, or this very transaction happened
        before though its answer was lost. It must be decided inside the transaction (a unique key, a condition, a fence).
        """

    def close(self) -> None:  # noqa: B027 (a hook that need not be there)
        """Close the connection."""


class LedgerSink(Sink):
    """A sink for a target with transactions: define `describe` and `connect`, and `place` if two sinks must not share the target."""

    advice: Advice = Advice()

    @abstractmethod
    def connect(self, owner: Owner) -> Target:
        """Connect to the target. What must be there for `entry` may be made here; a table with other columns than `owner.schema` is refused."""

    def admit(self, owner: Owner) -> None:
        """Refuse a target with rows that do not go with those of the run."""
        target = self.connect(owner)
        try:
            self._refuse(target.entry(), owner)
        finally:
            target.close()

    def open(self, owner: Owner) -> Writer:
        """Claim the target for a run."""
        return _LedgerWriter(self, owner)

    def _refuse(self, entry: Entry | None, owner: Owner) -> None:
        if (why := refusal(entry, owner, self.advice)) is not None:
            raise SinkError(owner.step, f"{self.describe()} {why[0]}", why[1])


class _LedgerWriter(Writer):
    """A target that a run has claimed. After a fault it connects again, and looks before it writes."""

    def __init__(self, sink: LedgerSink, owner: Owner) -> None:
        self._sink, self._owner = sink, owner
        self._target: Target | None = None
        found = self._ask(lambda target: target.entry())
        sink._refuse(found, owner)
        self._entry = found.taken_by(owner) if found is not None else Entry.anew(owner)
        if found != self._entry:
            self._swap(found, self._entry, None)

    def has(self, epoch: int, commit: str) -> bool:
        """Look it up in the entry."""
        return (self._entry.epoch, self._entry.commit) == (epoch, commit)

    def publish(self, publication: Publication) -> None:
        """Publish an epoch if it is not there; one without rows leaves no trace."""
        after = self._entry.after(publication)
        if publication.outbox and self._entry != after:
            self._swap(self._entry, after, publication)
            self._entry = after

    def close(self) -> None:
        """Close the connection."""
        target, self._target = self._target, None
        if target is not None:
            target.close()

    def _ask(self, question: Callable[[Target], T]) -> T:
        try:
            if self._target is None:
                self._target = self._sink.connect(self._owner)
            return question(self._target)
        except Exception:
            self.close()
            raise

    def _swap(self, before: Entry | None, after: Entry, publication: Publication | None) -> None:
        if self._ask(lambda target: target.swap(before, after, publication)):
            return
        found = self._ask(lambda target: target.entry())
        if found != after:  # otherwise it succeeded earlier, though it seemed to have failed
            self.close()
            raise SinkError(
                self._owner.step,
                f"{self._sink.describe()} was taken over by {found}",
                "this run is stale; the rows of its last epoch were not written",
            )
