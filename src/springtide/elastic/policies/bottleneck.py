"""Bottleneck: the one subquery that limits the query is split if it was too busy several times in a row (SE-5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from springtide.elastic.policies.policy import Proposal
from springtide.elastic.snapshot import Snapshot
from springtide.query.plurals import plural
from springtide.query.usage import usage_of
from springtide.state.instructions import Trigger


@usage_of("st.Bottleneck(delta=0.7, k=2)", "(bottleneck)")
@dataclass(frozen=True)
class Bottleneck:
    """Split every instance of the bottleneck that was over δ in k consecutive summaries; never remove instances.

    Stages run one after another, and if all are fully used they are equally busy: of those over δ, the bottleneck is the one that
    takes the most time. The others get their turn once it is no longer the bottleneck.
    """

    delta: float = 0.7
    """δ, the utilisation above which an instance is too busy."""
    k: int = 2
    """Consecutive summaries. They come every `Elastic.every` seconds, r in the paper."""

    def __post_init__(self) -> None:
        """Refuse values that can never be exceeded, or always are."""
        if not 0 < self.delta <= 1 or self.k < 1:
            raise ValueError(f"they must satisfy 0 < delta ≤ 1 and k ≥ 1, not {self.delta:g} and {self.k}")

    def decide(self, snapshot: Snapshot, history: Sequence[Snapshot]) -> Sequence[Proposal]:
        """Find the bottleneck, if there is one."""
        summaries = [*history[len(history) - self.k + 1 :], snapshot] if self.k > 1 else [snapshot]
        if len(summaries) < self.k:
            return ()
        over = {name: found for name in snapshot.subqueries if (found := self._over(summaries, name))}
        if not over:
            return ()
        name = max(over, key=lambda n: (snapshot.span(n), max(snapshot.utilisation(n))))
        own, used = snapshot.subqueries[name], snapshot.utilisation(name)
        n, wanted = own.instances, own.instances + len(over[name])
        busiest = max(used[i] for i in over[name])
        reason = (
            f"it is the bottleneck: {len(over[name])} of {plural(n, 'instance')} stayed over {self.delta:.0%} for {plural(self.k, 'summary')}, "
            f"the busiest at {busiest:.0%}; each of them is split, {wanted} instead of {n}"
        )
        return [Proposal(name, reason, Trigger("utilisation", busiest, self.delta), instances=wanted)]

    def _over(self, summaries: Sequence[Snapshot], name: str) -> list[int]:
        """Return the instances that were over δ every time, under the same bucket map."""
        if any(name not in r.subqueries for r in summaries) or len({r.subqueries[name].map for r in summaries}) > 1:
            return []
        columns = zip(*(r.utilisation(name) for r in summaries), strict=True)
        return [i for i, used in enumerate(columns) if min(used) > self.delta]
