"""Learned: applies what earlier changes taught, around any other policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from springtide.elastic import experience, sizing
from springtide.elastic.policies.balancing import rebalancing
from springtide.elastic.policies.foresight import Foresight
from springtide.elastic.policies.policy import Policy, Proposal
from springtide.elastic.snapshot import Snapshot
from springtide.query.plurals import plural
from springtide.query.usage import usage_of

NOTHING = 0.25
"""A scale-out that achieves less than this share of the expected gain has achieved nothing."""


@usage_of("st.Learned(st.Foresight())", "(learned)")
@dataclass(frozen=True)
class Learned:
    """Let a policy propose, and hold back what experience speaks against.

    - After a change, nothing is decided until the subquery has settled; how long that takes is measured.
    - A scale-out that achieved nothing is not followed by another one immediately.
    - Instances added for a load that has not been exceeded since stay for a while, because they would soon be added again.
    - A subquery that is slow because of one hot bucket is balanced, not scaled: several instances cannot share a bucket.
    """

    policy: Policy = field(default_factory=Foresight)
    again: float = 600.0
    """Seconds after which it may be tried again."""

    def decide(self, snapshot: Snapshot, history: Sequence[Snapshot]) -> Sequence[Proposal]:
        """Ask the policy, then experience."""
        return [self._tempered(proposal, snapshot, history) for proposal in self.policy.decide(snapshot, history)]

    def _tempered(self, proposal: Proposal, snapshot: Snapshot, history: Sequence[Snapshot]) -> Proposal:
        own = snapshot.subqueries.get(proposal.subquery)
        if own is None or proposal.instances is None:
            return proposal
        summaries = (*history, snapshot)
        unsettled = self._unsettled(summaries, proposal.subquery)
        if unsettled:
            return replace(proposal, held_back=unsettled)
        if proposal.instances <= own.instances:
            return replace(proposal, held_back=self._too_few(summaries, proposal.subquery, proposal.instances))
        balanced = self._balanced(proposal, proposal.instances, snapshot)
        if balanced is not None:
            return balanced
        last = experience.gain(summaries, proposal.subquery)
        if last is not None and last.share < NOTHING and snapshot.time - last.time < self.again:
            why = (
                f"{snapshot.time - last.time:.0f} s ago {last.after} instead of {plural(last.before, 'instance')} brought "
                f"{max(0.0, last.share):.0%} of what they should; not again before {self.again:.0f} s"
            )
            return replace(proposal, held_back=why)
        return proposal

    def _unsettled(self, summaries: Sequence[Snapshot], name: str) -> str:
        change = next(experience.changes(summaries[-20:], name), None)
        if change is None:
            return ""
        since = summaries[-1].time - summaries[-20:][change.at].time
        takes = experience.settling(summaries, name)
        if takes is None or since >= takes:
            return ""
        return f"the last change was {since:.1f} s ago, and it took {takes:.1f} s to settle before"

    def _too_few(self, summaries: Sequence[Snapshot], name: str, wanted: int) -> str:
        """Return when this number of instances was last too few for the present load, if that was recent."""
        now = summaries[-1]
        for change in experience.changes(summaries, name):
            since = now.time - summaries[change.at].time
            if since >= self.again:
                break
            highest = max(summary.rate for summary in summaries[change.at :])
            if change.before < change.after and wanted <= change.before and highest <= (1 + experience.NEAR) * now.rate:
                return f"{since:.0f} s ago {plural(change.before, 'instance')} could not keep up, and the load was not higher than now"
        return ""

    def _balanced(self, proposal: Proposal, wanted: int, snapshot: Snapshot) -> Proposal | None:
        """Return what to do instead, if a single bucket takes up the time."""
        name = proposal.subquery
        own, loads = snapshot.subqueries[name], snapshot.bucket_loads(name)
        if not any(loads) or own.grid:
            return None
        n, total = own.instances, sum(own.busy)
        heaviest = total * sizing.hottest(snapshot, name)
        hoped = total / n - total / wanted
        brings = max(total / n, heaviest) - max(total / wanted, heaviest)
        if heaviest <= total / wanted or brings >= NOTHING * hoped:
            return None
        bucket = max(range(len(loads)), key=lambda b: (loads[b], -b))
        hot = (
            f"bucket {bucket} alone has {loads[bucket] / sum(loads):.0%} of the work, which more instances cannot share"
        )
        if max(own.busy) > (1 + experience.NEAR) * max(total / n, heaviest):
            even, _ = rebalancing(name, own.map, loads)
            if even is not None:
                return replace(even, reason=f"{hot}; {even.reason}", trigger=proposal.trigger)
        return replace(proposal, held_back=hot)
