"""Slots before buckets: a change waits until there are slots for it, and slots are given back once the buckets have left (SC-12). Pure.

more instances:  request ──── wait, epochs go on as before ────→ new map
fewer:           new map ──── one epoch with it ────→ release
"""

from __future__ import annotations

from collections.abc import Mapping

from springtide.compiler.plan import Plan
from springtide.elastic.resources.sizing import Waiting
from springtide.runtime.changes import Moment
from springtide.runtime.topology import topology
from springtide.state.bucket_map import BucketMap
from springtide.state.instructions import Instruction


class Provisioning:
    """What waits for slots, and how many there should be."""

    def __init__(self, plan: Plan, wait: float) -> None:
        """Wait for slots for a number of seconds."""
        self._levels = topology(plan, {}).levels
        self._wait = wait
        self.waiting: dict[str, Waiting] = {}
        """By subquery."""

    def admit(self, instruction: Instruction, maps: Mapping[str, BucketMap], moment: Moment) -> tuple[bool, int]:
        """Return whether an instruction can be carried out now, and the slots that all need with it; if not, it waits in place of an earlier one."""
        name = instruction.subquery
        self.waiting.pop(name, None)
        if instruction.after.instances <= instruction.before.instances:
            return True, self.needed(maps)
        self.waiting[name] = Waiting(instruction, moment.time)
        needed = self.needed(maps)
        if moment.grows and self._missing(name, maps, moment) > 0:
            return False, needed
        del self.waiting[name]
        return True, needed

    def decided(self, maps: Mapping[str, BucketMap], moment: Moment) -> list[tuple[Waiting, int]]:
        """Return what need not wait any longer, each with the instances that there are slots for."""
        found = []
        for name, waiting in list(self.waiting.items()):
            instances = waiting.instances(self._missing(name, maps, moment), moment.time, self._wait)
            if instances is not None:
                del self.waiting[name]
                found.append((waiting, instances))
        return found

    def needed(self, maps: Mapping[str, BucketMap]) -> int:
        """Count the slots that all need, waiting ones included: stages run one after the other, so the widest counts."""
        return max(self._width(level, maps) for level in range(len(self._levels)))

    def _missing(self, subquery: str, maps: Mapping[str, BucketMap], moment: Moment) -> int:
        """Count the slots that the stage of a subquery lacks."""
        level = next(i for i, names in enumerate(self._levels) if subquery in names)
        return 0 if moment.slots is None else self._width(level, maps) - moment.slots

    def _width(self, level: int, maps: Mapping[str, BucketMap]) -> int:
        after = {name: waiting.instruction.after for name, waiting in self.waiting.items()}
        return sum({**maps, **after}[name].instances for name in self._levels[level])
