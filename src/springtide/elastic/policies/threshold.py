"""Threshold: keep the average utilisation between two bounds (SC-10)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from springtide.elastic.policies.policy import Proposal
from springtide.elastic.snapshot import Snapshot
from springtide.query.plurals import plural
from springtide.query.usage import usage_of
from springtide.state.instructions import Trigger

ROUNDING = 1e-9
"""Exceeding a whole number by less than this is treated as a rounding error."""


@usage_of("st.Threshold(lut=0.5, uut=0.9)", "(threshold)")
@dataclass(frozen=True)
class Threshold:
    """Scale out above UUT and in below LUT, directly to the number of instances at which the utilisation is TUT.

    Utilisation refers to the rows that arrive: a growing backlog counts, and a shrinking one does not hide the fact that there are
    enough instances by now. Unlike in the paper, a backlog that would not be cleared in time is also a reason to scale out, and
    nothing is removed while there is a backlog.

    >>> Threshold(lut=0.7, uut=0.9, tut=0.6)
    Traceback (most recent call last):
    ValueError: they must satisfy 0 ≤ lut < tut ≤ uut, not 0.7, 0.6, 0.9
    """

    lut: float = 0.5
    """Lower utilisation threshold."""
    uut: float = 0.9
    """Upper utilisation threshold."""
    tut: float = 0.6
    """Target utilisation threshold."""
    provisioning: Literal["load-aware", "individual"] = "load-aware"
    """All instances that are needed at once, or, for comparison, one at a time, which leads to one step after another."""
    watch: Literal["average", "highest"] = "average"
    """Which utilisation is compared with UUT: the average of all instances, or that of the busiest."""
    scale_in: Literal["enough", "fewest"] = "enough"
    """Scale in to the instances that stay just below TUT, or to one fewer, as long as that does not exceed UUT."""
    drain: float | None = 60.0
    """Seconds in which a backlog should be cleared; None if it may take any time."""
    least_share: float = 0.1
    """A subquery whose stage has less than this share of the epoch is not scaled out: it could not save more than that."""

    def __post_init__(self) -> None:
        """Refuse inconsistent thresholds."""
        if not 0 <= self.lut < self.tut <= self.uut:
            raise ValueError(f"they must satisfy 0 ≤ lut < tut ≤ uut, not {self.lut:g}, {self.tut:g}, {self.uut:g}")

    def decide(self, snapshot: Snapshot, history: Sequence[Snapshot]) -> Sequence[Proposal]:
        """Look at each subquery separately."""
        found = (self._proposal(snapshot, name) for name in snapshot.subqueries)
        return [proposal for proposal in found if proposal]

    def _proposal(self, snapshot: Snapshot, name: str) -> Proposal | None:
        n, load = snapshot.subqueries[name].instances, snapshot.load(name)
        late = snapshot.owed(name) / self.drain if self.drain else 0.0
        trigger = self._upper(snapshot, name, n, load, late)
        if trigger and snapshot.share(name) >= self.least_share:
            return self._proposed(name, trigger, n, self._more(n, load, late), load)
        if load < self.lut * n - ROUNDING and load + late <= self.tut * n and not snapshot.has_backlog(name):
            fewer = self._fewer(n, load, late)
            if fewer < n:
                return self._proposed(name, Trigger("utilisation", load / n, self.lut), n, fewer, load)
        return None

    def _upper(self, snapshot: Snapshot, name: str, n: int, load: float, late: float) -> Trigger | None:
        if load > self.uut * n + ROUNDING:
            return Trigger("utilisation", load / n, self.uut)
        highest = max(snapshot.utilisation(name), default=0.0)
        if self.watch == "highest" and highest > self.uut:
            return Trigger("highest utilisation", highest, self.uut)
        if load + late > n + ROUNDING:
            return Trigger("utilisation with backlog", (load + late) / n, 1.0)
        return None

    def _more(self, n: int, load: float, late: float) -> int:
        if self.provisioning == "individual":
            return n + 1
        return max(n + 1, _up(load / self.tut), _up(load + late))

    def _fewer(self, n: int, load: float, late: float) -> int:
        if self.provisioning == "individual":
            return n - 1 if n > 1 and load + late <= self.uut * (n - 1) else n
        enough = max(1, _up(load / self.tut), _up(load + late))
        fewest = max(1, math.floor(load / self.tut + ROUNDING), _up(load / self.uut), _up(load + late))
        return fewest if self.scale_in == "fewest" else enough

    def _proposed(self, name: str, trigger: Trigger, n: int, wanted: int, load: float) -> Proposal:
        side = "over" if wanted > n else "under"
        reason = (
            f"{trigger.metric} of {trigger.value:.0%} is {side} {trigger.bound:.0%}, "
            f"with {wanted} instead of {plural(n, 'instance')} it is {load / wanted:.0%}"
        )
        return Proposal(name, reason, trigger, instances=wanted)


def _up(number: float) -> int:
    return math.ceil(number - ROUNDING)


SC_10 = Threshold(lut=0.5, uut=0.9, tut=0.6)
"""StreamCloud's own thresholds, fig. 21."""
ST_8 = Threshold(lut=0.45, uut=0.9, tut=0.7, scale_in="fewest")
"""STRETCH: 45 %, 90 %, 70 %. Its table 2 rounds up for scaling out and down for scaling in."""
SM_10 = Threshold(lut=0.4, uut=0.8, tut=0.8, provisioning="individual", watch="highest")
"""StreamMine3G: one more node if one is above 80 %, one fewer below 40 %."""

PRESETS: Mapping[str, Threshold] = {"SC-10": SC_10, "ST-8": ST_8, "SM-10": SM_10}
"""Thresholds by their ids in the table of papers."""
