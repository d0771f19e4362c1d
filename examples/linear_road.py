"""What does the next mile cost? Tolls that follow the traffic: driving is free until a mile of the road is crowded and slow.

The core of the Linear Road benchmark, in which every car reports every 30 seconds where it is. A car that comes into another segment is told
its toll, which follows from the average speed there in the last five minutes and from the number of cars in the last minute that had any. The whole
benchmark, with accidents, accounts and thousands of times the traffic, is in benchmarks/linear_road.

    python examples/linear_road.py
    springtide explain examples/linear_road.py
"""

import random
from datetime import UTC, datetime, timedelta

import polars as pl

import springtide as st

BUSY, FLOWING = 8, 40
"""A segment costs something if there were more cars than that in a minute, and if they were slower than that, in miles per hour."""


def reports(cars: int, seed: int = 1) -> pl.DataFrame:
    """Make reports of cars that drive through twelve segments; road works slow them down in the sixth."""
    rng = random.Random(seed)
    rows = []
    for car in range(cars):
        second, feet = 10 * car + rng.randrange(10), 0.0
        while feet < 12 * 5280:
            segment = int(feet // 5280)
            speed = max(10, round(rng.gauss(22 if segment == 6 else 60, 4)))
            at = datetime(2024, 5, 1, 8, tzinfo=UTC) + timedelta(seconds=second)
            rows.append({"car": car, "segment": segment, "speed": speed, "at": at})
            second, feet = second + 30, feet + speed * 44
    return pl.DataFrame(sorted(rows, key=lambda row: row["at"]))


positions = st.source("positions", st.memory(reports(120).with_columns(ts="at")), ts="ts")
cars = positions.aggregate(by=["segment", "car"], window=st.tumbling("1m"), speed=st.mean("speed"), name="cars")
minutes = cars.aggregate(by="segment", window=st.tumbling("1m"), speed=st.mean("speed"), n=st.count(), name="minutes")
traffic = minutes.aggregate(
    by="segment", window=st.sliding("5m", every="1m"), speed=st.mean("speed"), cars=st.last("n"), name="traffic"
).select("segment", "speed", "cars", known=pl.col("window_end"))
moves = positions.aggregate(
    by="car",
    window=st.last_n(2, every=1),
    before=st.first("segment"),
    segment=st.last("segment"),
    at=st.last("at"),
    name="moves",
)
crossings = moves.filter(pl.col("before") != pl.col("segment"), name="crossings")
age = pl.col("at") - pl.col("known")
told = crossings.join(
    traffic,
    on="segment",
    within="1m",
    where=(age >= pl.duration(minutes=0)) & (age < pl.duration(minutes=1)),
    name="told",
)
is_crowded = (pl.col("cars") > BUSY) & (pl.col("speed") < FLOWING)
tolls = told.map(toll=pl.when(is_crowded).then(2 * (pl.col("cars") - BUSY) ** 2).otherwise(0), name="toll")
query = st.Query("linear-road", tolls.select("car", "segment", "at", "speed", "cars", "toll").to(st.memory_sink()))


if __name__ == "__main__":
    rows = pl.concat(query.start().results()).sort("ts", "car")  # on Spark, on this machine
    print(rows.drop("ts").filter(pl.col("toll") > 0).head(8))
