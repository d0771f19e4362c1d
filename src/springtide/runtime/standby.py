"""Standing by (SM-6): a run that waits, with Spark started and workers warm, until the one at work is gone, and then continues.

    st.Standby(after="5s")                        the signs of life in the checkpoint's own store; no further service
    st.Standby(lease="zk://host:2181/calls")      a lock in ZooKeeper, which notices by itself

Whoever is wrong about a run that is only slow or paused does no harm: a take-over is a claim in the log, and behind it the older run can neither
commit nor publish (`springtide.state.claims`). Of several who stand by one has the next claim; the others go on waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from springtide.compiler.pipeline import compile
from springtide.compiler.plan import Plan
from springtide.query.errors import QueryError, SpringtideError
from springtide.query.types import Length, micros_of
from springtide.query.usage import usage_of
from springtide.runtime.durability import Durability
from springtide.runtime.identity import identity, places_of
from springtide.runtime.options import Options
from springtide.runtime.settings import digest_of, settings_of
from springtide.state.checkpoint import Checkpoint
from springtide.state.claims import Sighting
from springtide.state.errors import AnotherFormError, CheckpointError
from springtide.state.forms import Replaced
from springtide.state.log import Log
from springtide.state.names import MARKER
from springtide.state.pulse import read_sign
from springtide.state.stores import Store
from springtide.state.watching import Verdict, Watcher

AFTER = "5s"
STOPPED = "somebody stopped the query while this run stood by; start it again to continue"
_AWAY = "standing by; the store cannot be read"
_WHERE = "(standby)"
_NOTHING = "nothing"
"""In the place of a digest: nothing decides about instances."""
_LOOKS = 5
"""How many looks, and signs of life, there are in the time after which a run is presumed dead."""


class StandbyEnded(SpringtideError):
    """Raised when a run that stood by is not needed: somebody stopped the query, or the waiting."""


@usage_of("st.Standby(after='5s')", "(standby)")
@dataclass(frozen=True)
class Standby:
    """How a run stands by, and how the run at work lets others do so. Both are started in the same way; the first one works.

    >>> st.Standby(after="2s").seconds
    2.0
    """

    after: Length = AFTER
    """How long a run may give no sign of life before it is presumed dead."""
    lease: str | None = None
    """A ZooKeeper that notices instead: zk://host:port/path, with several hosts separated by commas."""
    told: Callable[[str], None] | None = field(default=None, compare=False, repr=False)
    """Called with a sentence that says what this run waits for."""
    cancelled: Callable[[], bool] | None = field(default=None, compare=False, repr=False)
    """Asked now and then while it waits: True ends the waiting with `StandbyEnded`."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if not micros_of(_WHERE, self.after, "after") >= 100_000:
            raise QueryError(_WHERE, f"after={self.after!r} is too short", 'give at least "100ms"; "5s" is usual')
        if self.lease is not None and not self.lease.startswith("zk://"):
            raise QueryError(
                _WHERE, f"lease={self.lease!r} is not an address of ZooKeeper", 'write it like "zk://host:2181/path"'
            )

    @property
    def seconds(self) -> float:
        """The time after which a run is presumed dead."""
        return micros_of(_WHERE, self.after, "after") / 1e6

    @property
    def signs(self) -> float:
        """The time between two signs of life of a run at work."""
        return self.seconds / _LOOKS

    def say(self, what: str) -> None:
        """Tell whoever started it."""
        if self.told is not None:
            self.told(what)

    def say_away(self, error: Exception) -> None:
        """Tell that the store cannot be reached, which says nothing about the run at work."""
        self.say(f"{_AWAY}: {error}")


def standby_of(given: bool | Standby | None) -> Standby | None:
    """Take what a user gives: nothing, True, or all settings."""
    if given is None or given is False:
        return None
    return Standby() if given is True else given


class Lead(Protocol):
    """Who is at work, as seen by a run that stands by."""

    def wait(self, keep_warm: Callable[[], None]) -> Sighting:
        """Wait until it is this run's turn; call `keep_warm` now and then."""
        ...

    def resign(self) -> None:
        """Let the next one begin."""
        ...


