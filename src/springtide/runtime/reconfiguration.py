"""Who owns which bucket, now and next: events in, actions out. Pure: no clock, no thread, no cluster.

    a person:   Start, Scale, Move, Rebalance, Pause, Resume ─┐                             ┌→ RequestSlots, ReleaseSlots
                                                              ├─ handle(event, moment) ─────┼→ Applied, Waits, Finished
    the run:    Due, Committed, Recovered, Measured ──────────┘                             └→ Note

A new bucket map takes effect with the next epoch, which asks for `ownership`. Whoever runs the query says when something happens and how
many slots there are then (`Moment`), and carries the actions out (`runtime/reconfiguring.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from statistics import median

from springtide.compiler.plan import Grid, Plan, Subquery
from springtide.elastic import maps
from springtide.elastic.decisions import Outcome
from springtide.elastic.instructions import instruct
from springtide.elastic.manager import Manager
from springtide.elastic.policies.policy import Proposal
from springtide.elastic.protocols import Protocol, ProtocolChoice, check_protocol, choose
from springtide.elastic.settings import Elastic
from springtide.elastic.snapshot import Snapshot
from springtide.elastic.summaries import summaries_of
from springtide.operators import operator_of
from springtide.query.errors import QueryError, nearest
from springtide.query.ids import NO_EPOCH
from springtide.query.plurals import plural
from springtide.runtime.changes import (
    UNTIMED,
    Action,
    Applied,
    Committed,
    Due,
    Event,
    Finished,
    Measured,
    Moment,
    Move,
    Note,
    Pause,
    Rebalance,
    Recovered,
    ReleaseSlots,
    RequestSlots,
    Resume,
    Scale,
    Start,
    Waits,
)
from springtide.runtime.old_owners import at_old_owners
from springtide.runtime.planning import Ownership
from springtide.runtime.provisioning import Provisioning
from springtide.state.bucket_map import BucketMap
from springtide.state.instructions import BY_HAND, Instruction
from springtide.state.manifest import Manifest, SubqueryState

_NEIGHBOURS = 9
"""How many epochs the median is taken over that says how long an epoch takes without a change."""


class Reconfiguration:
    """The bucket maps of a run: how they begin, who changes them, and what they are in the next epoch."""

    def __init__(
        self,
        plan: Plan,
        manifest: Manifest,
        elastic: Elastic | None = None,
        most: int | None = None,
        past: Iterable[Snapshot] = (),
    ) -> None:
        """Continue with the maps of the last manifest; subqueries that never ran have none yet. There can be `most` slots.

        `past` has what earlier runs measured: policies learn from it.
        """
        self._plan, self._manifest = plan, manifest
        self.maps: dict[str, BucketMap] = dict(manifest.maps)
        elastic = None if elastic is None else elastic.of(self.subquery_of, most)
        self._provisioning = Provisioning(plan, elastic.executors.wait if elastic and elastic.executors else 0.0)
        self._choices: dict[str, ProtocolChoice | None] = {}
        """By subquery that waits for slots: the protocol that was asked for."""
        self.manager = (
            None if elastic is None else Manager(elastic, manifest.elastic, summaries_of(past, elastic.every))
        )
        self._choice: ProtocolChoice = elastic.protocol if elastic else "virtual"
        self._old_owners: dict[str, int] = dict(manifest.old_owners)
        """Subquery → the last window that its old owners finish (window recreation)."""
        self._starting: set[str] = set()
        """Subqueries of those that begin to do so with the next epoch."""
        self._copying: set[str] = set()
        """Subqueries whose state is copied to new owners in the next epoch (state recreation)."""
        self._migrated: frozenset[str] = frozenset()
        """Subqueries whose state other code has written, in the first epoch after the query was replaced."""
        self._known = {name: {m.version: m} for name, m in manifest.maps.items()}
        self._last: Snapshot | None = None
        self._seconds: deque[float] = deque(maxlen=_NEIGHBOURS)
        self._underway: dict[str, Instruction] = {}

    def replaced(
        self,
        plan: Plan,
        manifest: Manifest,
        elastic: Elastic | None,
        most: int | None,
        usual: int,
        past: Iterable[Snapshot] = (),
        migrated: Collection[str] = (),
    ) -> Reconfiguration:
        """Return what decides for another form of the query, which begins with a manifest: all that is about subqueries that stay goes on.

        State that is `migrated` is written anew by those who own it: under another version of their maps, so that all of it is foreign.
        """
        other = Reconfiguration(plan, manifest, elastic, most, past)
        names = {q.name for q in plan.subqueries}
        stay = names | {at_old_owners(name) for name in names}
        other.maps |= {n: m for n, m in self.maps.items() if n in names or (n in stay and n in manifest.maps)}
        for subquery in plan.subqueries:
            if subquery.name not in other.maps:
                other.maps[subquery.name] = other._first_map(subquery, usual)
        for name in migrated:
            other.maps[name] = replace(other.maps[name], version=other.maps[name].version + 1)
        other._migrated = frozenset(migrated)
        other._copying = {*migrated, *(n for n in self._copying if n in stay)}
        other._known |= {name: dict(maps) for name, maps in self._known.items() if name in stay}
        waiting = {name: w for name, w in self._provisioning.waiting.items() if name in names}
        other._provisioning.waiting |= waiting
        other._choices = {name: choice for name, choice in self._choices.items() if name in waiting}
        other._underway = {name: i for name, i in self._underway.items() if name in names}
        other._last, other._seconds = self._last, self._seconds.copy()
        if other.manager is not None and self.manager is not None:
            other.manager.go_on(self.manager, names)
        return other

    def handle(self, event: Event, moment: Moment = UNTIMED) -> list[Action]:
        """Take an event; return what is to be done. Nothing depends on when an epoch was committed or state rebuilt. A QueryError says why something that was asked for cannot be; then nothing has changed."""
        match event:
            case Start():
                return self._start(event, moment)
            case Scale():
                return self._scale(event, moment)
            case Move():
                return self._move(event, moment)
            case Rebalance():
                return self._rebalance(event, moment)
            case Pause() | Resume():
                return self._pause(isinstance(event, Pause))
            case Due():
                return self._due(moment)
            case Committed():
                return self._committed(event.manifest)
            case Recovered():
                self._manifest = event.manifest
                self.maps |= {name: m for name, m in event.manifest.maps.items() if name not in event.fixed}
                return []
            case Measured():
                return self._measured(event.snapshot, moment)

    # ── what is known ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def waiting(self) -> Collection[str]:
        """Subqueries that wait for slots."""
        return self._provisioning.waiting.keys()

    @property
    def usual(self) -> float | None:
        """The seconds that an epoch takes without a change; None before there was one."""
        return median(self._seconds) if self._seconds else None

    def subquery_of(self, step: str) -> str:
        """Return the name of the subquery that a step is in."""
        names = [*(q.name for q in self._plan.subqueries), *self._plan.graph.steps]
        if step not in names:
            problem = f"the query {self._plan.graph.name!r} has no such step"
            raise QueryError(f"{step} (unknown)", problem, nearest(step, names))
        return self._plan.subquery(step).name

    def ownership(self, manifest: Manifest) -> Ownership:
        """Return who owns what in the epoch after a manifest."""
        state = dict(manifest.state)
        for name in self._starting:  # what is left to old owners stays with them, and new ones begin with nothing
            fresh = SubqueryState(operator_of(self._plan, name).beginning(self._old_owners[name] + 1))
            state[at_old_owners(name)], state[name] = state[name], fresh
        copying, former = frozenset(self._copying), self._former(state)
        return Ownership(
            dict(self.maps), state, dict(self._old_owners), copying, former, manifest.origins, self._migrated
        )

    def _former(self, state: Mapping[str, SubqueryState]) -> dict[str, dict[int, BucketMap]]:
        """Return the older maps under which there are segments, by version, as far as this run knows them."""
        for name, current in self.maps.items():
            used = {s.version for s in state[name].segments} if name in state else set()
            known = self._known.get(name, {}) | {current.version: current}
            self._known[name] = {v: m for v, m in known.items() if v in used or v == current.version}
        return {
            n: {v: m for v, m in ms.items() if v != self.maps[n].version}
            for n, ms in self._known.items()
            if n in self.maps
        }

    # ── the run begins ────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self, start: Start, moment: Moment) -> list[Action]:
        wanted = start.wanted
        by_name = {self.subquery_of(s): n for s, n in wanted.items()} if isinstance(wanted, Mapping) else {}
        for subquery in self._plan.subqueries:
            name, before = subquery.name, self.maps.get(subquery.name)
            n = wanted if isinstance(wanted, int) else by_name.get(name, before.instances if before else start.usual)
            _check(name, n)
            n = min(n, subquery.buckets) if subquery.buckets else n
            if before is None:
                self.maps[name] = self._first_map(subquery, n)
            else:
                self.maps[name] = maps.scale(before, n, grid=self._grid_of(name))
        actions: list[Action] = []
        if self.manager is not None:  # what was decided but had not begun when the last run ended
            for name, instruction in self.manager.underway.items():
                if self.maps.get(name) == instruction.before:
                    actions += self._apply_when_possible(instruction, moment)
                else:
                    self.manager.drop(instruction, instruction.time, "the run was started again with another map")
        return [*actions, RequestSlots(self._provisioning.needed(self.maps))]

    def _first_map(self, subquery: Subquery, instances: int) -> BucketMap:
        """Return the map of a subquery that never had one."""
        n = min(instances, subquery.buckets) if subquery.buckets else instances
        grid = self._grid_of(subquery.name)
        return BucketMap.grid(*grid, n) if grid else BucketMap.even(subquery.buckets or 0, n)

    # ── a person asks ─────────────────────────────────────────────────────────────────────────────────────────────

    def _scale(self, asked: Scale, moment: Moment) -> list[Action]:
        name = self.subquery_of(asked.step)
        _check(name, asked.instances)
        most = len(self.maps[name].owners)
        instances = min(asked.instances, most) if most else asked.instances
        return self._by_hand(Proposal(name, BY_HAND, instances=instances), asked.protocol, moment)

    def _move(self, asked: Move, moment: Moment) -> list[Action]:
        name = self.subquery_of(asked.step)
        if not asked.buckets:
            raise QueryError(f"{name} (subquery)", "no bucket is named", "name those to move, such as [0, 7]")
        return self._by_hand(
            Proposal(name, BY_HAND, moves=dict.fromkeys(asked.buckets, asked.to)), asked.protocol, moment
        )

    def _rebalance(self, asked: Rebalance, moment: Moment) -> list[Action]:
        name = self.subquery_of(asked.step)
        before = self.maps[name]
        if not before.owners:
            raise QueryError(f"{name} (subquery)", "a stateless prefix has no buckets", "scale it instead")
        after = maps.rebalance(before, self._loads(name) or [1.0] * len(before.owners), worth=0.0)
        if after is before:
            return []
        return self._by_hand(Proposal(name, BY_HAND, owners=after.owners), asked.protocol, moment)

    def _pause(self, paused: bool) -> list[Action]:
        if self.manager is None:
            return []
        self.manager.pause() if paused else self.manager.resume()
        return [Note("elasticity is paused" if paused else "elasticity is no longer paused")]

    def _by_hand(
        self, proposal: Proposal, protocol: ProtocolChoice | None, moment: Moment, waited: float = 0.0
    ) -> list[Action]:
        if protocol is not None:
            check_protocol(protocol)
        name = proposal.subquery
        time, epoch = (self._last.time, self._last.epoch) if self._last else (0.0, NO_EPOCH)
        before, grid = self.maps[name], self._grid_of(name)
        try:
            if self.manager is not None:
                instruction = self.manager.by_hand(proposal, before, time, epoch, grid)
            else:
                instruction = instruct(proposal, before, time, epoch, self._loads(name), grid)
        except ValueError as error:
            raise QueryError(f"{name} (subquery)", str(error), "see springtide status for what there is") from None
        return [] if instruction is None else self._apply_when_possible(instruction, moment, protocol, waited)

    # ── around an epoch ───────────────────────────────────────────────────────────────────────────────────────────

    def _due(self, moment: Moment) -> list[Action]:
        actions: list[Action] = []
        for waiting, instances in self._provisioning.decided(self.maps, moment):
            instruction, waited = waiting.instruction, moment.time - waiting.since
            choice = self._choices.pop(instruction.subquery)
            if instances == instruction.after.instances:
                actions += self._apply(instruction, choice, waited)
            else:
                actions += self._apply_partly(instruction, instances, choice, moment, waited)
        return actions

    def _apply_partly(
        self, whole: Instruction, instances: int, choice: ProtocolChoice | None, moment: Moment, waited: float
    ) -> list[Action]:
        name = whole.subquery
        why = (
            f"executors came for {instances} of {plural(whole.after.instances, 'instance')}, more did not come in time"
        )
        if self.manager is not None:
            self.manager.drop(whole, moment.time, why)
        actions: list[Action] = [Note(f"{whole} is dropped: {why}")]
        if instances > self.maps[name].instances:
            reason = f"{whole.reason}; held at {instances}: more executors did not come in time"
            try:
                part = Proposal(name, reason, whole.trigger, instances=instances)
                actions += self._by_hand(part, choice, moment, waited)
            except QueryError as error:  # fewer than the limits allow
                actions.append(Note(str(error)))
        return actions

    def _committed(self, manifest: Manifest) -> list[Action]:
        self._manifest = manifest
        self._starting.clear()
        self._copying.clear()
        self._migrated = frozenset()
        done = [name for name in self._old_owners if name not in manifest.old_owners]
        for name in done:
            del self._old_owners[name], self.maps[at_old_owners(name)]
        return [Note(f"old windows of {name} are finished: window recreation is done") for name in done]

    def _measured(self, snapshot: Snapshot, moment: Moment) -> list[Action]:
        actions: list[Action] = []
        for name, instruction in list(self._underway.items()):
            own = snapshot.subqueries.get(name)
            if own is not None and own.map.version >= instruction.after.version:
                del self._underway[name]
                actions.append(self._finished(instruction, snapshot))
        self._last = snapshot
        self._seconds.append(snapshot.seconds)
        if self.manager is not None:
            before = len(self.manager.refusals), self.manager.refusals[-1:]
            for instruction in self.manager.handle(snapshot):
                actions += self._apply_when_possible(instruction, moment)
            if (len(self.manager.refusals), self.manager.refusals[-1:]) != before and self.manager.refusals:
                refusal = self.manager.refusals[-1]
                if refusal.times == 1:
                    actions.append(Note(str(refusal)))
        used = {name: own.map for name, own in snapshot.subqueries.items()}
        needed = max(self._provisioning.needed(used), self._provisioning.needed(self.maps))
        return [*actions, ReleaseSlots(needed)]

    def _finished(self, instruction: Instruction, snapshot: Snapshot) -> Finished:
        """Compare the epoch in which a change took effect with those before it."""
        old_windows_stay = instruction.subquery in self._old_owners
        sizes = () if old_windows_stay else snapshot.subqueries[instruction.subquery].bucket_bytes
        usual = snapshot.seconds if self.usual is None else self.usual
        outcome = Outcome(
            snapshot.time,
            snapshot.epoch,
            snapshot.seconds,
            extra_seconds=round(snapshot.seconds - usual, 6),
            bytes_moved=sum(sizes[b] for b in instruction.moved) if sizes else 0,
        )
        return Finished(instruction, outcome)

    # ── a new map ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _apply_when_possible(
        self, instruction: Instruction, moment: Moment, choice: ProtocolChoice | None = None, waited: float = 0.0
    ) -> list[Action]:
        """Apply an instruction if it needs no slots that are not there; else request them, and let it wait in place of an earlier one."""
        more = instruction.after.instances > instruction.before.instances
        admitted, needed = self._provisioning.admit(instruction, self.maps, moment)
        actions: list[Action] = [RequestSlots(needed)] if more else []
        if admitted:
            return actions + self._apply(instruction, choice, waited)
        self._choices[instruction.subquery] = choice
        wanted = f"{instruction.subquery} waits for executors to have {plural(instruction.after.instances, 'instance')}"
        return [*actions, Waits(instruction), Note(wanted)]

    def _apply(self, instruction: Instruction, choice: ProtocolChoice | None, waited: float) -> list[Action]:
        protocol, name = self._protocol(instruction, choice or self._choice), instruction.subquery
        if protocol == "window":
            self.maps[at_old_owners(name)] = self.maps[name]
        elif protocol == "state":
            self._copying.add(name)
        self.maps[name] = instruction.after
        self._underway[name] = instruction
        return [Applied(instruction, protocol, waited), Note(instruction.as_event())]

    def _protocol(self, instruction: Instruction, choice: ProtocolChoice) -> Protocol:
        """Choose the protocol: while old owners still finish windows, or if no window is open, state goes to new owners by name (`virtual`)."""
        name = instruction.subquery
        if self._plan.subquery(name).head is None:
            return "virtual"
        operator = operator_of(self._plan, name)
        chosen = choose(choice, shared=True, windowed=operator.windowed)
        if chosen != "window":
            return chosen
        last = operator.last_begun(self._manifest.state.get(name, SubqueryState()))
        if name in self._old_owners or last is None:
            return "virtual"
        self._old_owners[name] = last
        self._starting.add(name)
        return chosen

    def _grid_of(self, name: str) -> tuple[int, int] | None:
        """Return the rows and columns of a subquery whose buckets are a grid."""
        routings = (e.routing for e in self._plan.exchanges if e.target == name)
        return next(((r.rows, r.columns) for r in routings if isinstance(r, Grid)), None)

    def _loads(self, name: str) -> tuple[float, ...]:
        if self._last is None or name not in self._last.subqueries:
            return ()
        loads = self._last.bucket_loads(name)
        loads = loads if any(loads) else self._last.subqueries[name].bucket_weights
        return loads if len(loads) == len(self.maps[name].owners) else ()


def _check(name: str, instances: int) -> None:
    if instances < 1:
        raise QueryError(f"{name} (subquery)", f"it cannot have {plural(instances, 'instance')}", "give at least 1")
