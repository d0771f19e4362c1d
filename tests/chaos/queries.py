"""The queries that the chaos runner torments, over files that come while they run.

What they give depends on every value of every row, and that of the operator on the order too: nothing can be lost, doubled or mixed up unseen.
No pytest here: the driver is to start fast.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

import springtide as st

SCHEMA = {"key": pl.Int64, "x": pl.Int64, "ts": st.TIME}
INPUTS = ("left", "right")
ROWS = 10
"""Of a file."""
_SECOND = 1_000_000


def rows(which: str, first: int, count: int) -> pl.DataFrame:
    """Make rows of an input: one a second, some of them two seconds late within what is allowed, keys of which some are hot."""
    i = pl.int_range(first, first + count, eager=True)
    seconds = i - pl.select(pl.when(i % 5 == 3).then(2).otherwise(0)).to_series()
    side = INPUTS.index(which)
    key = (i * i + 3 * side) % 17
    ts = (seconds * _SECOND + side * 300_000).cast(st.TIME)
    return pl.DataFrame({"key": key, "x": (i * 7919 + side) % 1009, "ts": ts}, schema=SCHEMA)


def feed(folder: Path, which: str, number: int) -> None:
    """Give an input its next file."""
    target = folder / which / f"{number:06d}.parquet"
    target.parent.mkdir(parents=True, exist_ok=True)
    hidden = target.with_name(f".{target.name}")
    rows(which, number * ROWS, ROWS).write_parquet(hidden)
    os.rename(hidden, target)


class Digest(st.KeyOperator):
    """A number for each key that every row changes, in order; keys that are quiet for a while are forgotten."""

    state: ClassVar = {"digest": pl.Int64, "due": pl.Int64}
    output: ClassVar = {"key": pl.Int64, "digest": pl.Int64, "ts": st.TIME}
    timer = "due"

    def init(self, key: Any) -> Any:
        return {"digest": 0, "due": None}

    def process(self, key: Any, state: Any, tuples: pl.DataFrame, ready_ts: int) -> Any:
        made = []
        for x, ts in tuples.select("x", "ts").iter_rows():
            state["digest"] = (31 * state["digest"] + x) % (1 << 31)
            made.append({"key": key[0], "digest": state["digest"], "ts": ts})
        state["due"] = int(tuples["ts"].to_physical()[-1]) + 20 * _SECOND
        return made

    def on_time(self, key: Any, state: Any, ready_ts: int) -> Any:
        state["due"] = None
        return []

    def keep(self, key: Any, state: Any) -> bool:
        return state["due"] is not None


def query(name: str, folder: Path) -> st.Query:
    """Make one of the queries."""
    sources = {
        which: st.source(which, st.parquet(folder / which, schema=SCHEMA, follow=True), ts="ts", max_disorder="2s")
        for which in INPUTS
    }
    left, right = sources.values()
    if name == "aggregate":
        sums = st.union(left, right).aggregate(
            by="key", window=st.sliding("30s", every="10s"), total=st.sum("x"), all=st.count(), name="main"
        )
        last = sums.aggregate(window=st.tumbling("20s"), n=st.count(), total=st.sum("total"), name="behind")
        given = {"sums": sums, "counts": last}
    elif name == "join":
        given = {"pairs": left.join(right, on="key", within="12s", name="main")}
    else:
        given = {"digests": st.union(left, right).operator(Digest(), keys="key", name="main")}
    return st.Query(name, *(s.to(st.parquet_sink(folder / sink), name=sink) for sink, s in given.items()))


NAMES = ("aggregate", "join", "operator")
