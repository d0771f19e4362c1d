"""The bucket maps of a run: how they begin, who changes them, and what is remembered of it.

A new map takes effect with the next epoch. Whoever asks for it — a person, the elastic manager — asks here, between two epochs.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from statistics import median
from typing import Any

from springtide.compiler.plan import Grid, Plan
from springtide.elastic import maps
from springtide.elastic.instructions import Instruction, instruct
from springtide.elastic.manager import Manager
from springtide.elastic.policies.policy import Proposal
from springtide.elastic.protocols import Protocol, ProtocolChoice, check_protocol, choose
from springtide.elastic.resources.resources import Resources
from springtide.elastic.settings import Elastic
from springtide.elastic.snapshot import Snapshot
from springtide.operators import operator_of
from springtide.query.errors import QueryError, nearest
from springtide.runtime.old_owners import at_old_owners
from springtide.runtime.planning import Ownership
from springtide.runtime.provisioning import Provisioning
from springtide.state.manifest import BucketMap, Manifest, SubqueryState

BY_HAND = "asked for by hand"
_NEIGHBOURS = 9
"""Epochs whose median says what an epoch takes without a change."""

Remember = Callable[[dict[str, Any]], None]
"""Writes a decision down."""


class Reconfiguring:
    """Who owns which bucket, now and next."""

    def __init__(
        self,
        plan: Plan,
        manifest: Manifest,
        elastic: Elastic | None,
        resources: Resources,
        note: Callable[[str], None],
        remember: Remember,
        clock: Callable[[], float],
    ) -> None:
        """Go on with the maps of the last manifest; those that never ran have none yet."""
        self._plan, self._note, self._remember, self._clock = plan, note, remember, clock
        self.maps: dict[str, BucketMap] = dict(manifest.maps)
        self._known = {name: {m.version: m} for name, m in manifest.maps.items()}
        elastic = None if elastic is None else elastic.of(self.subquery_of, resources.most())
        wait = elastic.executors.wait if elastic and elastic.executors else 0.0
        self._provisioning = Provisioning(plan, resources, wait)
        self._choices: dict[str, ProtocolChoice | None] = {}
        """By subquery that waits for executors: the protocol that was asked for."""
        self.manager = Manager.from_json(elastic, manifest.elastic) if elastic and manifest.elastic else None
        if elastic is not None and self.manager is None:
            self.manager = Manager(elastic)
        self._choice: ProtocolChoice = elastic.protocol if elastic else "virtual"
        self.old_owners: dict[str, int] = dict(manifest.old_owners)
        """Subquery → the last window that its old owners finish (window recreation)."""
        self.copying: set[str] = set()
        """Subqueries whose state is copied to new owners in the next epoch (state recreation)."""
        self._starting: set[str] = set()
        self._stored = manifest
        self._last: Snapshot | None = None
        self._seconds: deque[float] = deque(maxlen=_NEIGHBOURS)
        self._underway: dict[str, tuple[str, Instruction]] = {}

    def begin(self, wanted: int | Mapping[str, int] | None, usual: int) -> None:
        """Give every subquery its instances for this start: as wanted, else as before, else as usual."""
        by_name = {self.subquery_of(s): n for s, n in wanted.items()} if isinstance(wanted, Mapping) else {}
        for subquery in self._plan.subqueries:
            before = self.maps.get(subquery.name)
            n = wanted if isinstance(wanted, int) else by_name.get(subquery.name, before.instances if before else usual)
            self._check(subquery.name, n)
            n = min(n, subquery.buckets) if subquery.buckets else n
            if before is None:
                grid, buckets = self.grid_of(subquery.name), subquery.buckets or 0
                self.maps[subquery.name] = BucketMap.grid(*grid, n) if grid else BucketMap.even(buckets, n)
            else:
                self.maps[subquery.name] = maps.scale(before, n, grid=self.grid_of(subquery.name))
        if self.manager is not None:  # what was decided and had not begun when the last run ended
            for name, instruction in self.manager.underway.items():
                if self.maps.get(name) == instruction.before:
                    self._apply_when_possible(instruction)
                else:
                    self.manager.drop(instruction, instruction.time, "the run was started anew with another map")
        self._provisioning.ask(self.maps)

    # ── by hand ───────────────────────────────────────────────────────────────────────────────────────────────────

    def scale(self, step: str, instances: int, protocol: ProtocolChoice | None = None) -> Instruction | None:
        """Give the subquery of a step another number of instances; return what is to be done, None if it has as many."""
        name = self.subquery_of(step)
        self._check(name, instances)
        most = len(self.maps[name].owners)
        return self._by_hand(Proposal(name, BY_HAND, instances=min(instances, most) if most else instances), protocol)

    def move(
        self, step: str, buckets: Sequence[int], to: int, protocol: ProtocolChoice | None = None
    ) -> Instruction | None:
        """Give some buckets of a step to one of its instances; return what is to be done, None if it has them."""
        name = self.subquery_of(step)
        if not buckets:
            raise QueryError(f"{name} (subquery)", "no bucket is named", "name those to move, such as [0, 7]")
        return self._by_hand(Proposal(name, BY_HAND, moves=dict.fromkeys(buckets, to)), protocol)

    def rebalance(self, step: str, protocol: ProtocolChoice | None = None) -> Instruction | None:
        """Even out the load of a step's instances, by the rows of the last epochs, or by the number of buckets if there were none.

        Return what is to be done, None if it is as even as can be.
        """
        name = self.subquery_of(step)
        before = self.maps[name]
        if not before.owners:
            raise QueryError(f"{name} (subquery)", "a stateless prefix has no buckets", "scale it instead")
        after = maps.rebalance(before, self._loads(name) or [1.0] * len(before.owners), worth=0.0)
        return None if after is before else self._by_hand(Proposal(name, BY_HAND, owners=after.owners), protocol)

    def waits(self, subquery: str) -> bool:
        """Return whether a change of a subquery waits for executors."""
        return subquery in self._provisioning.waiting

    def pause(self) -> None:
        """Let the manager decide nothing until `resume`."""
        if self.manager is not None:
            self.manager.pause()
            self._note("elasticity is paused")

    def resume(self) -> None:
        """Let the manager decide again."""
        if self.manager is not None:
            self.manager.resume()
            self._note("elasticity goes on")

    def _by_hand(self, proposal: Proposal, protocol: ProtocolChoice | None, waited: float = 0.0) -> Instruction | None:
        if protocol is not None:
            check_protocol(protocol)
        name = proposal.subquery
        time, epoch = (self._last.time, self._last.epoch) if self._last else (0.0, -1)
        before, grid = self.maps[name], self.grid_of(name)
        try:
            if self.manager is not None:
                instruction = self.manager.by_hand(proposal, before, time, epoch, grid)
            else:
                instruction = instruct(proposal, before, time, epoch, self._loads(name), grid)
        except ValueError as error:
            raise QueryError(f"{name} (subquery)", str(error), "see springtide status for what there is") from None
        if instruction is not None:
            self._apply_when_possible(instruction, protocol, waited)
        return instruction

    # ── before an epoch ───────────────────────────────────────────────────────────────────────────────────────────

    def prepare(self) -> None:
        """Apply what waited for executors: as told if they are there, with those that have come when it has waited for too long."""
        if not self._provisioning.waiting:
            return
        now = self._clock()
        for waiting, instances in self._provisioning.decided(self.maps, now):
            instruction, waited = waiting.instruction, now - waiting.since
            choice = self._choices.pop(instruction.subquery)
            if instances == instruction.after.instances:
                self._apply(instruction, choice, waited)
            else:
                self._apply_partly(instruction, instances, choice, waited)

    def _apply_partly(
        self, instruction: Instruction, instances: int, choice: ProtocolChoice | None, waited: float
    ) -> None:
        name = instruction.subquery
        why = (
            f"executors for {instances} of {instruction.after.instances} instances are there, more did not come in time"
        )
        self._note(f"{instruction} is dropped: {why}")
        if self.manager is not None:
            self.manager.drop(instruction, self._clock(), why)
        if instances > self.maps[name].instances:
            reason = f"{instruction.reason}; held at {instances}: more executors did not come in time"
            try:
                self._by_hand(Proposal(name, reason, instruction.trigger, instances=instances), choice, waited)
            except QueryError as error:  # fewer than the limits allow
                self._note(str(error))

    # ── after an epoch ────────────────────────────────────────────────────────────────────────────────────────────

    def measured(self, snapshot: Snapshot) -> None:
        """Take note of an epoch: finish the record of what took effect in it, and let the manager decide what is next."""
        for name, (key, instruction) in list(self._underway.items()):
            own = snapshot.subqueries.get(name)
            if own is not None and own.map.version >= instruction.after.version:
                del self._underway[name]
                self._remember(self._outcome(key, instruction, snapshot))
        self._last = snapshot
        self._seconds.append(snapshot.seconds)
        if self.manager is not None:
            before = len(self.manager.refusals), self.manager.refusals[-1:]
            for instruction in self.manager.handle(snapshot):
                self._apply_when_possible(instruction)
            if (len(self.manager.refusals), self.manager.refusals[-1:]) != before and self.manager.refusals:
                refusal = self.manager.refusals[-1]
                if refusal.times == 1:
                    self._note(str(refusal))
        self._provisioning.settle({name: own.map for name, own in snapshot.subqueries.items()}, self.maps)

    def _apply_when_possible(
        self, instruction: Instruction, choice: ProtocolChoice | None = None, waited: float = 0.0
    ) -> None:
        if self._provisioning.admits(instruction, self.maps, self._clock()):
            self._apply(instruction, choice, waited)
        else:
            self._choices[instruction.subquery] = choice
            self._note(f"{instruction.subquery} waits for executors to be {instruction.after.instances} instances")

    def _apply(self, instruction: Instruction, choice: ProtocolChoice | None, waited: float) -> None:
        protocol = self._protocol(instruction, choice or self._choice)
        name = instruction.subquery
        if protocol == "window":
            self.maps[at_old_owners(name)] = self.maps[name]
        elif protocol == "state":
            self.copying.add(name)
        self.maps[name] = instruction.after
        key = uuid.uuid4().hex[:12]
        self._underway[instruction.subquery] = key, instruction
        how = {"id": key, "what": str(instruction), "protocol": protocol, "waited": round(waited, 6)}
        self._remember(how | instruction.to_json())
        self._note(event_of(instruction))

    def _protocol(self, instruction: Instruction, choice: ProtocolChoice) -> Protocol:
        """Choose the protocol: while old owners still finish windows, or if no window is open, state goes to new owners by name (`virtual`)."""
        name = instruction.subquery
        if self._plan.subquery(name).head is None:
            return "virtual"
        operator = operator_of(self._plan, name)
        chosen = choose(choice, shared=True, windowed=operator.windowed)
        if chosen != "window":
            return chosen
        last = operator.last_begun(self._stored.state.get(name, SubqueryState()))
        if name in self.old_owners or last is None:
            return "virtual"
        self.old_owners[name] = last
        self._starting.add(name)
        return chosen

    def ownership(self, manifest: Manifest) -> Ownership:
        """Return who owns what in the next epoch."""
        state = self._begun_with(manifest)
        return Ownership(dict(self.maps), state, dict(self.old_owners), frozenset(self.copying), self._former(state))

    def _begun_with(self, manifest: Manifest) -> dict[str, SubqueryState]:
        """Return the state of every subquery for the next epoch: what is left to old owners is theirs, and new ones begin with nothing."""
        state = dict(manifest.state)
        for name in self._starting:
            fresh = SubqueryState(operator_of(self._plan, name).beginning(self.old_owners[name] + 1))
            state[at_old_owners(name)], state[name] = state[name], fresh
        return state

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

    def committed(self, manifest: Manifest) -> None:
        """Take note that an epoch has happened: what began with it has begun, and what it finished is over."""
        self._stored = manifest
        self._starting.clear()
        self.copying.clear()
        for name in [n for n in self.old_owners if n not in manifest.old_owners]:
            del self.old_owners[name], self.maps[at_old_owners(name)]
            self._note(f"old windows of {name} are finished: window recreation is done")

    def remembered(self) -> dict[str, Any]:
        """Return what the manager must know when the run starts again; nothing without one."""
        return self.manager.to_json() if self.manager else {}

    def recovered(self, manifest: Manifest, fixed: Container[str]) -> None:
        """Take note that state was made anew: who owns it now, but for what is about to change."""
        self._stored = manifest
        self.maps |= {name: m for name, m in manifest.maps.items() if name not in fixed}

    def _outcome(self, key: str, instruction: Instruction, snapshot: Snapshot) -> dict[str, Any]:
        """Return what a change cost: the epoch in which it took effect beside those before it, and the state that changed hands."""
        old_windows_stay = instruction.subquery in self.old_owners
        sizes = () if old_windows_stay else snapshot.subqueries[instruction.subquery].bucket_bytes
        usual = median(self._seconds) if self._seconds else snapshot.seconds
        return {
            "id": key,
            "subquery": instruction.subquery,
            "done": snapshot.time,
            "in_epoch": snapshot.epoch,
            "seconds": snapshot.seconds,
            "extra_seconds": round(snapshot.seconds - usual, 6),
            "bytes_moved": sum(sizes[b] for b in instruction.moved) if sizes else 0,
        }

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def subquery_of(self, step: str) -> str:
        """Return the name of the subquery that a step is in."""
        names = [*(q.name for q in self._plan.subqueries), *self._plan.graph.steps]
        if step not in names:
            problem = f"the query {self._plan.graph.name!r} has no such step"
            raise QueryError(f"{step} (unknown)", problem, nearest(step, names))
        return self._plan.subquery(step).name

    def grid_of(self, name: str) -> tuple[int, int] | None:
        """Return the rows and columns of a subquery whose buckets are a grid."""
        routings = (e.routing for e in self._plan.exchanges if e.target == name)
        return next(((r.rows, r.columns) for r in routings if isinstance(r, Grid)), None)

    def _loads(self, name: str) -> tuple[float, ...]:
        if self._last is None or name not in self._last.subqueries:
            return ()
        loads = self._last.bucket_loads(name)
        loads = loads if any(loads) else self._last.subqueries[name].bucket_weights
        return loads if len(loads) == len(self.maps[name].owners) else ()

    def _check(self, name: str, instances: int) -> None:
        if instances < 1:
            raise QueryError(f"{name} (subquery)", f"{instances} instances cannot work", "give at least 1")


def event_of(instruction: Instruction) -> str:
    """Return the event that says that an instruction was carried out."""
    if instruction.kind == "scale":
        before, after = instruction.before.instances, instruction.after.instances
        done = f"scaled {instruction.subquery}: {before} → {after} instances"
    else:
        word = {"move": "moved", "rebalance": "rebalanced"}[instruction.kind]
        done = f"{word} {instruction.subquery}: {len(instruction.moved)} of {len(instruction.after.owners)} buckets"
    return done if instruction.reason == BY_HAND else f"{done}; {instruction.reason}"
