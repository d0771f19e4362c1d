"""What was decided about the instances and buckets of a subquery, and what was refused: as a manifest and the history have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from springtide.query.ids import BucketId, EpochNumber
from springtide.query.plurals import plural
from springtide.state.bucket_map import BucketMap, check_map
from springtide.state.shapes import anything, known, listed, maybe, record, whole

ChangeKind = Literal["scale", "move", "rebalance", "replace"]
"""`replace`: the whole query was given another form; the maps say nothing then."""

BY_HAND = "asked for by hand"
"""The reason of an instruction that a person gave."""


@dataclass(frozen=True)
class Trigger:
    """The measurement that led to a proposal, and the bound that it crossed."""

    metric: str
    value: float
    bound: float

    def __str__(self) -> str:
        """Return a short description."""
        return f"{self.metric} {self.value:.3g} {'>' if self.value > self.bound else '<'} {self.bound:.3g}"


@dataclass(frozen=True)
class Instruction:
    """Give a subquery this bucket map from the next epoch on, and why."""

    time: float
    epoch: EpochNumber
    """When it was decided: after this epoch."""
    kind: ChangeKind
    subquery: str
    before: BucketMap
    after: BucketMap
    moved: tuple[BucketId, ...]
    """The buckets that change owners."""
    reason: str
    trigger: Trigger | None = None
    """None for what was asked for by hand."""

    def __str__(self) -> str:
        """Return a description of one line."""
        if self.kind == "replace":
            return f"replace {self.subquery}: {self.reason}"
        if self.kind == "scale":
            what = f"scale {self.subquery}: {self.before.instances} → {plural(self.after.instances, 'instance')}"
        else:
            what = f"{self.kind} {self.subquery}: {len(self.moved)} of {plural(len(self.after.owners), 'bucket')}"
        return f"{what}; {self.reason}"

    def as_event(self) -> str:
        """Return one line that says that it was carried out."""
        if self.kind == "replace":
            return f"replaced {self.subquery}: {self.reason}"
        if self.kind == "scale":
            done = f"scaled {self.subquery}: {self.before.instances} → {plural(self.after.instances, 'instance')}"
        else:
            word = {"move": "moved", "rebalance": "rebalanced"}[self.kind]
            done = f"{word} {self.subquery}: {len(self.moved)} of {plural(len(self.after.owners), 'bucket')}"
        return done if self.reason == BY_HAND else f"{done}; {self.reason}"

    def to_json(self) -> dict[str, Any]:
        """Write it for the checkpoint."""
        plain = vars(self) | {"before": self.before.to_json(), "after": self.after.to_json()}
        return plain | {"moved": list(self.moved), "trigger": asdict(self.trigger) if self.trigger else None}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Instruction:
        """Read what `to_json` wrote."""
        read: dict[str, Any] = {
            "before": BucketMap.from_json(data["before"]),
            "after": BucketMap.from_json(data["after"]),
            "moved": tuple(data["moved"]),
            "trigger": known(Trigger, data["trigger"]) if data["trigger"] else None,
        }
        return known(Instruction, {**data, **read})


Rule = Literal[
    "policy", "proposal", "experience", "underway", "grace", "limit", "confirmations", "slots", "veto", "dropped"
]
"""What a refusal was for. `policy` and `proposal`: the policy failed, or asked for what cannot be; `experience`: the policy
thought better of it."""


@dataclass(frozen=True)
class Refusal:
    """Something that was wanted and not done."""

    time: float
    epoch: EpochNumber
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


# The reason may come from a user's policy, and is taken as it is: any manifest that was written can be read.
check_instruction = record(
    time=anything,
    epoch=whole(-1),
    kind=anything,
    subquery=anything,
    before=check_map,
    after=check_map,
    moved=listed(whole()),
    reason=anything,
    trigger=maybe(record(metric=anything, value=anything, bound=anything)),
)
check_refusal = record(
    time=anything, epoch=whole(-1), subquery=anything, rule=anything, wanted=anything, why=anything, times=whole(1)
)
