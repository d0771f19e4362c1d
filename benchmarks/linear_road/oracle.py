"""The oracle: what Linear Road's specification wants, message by message, in one thread. It shares nothing with the query but the road's constants.

Where the specification leaves room, or public programs differ, this is what counts here:

- Minute m is [60 m, 60 m + 60) seconds. What a car is told in minute m follows from the minutes before.
- The average speed of a segment in a minute is the mean over its cars of each car's own mean speed there. LAV is the mean of these averages over the
  five minutes before, of those that have one, cut to whole miles per hour; 0 where none has. (One public validator pools all reports of the five minutes.)
- A car that does not report when its 30 seconds are over has left the road. If it reports later it is a new one, as after an exit.
- A car crosses into a segment when it reports from the entry lane, which every car does once when it comes, or from another segment than before. It is told the
  toll then, but not on the exit lane.
- The toll of a segment is charged when the car crosses into the next one, also if it leaves the road there. A car that leaves in the segment itself does
  not pay for it. (Some programs charge on every exit.)
- A car is stopped when it reports from the same place (expressway, direction, lane, position) four times in a row. Two stopped cars at one place are an accident, from
  the report that makes it so until one of them reports from elsewhere, or does not report when its 30 seconds are over. Within a second, cars stop before others drive on.
- An accident counts from the minute after it was detected until the minute in which it clears. (One public validator forgets a segment's second accident.)
- A balance has all that was charged by reports up to the second of the question, that second too.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import groupby
from math import fsum
from typing import NamedTuple

import polars as pl

from benchmarks.linear_road import road

Place = tuple[int, int, int, int]
"""Expressway, direction, lane, position."""
Segment = tuple[int, int, int]
"""Expressway, direction, segment."""


class Report(NamedTuple):
    """Where a car is."""

    time: int
    vid: int
    spd: int
    xway: int
    lane: int
    dir: int
    seg: int
    pos: int

    @property
    def place(self) -> Place:
        return self.xway, self.dir, self.lane, self.pos

    @property
    def segment(self) -> Segment:
        return self.xway, self.dir, self.seg


@dataclass
class Car:
    """What is known of a car."""

    last: Report | None = None
    same: int = 0
    """How many reports in a row came from the same place."""
    owed: int = 0
    """The toll of the segment that it is in."""
    balance: int = 0


@dataclass
class Accident:
    """Two or more cars that stand at one place."""

    segment: Segment
    found: int
    """The minute of its detection."""
    cleared: int | None = None
    """The minute in which it cleared."""


@dataclass
class Answers:
    """What is to be told, as rows."""

    tolls: list[tuple[int, int, int, int]] = field(default_factory=list)
    """vid, time, LAV, toll."""
    alerts: list[tuple[int, int, int]] = field(default_factory=list)
    """vid, time, segment of the nearest accident."""
    balances: list[tuple[int, int, int, int]] = field(default_factory=list)
    """qid, time, vid, balance."""
    expenditures: list[tuple[int, int, int, int]] = field(default_factory=list)
    """qid, time, vid, what was spent on that day."""


class Oracle:
    """Takes all messages in order and answers them."""

    def __init__(self) -> None:
        """Begin with an empty road."""
        self.answers = Answers()
        self._cars: defaultdict[int, Car] = defaultdict(Car)
        self._stopped: defaultdict[Place, dict[int, int]] = defaultdict(dict)
        """Place → the cars that are stopped there → the time of their last report."""
        self._accidents: dict[Place, Accident] = {}
        self._past: list[Accident] = []
        self._leaving: list[tuple[Place, int, int]] = []
        """Who drove on in this second: from where, which car, when."""
        self._speeds: defaultdict[tuple[int, Segment], dict[int, list[int]]] = defaultdict(dict)
        """Minute and segment → car → its speeds."""
        self._averages: dict[tuple[int, Segment], float] = {}
        self._minute = 0

    def run(self, messages: pl.DataFrame) -> Answers:
        """Answer all messages of a day."""
        rows = messages.select(road.COLUMNS).iter_rows(named=True)
        for time, group in groupby(rows, key=lambda m: m["time"]):
            second = list(group)
            self._forget_silent(time)
            self._close_minutes(time // 60)
            for message in second:
                if message["type"] == road.REPORT:
                    self._take(Report(*(message[name] for name in Report._fields)))
            for place, vid, at in self._leaving:
                self._leave(place, vid, at)
            self._leaving = []
            for message in second:
                self._answer(message)
        return self.answers

    # ── reports ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, report: Report) -> None:
        car = self._cars[report.vid]
        if car.last is not None and (car.last.lane == road.EXIT or report.time != car.last.time + road.EVERY):
            car.last, car.owed = None, 0
        self._speeds[report.time // 60, report.segment].setdefault(report.vid, []).append(report.spd)
        entered = report.lane == road.ENTRY
        crossed = entered or (car.last is not None and car.last.segment != report.segment)
        if crossed:
            if not entered:
                car.balance += car.owed
            car.owed = 0
        if report.lane == road.EXIT:
            car.owed = 0
        elif crossed:
            car.owed = self._tell(report)
        self._watch(car, report)
        car.last = report

    def _tell(self, report: Report) -> int:
        minute = report.time // 60
        lav = self._lav(minute, report.segment)
        accident = self._accident_ahead(minute, report)
        cars = len(self._speeds.get((minute - 1, report.segment), ()))
        toll = 0
        if accident is not None:
            self.answers.alerts.append((report.vid, report.time, accident))
        elif lav < road.FLOWING and cars > road.BUSY:
            toll = 2 * (cars - road.BUSY) ** 2
        self.answers.tolls.append((report.vid, report.time, lav, toll))
        return toll

    def _lav(self, minute: int, segment: Segment) -> int:
        known = [self._averages[m, segment] for m in range(minute - 5, minute) if (m, segment) in self._averages]
        return int(fsum(known) / len(known)) if known else 0

    def _close_minutes(self, minute: int) -> None:
        """Work out the averages of the minutes that are over."""
        for (m, segment), cars in self._speeds.items():
            if self._minute <= m < minute:
                means = [fsum(speeds) / len(speeds) for speeds in cars.values()]
                self._averages[m, segment] = fsum(means) / len(means)
        if minute > self._minute:
            self._minute = minute
            self._speeds = defaultdict(dict, {k: v for k, v in self._speeds.items() if k[0] >= minute - 1})
            self._averages = {k: v for k, v in self._averages.items() if k[0] >= minute - 5}

    # ── accidents ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _watch(self, car: Car, report: Report) -> None:
        if car.last is not None and car.last.place == report.place:
            car.same += 1
        else:
            if car.last is not None:
                self._leaving.append((car.last.place, report.vid, report.time))
            car.same = 1
        if car.same >= 4:
            standing = self._stopped[report.place]
            standing[report.vid] = report.time
            if len(standing) >= 2 and report.place not in self._accidents:
                self._accidents[report.place] = Accident(report.segment, report.time // 60)

    def _leave(self, place: Place, vid: int, time: int) -> None:
        standing = self._stopped.get(place)
        if standing is None:
            return
        standing.pop(vid, None)
        if not standing:
            del self._stopped[place]
        if len(standing) < 2 and place in self._accidents:
            accident = self._accidents.pop(place)
            accident.cleared = time // 60
            self._past.append(accident)

    def _forget_silent(self, time: int) -> None:
        """Take cars that have not reported for more than 30 seconds for gone: they left when they should have reported."""
        late = [
            (p, v, last) for p, cars in self._stopped.items() for v, last in cars.items() if last + road.EVERY < time
        ]
        for place, vid, last in late:
            self._leave(place, vid, last + road.EVERY)

    def _accident_ahead(self, minute: int, report: Report) -> int | None:
        step = 1 if report.dir == road.EAST else -1
        accidents = [a for a in (*self._accidents.values(), *self._past) if a.found < minute]
        active = {a.segment for a in accidents if a.cleared is None or a.cleared >= minute}
        for distance in range(road.AHEAD):
            if (report.xway, report.dir, report.seg + step * distance) in active:
                return report.seg + step * distance
        return None

    # ── questions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _answer(self, message: dict[str, int]) -> None:
        if message["type"] == road.BALANCE:
            balance = self._cars[message["vid"]].balance
            self.answers.balances.append((message["qid"], message["time"], message["vid"], balance))
        elif message["type"] == road.EXPENDITURE:
            mixed = message["vid"] * 2_654_435_761 + message["day"] * 40_503 + message["xway"] * 7_919
            self.answers.expenditures.append((message["qid"], message["time"], message["vid"], mixed // 64 % 100))
