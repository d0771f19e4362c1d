"""What cars do, found by user code that works on the columns of many cars at once: who crosses into a segment, who leaves, who stands, how fast they drive.

Every car reports every 30 seconds. So the cars are kept by the second of 30 in which they report: what comes in a second is compared with what came 30
seconds before, and no other state is read or written.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

import springtide as st
from benchmarks.linear_road import road

Array = npt.NDArray[Any]
Columns = dict[str, Array]
_I32 = pl.Int32()

ENTERS, CROSSES, LEAVES_FURTHER, LEAVES, STANDS, DRIVES = range(6)
"""What is told of: a car comes by the entry lane; it comes into another segment; it leaves the road in another segment than it was in; it leaves in the
same, or was not on the road before and did not enter it; it reports from the same place as in its last three reports; cars drive in a segment."""

_LENGTH = road.SEGMENTS * road.FEET
_STOPPED = 4
_KNOWN = pl.Schema(
    {"vid": _I32, "time": _I32, "place": _I32, "segment": _I32, "same": pl.Int8(), "spd": pl.Int16(), "seen": pl.Int8()}
)
"""What is known of a car: its last report (lane and position in one number; expressway, direction and segment in another), how many in a row came from
there (four are as good as more), and the sum and the number of its speeds in this minute and segment."""


class Cars(st.BucketOperator[list[pl.DataFrame]]):
    """Tells what cars do. What it says of speeds is to be added up by minute and segment: halves of miles per hour, which add up exactly."""

    output: ClassVar[Mapping[str, Any]] = {
        "ts": st.TIME,
        "what": pl.Int8(),
        "segment": _I32,
        "time": _I32,
        "vid": _I32,
        "place": _I32,
        "speed": pl.Float64(),
        "cars": _I32,
    }

    def init(self) -> list[pl.DataFrame]:
        """Begin with an empty road. The state is the one frame in the list: user code may change a list, but no frame."""
        return [pl.DataFrame(schema=_KNOWN)]

    def process(self, state: list[pl.DataFrame], tuples: pl.DataFrame, ready_ts: int) -> pl.DataFrame | None:
        """Take the reports second by second."""
        columns = {name: tuples[name].to_numpy() for name in ("time", "vid", "spd", "segment", "lane", "pos")}
        bounds = [*np.flatnonzero(np.diff(columns["time"], prepend=-1)).tolist(), tuples.height]
        known = {name: state[0][name].to_numpy() for name in _KNOWN}
        told: list[Columns] = []
        for first, stop in pairwise(bounds):
            part = {name: column[first:stop] for name, column in columns.items()}
            known, more = _second(known, part)
            told += more
        state[0] = pl.DataFrame(known, schema=_KNOWN)
        rows = {name: np.concatenate([part[name] for part in told]) for name in told[0]}
        ts = ((pl.col("time").cast(pl.Int64) + road.BEGIN) * 1_000_000).cast(st.TIME)
        return pl.DataFrame(rows).select(ts.alias("ts"), *list(self.output)[1:])

    def serialize(self, state: list[pl.DataFrame]) -> pl.DataFrame:
        """Write the frame."""
        return state[0]

    def deserialize(self, data: pl.DataFrame) -> list[pl.DataFrame]:
        """Read the frame."""
        return [data]


def _second(known: Columns, reports: Columns) -> tuple[Columns, list[Columns]]:
    """Take the reports of one second: return what is known after it, and what is to be told."""
    order = np.argsort(reports["vid"], kind="stable")
    vid, spd, segment, lane, pos = (reports[name][order] for name in ("vid", "spd", "segment", "lane", "pos"))
    time, place = int(reports["time"][0]), lane * _LENGTH + pos
    minute = time // 60
    old, here = _before(known, vid, time - road.EVERY)

    stays = here & (old["segment"] == segment)
    same_way = old["segment"] // road.SEGMENTS == segment // road.SEGMENTS
    same = np.where(here & same_way & (old["place"] == place), np.minimum(old["same"] + 1, _STOPPED), 1)
    goes_on = stays & (old["time"] // 60 == minute)
    total = np.where(goes_on, old["spd"], 0) + spd
    number = np.where(goes_on, old["seen"], 0) + 1
    before = np.where(goes_on, old["spd"] / np.maximum(old["seen"], 1), 0.0)

    entered, leaves, crossed = lane == road.ENTRY, lane == road.EXIT, here & ~stays
    does = np.where(entered, ENTERS, np.where(crossed, np.where(leaves, LEAVES_FURTHER, CROSSES), LEAVES))
    acts, stands = entered | leaves | ~stays, same == _STOPPED
    told = [
        _told(time, does[acts], segment[acts], vid[acts], place[acts]),
        _told(time, np.full(int(stands.sum()), STANDS), segment[stands], vid[stands], place[stands]),
        _driven(time, segment, total / number - before, ~goes_on),
    ]
    now = {
        "vid": vid,
        "time": np.full(vid.size, time, np.int32),
        "place": place,
        "segment": segment,
        "same": same.astype(np.int8),
        "spd": total.astype(np.int16),
        "seen": number.astype(np.int8),
    }
    return _after(known, {name: column[~leaves] for name, column in now.items()}, time), told


def _before(known: Columns, vid: Array, time: int) -> tuple[Columns, Array]:
    """Find what cars reported at a time, and who did report then."""
    if not known["vid"].size:
        return {name: np.zeros(vid.size, column.dtype) for name, column in known.items()}, np.zeros(vid.size, bool)
    place = np.minimum(np.searchsorted(known["vid"], vid), known["vid"].size - 1)
    old = {name: column[place] for name, column in known.items()}
    return old, (old["vid"] == vid) & (old["time"] == time)


def _after(known: Columns, now: Columns, time: int) -> Columns:
    """Put cars to those that are known; who has not reported for 30 seconds has left the road."""
    others = known["time"] > time - road.EVERY
    if not others.any():
        return now
    joined = {name: np.concatenate([column[others], now[name]]) for name, column in known.items()}
    order = np.argsort(joined["vid"], kind="stable")
    return {name: column[order] for name, column in joined.items()}


def _told(time: int, what: Array, segment: Array, vid: Array, place: Array) -> Columns:
    """Write down what single cars do."""
    return {
        "what": what.astype(np.int8),
        "segment": segment,
        "time": np.full(vid.size, time, np.int32),
        "vid": vid,
        "place": place,
        "speed": np.zeros(vid.size),
        "cars": np.zeros(vid.size, np.int32),
    }


def _driven(time: int, segment: Array, speed: Array, new: Array) -> Columns:
    """Write down by segment by how much the sum of the cars' average speeds has grown, and by how many cars."""
    first = int(segment.min())
    where = segment - first
    seen = np.flatnonzero(np.bincount(where))
    told = _told(
        time, np.full(seen.size, DRIVES), (seen + first).astype(np.int32), *[np.zeros(seen.size, np.int32)] * 2
    )
    speeds, cars = np.bincount(where, speed), np.bincount(where[new], minlength=int(where.max()) + 1)
    return told | {"speed": speeds[seen], "cars": cars[seen].astype(np.int32)}
