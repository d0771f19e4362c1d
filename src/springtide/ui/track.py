"""What was measured of all epochs, as columns: small enough to keep for every epoch, fast to sum up for a chart. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from springtide.elastic.snapshot import Snapshot
from springtide.ui.tail import LinePlace

Floats = npt.NDArray[np.float64]

WHOLE = ("time", "seconds", "period", "rows", "arrived", "backlog", "p50", "p95", "p99", "out")
"""What is kept of an epoch."""
PART = ("instances", "version", "mean", "low", "high", "rows_in", "rows_out", "state")
"""What is kept of a subquery in an epoch."""
_NAN = math.nan


@dataclass(frozen=True)
class Track:
    """Epochs in a row, oldest first."""

    epoch: npt.NDArray[np.int64]
    whole: Mapping[str, Floats]
    parts: Mapping[str, Mapping[str, Floats]]
    """Subquery → column; NaN for epochs in which there was no such subquery."""
    places: tuple[LinePlace, ...]
    """Where the measurements of each epoch are, in full."""

    @staticmethod
    def of(snapshots: Sequence[Snapshot], places: Sequence[LinePlace]) -> Track:
        """Take the measurements out of snapshots."""
        names = list(dict.fromkeys(name for s in snapshots for name in s.subqueries))
        table = np.array([_columns_of_epoch(s) for s in snapshots], dtype=np.float64).reshape(
            len(snapshots), len(WHOLE)
        )
        parts = {}
        for name in names:
            rows = [_part(s, name) if name in s.subqueries else (_NAN,) * len(PART) for s in snapshots]
            own = np.array(rows, dtype=np.float64)
            parts[name] = {column: own[:, i].copy() for i, column in enumerate(PART)}
        epochs = np.array([s.epoch for s in snapshots], dtype=np.int64)
        return Track(epochs, {c: table[:, i].copy() for i, c in enumerate(WHOLE)}, parts, tuple(places))

    def __len__(self) -> int:
        return len(self.epoch)

    def __add__(self, later: Track) -> Track:
        """Append later epochs."""
        if not len(self) or not len(later):
            return later if len(later) else self
        names = dict.fromkeys([*self.parts, *later.parts])
        return Track(
            np.concatenate([self.epoch, later.epoch]),
            {c: np.concatenate([self.whole[c], later.whole[c]]) for c in WHOLE},
            {n: {c: np.concatenate([self._column(n, c), later._column(n, c)]) for c in PART} for n in names},
            self.places + later.places,
        )

    def _column(self, name: str, column: str) -> Floats:
        return self.parts[name][column] if name in self.parts else np.full(len(self), _NAN)

    def index(self, epoch: int) -> int | None:
        """Return the index of the last epoch that is not after this one; None if there is none.

        A checkpoint that was restored at an earlier epoch has some numbers twice: then the last one counts.
        """
        found = np.flatnonzero(self.epoch <= epoch)
        return int(found[-1]) if found.size else None

    def between(self, begin: float | None, end: float | None) -> slice:
        """Return which epochs ended in a span of time."""
        times = np.maximum.accumulate(self.whole["time"])  # a clock that was set back does not hide what came after
        first = 0 if begin is None else int(np.searchsorted(times, begin, "left"))
        last = len(self) if end is None else int(np.searchsorted(times, end, "right"))
        return slice(first, last)


EMPTY = Track(np.zeros(0, np.int64), {c: np.zeros(0) for c in WHOLE}, {}, ())


def series(track: Track, begin: float | None = None, end: float | None = None, most: int = 400) -> dict[str, Any]:
    """Sum up a span of time for a chart, in at most a given number of points.

    Rates are those of the whole time of a point, backlog and latency the worst of it, utilisation the mean, with the least and the most
    busy instance, and instances those at its end.
    """
    span = track.between(begin, end)
    first, count = span.start, max(0, span.stop - span.start)
    if not count:
        return {"epochs": 0, "t": [], "first": None, "last": None, "subqueries": {}}
    cuts = np.unique(np.linspace(0, count, min(count, most) + 1).astype(np.intp)[:-1])
    ends = np.append(cuts[1:], count) - 1

    def column(values: Floats) -> Floats:
        return values[span]

    def total(values: Floats) -> Floats:
        found: Floats = np.add.reduceat(np.nan_to_num(values), cuts)
        return found

    def worst(values: Floats) -> Floats:
        found: Floats = np.fmax.reduceat(values, cuts)
        return found

    whole = {c: column(v) for c, v in track.whole.items()}
    period = np.maximum(total(whole["period"]), 1e-9)
    subqueries = {}
    for name, part in track.parts.items():
        own = {c: column(v) for c, v in part.items()}
        there = total(np.where(np.isnan(own["mean"]), 0.0, whole["period"]))
        mean = np.divide(total(own["mean"] * whole["period"]), there, out=np.full(len(cuts), _NAN), where=there > 0)
        subqueries[name] = {
            "instances": plain(own["instances"][ends]),
            "mean": plain(mean),
            "low": plain(np.fmin.reduceat(own["low"], cuts)),
            "high": plain(worst(own["high"])),
            "rows_in": plain(total(own["rows_in"]) / period),
            "state": plain(own["state"][ends]),
        }
    return {
        "epochs": count,
        "first": int(track.epoch[first]),
        "last": int(track.epoch[span.stop - 1]),
        "t": plain(whole["time"][ends], 3),
        "epoch": track.epoch[span][ends].tolist(),
        "seconds": plain(total(whole["seconds"]) / np.diff(np.append(cuts, count))),
        "arriving": plain(total(whole["arrived"]) / period),
        "read": plain(total(whole["rows"]) / period),
        "out": plain(total(whole["out"]) / period),
        "backlog": plain(worst(whole["backlog"])),
        "p50": plain(worst(whole["p50"])),
        "p95": plain(worst(whole["p95"])),
        "p99": plain(worst(whole["p99"])),
        "subqueries": subqueries,
    }


def plain(values: Floats, digits: int | None = None) -> list[float | None]:
    """Return numbers for JSON, with four significant digits or a given number of decimal places: NaN is null."""
    if digits is None:
        return [None if v != v else float(f"{v:.4g}") for v in values.tolist()]
    return [None if v != v else round(v, digits) for v in values.tolist()]


def _columns_of_epoch(snapshot: Snapshot) -> tuple[float, ...]:
    waits = snapshot.latency
    latency = (waits.p50, waits.p95, waits.p99) if waits else (_NAN,) * 3
    arrived = snapshot.rate * snapshot.period
    begin = snapshot.time, snapshot.seconds, snapshot.period, snapshot.rows, arrived, snapshot.backlog
    return (*begin, *latency, float(rows_out(snapshot)))


def rows_out(snapshot: Snapshot) -> int:
    """Count the rows that came out of the last subqueries, whose rows go to no other."""
    taken = {up for s in snapshot.subqueries.values() for up in s.upstream}
    return sum(sum(s.rows_out) for name, s in snapshot.subqueries.items() if name not in taken)


def _part(snapshot: Snapshot, name: str) -> tuple[float, ...]:
    own, used = snapshot.subqueries[name], snapshot.utilisation(name)
    busy = (sum(used) / len(used), min(used), max(used)) if used else (_NAN,) * 3
    rows = float(sum(own.rows_in)), float(sum(own.rows_out)), float(own.state_bytes)
    return (float(own.instances), float(own.map.version), *busy, *rows)
