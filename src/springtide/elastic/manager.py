"""The elastic manager: snapshots in, instructions out.

    snapshots of epochs → summary (every few seconds) → policy, balancing → proposals ─┬→ instructions
                                                                                      └→ refusals

It has no clock, no threads and no knowledge of Spark: the same snapshots lead to the same instructions, live, in a test and in
the simulator. The runner of the query follows the instructions; the next snapshots show whether it has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from springtide.elastic.instructions import instruct
from springtide.elastic.policies.policy import Proposal
from springtide.elastic.rules import judge, resting
from springtide.elastic.settings import Elastic
from springtide.elastic.snapshot import Snapshot
from springtide.elastic.summaries import is_due, merged
from springtide.query.ids import EpochNumber
from springtide.query.plurals import plural
from springtide.state.bucket_map import BucketMap
from springtide.state.instructions import Instruction, Refusal
from springtide.state.manager_state import ManagerState


class Manager:
    """Decides for one query."""

    def __init__(self, elastic: Elastic, state: ManagerState | None = None, history: Iterable[Snapshot] = ()) -> None:
        """Start afresh, or continue with a remembered state and earlier summaries."""
        self.elastic = elastic
        self.state = state or ManagerState()
        """What must outlive the process; summaries are written separately, by the keeper of the history."""
        self.history: deque[Snapshot] = deque(history, maxlen=elastic.remember)
        """Summaries, oldest first."""
        self._gathered: list[Snapshot] = []
        self._took: dict[str, float] = {}

    def go_on(self, before: Manager, subqueries: Collection[str]) -> None:
        """Take over what another manager, possibly with another policy, knows about the subqueries that still exist."""
        self.state = before.state.about(subqueries)
        self.history.extend(before.history)

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────────────

    def handle(self, snapshot: Snapshot) -> tuple[Instruction, ...]:
        """Take the snapshot of an epoch; decide once enough of them make a summary."""
        self._gathered.append(snapshot)
        for name, instruction in self.state.underway.items():
            own = snapshot.subqueries.get(name)
            if own is not None and own.map.version >= instruction.after.version:
                self.state = self.state.done(name, snapshot.time)
                self._gathered = [snapshot]
                if instruction.after.instances > instruction.before.instances:
                    self._took[name] = snapshot.time - snapshot.seconds - instruction.time
        if not is_due(self._gathered, self.elastic.every):
            return ()
        summary = self._limited(merged(self._gathered))
        coming = {name: instruction.after.instances for name, instruction in self.state.underway.items()}
        summary = replace(summary, took=self._took, coming=coming) if self._took or coming else summary
        self._gathered, self._took = [], {}
        earlier = tuple(self.history)
        self.history.append(summary)
        return () if self.paused else self._decide(summary, earlier)

    def by_hand(
        self,
        proposal: Proposal,
        before: BucketMap,
        time: float,
        epoch: EpochNumber,
        grid: tuple[int, int] | None = None,
    ) -> Instruction | None:
        """Do what a person asks for, regardless of the policy, and even while elasticity is paused.

        Limits still apply: a ValueError says which one. Afterwards the policy leaves the subquery alone for the grace period.
        """
        name = proposal.subquery
        if proposal.instances is not None:
            least, most = self.elastic.bounds(name, len(before.owners) or None)
            if proposal.instances < least or (most is not None and proposal.instances > most):
                upper = "any number" if most is None else most
                raise ValueError(
                    f"{plural(proposal.instances, 'instance')} would be outside the limits, {least} to {upper}"
                )
        instruction = instruct(proposal, before, time, epoch, self.loads(name), grid)
        if instruction is not None:
            self.state = self.state.told(instruction)
        return instruction

    def drop(self, instruction: Instruction, time: float, why: str) -> None:
        """Forget an instruction that could not be carried out; the policy may try again after the grace period."""
        if self.state.underway.get(instruction.subquery) == instruction:
            self.state = self.state.done(instruction.subquery, time)
        wanted = f"{instruction.kind} to map {instruction.after.version}"
        self.state = self.state.refused(Refusal(time, instruction.epoch, instruction.subquery, "dropped", wanted, why))

    def pause(self) -> None:
        """Decide nothing until `resume`; measurements are still taken, and manual requests are still carried out."""
        self.state = replace(self.state, paused=True)

    def resume(self) -> None:
        """Start deciding again."""
        self.state = replace(self.state, paused=False)

    # ── what is known ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def paused(self) -> bool:
        """Return whether decisions are paused."""
        return self.state.paused

    @property
    def underway(self) -> Mapping[str, Instruction]:
        """Return the instructions that no snapshot has confirmed yet; after a restart they still have to be carried out."""
        return self.state.underway

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Return the most recent refusals with their reasons, oldest first."""
        return self.state.refusals

    def loads(self, subquery: str) -> tuple[float, ...]:
        """Return the bucket loads of a subquery in the last summary; empty if there are none."""
        if not self.history or subquery not in self.history[-1].subqueries:
            return ()
        return self.history[-1].bucket_loads(subquery)

    # ── deciding ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _decide(self, summary: Snapshot, earlier: Sequence[Snapshot]) -> tuple[Instruction, ...]:
        """Collect all proposals; for each subquery, the first one that no rule forbids is accepted."""
        proposals = self._proposals(summary, earlier)
        fewer = {p.subquery: p.instances for p in reversed(proposals) if _is_fewer(summary, p)}
        for name in summary.subqueries:
            rests = resting(summary, name, self.elastic, self.state)
            self.state = self.state.wants_fewer(name, None if rests else fewer.get(name), self.elastic.confirmations)
        decided: dict[str, Instruction] = {}
        waiting = set[str]()
        # Proposals that free instances come first: others may need their slots.
        for proposal in sorted(proposals, key=lambda p: p.subquery not in fewer):
            name = proposal.subquery
            if name in decided or name in waiting:
                continue
            instruction, refusal = judge(proposal, summary, self.elastic, self.state, decided)
            if refusal is not None:
                self.state = self.state.refused(refusal)
                if refusal.rule == "confirmations":  # it will change soon: anything else would be wasted
                    waiting.add(name)
            if instruction is not None:
                decided[name] = instruction
                self.state = self.state.told(instruction)
        return tuple(decided.values())

    def _limited(self, summary: Snapshot) -> Snapshot:
        """Give policies the user's limits, so that they do not rely on instances that they cannot get."""
        if self.elastic.max is None and not self.elastic.limits:
            return summary
        bounds = {name: self.elastic.bounds(name, own.most)[1] for name, own in summary.subqueries.items()}
        limited = {name: replace(own, limit=bounds[name]) for name, own in summary.subqueries.items()}
        return replace(summary, subqueries=limited)

    def _proposals(self, summary: Snapshot, earlier: Sequence[Snapshot]) -> list[Proposal]:
        """Ask the limits, the policy and the balancing for proposals.

        A policy may be user code: if it fails, it has proposed nothing and the query continues.
        """
        found: list[Proposal] = []
        for name, own in summary.subqueries.items():
            least, most = self.elastic.bounds(name, own.most)
            within = max(least, own.instances if most is None else min(own.instances, most))
            if within != own.instances:
                found.append(
                    Proposal(name, f"it has {plural(own.instances, 'instance')}, outside its limits", instances=within)
                )
        for policy in filter(None, (self.elastic.policy, self.elastic.balancing)):
            try:
                found += policy.decide(summary, earlier)
            except Exception as error:
                wanted, why = f"what {type(policy).__name__} wants", f"it failed, {type(error).__name__}: {error}"
                self.state = self.state.refused(Refusal(summary.time, summary.epoch, "all", "policy", wanted, why))
        return found


def _is_fewer(summary: Snapshot, proposal: Proposal) -> bool:
    own = summary.subqueries.get(proposal.subquery)
    return own is not None and proposal.instances is not None and proposal.instances < own.instances
