"""Call records like those of a telephone company, made by a formula: the same every time, from any position on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from springtide.query.errors import QueryError, shown
from springtide.query.types import TIME, whole
from springtide.query.usage import usage

CALL_RECORD = pl.Schema(
    {
        "src": pl.String(),
        "dst": pl.String(),
        "start": TIME,
        "end": TIME,
        "district": pl.Int64(),
        "lat": pl.Float64(),
        "lon": pl.Float64(),
        "ts": TIME,
    }
)
"""The columns of a call record (StreamCloud, table II): who called whom, from when to when, where, and when this was written."""

_DISTRICTS = 64
_DRAWS = 5
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_TALKATIVE, _OTHERS = 900.0, 120.0
"""Mean seconds of a call: of every tenth caller, and of the others."""


@dataclass(frozen=True)
class CallRecords:
    """Makes call records."""

    callers: int
    per_second: float
    begin: int
    """Event time of the first record, in microseconds."""
    seed: int

    def __call__(self, stream: int, first: int, count: int) -> pl.DataFrame:
        """Make `count` records of a physical stream, from position `first` on."""
        place = np.arange(first, first + count, dtype=np.int64)
        who, whom, length, north, east = self._draws(stream, place)
        caller = (who * self.callers).astype(np.int64)
        other = (caller + 1 + (whom * (self.callers - 1)).astype(np.int64)) % self.callers
        mean = np.where(caller % 10 == 0, _TALKATIVE, _OTHERS)
        seconds = 1 + np.floor(-mean * np.log1p(-length)).astype(np.int64)
        end = self.begin + np.floor(place * (1e6 / self.per_second)).astype(np.int64)
        district = caller % _DISTRICTS
        time = pl.Series(end).cast(TIME)
        return pl.DataFrame(
            {
                "src": self._numbers.gather(caller),
                "dst": self._numbers.gather(other),
                "start": pl.Series(end - seconds * 1_000_000).cast(TIME),
                "end": time,
                "district": district,
                "lat": 40.3 + 0.03 * (district // 8) + 0.02 * north,
                "lon": -3.8 + 0.03 * (district % 8) + 0.02 * east,
                "ts": time,
            }
        )

    @cached_property
    def _numbers(self) -> pl.Series:
        """The callers' telephone numbers."""
        return (pl.int_range(self.callers, eager=True) + 600_000_000).cast(pl.String)

    def _draws(self, stream: int, place: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Draw some numbers of [0, 1) for each position: SplitMix64, which can begin anywhere."""
        start = _mixed(np.array([self.seed * 1_000_003 + stream], dtype=np.uint64))
        counter = place.astype(np.uint64) * np.uint64(_DRAWS) + np.arange(1, _DRAWS + 1, dtype=np.uint64)[:, None]
        bits = _mixed(start + counter * _GOLDEN) >> np.uint64(11)
        return bits.astype(np.float64) * np.float64(2.0**-53)


@usage("st.call_records(callers=1000)")
def call_records(
    *, callers: int = 10_000, per_second: float = 1000, begin: datetime | None = None, seed: int = 1
) -> CallRecords:
    """Make call records for `st.generate`: who called whom, from when to when, where (StreamCloud, table II).

    There are `callers` telephone numbers; every tenth caller is talkative. Each physical stream has `per_second` records in a second of
    event time, which begins at `begin`, by default on 1 May 2024.

    >>> make = st.call_records(callers=100, per_second=10)
    >>> make(0, 5, 1).select("src", "dst", "ts").row(0)
    ('600000049', '600000068', datetime.datetime(2024, 5, 1, 0, 0, 0, 500000, tzinfo=zoneinfo.ZoneInfo(key='UTC')))
    >>> calls = st.source("calls", st.generate(make, rate=1000, streams=2), ts="ts")
    """
    if not 2 <= whole("(call_records)", "callers", callers) <= 100_000_000:
        raise QueryError("(call_records)", f"callers={callers} is out of range", "give a number from 2 to 100000000")
    if isinstance(per_second, bool | str) or not per_second > 0:
        raise QueryError("(call_records)", f"per_second={shown(per_second)} is not a rate", "give a number above zero")
    moment = begin or datetime(2024, 5, 1, tzinfo=UTC)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return CallRecords(
        callers, float(per_second), round(moment.timestamp() * 1e6), whole("(call_records)", "seed", seed)
    )


def _mixed(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Finish a SplitMix64 step."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
