"""State for new steps of a running query, built from the history of their sources (SM-3).

    source, from its beginning ─ slice by slice ─→ the new steps, and what leads to them ─→ their state, up to a boundary between two epochs

It is a run of its own, of which nothing comes out but state: its epochs are silent, and no manifest names them until the first epoch of the new form
adopts what they made. So it changes nothing until then, whatever happens on its way. The query can go on meanwhile: what it reads in that time is
read next, in ever shorter rounds, until the rest is short enough for a pause.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from springtide.compiler.pipeline import compile
from springtide.compiler.plan import Plan
from springtide.connectors import Feed, Owner, Read, Slice, Source, Take
from springtide.exchange import gate
from springtide.query import steps
from springtide.query.errors import QueryError
from springtide.query.ids import NO_EPOCH, EpochNumber, Generation
from springtide.query.types import END_OF_TIME
from springtide.runtime.admission import Admission
from springtide.runtime.changes import Start
from springtide.runtime.committing import states_after, with_counts
from springtide.runtime.epoch import Epoch, Taken, TaskReport
from springtide.runtime.intake import Intake
from springtide.runtime.ledgers import Ledgers
from springtide.runtime.patience import Patience
from springtide.runtime.planning import Ownership, plan_epoch, share_out
from springtide.runtime.reconfiguration import Reconfiguration
from springtide.state.bucket_map import BucketMap
from springtide.state.manifest import Manifest, SourceState, SubqueryState
from springtide.state.tiers import Tiers

States = Mapping[str, SourceState]

_FIRST = -(10**9)
"""The number of the first epoch. All are below zero: for state in which the newest version counts, they are older than any epoch of the query."""


def history_of(old: Plan, new: Plan, wanted: bool | Sequence[str]) -> tuple[str, ...]:
    """Return the steps that are to begin with the history of their sources; with True, all that are new and have state. Refuse those that cannot."""
    came = tuple(n for n, s in new.graph.steps.items() if s.stateful and n not in old.graph.steps)
    if isinstance(wanted, bool):
        names = came if wanted else ()
    else:
        names = tuple(dict.fromkeys([wanted] if isinstance(wanted, str) else wanted))
    for name in names:
        step = new.step(name)
        label = f"{name} ({step.kind})"
        if not step.stateful:
            raise QueryError(
                label, "it has no state that could have a history", f"steps that are new and have: {_list(came)}"
            )
        if name not in came:
            raise QueryError(label, "it is not new, and keeps what it has", f"steps that are new: {_list(came)}")
        upstream = new.graph.leading_to([name]).steps
        if without := [n for n in came if n in upstream and n not in names]:
            problem = f"its history comes from {without[0]}, which is new and would begin with nothing"
            raise QueryError(label, problem, f"let both begin with their history: history={[*without, *names]}")
    return names


def plan_of(new: Plan, names: Sequence[str]) -> Plan:
    """Return the part of a query that these steps' state comes from."""
    return compile(new.graph.leading_to(names), new.buckets)


@dataclass(frozen=True)
class Built:
    """The state of the steps, as it is at a boundary."""

    maps: Mapping[str, BucketMap]
    state: Mapping[str, SubqueryState]
    told: str


