"""Who talks for more than ten minutes per call, on average over the last hour?

The first query of the StreamCloud paper: call records come in, a map computes each call's duration, an aggregate takes the
hourly mean per caller, every minute, and a filter keeps the heavy ones.

    python examples/heavy_callers.py
    springtide explain examples/heavy_callers.py
    springtide run examples/heavy_callers.py
"""

import random
from datetime import UTC, datetime, timedelta

import polars as pl

import springtide as st

CDR = {
    "src": pl.String,  # who calls
    "dst": pl.String,  # who is called
    "start": st.TIME,
    "end": st.TIME,
    "district": pl.Int64,  # where the caller is
    "lat": pl.Float64,
    "lon": pl.Float64,
    "ts": st.TIME,  # when this record was written
}


def records(count: int, seed: int = 1) -> pl.DataFrame:
    """Make call records, one per second; a few callers are talkative."""
    rng = random.Random(seed)
    rows = []
    for second in range(count):
        caller = min(int(rng.expovariate(0.1)), 99)
        end = datetime(2024, 5, 1, tzinfo=UTC) + timedelta(seconds=second)
        mean = 900 if caller % 10 == 0 else 120
        rows.append(
            {
                "src": f"34-{caller:03}",
                "dst": f"34-{rng.randrange(100):03}",
                "start": end - timedelta(seconds=int(rng.expovariate(1 / mean))),
                "end": end,
                "district": caller % 7,
                "lat": 40.4 + rng.gauss(0, 0.1),
                "lon": -3.7 + rng.gauss(0, 0.1),
                "ts": end,
            }
        )
    return pl.DataFrame(rows, schema=CDR)


calls = st.source("calls", st.memory(records(3_000)), ts="ts")
duration = (pl.col("end") - pl.col("start")).dt.total_seconds()
heavy = (
    calls.map(duration=duration, name="duration")
    .aggregate(
        by="src",
        window=st.sliding("1h", every="1m"),
        avg=st.mean("duration"),
        calls=st.count(),
        name="heavy",
    )
    .filter(pl.col("avg") > 600)
)
query = st.Query("heavy-callers", heavy.to(st.memory_sink()))


if __name__ == "__main__":
    rows = pl.concat(query.start().results()).sort("ts", "src")  # on Spark, on this machine
    print(rows.select("window_end", "src", "avg", "calls").tail(8))
