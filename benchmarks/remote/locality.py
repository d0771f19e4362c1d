"""`locality`: the share of state bytes that tasks read from their own node's cache, in steady state; four nodes that share nothing but an S3-compatible server.

Windows of an hour that close every minute: in each epoch all state is read. Steady: after the window is full, with nothing that changes. What a node wrote itself counts as read from its cache.
"""

import time

import polars as pl

import springtide as st
from benchmarks.measure import result, say, scratch, summary
from benchmarks.remote.nodes import nodes
from benchmarks.remote.server import server

PER_SECOND = 100
PANE = 60 * PER_SECOND
FULL = 60


def main(epochs: str = "60", callers: str = "18000") -> None:
    make = st.call_records(callers=int(callers), per_second=PER_SECOND)
    total = (FULL + int(epochs)) * PANE
    with scratch() as folder, server(folder) as s3, nodes(folder, 4) as spark:
        calls = st.source("calls", st.generate(make, rate=None, total=total), ts="ts")
        windows = calls.map(duration=pl.col("end") - pl.col("start")).aggregate(
            by="src", window=st.sliding("1h", every="1m"), n=st.count(), avg=st.mean("duration"), name="windows"
        )
        query = st.Query("locality", windows.to(st.parquet_sink(folder / "out")))
        run = query.start(
            spark,
            checkpoint=s3.at("checkpoint"),
            instances={"calls": 2, "windows": 4},
            rows_per_epoch=PANE,
            durability="5s",
        )
        while run.active and run.status()["epoch"] < FULL:
            time.sleep(0.1)
        say("the window is full")
        run.wait()
        steady = [s for s in run.snapshots() if s.epoch >= FULL and s.traffic is not None][:-1]
        name = s3.name
    read, fetched = (sum(getattr(s.traffic, what) for s in steady) for what in ("read", "fetched"))
    result(
        "locality",
        share=1 - fetched / read,
        read_bytes=read,
        fetched_bytes=fetched,
        epochs=len(steady),
        requests=summary([float(s.traffic.requests) for s in steady if s.traffic]),
        epoch_s=summary([s.seconds for s in steady]),
        server=name,
    )