class Backfill:
    """The state of new steps on its way from the beginning to a boundary."""

    def __init__(
        self,
        names: Sequence[str],
        plan: Plan,
        execute: Callable[[Epoch], Sequence[TaskReport]],
        tiers: Callable[[], Tiers],
        patience: Patience,
        opened: Callable[[str, Any], Any],
        remove: Callable[[set[str]], None],
        owner: Callable[[str], Owner],
        admission: Admission,
        instances: int,
    ) -> None:
        """Read nothing yet. `opened` adds to a source's position what a run remembers of it; `plan` leads to the steps named; slices are as large as what the query's own epochs take."""
        self.names, self.plan = tuple(names), plan
        self._execute, self._tiers, self._patience, self._opened, self._remove = (
            execute,
            tiers,
            patience,
            opened,
            remove,
        )
        self._owner, self._admission = owner, admission
        decisions = Reconfiguration(plan, Manifest(NO_EPOCH, Generation(0)))
        decisions.handle(Start(None, instances))
        self._maps = decisions.maps
        self._ledgers = Ledgers(tiers)
        self._number, self._state = _FIRST, dict[str, SubqueryState]()
        self._sources: dict[str, SourceState] = {}
        """How far each source was read."""
        self._round: _Round | None = None
        self._last: int | None = None
        """How many rows there were in the last round."""
        self._kept: set[str] = set()

    # ── while the query goes on ───────────────────────────────────────────────────────────────────────────────────

    def check(self, now: States) -> None:
        """Refuse sources that cannot be read again."""
        for name, source in self.plan.graph.of_kind(steps.Source).items():
            self._again(name, source, now.get(name, SourceState()))

    def advance(self, now: States, origins: tuple[str, ...]) -> bool:
        """Read one slice more. Return whether the rest is so little, or shrinks so slowly, that the query may wait for it."""
        if self._round is None:
            self._round = self._begin(now)
        if not self._slice(self._round, origins):
            return False
        rows, before = self._round.rows, self._last
        self._end_round()
        self._last = rows
        return rows <= self._admission.limit or (before is not None and 2 * rows > before)

    def finish(self, boundary: States, origins: tuple[str, ...]) -> Built:
        """Read what is left, and return the state as it is at a boundary."""
        self._end_round()
        self._round = self._begin(boundary)
        while not self._slice(self._round, origins):
            pass
        self._end_round()
        self._check_same(boundary)
        known = {n: boundary[n] for n in self.plan.graph.of_kind(steps.Source) if n in boundary}
        times = {name: dict(state.times) for name, state in known.items()}
        self._run(Taken(times, {name: state.greatest for name, state in known.items()}, {}), origins)
        own = [q.name for q in self.plan.subqueries if q.head in self.names]
        rows = sum(_read(state) for state in self._sources.values())
        who = f"{_list(self.names)} {'begins' if len(self.names) == 1 else 'begin'}"
        told = f"{who} with the history of {_list(sorted(self._sources)) or 'nothing'} ({rows:,} rows)"
        built = Built({n: self._maps[n] for n in own}, {n: self._state[n] for n in own}, told)
        self._kept = {s.file for state in built.state.values() for s in state.segments}
        return built

    def close(self, *, adopted: bool) -> None:
        """End, and remove what nobody needs: all of it, or what is not `adopted` by the query."""
        self._end_round()
        self._remove(self._files() - (self._kept if adopted else set()))
        self._state = {}

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self, now: States) -> _Round:
        found = {}
        for name, source in self.plan.graph.of_kind(steps.Source).items():
            if (again := self._again(name, source, now.get(name, SourceState()))) is not None:
                found[name] = replace(source, connector=again, idle_after=None)
        intake = Intake(found, self._admission, lambda: 0.0, self._patience, self._ledgers)
        intake.open(self._owner)
        return _Round(intake, [s.connector for s in found.values() if isinstance(s.connector, _Again)])

    def _end_round(self) -> None:
        if self._round is not None:
            self._round.intake.close()
            self._round = None

    def _again(self, name: str, source: steps.Source, now: SourceState) -> _Again | None:
        """Return a source as it was read; None if nothing was read of it."""
        label, connector = f"{name} (source)", source.connector
        if not isinstance(connector, Source):
            problem = f"Spark reads it, once: {_list(self.names)} cannot begin with its history"
            raise QueryError(
                label, problem, "begin without history, or start the new query with a checkpoint of its own"
            )
        if any(label for label in now.attached):
            problem = f"other inputs are attached to it, which cannot be read again: {_list(sorted(filter(None, now.attached)))}"
            raise QueryError(label, problem, "begin without history, or make them part of the query")
        if now.position is None:
            return None
        again = connector.upto(self._opened(name, now.position))
        if again is None:
            problem = f"{connector.describe()} cannot be read again from its beginning, so {_list(self.names)} cannot begin with its history"
            works = "files, generators, Delta tables and Kafka topics can, unless they are read from the latest row on"
            raise QueryError(label, problem, f"begin without history; {works}")
        return _Again(again)

    def _slice(self, now: _Round, origins: tuple[str, ...]) -> bool:
        """Take one slice of every source that has one; return whether all is read."""
        news = now.intake.look(self._sources)
        done = all(source.over for source in now.sources)
        if news:
            now.rows += sum(
                part.rows for takes in now.intake.takes.values() for t in takes.values() for part in t.slices
            )
            epoch, reports = self._run(now.intake.plan(self._sources), origins)
            self._sources |= with_counts(now.intake.after(self._sources, epoch, reports), epoch, reports)
            now.intake.done()
        elif not done:
            name = next(n for n, s in now.intake.takes.items() if not now.connector(n).over)
            raise QueryError(
                f"{name} (source)", "some of the rows that were read from it are gone", "begin without history"
            )
        return done

    def _run(self, taken: Taken, origins: tuple[str, ...]) -> tuple[Epoch, Sequence[TaskReport]]:
        before, number = self._files(), EpochNumber(self._number)
        owned = Ownership(self._maps, self._state, origins=origins)
        given = share_out(self.plan, self._maps, taken)
        epoch = plan_epoch(self.plan, number, self._tiers(), given, owned, silent=True, merging=True)
        reports = self._patience.attempt(f"history of {_list(self.names)}", lambda: self._execute(epoch))
        self._state, self._number = states_after(self.plan, epoch, reports), self._number + 1
        self._remove(before - self._files())
        return epoch, reports

    def _files(self) -> set[str]:
        return {s.file for state in self._state.values() for s in state.segments}

    def _check_same(self, boundary: States) -> None:
        """Refuse what is not the history of the query: a source that has lost rows since, or that is another one."""
        for name, state in self._sources.items():
            then = boundary[name]
            later = [s for s, time in state.times.items() if time > then.times.get(s, gate.BEGINNING)]
            if _read(state) != _read(then) or later:
                problem = f"it gave {_read(then):,} rows when the query read it, and now gives {_read(state):,}"
                if later:
                    problem = f"it gives later rows than those that the query has read (of {later[0]!r})"
                raise QueryError(f"{name} (source)", problem, f"let {_list(self.names)} begin without history")


