"""What the manager gives back: instructions, and what it refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from springtide.elastic import maps
from springtide.elastic.policies.policy import Proposal, Trigger
from springtide.state.manifest import BucketMap

Kind = Literal["scale", "move", "rebalance"]

BY_HAND = "asked for by hand"
"""The reason of an instruction that a person gave."""


@dataclass(frozen=True)
class Instruction:
    """Give a subquery this bucket map from the next epoch on, and why."""

    time: float
    epoch: int
    """When it was decided: behind this epoch."""
    kind: Kind
    subquery: str
    before: BucketMap
    after: BucketMap
    moved: tuple[int, ...]
    """The buckets that change hands."""
    reason: str
    trigger: Trigger | None = None
    """None for what was asked for by hand."""

    def __str__(self) -> str:
        """Return a description of one line."""
        if self.kind == "scale":
            what = f"scale {self.subquery}: {self.before.instances} → {self.after.instances} instances"
        else:
            what = f"{self.kind} {self.subquery}: {len(self.moved)} of {len(self.after.owners)} buckets"
        return f"{what}; {self.reason}"

    def as_event(self) -> str:
        """Return one line that says that it was carried out."""
        if self.kind == "scale":
            done = f"scaled {self.subquery}: {self.before.instances} → {self.after.instances} instances"
        else:
            word = {"move": "moved", "rebalance": "rebalanced"}[self.kind]
            done = f"{word} {self.subquery}: {len(self.moved)} of {len(self.after.owners)} buckets"
        return done if self.reason == BY_HAND else f"{done}; {self.reason}"

    def to_json(self) -> dict[str, Any]:
        """Write it for the checkpoint."""
        plain = vars(self) | {"before": maps.to_json(self.before), "after": maps.to_json(self.after)}
        return plain | {"moved": list(self.moved), "trigger": asdict(self.trigger) if self.trigger else None}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Instruction:
        """Read what `to_json` wrote."""
        read: dict[str, Any] = {
            "before": maps.from_json(data["before"]),
            "after": maps.from_json(data["after"]),
            "moved": tuple(data["moved"]),
            "trigger": Trigger(**data["trigger"]) if data["trigger"] else None,
        }
        return Instruction(**data | read)


Rule = Literal["policy", "proposal", "experience", "underway", "grace", "limit", "patience", "slots", "veto", "dropped"]
"""What a refusal was for. `policy` and `proposal`: the policy failed, or asked for what cannot be; `experience`: the policy
thought better of it."""


@dataclass(frozen=True)
class Refusal:
    """Something that was wanted and not done."""

    time: float
    epoch: int
    subquery: str
    rule: Rule
    wanted: str
    why: str
    times: int = 1
    """How often since the last change; the rest is what it was the last time."""

    def __str__(self) -> str:
        """Return a description of one line."""
        often = f" ({self.times} times)" if self.times > 1 else ""
        return f"refused for {self.subquery}: {self.wanted}; {self.why}{often}"


def instruct(
    proposal: Proposal,
    before: BucketMap,
    time: float,
    epoch: int,
    loads: Sequence[float] = (),
    grid: tuple[int, int] | None = None,
) -> Instruction | None:
    """Work out what a proposal means for a bucket map: None if nothing, a ValueError if it cannot be.

    >>> wish = Proposal("heavy", "by hand", instances=3)
    >>> print(instruct(wish, BucketMap.even(6, 2), time=0.0, epoch=7))
    scale heavy: 2 → 3 instances; by hand
    """
    after, kind = _after(proposal, before, loads, grid)
    if after is before:
        return None
    changed = maps.moved(before, after)
    return Instruction(time, epoch, kind, proposal.subquery, before, after, changed, proposal.reason, proposal.trigger)


def _after(
    proposal: Proposal, before: BucketMap, loads: Sequence[float], grid: tuple[int, int] | None
) -> tuple[BucketMap, Kind]:
    if proposal.owners is not None:
        after = maps.owned(before, proposal.owners, proposal.instances)
        return after, "scale" if after.instances != before.instances else "rebalance"
    if proposal.instances is not None:
        return maps.scale(before, proposal.instances, loads, grid), "scale"
    owners = list(before.owners)
    for bucket, owner in proposal.moves.items():
        owners[bucket] = maps.move(before, [bucket], owner).owners[bucket]
    return maps.owned(before, owners), "move"
