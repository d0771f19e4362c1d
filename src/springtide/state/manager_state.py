"""What the manager remembers. Frozen and plain: it is kept in the checkpoint, so that a restart continues with it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from springtide.state.instructions import Instruction, Refusal, check_instruction, check_refusal
from springtide.state.parsing import NewerFormat
from springtide.state.shapes import anything, each, flag, known, listed, may, record, text, whole

Value = TypeVar("Value")

FORMAT = 1
REFUSALS = 100
"""How many refusals are kept."""


@dataclass(frozen=True)
class ManagerState:
    """Between two snapshots."""

    paused: bool = False
    underway: Mapping[str, Instruction] = field(default_factory=dict)
    """Subquery → the instruction that has not taken effect yet."""
    changed: Mapping[str, float] = field(default_factory=dict)
    """Subquery → when its last change took effect."""
    fewer_wanted: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Subquery → the fewer instances that the last summaries asked for, one after the other."""
    refusals: tuple[Refusal, ...] = ()
    """The last ones, oldest first."""
    settings: str = ""
    """A digest of what the manager decides by; empty where a version before this one wrote it."""

    def told(self, instruction: Instruction) -> ManagerState:
        """Remember an instruction until a snapshot shows that it is done."""
        name = instruction.subquery
        return replace(
            self, underway={**self.underway, name: instruction}, fewer_wanted=_without(self.fewer_wanted, name)
        )

    def done(self, subquery: str, time: float) -> ManagerState:
        """Forget an instruction: it has taken effect, or never will."""
        return replace(self, underway=_without(self.underway, subquery), changed={**self.changed, subquery: time})

    def wants_fewer(self, subquery: str, instances: int | None, keep: int) -> ManagerState:
        """Note that fewer instances were asked for once more; None: they were not. A limited number is kept."""
        if instances is None:
            return replace(self, fewer_wanted=_without(self.fewer_wanted, subquery))
        wanted = (*self.fewer_wanted.get(subquery, ()), instances)[-keep:]
        return replace(self, fewer_wanted={**self.fewer_wanted, subquery: wanted})

    def refused(self, refusal: Refusal) -> ManagerState:
        """Keep a refusal; what the same rule refused since the subquery's last change is kept as one, with a count."""
        changed = self.changed.get(refusal.subquery, -math.inf)
        same = (refusal.subquery, refusal.rule)
        alike = [r for r in self.refusals if (r.subquery, r.rule) == same and r.time >= changed]
        rest = tuple(r for r in self.refusals if r not in alike)
        counted = replace(refusal, times=1 + sum(r.times for r in alike))
        return replace(self, refusals=(*rest, counted)[-REFUSALS:])

    def about(self, subqueries: Collection[str]) -> ManagerState:
        """Forget all but some subqueries; what was refused stays."""
        return replace(
            self,
            underway=_only(self.underway, subqueries),
            changed=_only(self.changed, subqueries),
            fewer_wanted=_only(self.fewer_wanted, subqueries),
        )

    def to_json(self) -> dict[str, Any]:
        """Write it for the manifest."""
        return {
            "format": FORMAT,
            "paused": self.paused,
            "underway": {name: i.to_json() for name, i in self.underway.items()},
            "changed": dict(self.changed),
            "wishes": {name: list(wanted) for name, wanted in self.fewer_wanted.items()},
            "refusals": [vars(r) for r in self.refusals],
        } | ({"settings": self.settings} if self.settings else {})

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> ManagerState:
        """Read what `to_json` wrote and `check_manager_state` took."""
        return ManagerState(
            paused=data["paused"],
            underway={name: Instruction.from_json(i) for name, i in data["underway"].items()},
            changed=data["changed"],
            fewer_wanted={name: tuple(wanted) for name, wanted in data["wishes"].items()},
            refusals=tuple(known(Refusal, r) for r in data["refusals"]),
            settings=data.get("settings", ""),
        )


_STATE = record(
    paused=flag,
    underway=each(check_instruction),
    changed=each(anything),
    wishes=each(listed(whole())),
    refusals=listed(check_refusal),
    settings=may(text),
)


def check_manager_state(where: str, value: Any) -> None:
    """Check what a manager remembers, or accept nothing if there is no manager."""
    if value == {}:
        return
    record(format=whole())(where, value)
    if value["format"] != FORMAT:
        raise NewerFormat(f"has {where} of format {value['format']}, but this version of Springtide reads {FORMAT}")
    _STATE(where, value)


def _only(mapping: Mapping[str, Value], keys: Collection[str]) -> dict[str, Value]:
    return {k: v for k, v in mapping.items() if k in keys}


def _without(mapping: Mapping[str, Value], key: str) -> dict[str, Value]:
    return {k: v for k, v in mapping.items() if k != key}
