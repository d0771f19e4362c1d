"""Which pairs of two streams are close to each other? A join without an equality.

The benchmark of ScaleJoin, as in the STRETCH paper: a tuple (x, y) of R and a tuple (a, b, c, d) of S make a pair when x and a
are at most 10 apart, y and b too, and both come within five minutes. No key tells where a pair would meet.

    python examples/band_join.py
    springtide explain examples/band_join.py
    springtide run examples/band_join.py
"""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl

import springtide as st

COUNT = 80
RNG = np.random.default_rng(1)
TIMES = [datetime(2024, 5, 1, tzinfo=UTC) + timedelta(seconds=5 * i) for i in range(COUNT)]


def numbers() -> np.ndarray:
    """Draw numbers from 1 to 300: about one pair in 225 is close."""
    return RNG.uniform(1, 300, COUNT)


def near(one: str, other: str) -> pl.Expr:
    """Say that two columns are at most 10 apart."""
    return (pl.col(one) - pl.col(other)).abs() <= 10


r_tuples = pl.DataFrame(
    {"x": numbers(), "y": numbers(), "ts": TIMES},
    schema={"x": pl.Int32, "y": pl.Float32, "ts": st.TIME},
    strict=False,
)
s_tuples = pl.DataFrame(
    {"a": numbers(), "b": numbers(), "c": RNG.random(COUNT), "d": RNG.random(COUNT) < 0.5, "ts": TIMES},
    schema={"a": pl.Int32, "b": pl.Float32, "c": pl.Float64, "d": pl.Boolean, "ts": st.TIME},
    strict=False,
)

r = st.source("r", st.memory(r_tuples), ts="ts")
s = st.source("s", st.memory(s_tuples), ts="ts")
pairs = r.theta_join(s, near("x", "a") & near("y", "b"), within="5m", name="band")
query = st.Query("band-join", pairs.to(st.memory_sink()))


if __name__ == "__main__":
    rows = pl.concat(query.start().results())  # on Spark, on this machine
    print(rows.sort(rows.columns).head(8))
