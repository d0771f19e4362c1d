"""Decisions for people to read: what was decided, and what came of it. Pure.

The checkpoint's history has two records of each decision, with the same id: one when it is carried out, one when an epoch has run with it.

    {id, at, waited, kind, subquery, before, after, …}      …      {id, done, in_epoch, extra_seconds, bytes_moved, …}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from springtide.elastic.protocols import Protocol
from springtide.query.html import table
from springtide.query.ids import EpochNumber
from springtide.query.plurals import plural
from springtide.state.instructions import Instruction


@dataclass(frozen=True)
class Outcome:
    """The measured effects of a change."""

    time: float
    """When the first epoch with the new map was finished."""
    epoch: EpochNumber
    seconds: float
    """How long that epoch took."""
    extra_seconds: float
    """How much longer than the median of the previous epochs; negative if it was shorter."""
    bytes_moved: int
    """The state of the buckets that changed hands."""

    def record(self, id: str, subquery: str) -> dict[str, Any]:
        """Return it as the history keeps it, beside the decision with that id."""
        cost = {"seconds": self.seconds, "extra_seconds": self.extra_seconds, "bytes_moved": self.bytes_moved}
        return {"id": id, "subquery": subquery, "done": self.time, "in_epoch": self.epoch, **cost}

    @staticmethod
    def of(record: Mapping[str, Any]) -> Outcome:
        """Read what `record` returned."""
        cost = record["seconds"], record["extra_seconds"], record["bytes_moved"]
        return Outcome(record["done"], record["in_epoch"], *cost)


@dataclass(frozen=True)
class Decision:
    """One change of one subquery."""

    id: str
    at: float
    """When it was decided, in clock seconds."""
    instruction: Instruction
    outcome: Outcome | None = None
    """None for a change that has not taken effect, or not on its own: see `overtaken`."""
    overtaken: bool = False
    """Whether the subquery received another instruction before an epoch ran with this one."""
    protocol: Protocol = "virtual"
    """How the buckets moved to their new owners."""
    waited: float = 0.0
    """Seconds spent waiting for executors; epochs continued as before."""

    @property
    def took(self) -> float | None:
        """Return the seconds from the decision to the end of the first epoch with it, including the wait for executors."""
        return None if self.outcome is None else self.outcome.time - self.at

    @property
    def change(self) -> str:
        """Return a short description of the change.

        >>> decided = {
        ...     "id": "1",
        ...     "at": 9.0,
        ...     "time": 8.0,
        ...     "epoch": 7,
        ...     "kind": "scale",
        ...     "subquery": "heavy",
        ...     "reason": "by hand",
        ... }
        >>> before, after = ({"version": n, "instances": n, "owners": [0, n - 1]} for n in (1, 2))
        >>> record = decided | {"before": before, "after": after, "moved": [1], "trigger": None}
        >>> [d.change for d in decisions_of([record])]
        ['1 → 2 instances']
        """
        if self.instruction.kind == "replace":
            return "replaced"
        before, after = self.instruction.before.instances, self.instruction.after.instances
        if before != after:
            return f"{before} → {plural(after, 'instance')}"
        return "moved" if self.instruction.kind == "move" else "balanced"

    def _repr_html_(self) -> str:
        """Show in a notebook what was decided, why, and what it cost."""
        return Decisions([self])._repr_html_()


class Decisions(list[Decision]):
    """Several decisions, oldest first."""

    def _repr_html_(self) -> str:
        """Show one line for each in a notebook."""
        rows = [
            (
                f"{datetime.fromtimestamp(d.at):%H:%M:%S}",
                d.instruction.subquery,
                d.change,
                d.instruction.reason,
                len(d.instruction.moved),
                "overtaken" if d.overtaken else "" if d.outcome is None else f"{d.outcome.bytes_moved:,}",
                "" if d.outcome is None else f"{d.outcome.extra_seconds:+.2f} s",
            )
            for d in self
        ]
        head = ["at", "subquery", "change", "why", "buckets", "bytes moved", "longer epoch"]
        return table(head, rows, title="decisions")


def decisions_of(records: Iterable[Mapping[str, Any]]) -> list[Decision]:
    """Combine the records of decisions, oldest first. An outcome whose decision is no longer among the records is left out."""
    begun: dict[str, Mapping[str, Any]] = {}
    outcomes: dict[str, Outcome] = {}
    for record in records:
        if "done" in record:
            outcomes[record["id"]] = Outcome.of(record)
        elif "kind" in record:
            begun[record["id"]] = record
    last = {record["subquery"]: name for name, record in begun.items()}
    found = []
    for name, record in begun.items():
        outcome = outcomes.get(name)
        overtaken = outcome is None and last[record["subquery"]] != name
        waited, protocol = record.get("waited", 0.0), record.get("protocol", "virtual")
        at = record["at"] - waited  # it was recorded when the executors were there
        found.append(Decision(name, at, _instruction(record), outcome, overtaken, protocol, waited))
    return found


def _instruction(record: Mapping[str, Any]) -> Instruction:
    known = {field.name for field in fields(Instruction)}
    return Instruction.from_json({key: value for key, value in record.items() if key in known})
