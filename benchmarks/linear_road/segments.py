"""What the toll calculator knows of segments: how fast and how many cars were in the minutes before, and where accidents are.

A segment is a number here: (expressway · 2 + direction) · 100 + segment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import fsum
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.linear_road import road

Array = npt.NDArray[Any]
MINUTE = 60
_MINUTES = 5


@dataclass
class Statistics:
    """Speeds and numbers of cars. All arrays are over the segments of `ways`, 100 of each."""

    minute: int = 0
    ways: list[int] = field(default_factory=list)
    """Expressways and directions: expressway · 2 + direction."""
    speeds: Array = field(default_factory=lambda: np.zeros(0))
    """Of this minute: the sum of the cars' average speeds. A car reports twice a minute, so these are halves, and their sums are exact."""
    cars: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    averages: dict[int, Array] = field(default_factory=dict)
    """Of the last five minutes, NaN where there was no car."""
    last_cars: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    lavs: Array = field(default_factory=lambda: np.zeros(0, np.int64))

    def turn_to(self, minute: int) -> None:
        """Close the minutes before this one."""
        if minute == self.minute:
            return
        with np.errstate(invalid="ignore"):
            self.averages[self.minute] = self.speeds / self.cars
        self.last_cars = self.cars if self.minute == minute - 1 else np.zeros_like(self.cars)
        self.averages = {m: a for m, a in self.averages.items() if m >= minute - _MINUTES}
        table = np.stack([*self.averages.values(), np.full(self.cars.size, np.nan)], axis=1)
        self.lavs = np.array([_mean(row) for row in table.tolist()], np.int64)
        self.minute, self.speeds, self.cars = minute, np.zeros_like(self.speeds), np.zeros_like(self.cars)

    def add(self, segment: Array, speed: Array, cars: Array) -> None:
        """Add what has driven in segments: average speeds, and cars that were not there before in this minute."""
        where = self._index(segment)
        self.speeds += np.bincount(where, speed, self.speeds.size)
        self.cars += np.bincount(where, cars, self.cars.size).astype(np.int64)

    def of_before(self, segment: Array) -> tuple[Array, Array]:
        """Give the LAVs of segments, and how many cars were there in the minute before."""
        where = self._index(segment)
        return self.lavs[where], self.last_cars[where]

    def written(self) -> dict[str, Any]:
        """Give all as plain JSON."""
        return {
            "minute": self.minute,
            "ways": self.ways,
            "speeds": self.speeds.tolist(),
            "cars": self.cars.tolist(),
            "averages": {m: [None if x != x else x for x in a.tolist()] for m, a in self.averages.items()},
            "last_cars": self.last_cars.tolist(),
            "lavs": self.lavs.tolist(),
        }

    @staticmethod
    def read(data: dict[str, Any]) -> Statistics:
        """Read what was written."""
        averages = {int(m): np.array(a, np.float64) for m, a in data["averages"].items()}
        whole = {name: np.array(data[name], np.int64) for name in ("cars", "last_cars", "lavs")}
        return Statistics(data["minute"], data["ways"], np.array(data["speeds"]), averages=averages, **whole)

    def _index(self, segment: Array) -> Array:
        """Give the places of segments in the arrays, which grow by what is new."""
        way = segment // road.SEGMENTS
        self._grow([w for w in np.unique(way).tolist() if w not in self.ways])
        place = np.zeros(max(self.ways, default=0) + 1, np.int64)
        place[self.ways] = range(len(self.ways))
        return place[way] * road.SEGMENTS + segment % road.SEGMENTS  # type: ignore[no-any-return]

    def _grow(self, ways: list[int]) -> None:
        more = len(ways) * road.SEGMENTS
        self.ways = [*self.ways, *ways]
        self.speeds = np.concatenate([self.speeds, np.zeros(more)])
        self.averages = {m: np.concatenate([a, np.full(more, np.nan)]) for m, a in self.averages.items()}
        for name in ("cars", "last_cars", "lavs"):
            setattr(self, name, np.concatenate([getattr(self, name), np.zeros(more, np.int64)]))


def _mean(averages: list[float]) -> int:
    known = [average for average in averages if average == average]
    return int(fsum(known) / len(known)) if known else 0


@dataclass
class Accident:
    """Two or more cars that stand at one place."""

    segment: int
    place: int
    found: int
    """The minute of its detection."""
    cleared: int | None = None
    """The minute in which it cleared."""


@dataclass
class Accidents:
    """Who stands where. It is little: two cars for each accident."""

    standing: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict)
    """Expressway and direction, place → cars that are stopped there → when they last said so."""
    all: list[Accident] = field(default_factory=list)

    def stand(self, segment: int, place: int, vid: int, time: int) -> None:
        """Take note of a car that stands."""
        self._leave(before=time)
        way = segment // road.SEGMENTS
        cars = self.standing.setdefault((way, place), {})
        cars[vid] = time
        if len(cars) > 1 and not self._open(way, place):
            self.all.append(Accident(segment, place, time // MINUTE))

    def ahead(self, segment: Array, minute: int) -> Array:
        """Give for each segment that of the nearest accident that is told of there in a minute; -1 where there is none."""
        found = np.full(segment.size, -1, np.int32)
        if not self.all:
            return found
        self._leave(before=minute * MINUTE)
        self.all = [a for a in self.all if a.cleared is None or a.cleared >= minute]
        told = [a.segment for a in self.all if a.found < minute]
        for distance in reversed(range(road.AHEAD)):
            for accident in told:
                step = distance if accident // road.SEGMENTS % 2 == road.EAST else -distance
                if (accident - step) // road.SEGMENTS == accident // road.SEGMENTS:
                    found[segment == accident - step] = accident % road.SEGMENTS
        return found

    def written(self) -> dict[str, Any]:
        """Give all as plain JSON."""
        standing = [[*where, vid, time] for where, cars in self.standing.items() for vid, time in cars.items()]
        return {"standing": standing, "all": [[a.segment, a.place, a.found, a.cleared] for a in self.all]}

    @staticmethod
    def read(data: dict[str, Any]) -> Accidents:
        """Read what was written."""
        standing: dict[tuple[int, int], dict[int, int]] = {}
        for way, place, vid, time in data["standing"]:
            standing.setdefault((way, place), {})[vid] = time
        return Accidents(standing, [Accident(*accident) for accident in data["all"]])

    def _leave(self, before: int) -> None:
        """Let the cars go that did not say again that they stand: they drove on with the report that was due then."""
        gone = sorted(
            (last + road.EVERY, where, vid)
            for where, cars in self.standing.items()
            for vid, last in cars.items()
            if last + road.EVERY < before
        )
        for time, where, vid in gone:
            cars = self.standing[where]
            del cars[vid]
            if not cars:
                del self.standing[where]
            if len(cars) < 2:
                for accident in self._open(*where):
                    accident.cleared = time // MINUTE

    def _open(self, way: int, place: int) -> list[Accident]:
        return [a for a in self.all if a.cleared is None and (a.segment // road.SEGMENTS, a.place) == (way, place)]
