"""Carries out what `runtime/reconfiguration.py` decides: it passes events on with the time, and does what follows.

Whoever asks for another bucket map — a person, the elastic manager — asks between two epochs, and it takes effect with the next one.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from springtide.compiler.plan import Plan
from springtide.elastic.manager import Manager
from springtide.elastic.protocols import ProtocolChoice
from springtide.elastic.resources.resources import Resources
from springtide.elastic.settings import Elastic
from springtide.elastic.snapshot import Snapshot
from springtide.runtime import changes
from springtide.runtime.planning import Ownership
from springtide.runtime.reconfiguration import Reconfiguration
from springtide.state.bucket_map import BucketMap
from springtide.state.instructions import Instruction
from springtide.state.manifest import Manifest


class Reconfiguring:
    """Who owns which bucket, now and next, in a run with a clock and a cluster."""

    def __init__(
        self,
        decisions: Reconfiguration,
        resources: Resources,
        note: Callable[[str], None],
        remember: Callable[[dict[str, Any]], None],
        clock: Callable[[], float],
    ) -> None:
        """Do nothing yet. `note` tells people, `remember` records a decision."""
        self._decisions, self._resources, self._clock = decisions, resources, clock
        self._note, self._remember = note, remember
        self._ids: dict[str, str] = {}
        """Subquery → the id of the last decision about it."""

    # ── what is known ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def maps(self) -> dict[str, BucketMap]:
        """The bucket maps of the next epoch."""
        return self._decisions.maps

    @property
    def manager(self) -> Manager | None:
        """The elastic manager, if the query is elastic."""
        return self._decisions.manager

    def waits(self, subquery: str) -> bool:
        """Return whether a change of a subquery waits for executors."""
        return subquery in self._decisions.waiting

    @property
    def usual(self) -> float | None:
        """The seconds that an epoch takes without a change; None before there was one."""
        return self._decisions.usual

    def subquery_of(self, step: str) -> str:
        """Return the name of the subquery that a step is in."""
        return self._decisions.subquery_of(step)

    def ownership(self, manifest: Manifest) -> Ownership:
        """Return who owns what in the epoch after a manifest."""
        return self._decisions.ownership(manifest)

    def replaced(
        self,
        plan: Plan,
        manifest: Manifest,
        elastic: Elastic | None,
        usual: int,
        past: Iterable[Snapshot] = (),
        migrated: Collection[str] = (),
    ) -> Reconfiguring:
        """Return what goes on with another form of the query, or with another policy; see `Reconfiguration.replaced`."""
        decisions = self._decisions.replaced(plan, manifest, elastic, self._resources.most(), usual, past, migrated)
        other = Reconfiguring(decisions, self._resources, self._note, self._remember, self._clock)
        other._ids = dict(self._ids)
        return other

    # ── what people ask for ───────────────────────────────────────────────────────────────────────────────────────

    def scale(self, step: str, instances: int, protocol: ProtocolChoice | None = None) -> Instruction | None:
        """Give the subquery of a step another number of instances; return the instruction, or None if it already has that many."""
        return self._tell(changes.Scale(step, instances, protocol))

    def move(
        self, step: str, buckets: Sequence[int], to: int, protocol: ProtocolChoice | None = None
    ) -> Instruction | None:
        """Give some buckets of a step to one of its instances; return the instruction, or None if it already has them."""
        return self._tell(changes.Move(step, buckets, to, protocol))

    def rebalance(self, step: str, protocol: ProtocolChoice | None = None) -> Instruction | None:
        """Even out the load of a step's instances; return the instruction, or None if the load is as even as it can be."""
        return self._tell(changes.Rebalance(step, protocol))

    def pause(self) -> None:
        """Let the manager decide nothing until `resume`."""
        self._tell(changes.Pause())

    def resume(self) -> None:
        """Let the manager decide again."""
        self._tell(changes.Resume())

    # ── what happens to the run ───────────────────────────────────────────────────────────────────────────────────

    def begin(self, wanted: int | Mapping[str, int] | None, usual: int) -> None:
        """Give every subquery its instances for this start."""
        if self.manager is not None and self.manager.underway:
            self._tell(changes.Start(wanted, usual))
        else:  # nothing can wait yet
            self._carry_out(self._decisions.handle(changes.Start(wanted, usual)))

    def prepare(self) -> None:
        """Before an epoch: apply what waited for executors, if they have come or have been waited for long enough."""
        if self._decisions.waiting:
            self._tell(changes.Due())

    def committed(self, manifest: Manifest) -> None:
        """Note that an epoch has happened."""
        self._carry_out(self._decisions.handle(changes.Committed(manifest)))

    def recovered(self, manifest: Manifest, fixed: Collection[str]) -> None:
        """Note that lost state was rebuilt."""
        self._carry_out(self._decisions.handle(changes.Recovered(manifest, fixed)))

    def measured(self, snapshot: Snapshot) -> None:
        """Note what was measured of an epoch; the manager may decide what comes next."""
        moment = changes.Moment(snapshot.time, snapshot.slots, self._resources.grows())
        self._carry_out(self._decisions.handle(changes.Measured(snapshot), moment))

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _tell(self, event: changes.Event) -> Instruction | None:
        """Look at the clock and at the slots, and do what follows from an event; return the instruction that followed, if any."""
        moment = changes.Moment(self._clock(), self._resources.slots(), self._resources.grows())
        return self._carry_out(self._decisions.handle(event, moment))

    def _carry_out(self, actions: Sequence[changes.Action]) -> Instruction | None:
        made: Instruction | None = None
        for action in actions:
            match action:
                case changes.RequestSlots(slots):
                    self._resources.request(slots)
                case changes.ReleaseSlots(slots):
                    self._resources.release(slots)
                case changes.Note(text):
                    self._note(text)
                case changes.Waits(instruction):
                    made = instruction
                case changes.Applied(instruction):
                    made = instruction
                    self._write_decision(action)
                case changes.Finished():
                    self._write_outcome(action)
        return made

    def _write_decision(self, applied: changes.Applied) -> None:
        instruction = applied.instruction
        key = self._ids[instruction.subquery] = uuid.uuid4().hex[:12]
        how = {"id": key, "what": str(instruction), "protocol": applied.protocol, "waited": round(applied.waited, 6)}
        self._remember(how | instruction.to_json())

    def _write_outcome(self, finished: changes.Finished) -> None:
        subquery = finished.instruction.subquery
        self._remember(finished.outcome.record(self._ids.pop(subquery), subquery))
