"""Traffic on one expressway, made up: the same for a seed on every machine.

Cars enter by a ramp, drive some segments and leave. The more cars there are in a segment the slower they drive, so congestion builds up by
itself as the traffic grows from 15 to 1,700 reports a second. Now and then two cars stop at the same place and stand there for
some minutes. Some cars come back after they left. A car reports every 30 seconds; the cars of one second of these 30 are a `_Turn`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import polars as pl

from benchmarks.linear_road import road

LOWEST, HIGHEST = 15, 1_700
"""Reports per second at the beginning and at the end."""
_FEET_PER_REPORT = 44
"""Feet that one mile per hour makes in 30 seconds."""
_FREE, _CROWDED, _SLOWING, _SLOWEST = 65.0, 30, 0.55, 12.0
"""Cars drive 65 mph up to 30 cars in a segment, 0.55 mph less for each one more, and never less than 12 on average."""
_TRIP = 10.0
"""Segments that a car drives, on average."""
_BETWEEN_ACCIDENTS = 600.0
_AWAY = 61
"""Seconds after which a car may come back."""
_BACK = 0.05
_ASKS_BALANCE, _ASKS_EXPENDITURE = 0.005, 0.001
"""For each report: one in a hundred comes with a question, half of them for the balance and a tenth for a past day's expenditure."""

Ints = npt.NDArray[np.int64]


@dataclass
class _Turn:
    """The cars that report in the same second of every 30, column by column."""

    vid: Ints
    dir: Ints
    pos: Ints
    lane: Ints
    spd: Ints
    leaves: Ints
    """The segment where it leaves."""
    stuck_until: Ints
    """A car in an accident stands until then; 0: it is in none."""
    stuck_at: Ints

    @staticmethod
    def empty() -> _Turn:
        """Begin without cars."""
        return _Turn(*(np.zeros(0, np.int64) for _ in fields(_Turn)))

    def columns(self) -> list[Ints]:
        """Give all columns."""
        return [getattr(self, f.name) for f in fields(_Turn)]

    def only(self, chosen: npt.NDArray[np.bool_]) -> _Turn:
        """Give the chosen cars."""
        return _Turn(*(column[chosen] for column in self.columns()))

    def with_more(self, other: _Turn) -> _Turn:
        """Give the cars of both."""
        return _Turn(*(np.concatenate(pair) for pair in zip(self.columns(), other.columns(), strict=True)))


