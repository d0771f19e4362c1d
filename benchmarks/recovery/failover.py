"""`failover`: the driver at work is killed under load, with its JVM; how long until the next epoch is committed, with a standby and with a cold start?

Sums by key and window, from Parquet files that keep coming to Parquet, two instances; 5 s without a sign of life is a dead run, as in StreamMine3G. Each kill is SIGKILL to the
driver and its JVM at once. With a standby: a second process has stood by for a while, with Spark started; it takes over, and another begins to stand by before the next kill.
Cold: a new process is started in the moment of the kill; it waits for nobody, and need not find out that the other is dead. Seconds are from the kill to the first commit that the killed run has
not made. In the end all rows are compared with a plain group-by.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

import springtide as st
from benchmarks.measure import ROOT, result, say, scratch, session, summary
from springtide.state.checkpoint import Checkpoint

ROWS = 2_000
"""Rows of a file."""
EVERY = 0.2
"""Seconds between two files."""
KEYS = 1_000
AFTER = "5s"
_SECONDS = 300.0


def main(kills: str = "5") -> None:
    seconds: dict[str, list[float]] = {}
    compared = 0
    for how in ("standby", "cold"):
        with scratch() as folder:
            seconds[how], rows = _kills(folder, int(kills), cold=how == "cold")
            compared += rows
        say(f"{how}: {seconds[how]}")
    found = {how: summary(s) for how, s in seconds.items()}
    result(
        "failover",
        standby_s=found["standby"]["median"],
        cold_s=found["cold"]["median"],
        wrong_rows=0,  # else the comparison would have ended this
        rows_compared=compared,
        detected_after_s=5,
        spread=found,
    )


def _kills(folder: Path, kills: int, *, cold: bool) -> tuple[list[float], int]:
    """Kill the run at work so often; return how long it took each time, and how many rows were compared."""
    (folder / "in").mkdir()
    found = []
    with _load(folder) as written:
        leads = _start(folder, 0, cold=cold)
        until(lambda: _epoch(folder) >= 0, "the first epoch")  # else the second process might be the one at work
        waits = None if cold else _stands_by(folder, 1)
        for n in range(kills):
            until(lambda: _epoch(folder) >= 0, "the first epoch")
            time.sleep(3)  # a few epochs under load
            began = time.monotonic()
            os.killpg(leads.pid, signal.SIGKILL)
            fresh = _start(folder, n + 2, cold=True) if cold else None
            leads.wait()
            before = _epoch(folder)  # it commits nothing any more, and nobody else does so soon
            until(lambda before=before: _epoch(folder) > before, "the next commit")  # type: ignore[misc]
            found.append(time.monotonic() - began)
            say(f"{found[-1]:.2f} s until the next commit")
            leads = fresh or waits  # type: ignore[assignment]
            waits = None if cold or n == kills - 1 else _stands_by(folder, n + 2)
    numbers = written()
    (folder / "end").touch()
    assert leads.wait(_SECONDS) == 0, "the last run failed"
    return found, _check(folder, numbers)


def _check(folder: Path, files: int) -> int:
    """Compare all rows with a plain group-by."""
    rows = pl.concat([_rows(n) for n in range(files)])
    right = rows.group_by("key", window=pl.col("ts").dt.truncate("10s")).agg(total=pl.col("x").sum())
    right = right.rename({"window": "window_start"}).sort("key", "window_start")
    found = pl.read_parquet(folder / "out" / "*.parquet", columns=["key", "window_start", "total"])
    assert found.sort("key", "window_start").equals(right.cast(dict(found.schema))), "other rows"
    return right.height


def _rows(file: int) -> pl.DataFrame:
    number = pl.int_range(file * ROWS, (file + 1) * ROWS, dtype=pl.Int64)
    return pl.select(key=number * 7919 % KEYS, x=number, ts=(number * 100).cast(st.TIME))


@contextmanager
def _load(folder: Path) -> Iterator[Callable[[], int]]:
    """Write files as long as the block lasts; afterwards it can be asked how many there are."""
    over, files = threading.Event(), [0]

    def write() -> None:
        while not over.wait(EVERY):
            partial = folder / f"{files[0]}.partial"
            _rows(files[0]).write_parquet(partial)
            partial.rename(folder / "in" / f"{files[0]:06d}.parquet")
            files[0] += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield lambda: files[0]
    finally:
        over.set()
        thread.join()


def until(is_so: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _SECONDS
    while not is_so():
        assert time.monotonic() < end, f"{what}: not within {_SECONDS:.0f} s"
        time.sleep(0.01)


def _epoch(folder: Path) -> int:
    epochs = Checkpoint(folder / "checkpoint").epochs() if (folder / "checkpoint" / "springtide.json").exists() else []
    return epochs[-1] if epochs else -1


def _start(folder: Path, number: int, *, cold: bool = False) -> subprocess.Popen[bytes]:
    how = "cold" if cold else "standby"
    command = [sys.executable, "-m", "benchmarks.recovery.failover", str(folder), str(number), how]
    with open(folder / f"{number}.log", "wb") as log:
        return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)


def _stands_by(folder: Path, number: int) -> subprocess.Popen[bytes]:
    """Start a process, and wait until it stands by."""
    process = _start(folder, number)
    until((folder / f"{number}-waits").exists, "a run that stands by")
    return process


# ── in a process of its own ───────────────────────────────────────────────────────────────────────────────────────────


def child(folder: Path, number: str, how: str) -> None:
    """Run the query, or stand by, until the parent says that it is enough and everything has been taken."""
    spark = session(spark_driver_memory="1g")
    waits = st.Standby(AFTER, told=lambda what: (folder / f"{number}-waits").touch())
    standby = None if how == "cold" else waits
    events = st.source("events", st.parquet(folder / "in", follow=True, schema=dict(_rows(0).schema)), ts="ts")
    totals = events.aggregate(by="key", window=st.tumbling("10s"), total=st.sum("x"), name="totals")
    query = st.Query("failover", totals.to(st.parquet_sink(folder / "out")))
    run = query.start(spark, checkpoint=folder / "checkpoint", instances=2, standby=standby)
    while not (folder / "end").exists():
        run.wait(0.1)
    files = len(list((folder / "in").glob("*.parquet")))
    last = _rows(files).head(1).with_columns(ts=pl.lit(10**15).cast(st.TIME), x=pl.lit(0, pl.Int64))
    last.write_parquet(folder / "last.partial")
    (folder / "last.partial").rename(folder / "in" / "last.parquet")  # closes all windows but its own
    while run.status()["sources"]["events"]["accepted"] < files * ROWS + 1:
        run.wait(0.1)
    run.stop()
    spark.stop()


if __name__ == "__main__":
    child(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