def lead_of(standby: Standby, checkpoint: Checkpoint, durability: Durability) -> Lead:
    """Return the object that tells a run whether it is its turn."""
    seen = Seen(checkpoint, checkpoint.remote or durability.store or checkpoint.store)
    if standby.lease is not None:
        from springtide.runtime.zookeeper import ZooKeeperLead

        return ZooKeeperLead(standby, seen)
    return StoreLead(standby, seen)


class Successor:
    """The query with which a run that stands by will continue: the form that the run at work has by then (SM-3).

    If that one was replaced, the query is read again from where it was written, if somebody can do that.
    """

    def __init__(self, plan: Plan, options: Options, checkpoint: Checkpoint, standby: Standby) -> None:
        """Begin with the query as it was when this run was started; one that has nothing to do with the checkpoint is refused."""
        self.plan, self.options = plan, options
        self._checkpoint, self._tell, self._told = checkpoint, standby.say, ""
        self._store = checkpoint.remote or options.durability.store or checkpoint.store
        self._check(plan)
        form = self._form_there()
        self._settings, self._since, self._moved = self._settings_there(), form.get("since"), form.get("moved")

    def look(self) -> bool:
        """Keep up with the run at work while it is there; return whether this run has another form now. What is wrong is told, and the waiting continues."""
        try:
            return self.follow()
        except OSError:
            return False
        except SpringtideError as error:
            self._tell_once(str(error))
            return False

    def follow(self) -> bool:
        """Have the form that the run at work had last; return whether that is another one than before. Raise an error if this run cannot have it."""
        form = self._form_there()
        try:
            self._check(self.plan)
        except AnotherFormError as error:
            url, why = error.path, error.problem
        else:
            if (since := form.get("since")) is None or since == self._since:
                return self._follow_settings()
            url, why = self._store.url, f"has another form of this query since epoch {since:,}"
        if self.options.reload is None:
            then = "start it again with the new form"
            raise AnotherFormError(url, f"{why}. This run stood by with the query as it was", then)
        try:
            query, elastic = self.options.read_again()
            plan = compile(query, self.plan.buckets)
            self._check(plan)
            self._check_places(plan, form, url)
        except SpringtideError as error:
            if isinstance(error, CheckpointError) and not isinstance(error, AnotherFormError):
                raise
            what = f"{why}. The query that this run stood by with was read again, and it is not that form"
            if not isinstance(error, AnotherFormError):
                what = f"{why}. The query that this run stood by with cannot be read again: {error}"
            raise AnotherFormError(url, what, "bring its file up to date here, and start this run again") from None
        self.plan, self.options = plan, replace(self.options, elastic=elastic, instances=self._instances(plan))
        self._settings, self._since, self._moved = self._settings_there(), form.get("since"), form.get("moved")
        return True

    def _check_places(self, plan: Plan, form: Replaced, url: str) -> None:
        """Refuse a query that was read again and has the places that it had, if those of the run at work were changed.

        They need not be the same: a folder may have another name on each machine.
        """
        moved, now = form.get("moved") != self._moved, places_of(plan)
        if moved and now == places_of(self.plan) and now != form.get("places"):
            raise AnotherFormError(url, "has other sources or sinks", "read the query again")

    def _instances(self, plan: Plan) -> int | Mapping[str, int] | None:
        """Return the instances that were asked for, without those of steps that another form does not have."""
        wanted = self.options.instances
        if not isinstance(wanted, Mapping):
            return wanted
        names = {*plan.graph.steps, *(q.name for q in plan.subqueries)}
        return {step: number for step, number in wanted.items() if step in names}

    def _follow_settings(self) -> bool:
        """Have what decides about instances read again if that was changed in the run at work. Nobody is refused for it: what cannot be had is told."""
        now = self._settings_there()
        if now is None or self._settings in (None, now):
            self._settings = now if now is not None else self._settings
            return False
        try:
            if self.options.reload is None:
                raise QueryError(_WHERE, "it has what it was started with", "start it again with the new settings")
            elastic = self.options.read_again()[1]
            self.options = replace(self.options, elastic=elastic)
            if (digest_of(settings_of(elastic)) or _NOTHING) != now:
                raise QueryError(_WHERE, "what was read again is something else", "bring its file up to date here")
        except SpringtideError as error:
            self._tell_once(f"what decides about instances was changed in the run at work: {error}")
            return False
        self._settings = now
        return False

    def _form_there(self) -> Replaced:
        """Return the form that the query has since it was replaced; nothing if it never was."""
        found = Log(self._store).tail().manifests()
        form = found[-1].form if found else None
        return {} if form is None else form

    def _settings_there(self) -> str | None:
        """Return a digest of what decides about instances in the run at work; None if it has not said so yet."""
        found = Log(self._store).tail().manifests()
        if not found:
            return None
        state = found[-1].elastic
        return _NOTHING if state is None else state.settings or None

    def _tell_once(self, what: str) -> None:
        if what != self._told:
            self._told = what
            self._tell(what)

    def _check(self, plan: Plan) -> None:
        if self._store.exists(MARKER):
            self._checkpoint.check(identity(plan), self._store.read(MARKER), Log(self._store).tail())


