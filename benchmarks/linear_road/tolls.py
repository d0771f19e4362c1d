"""The toll calculator: what a car is told that comes into a segment, from what is known of the minutes before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import polars as pl

import springtide as st
from benchmarks.linear_road import road
from benchmarks.linear_road.cars import CROSSES, DRIVES, ENTERS, STANDS
from benchmarks.linear_road.segments import MINUTE, Accidents, Statistics

_I32 = pl.Int32()


@dataclass
class Known:
    """What is known of the segments of some expressways."""

    statistics: Statistics = field(default_factory=Statistics)
    accidents: Accidents = field(default_factory=Accidents)


class Tolls(st.BucketOperator[Known]):
    """Tells every car that comes into a segment what it will owe when it leaves it, and of an accident ahead."""

    output: ClassVar[Mapping[str, Any]] = {
        "ts": st.TIME,
        "vid": _I32,
        "time": _I32,
        "does": pl.Int8(),
        "lav": _I32,
        "toll": _I32,
        "accident": _I32,
    }

    def init(self) -> Known:
        """Begin with an empty road."""
        return Known()

    def process(self, state: Known, tuples: pl.DataFrame, ready_ts: int) -> pl.DataFrame | None:
        """Take the news minute by minute: what is told in one does not depend on anything else in it."""
        told = []
        for (minute,), news in tuples.group_by(pl.col("time") // MINUTE, maintain_order=True):
            assert isinstance(minute, int)
            state.statistics.turn_to(minute)
            crossing = news.filter(pl.col("what").is_in([ENTERS, CROSSES]))
            if crossing.height:
                told.append(_answers(state, crossing, minute))
            driven = news.filter(pl.col("what") == DRIVES)
            state.statistics.add(*(driven[name].to_numpy() for name in ("segment", "speed", "cars")))
            standing = news.filter(pl.col("what") == STANDS)
            for segment, place, vid, time in standing.select("segment", "place", "vid", "time").iter_rows():
                state.accidents.stand(segment, place, vid, time)
        return pl.concat(told) if told else None

    def serialize(self, state: Known) -> pl.DataFrame:
        """Write it as JSON: it is little."""
        return super().serialize([state.statistics.written(), state.accidents.written()])  # type: ignore[arg-type]

    def deserialize(self, data: pl.DataFrame) -> Known:
        """Read what `serialize` wrote."""
        statistics, accidents = super().deserialize(data)  # type: ignore[misc]
        return Known(Statistics.read(statistics), Accidents.read(accidents))


def _answers(known: Known, crossing: pl.DataFrame, minute: int) -> pl.DataFrame:
    segment = crossing["segment"].to_numpy()
    lav, cars = known.statistics.of_before(segment)
    facts = pl.DataFrame({"lav": lav, "cars": cars, "accident": known.accidents.ahead(segment, minute)})
    over, accident = pl.col("cars") - road.BUSY, pl.col("accident")
    owes = (accident < 0) & (pl.col("lav") < road.FLOWING) & (over > 0)
    return crossing.select("ts", "vid", "time", does="what").hstack(
        facts.select(
            pl.col("lav").cast(_I32),
            pl.when(owes).then(2 * over * over).otherwise(0).cast(_I32).alias("toll"),
            pl.when(accident >= 0).then(accident).cast(_I32).alias("accident"),
        )
    )
