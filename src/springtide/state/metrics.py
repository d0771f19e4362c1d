"""What a manifest says about the work of its epoch: when, how long, and how many rows by subquery and instance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from springtide.state.shapes import each, known, listed, may, number, record, row, text, whole


@dataclass(frozen=True)
class SubqueryMetrics:
    """The work of one subquery, by instance."""

    rows_in: tuple[int, ...] = ()
    rows_out: tuple[int, ...] = ()
    rejected: tuple[int, ...] = ()
    busy: tuple[float, ...] = ()
    """Seconds of work."""


@dataclass(frozen=True)
class EpochMetrics:
    """The work of one epoch. Where nothing was measured, all of it is 0."""

    at: float = 0.0
    """When it was done, by the clock of the run."""
    seconds: float = 0.0
    rows: int = 0
    """Rows that came in."""
    published: int = 0
    """Rows that went to sinks."""
    backlog: int = 0
    """Rows that waited at the sources."""
    subqueries: Mapping[str, SubqueryMetrics] = field(default_factory=dict)
    events: tuple[tuple[float, str], ...] = ()
    """The last things that happened besides epochs: when, and what."""

    def to_json(self) -> dict[str, Any]:
        """Write it for the manifest, and for people."""
        return vars(self) | {"subqueries": {name: vars(work) for name, work in self.subqueries.items()}}

    @staticmethod
    def from_json(data: dict[str, Any]) -> EpochMetrics:
        """Read what `to_json` wrote and `check_metrics` took; unknown members are left out."""
        if not data:
            return EpochMetrics()
        subqueries = {
            name: known(SubqueryMetrics, {key: tuple(values) for key, values in work.items() if key in _WORK})
            for name, work in data["subqueries"].items()
        }
        events = tuple((at, what) for at, what in data.get("events", ()))
        return known(EpochMetrics, data | {"subqueries": subqueries, "events": events})


_WORK = {
    "rows_in": may(listed(whole())),
    "rows_out": may(listed(whole())),
    "rejected": may(listed(whole())),
    "busy": may(listed(number)),
}
_METRICS = record(
    at=number,
    seconds=number,
    rows=whole(),
    published=whole(),
    backlog=whole(),
    subqueries=each(record(**_WORK)),
    events=may(listed(row(number, text))),
)


def check_metrics(where: str, value: Any) -> None:
    """Check what was measured: all of it, or nothing if nothing was measured."""
    if value != {}:
        _METRICS(where, value)
