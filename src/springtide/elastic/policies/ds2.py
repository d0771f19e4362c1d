"""DS2: what is needed, computed in one step from true rates (Kalavri et al., OSDI 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from springtide.elastic import sizing
from springtide.elastic.policies.policy import Proposal
from springtide.elastic.snapshot import Snapshot
from springtide.query.usage import usage_of
from springtide.state.instructions import Trigger


@usage_of("st.DS2()", "(ds2)")
@dataclass(frozen=True)
class DS2:
    """Give each subquery the fewest instances that reach its target rate, given the true rate of an instance.

    The true rate is what an instance would process if it never waited: rows divided by the time that it worked. The target rate of the
    first subquery is what arrives at the sources; each later one receives what its predecessors will emit, according to their selectivity.

    In the paper all operators run at once, and each needs its target rate divided by its true rate. In Springtide stages run one
    after another and share the time, so the fewest instances are computed for all of them together; with a single subquery this
    is the paper's number. The policy has no thresholds, ignores the backlog, and reaches its goal after three steps
    at most.
    """

    def decide(self, snapshot: Snapshot, history: Sequence[Snapshot]) -> Sequence[Proposal]:
        """Compute the instances of all subqueries."""
        if not snapshot.rows:
            return ()
        left = sizing.available(snapshot, history[-1] if history else None)
        wanted = {name: sizing.arrivals(s, snapshot.period) for name, s in snapshot.sources.items()}
        factors = sizing.factors(snapshot, wanted)
        # True rates are averages: differences between instances are ignored.
        even = {name: replace(w, seconds=self._busy(snapshot, name)) for name, w in sizing.works(snapshot).items()}
        needed = sizing.fewest({name: work.times(factors[name]) for name, work in even.items()}, left)
        found = []
        for name, instances in needed.items():
            own = snapshot.subqueries[name]
            rows, busy = sum(own.rows_in), sum(own.busy)
            if instances == own.instances or not rows or not busy:
                continue
            reason = (
                f"{factors[name] * rows / snapshot.period:,.0f} rows/s are coming and an instance does {rows / busy:,.0f} while it works: "
                f"with all stages that takes {instances} instead of {own.instances}"
            )
            found.append(
                Proposal(name, reason, Trigger("instances needed", instances, own.instances), instances=instances)
            )
        return found

    def _busy(self, snapshot: Snapshot, name: str) -> float:
        return sum(snapshot.subqueries[name].busy) / snapshot.period if snapshot.period else 0.0