class _Round:
    """From where the sources were read to, up to where the query has read them."""

    def __init__(self, intake: Intake, sources: Sequence[_Again]) -> None:
        self.intake, self.sources, self.rows = intake, sources, 0

    def connector(self, name: str) -> _Again:
        found = self.intake.connector(name)
        assert isinstance(found, _Again)
        return found


class _Again(Source):
    """A source that is read again. Where it ends, time does not: the query's own goes on from there."""

    def __init__(self, source: Source) -> None:
        self._source, self.over = source, False
        self._feed: Feed | None = None
        self.beginning = source.beginning

    def schema(self) -> pl.Schema:
        return self._source.schema()

    def describe(self) -> str:
        return self._source.describe()

    def open(self, owner: Owner) -> Feed:
        self._feed = self._source.open(owner)
        return self

    def take(self, position: Any, limit: int, ts: str | None) -> Take:
        assert self._feed is not None
        found = self._feed.take(position, limit, ts)
        self.over = found.ended
        times = {stream: time for stream, time in found.times.items() if time != END_OF_TIME}
        return replace(found, ended=False, times=times)

    def read(self, part: Slice) -> Read:
        return self._source.read(part)

    def close(self) -> None:
        if self._feed is not None and self._feed is not self._source:
            self._feed.close()


def _read(state: SourceState) -> int:
    return state.accepted + state.late + state.rejected


def _list(names: Sequence[str]) -> str:
    return ", ".join(names)
