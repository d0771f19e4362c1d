"""Slots before buckets: a change waits until there are slots for it, and slots are given back once the buckets have left (SC-12).

more instances:  request ──── wait, epochs go on as before ────→ new map
fewer:           new map ──── one epoch with it ────→ release
"""

from __future__ import annotations

from collections.abc import Mapping

from springtide.compiler.plan import Plan
from springtide.elastic.instructions import Instruction
from springtide.elastic.resources.resources import Resources
from springtide.elastic.resources.sizing import Waiting
from springtide.runtime.topology import topology
from springtide.state.manifest import BucketMap


class Provisioning:
    """What waits for slots, and how many there should be. It has no clock: whoever asks says what time it is."""

    def __init__(self, plan: Plan, resources: Resources, wait: float) -> None:
        """Wait for slots so many seconds."""
        self._levels = topology(plan, {}).levels
        self._resources, self._wait = resources, wait
        self.waiting: dict[str, Waiting] = {}
        """By subquery."""

    def ask(self, maps: Mapping[str, BucketMap]) -> None:
        """Ask for what the maps need, and wait for nothing: how a run begins."""
        self._resources.request(self._needed(maps))

    def admits(self, instruction: Instruction, maps: Mapping[str, BucketMap], now: float) -> bool:
        """Return whether an instruction can be carried out now; if not, the missing slots are requested, and it waits in place of an earlier one."""
        self.waiting.pop(instruction.subquery, None)
        if instruction.after.instances <= instruction.before.instances:
            return True
        self.waiting[instruction.subquery] = Waiting(instruction, now)
        if self._resources.request(self._needed(maps)) and self._missing(instruction.subquery, maps) > 0:
            return False
        del self.waiting[instruction.subquery]
        return True

    def decided(self, maps: Mapping[str, BucketMap], now: float) -> list[tuple[Waiting, int]]:
        """Return what need not wait any longer, each with the instances that there are slots for."""
        found = []
        for name, waiting in list(self.waiting.items()):
            instances = waiting.instances(self._missing(name, maps), now, self._wait)
            if instances is not None:
                del self.waiting[name]
                found.append((waiting, instances))
        return found

    def settle(self, used: Mapping[str, BucketMap], maps: Mapping[str, BucketMap]) -> None:
        """After an epoch with the maps `used`: ask for what the next ones need, and let go what neither needed."""
        self._resources.release(max(self._needed(used), self._needed(maps)))

    def _needed(self, maps: Mapping[str, BucketMap]) -> int:
        """Count the slots that all need, waiting ones included: stages run one after the other, so the widest counts."""
        return max(self._width(level, maps) for level in range(len(self._levels)))

    def _missing(self, subquery: str, maps: Mapping[str, BucketMap]) -> int:
        """Count the slots that the stage of a subquery lacks."""
        slots = self._resources.slots()
        level = next(i for i, names in enumerate(self._levels) if subquery in names)
        return 0 if slots is None else self._width(level, maps) - slots

    def _width(self, level: int, maps: Mapping[str, BucketMap]) -> int:
        after = {name: waiting.instruction.after for name, waiting in self.waiting.items()}
        return sum({**maps, **after}[name].instances for name in self._levels[level])