class Expressway:
    """One expressway from the first second to the last."""

    def __init__(
        self, seed: int, *, highest: int = HIGHEST, seconds: int = road.SECONDS, ramp: int | None = None
    ) -> None:
        """Begin with an empty road; `highest` reports per second are reached at the end of `ramp`, or of `seconds`."""
        self._rng = np.random.default_rng(seed)
        self._highest, self._seconds, self._ramp = highest, seconds, seconds if ramp is None else ramp
        self._turns = [_Turn.empty() for _ in range(road.EVERY)]
        self._cars = np.zeros((2, road.SEGMENTS), np.int64)
        self._next_accident = self._rng.exponential(_BETWEEN_ACCIDENTS)
        self._gone: list[tuple[int, Ints]] = []
        self.vids = 1
        """The next new car's number: more than all there were."""
        self.qids = 1

    def minutes(self) -> Iterator[pl.DataFrame]:
        """Give the messages minute by minute, in order."""
        for start in range(0, self._seconds, 60):
            seconds = [part for t in range(start, min(start + 60, self._seconds)) for part in self._second(t)]
            table = np.concatenate(seconds) if seconds else np.zeros((0, len(road.COLUMNS)), np.int32)
            yield pl.DataFrame(table, schema=road.SCHEMA, orient="row")

    # ── one second ────────────────────────────────────────────────────────────────────────────────────────────────

    def _second(self, t: int) -> list[npt.NDArray[np.int32]]:
        here = self._moved(self._turns[t % road.EVERY], t)
        rate = LOWEST + (self._highest - LOWEST) * min(1.0, t / self._ramp)
        here = here.with_more(self._entering(max(0, round(rate) - len(here.vid)), t))
        left = here.lane == road.EXIT
        if left.any():
            self._gone.append((t, here.vid[left]))
        self._turns[t % road.EVERY] = here.only(~left)
        np.subtract.at(self._cars, (here.dir[left], here.pos[left] // road.FEET), 1)
        if t >= self._next_accident:
            self._next_accident = t + self._rng.exponential(_BETWEEN_ACCIDENTS)
            self._collide(t)
        return [self._reports(here, t), *self._questions(here, t)]

    def _moved(self, cars: _Turn, t: int) -> _Turn:
        """Let cars drive for 30 seconds, and choose how fast they go on."""
        rng, count = self._rng, len(cars.vid)
        before = cars.pos // road.FEET
        freed = (cars.stuck_until > 0) & (cars.stuck_until <= t)
        cars.stuck_until[freed] = 0
        stuck = cars.stuck_until > 0
        step = cars.spd * _FEET_PER_REPORT * np.where(cars.dir == road.EAST, 1, -1)
        cars.pos = np.where(stuck, cars.stuck_at, np.clip(cars.pos + step, 0, road.SEGMENTS * road.FEET - 1))
        now = cars.pos // road.FEET
        np.subtract.at(self._cars, (cars.dir, before), 1)
        np.add.at(self._cars, (cars.dir, now), 1)
        around = self._cars[cars.dir, now]
        usual = np.maximum(_SLOWEST, _FREE - _SLOWING * np.maximum(0, around - _CROWDED))
        cars.spd = np.where(stuck, 0, np.clip(rng.normal(usual, 5.0), 1, 100).astype(np.int64))
        change = (cars.lane == road.ENTRY) | (rng.random(count) < 0.1)
        cars.lane = np.where(change & ~stuck, rng.integers(1, 4, count), cars.lane)
        passed = np.where(cars.dir == road.EAST, now >= cars.leaves, now <= cars.leaves)
        cars.lane = np.where(passed & ~stuck, road.EXIT, cars.lane)
        return cars

    def _entering(self, count: int, t: int) -> _Turn:
        rng = self._rng
        direction = rng.integers(0, 2, count)
        trip = np.minimum(2 + rng.exponential(_TRIP, count).astype(np.int64), road.SEGMENTS - 1)
        start = rng.integers(0, road.SEGMENTS - trip)  # counted in the direction of travel
        enters = np.where(direction == road.EAST, start, road.SEGMENTS - 1 - start)
        leaves = np.where(direction == road.EAST, start + trip, road.SEGMENTS - 1 - start - trip)
        pos = enters * road.FEET + rng.integers(0, road.FEET, count)
        np.add.at(self._cars, (direction, enters), 1)
        return _Turn(
            vid=self._numbers(count, t),
            dir=direction,
            pos=pos,
            lane=np.zeros(count, np.int64),
            spd=np.clip(rng.normal(40, 8, count), 10, 70).astype(np.int64),
            leaves=leaves,
            stuck_until=np.zeros(count, np.int64),
            stuck_at=np.zeros(count, np.int64),
        )

    def _numbers(self, count: int, t: int) -> Ints:
        """Give the cars that enter their numbers: new ones, and some of cars that left a while ago."""
        back = np.zeros(0, np.int64)
        if self._gone and self._gone[0][0] + _AWAY < t:
            gone = self._gone.pop(0)[1]
            back = gone[self._rng.random(len(gone)) < _BACK][:count]
        new = np.arange(self.vids, self.vids + count - len(back))
        self.vids += len(new)
        return np.concatenate([back, new])

    def _collide(self, t: int) -> None:
        """Let a car of the next second and one behind it, of the second after that, stop at the same place for some minutes."""
        rng, one, other = self._rng, self._turns[(t + 1) % road.EVERY], self._turns[(t + 2) % road.EVERY]
        until = t + int(rng.integers(150, 900))
        for first in rng.permutation(np.flatnonzero((one.lane >= 1) & (one.stuck_until == 0)))[:50]:
            ahead = 1 if one.dir[first] == road.EAST else -1
            place = one.pos[first] + one.spd[first] * _FEET_PER_REPORT * ahead
            reach = (place - other.pos) * ahead
            near = (other.dir == one.dir[first]) & (reach > 0) & (reach < 100 * _FEET_PER_REPORT) & (other.lane >= 1)
            place_ok = 0 <= place < road.SEGMENTS * road.FEET
            gone = (one.leaves[first] - place // road.FEET) * ahead <= 1
            if place_ok and not gone and (near & (other.stuck_until == 0)).any():
                second = int(np.flatnonzero(near & (other.stuck_until == 0))[0])
                for turn, car in ((one, first), (other, second)):
                    turn.stuck_until[car], turn.stuck_at[car], turn.lane[car] = until, place, one.lane[first]
                return

    # ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _reports(self, cars: _Turn, t: int) -> npt.NDArray[np.int32]:
        rows = self._rows(len(cars.vid), road.REPORT, t)
        given = {
            "vid": cars.vid,
            "spd": cars.spd,
            "xway": np.zeros(len(cars.vid), np.int64),
            "lane": cars.lane,
            "dir": cars.dir,
            "seg": cars.pos // road.FEET,
            "pos": cars.pos,
        }
        for name, values in given.items():
            rows[:, road.COLUMNS.index(name)] = values
        return rows

    def _questions(self, cars: _Turn, t: int) -> list[npt.NDArray[np.int32]]:
        dice = self._rng.random(len(cars.vid))
        balance = cars.vid[dice < _ASKS_BALANCE]
        past = cars.vid[(dice >= _ASKS_BALANCE) & (dice < _ASKS_BALANCE + _ASKS_EXPENDITURE)]
        parts = []
        for kind, vids in ((road.BALANCE, balance), (road.EXPENDITURE, past)):
            rows = self._rows(len(vids), kind, t)
            rows[:, road.COLUMNS.index("vid")] = vids
            rows[:, road.COLUMNS.index("qid")] = np.arange(self.qids, self.qids + len(vids))
            self.qids += len(vids)
            if kind == road.EXPENDITURE:
                rows[:, road.COLUMNS.index("xway")] = 0
                rows[:, road.COLUMNS.index("day")] = self._rng.integers(1, road.DAYS + 1, len(vids))
            parts.append(rows)
        return parts

    @staticmethod
    def _rows(count: int, kind: int, t: int) -> npt.NDArray[np.int32]:
        rows = np.full((count, len(road.COLUMNS)), road.ABSENT, np.int32)
        rows[:, 0], rows[:, 1] = kind, t
        return rows
