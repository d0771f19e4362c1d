"""Decisions as people read them: what was decided, and what became of it. Pure.

The checkpoint's history has two records of each, with the same id: one when it is done, one when an epoch has run with it.

    {id, at, waited, kind, subquery, before, after, …}      …      {id, done, in_epoch, extra_seconds, bytes_moved, …}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from springtide.elastic.protocols import Protocol
from springtide.query.html import table
from springtide.state.instructions import Instruction


@dataclass(frozen=True)
class Outcome:
    """What a change was like, measured."""

    time: float
    """When the first epoch with the new map was done."""
    epoch: int
    seconds: float
    """How long that epoch took."""
    extra_seconds: float
    """How much longer than the median of the epochs before it; it may be shorter."""
    bytes_moved: int
    """The state of the buckets that changed hands."""


@dataclass(frozen=True)
class Decision:
    """One change of one subquery."""

    id: str
    at: float
    """When it was decided, in seconds of the clock."""
    instruction: Instruction
    outcome: Outcome | None = None
    """None for what has not taken effect, or not by itself: see `overtaken`."""
    overtaken: bool = False
    """The subquery was told something else before an epoch ran with this."""
    protocol: Protocol = "virtual"
    """How the buckets went to their new owners."""
    waited: float = 0.0
    """Seconds for which it waited for executors; epochs went on as before."""

    @property
    def took(self) -> float | None:
        """Return the seconds from the decision to the end of the first epoch with it, waiting for executors included."""
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
            return f"{before} → {after} instance{'' if after == 1 else 's'}"
        return "moved" if self.instruction.kind == "move" else "balanced"

    def _repr_html_(self) -> str:
        """Show a notebook what was decided, why, and what it cost."""
        return Decisions([self])._repr_html_()


class Decisions(list[Decision]):
    """Several of them, oldest first."""

    def _repr_html_(self) -> str:
        """Show a notebook a line for each."""
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
    """Put the records of decisions together, oldest first. An outcome whose decision is not among them any more is left out."""
    begun: dict[str, Mapping[str, Any]] = {}
    outcomes: dict[str, Outcome] = {}
    for record in records:
        if "done" in record:
            outcomes[record["id"]] = _outcome(record)
        elif "kind" in record:
            begun[record["id"]] = record
    last = {record["subquery"]: name for name, record in begun.items()}
    found = []
    for name, record in begun.items():
        outcome = outcomes.get(name)
        overtaken = outcome is None and last[record["subquery"]] != name
        waited, protocol = record.get("waited", 0.0), record.get("protocol", "virtual")
        at = record["at"] - waited  # it was written down when the executors were there
        found.append(Decision(name, at, _instruction(record), outcome, overtaken, protocol, waited))
    return found


def _outcome(record: Mapping[str, Any]) -> Outcome:
    cost = record["seconds"], record["extra_seconds"], record["bytes_moved"]
    return Outcome(record["done"], record["in_epoch"], *cost)


def _instruction(record: Mapping[str, Any]) -> Instruction:
    known = {field.name for field in fields(Instruction)}
    return Instruction.from_json({key: value for key, value in record.items() if key in known})
