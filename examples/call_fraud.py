"""Which phones were copied? Two calls of one number, from places farther apart than anybody can travel in between.

The join of the StreamCloud paper: call records meet those of the same caller within five minutes, and the distance on the earth's surface (the
orthodromic distance) is computed between the places that they were made from.

    python examples/call_fraud.py
    springtide explain examples/call_fraud.py
    springtide run examples/call_fraud.py
"""

import random
from datetime import UTC, datetime, timedelta

import polars as pl

import springtide as st

CITIES = {"Madrid": (40.42, -3.70), "Bilbao": (43.26, -2.93), "Sevilla": (37.39, -5.99), "Barcelona": (41.39, 2.17)}
COPIED = {7: "Barcelona", 42: "Sevilla"}
"""Callers with a second phone of the same number, and where it is."""

FASTEST = 900
"""km/h: by plane."""


def records(count: int, seed: int = 1) -> pl.DataFrame:
    """Make call records, one every three seconds, of callers who stay near their city."""
    rng = random.Random(seed)
    rows = []
    for i in range(count):
        caller = min(int(rng.expovariate(0.03)), 99)
        city = list(CITIES)[caller % 3]
        if caller in COPIED and rng.random() < 0.4:
            city = COPIED[caller]
        lat, lon = CITIES[city]
        start = datetime(2024, 5, 1, tzinfo=UTC) + timedelta(seconds=3 * i)
        rows.append(
            {
                "src": f"34-{caller:03}",
                "dst": f"34-{rng.randrange(100):03}",
                "start": start,
                "lat": lat + rng.gauss(0, 0.01),
                "lon": lon + rng.gauss(0, 0.01),
                "ts": start + timedelta(milliseconds=rng.randrange(900)),  # when this record was written
            }
        )
    return pl.DataFrame(rows)


def distance() -> pl.Expr:
    """Give the kilometres between the places of both calls (haversine formula)."""
    lat, lon, other_lat, other_lon = (pl.col(c).radians() for c in ("lat", "lon", "lat_right", "lon_right"))
    square = ((other_lat - lat) / 2).sin() ** 2 + lat.cos() * other_lat.cos() * ((other_lon - lon) / 2).sin() ** 2
    return 2 * 6371 * square.sqrt().arcsin()


calls = st.source("calls", st.memory(records(900)), ts="ts")
hours = (pl.col("start_right") - pl.col("start")).dt.total_seconds() / 3600
pairs = calls.join(
    calls,
    on="src",
    within="5m",
    where=(pl.col("start") < pl.col("start_right")) & (distance() > FASTEST * hours + 10),
    name="pairs",
)
copied = pairs.map(km=distance().round(1), minutes=(hours * 60).round(1), name="distance")
query = st.Query("call-fraud", copied.select("src", "start", "start_right", "km", "minutes").to(st.memory_sink()))


if __name__ == "__main__":
    rows = pl.concat(query.start().results()).sort("ts", "src")  # on Spark, on this machine
    print(rows.drop("ts").head(8))
