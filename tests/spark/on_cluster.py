"""A query on a standalone cluster, driven through one change after the other: python -m tests.spark.on_cluster FOLDER MASTER [SETTING=VALUE …].

It runs in a process of its own, for there is one Spark context in a process. The last line that it prints says how it went.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

import springtide as st
from benchmarks.elastic.standalone import SETTINGS, executors_of
from springtide.testing import at, compare

SCHEMA = {"key": pl.Int64, "value": pl.Int64, "ts": st.TIME}
ROWS = 50


def frame(first: int, count: int) -> pl.DataFrame:
    """Make one row per ten seconds, from row `first` on."""
    numbers = pl.int_range(first, first + count, eager=True)
    ts = (numbers * 10_000_000 + int(at("0s").timestamp() * 1_000_000)).cast(st.TIME)
    return pl.DataFrame({"key": numbers % 29, "value": numbers, "ts": ts}, schema=SCHEMA)


class Drive:
    """The query, fed all the time, and what is done to it."""

    durability: Any = None

    def __init__(self, folder: Path, master: str, warm: int, checkpoint: str | None = None, **settings: str) -> None:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        self.spark = st.spark_session(master, **SETTINGS, **settings)
        self.application = self.spark.sparkContext.applicationId
        self.input = folder / "in"
        self.input.mkdir()
        self.files, self.fed = 0, threading.Event()
        self.feed()
        self.sink = st.parquet_sink(folder / "out")
        self.out = folder / "out"
        rows = st.source("rows", st.parquet(self.input, schema=SCHEMA, follow=True), ts="ts")
        counts = rows.aggregate(
            by="key", window=st.sliding("20m", every="5m"), n=st.count(), total=st.sum("value"), name="counts"
        )
        self.query = st.Query("cluster", counts.to(self.sink))
        self.checkpoint, self.warm = checkpoint or folder / "checkpoint", warm
        self.run = self.start(wait=300.0)
        threading.Thread(target=self._feed_on, daemon=True).start()

    def start(self, wait: float, instances: Any = 1) -> Any:
        """Start the query, or go on with it."""
        executors = st.Executors(warm=self.warm, wait=wait)
        elastic = st.Elastic(policy=st.Manual(), balancing=None, executors=executors)
        return self.query.start(
            self.spark,
            checkpoint=self.checkpoint,
            instances=instances,
            buckets=32,
            elastic=elastic,
            durability=self.durability,
        )

    def feed(self) -> None:
        """Give the query one more file."""
        frame(self.files * ROWS, ROWS).write_parquet(self.input / f"{self.files:06d}.tmp")
        os.rename(self.input / f"{self.files:06d}.tmp", self.input / f"{self.files:06d}.parquet")
        self.files += 1

    def _feed_on(self) -> None:
        while not self.fed.wait(0.2):
            self.feed()

    def instances(self) -> int:
        found: int = self.run.status()["subqueries"].get("counts", {"instances": 0})["instances"]
        return found

    def executors(self) -> int:
        return len(executors_of(self.application))

    def until(self, what: str, condition: Callable[[], bool], seconds: float = 200) -> float:
        """Wait, and say how long."""
        began = time.monotonic()
        while not condition():
            assert self.run.active, f"the query ended before {what}: {self.run.events()}"
            assert time.monotonic() < began + seconds, f"not in time: {what}; {self.run.events()}"
            time.sleep(0.05)
        print(f"{time.monotonic() - began:5.1f} s: {what}", file=sys.stderr, flush=True)
        return time.monotonic() - began

    def scale(self, instances: int) -> float:
        """Scale, and wait until an epoch has run so."""
        self.run.scale("counts", instances)
        return self.until(f"scaled to {instances}", lambda: self.instances() == instances)

    def finish(self) -> dict[str, Any]:
        """Feed no more, take everything in, and compare with the reference."""
        self.fed.set()
        rows = self.files * ROWS
        self.until("all is read", lambda: self.run.status()["sources"]["rows"]["accepted"] == rows)
        self.run.stop()
        expected = self.query.run_reference({"rows": frame(0, rows)}, bounded=False).rows()
        compare(pl.read_parquet(self.out / "*.parquet"), expected)
        self.spark.stop()
        return {"rows": rows, "results": expected.height, "epochs": self.run.status()["epoch"] + 1}


def main(folder: Path, master: str, warm: str = "0", *settings: str) -> None:
    pool = int(warm)
    drive = Drive(folder, master, pool, **dict(s.split("=") for s in settings))
    told: dict[str, Any] = {}
    drive.until("the first epochs", lambda: drive.instances() == 1)
    drive.until("executors are given back", lambda: drive.executors() == 1 + pool)
    told["out"] = drive.scale(4)
    told["executors_out"] = drive.executors()
    told["in"] = drive.scale(1)
    drive.until("executors are given back", lambda: drive.executors() == 1 + pool)

    # the only executor that works dies while others are waited for
    drive.run.scale("counts", 3)
    executors_of(drive.application)[0].send_signal(signal.SIGKILL)
    told["killed"] = drive.until("scaled in spite of it", lambda: drive.instances() == 3)
    told["notes"] = [note for _, note in drive.run.events()]

    # there are four slots, and there will not be more
    drive.run.stop()
    drive.run = drive.start(wait=4.0, instances={"counts": 2})
    epochs = drive.run.status()["epoch"]
    drive.run.scale("counts", 9)
    told["never_came"] = drive.until("no longer waited for", lambda: any("dropped" in n for _, n in drive.run.events()))
    told["epochs_meanwhile"] = drive.run.status()["epoch"] - epochs
    drive.scale(1)
    drive.until("executors are given back", lambda: drive.executors() == 1 + pool)
    told["notes_of_the_second_start"] = [note for _, note in drive.run.events()]
    told |= drive.finish()
    told["seen"] = [n for n, _ in itertools.groupby(s.executors for s in drive.run.snapshots())]
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