@dataclass(frozen=True)
class Seen:
    """A checkpoint as seen by a run that stands by."""

    checkpoint: Checkpoint
    store: Store
    """Where its log and the signs of life are."""

    def sighting(self) -> Sighting:
        """Return what there is now: the claim succeeds only if nothing has changed by then."""
        slots = Log(self.store).slots()
        return Sighting(self.store.exists(MARKER), slots[-1] if slots else None)

    def is_locked(self) -> bool:
        """Return whether a run of this machine holds the folder; it need not give signs of life."""
        return self.checkpoint.remote is None and self.checkpoint.found() is not None and self.checkpoint.in_use()


class StoreLead:
    """Signs of life in the checkpoint's store."""

    def __init__(
        self,
        standby: Standby,
        seen: Seen,
        timer: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Look at nothing yet."""
        self._standby, self._seen, self._timer, self._sleep = standby, seen, timer, sleep

    def wait(self, keep_warm: Callable[[], None]) -> Sighting:
        """Wait until the run at work is gone, or has handed over. A store that cannot be reached tells nothing: the waiting continues."""
        watcher, first, told = Watcher(self._standby.seconds), True, ""
        while True:
            try:
                sign = read_sign(self._seen.store)
                sighting = self._seen.sighting() if sign is None or sign == watcher.sign else None
                watcher = watcher.saw(sign, sighting, self._timer())
                verdict = watcher.verdict(self._timer(), first=first)
                if sign is None and self._seen.is_locked():
                    verdict = Verdict.WAIT
                if verdict is Verdict.GO:
                    return sighting or self._seen.sighting()
                if verdict is Verdict.END:
                    raise StandbyEnded(STOPPED)
                told, first = self._say(f"standing by for {sign.by if sign else 'another run'}", told), False
            except (OSError, CheckpointError) as error:
                told = self._say(f"{_AWAY}: {error}", told)
                watcher = Watcher(self._standby.seconds)
            keep_warm()
            check_cancelled(self._standby)
            self._sleep(self._standby.signs)

    def resign(self) -> None:
        """Do nothing: a run that ends removes its sign."""

    def _say(self, what: str, before: str) -> str:
        if what != before:
            self._standby.say(what)
        return what


def check_cancelled(standby: Standby) -> None:
    """End the waiting if somebody wants that."""
    if standby.cancelled is not None and standby.cancelled():
        raise StandbyEnded("the wait was ended before it was this run's turn")
