"""Balancing: even out the load between the instances of a subquery, without changing their number (SC-11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from springtide.elastic import maps
from springtide.elastic.loads import steady_loads
from springtide.elastic.policies.policy import Proposal
from springtide.elastic.snapshot import Snapshot
from springtide.query.plurals import plural
from springtide.query.usage import usage_of
from springtide.state.bucket_map import BucketMap
from springtide.state.instructions import Trigger


@usage_of("st.Balancing(uit=0.05, mit=0.1)", "(balancing)")
@dataclass(frozen=True)
class Balancing:
    """Move buckets if the standard deviation of the utilisation exceeds UIT and would fall by at least MIT."""

    uit: float = 0.05
    """Upper imbalance threshold."""
    mit: float = 0.1
    """Minimum improvement threshold, as a share of the current deviation."""

    def decide(self, snapshot: Snapshot, history: Sequence[Snapshot]) -> Sequence[Proposal]:
        """Look at each subquery separately; grids, and subqueries whose loads were not measured, stay as they are.

        The rows and columns of a grid are assigned in turn: its cells are alike, and moving one would only lead to more copies.
        """
        found = (self._proposal(snapshot, history, name) for name in snapshot.subqueries)
        return [proposal for proposal in found if proposal]

    def _proposal(self, snapshot: Snapshot, history: Sequence[Snapshot], name: str) -> Proposal | None:
        own = snapshot.subqueries[name]
        if own.grid or (own.bucket_busy and snapshot.deviation(name) <= self.uit):
            return None
        loads = steady_loads(snapshot, history, name)
        if not any(loads):
            return None
        deviation = float(np.std(maps.totals(own.map, loads)))
        if deviation <= self.uit:
            return None
        proposal, left = rebalancing(name, own.map, loads)
        if proposal is None or left > (1 - self.mit) * deviation:
            return None
        trigger = Trigger("deviation of utilisation", deviation, self.uit)
        reason = f"the utilisation deviates by {deviation:.1%}, over {self.uit:.1%}; {proposal.reason}"
        return Proposal(name, reason, trigger, owners=proposal.owners)


def rebalancing(name: str, before: BucketMap, loads: Sequence[float]) -> tuple[Proposal | None, float]:
    """Propose the most even map, regardless of the thresholds, and return the deviation that it leaves."""
    after = maps.rebalance(before, loads)
    left = float(np.std(maps.totals(after, loads)))
    if after is before:
        return None, left
    moved = len(maps.moved(before, after))
    reason = f"with {plural(moved, 'bucket')} moved it is {left:.1%}"
    alone = hot(after, loads)
    if alone:
        shares = ", ".join(f"bucket {b} with {loads[b] / sum(loads):.0%} of the load" for b in alone)
        reason += f"; alone on an instance: {shares}"
    return Proposal(name, reason, owners=after.owners), left


def hot(bucket_map: BucketMap, loads: Sequence[float]) -> list[int]:
    """Return the buckets that are heavier than the average instance and have an instance to themselves, heaviest first.

    No map can spread such a bucket: more instances do not help.
    """
    average = sum(loads) / bucket_map.instances
    others = [0] * bucket_map.instances
    for bucket, owner in enumerate(bucket_map.owners):
        others[owner] += loads[bucket] > 0
    found = [b for b, owner in enumerate(bucket_map.owners) if loads[b] > average and others[owner] == 1]
    return sorted(found, key=lambda b: (-loads[b], b))
