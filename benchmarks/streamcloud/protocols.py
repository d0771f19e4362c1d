"""State recreation against window recreation for growing windows and more of them (StreamCloud, figure 19; SC-9, SC-14).

The query of heavy callers, mean duration by caller over windows of 1, 5 and 10 s that begin twice as often, with calls that come in real time. Every caller has a call in every half of a window,
so twice as many windows are open as there are callers; half of the buckets, or one in sixteen, change owners. Each run goes from 1 to 2 instances and from 15 to 16, with each protocol.

    state     the new owner copies the state of its buckets: the completion time is from the command to the end of the epoch that did so; the bytes are those of the buckets' state
    window    the old owner finishes the windows that have begun: from the command until the last of them is closed; nothing is moved
    virtual   what Springtide does unless told: the new owner reads the state where it is, so nothing is moved either

Two cores run all instances. All windows of every run are compared with those of plain Polars.
"""

import argparse
import statistics
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import springtide as st
from benchmarks.elastic.reconfigure import different, epochs_more
from benchmarks.measure import result, say, scratch, session, summary
from benchmarks.pictures import picture
from springtide.charts import COLOURS
from springtide.elastic.protocols import Protocol

PROTOCOLS: tuple[Protocol, ...] = ("virtual", "state", "window")
CHANGES = ((1, 2), (15, 16))
SIZES, CALLERS, RATE = (1, 5, 10), (1_000, 10_000, 100_000), 20_000
AT_LEAST = 0.5
"""Seconds between a change and the next one."""
LONG = 60.0
"""Seconds after which a change, or the epochs after it, are not waited for."""
BEGIN = 1_700_000_000_000_000


def main(*args: str) -> None:
    parser = argparse.ArgumentParser(prog="protocols")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="seconds of a window")
    parser.add_argument("--callers", type=int, nargs="+", default=CALLERS)
    given = parser.parse_args(args)
    spark = session()
    found: list[dict[str, Any]] = []
    wrong = compared = 0
    with scratch() as folder:
        _run(spark, folder / "warm-up", 1, 1_000)
        for callers in given.callers:
            for size in given.sizes:
                place = folder / f"{callers}-{size}"
                changes, rate = _run(spark, place, size, callers)
                found += [change | {"callers": callers, "size_s": size} for change in changes]
                more, rows = _wrong(place / "out", size, rate, callers)
                wrong += more
                compared += rows
                said = ", ".join(f"{c['change']} {c['protocol']} {c['seconds'] * 1000:.0f} ms" for c in changes)
                say(f"{callers:,} callers, {size} s: {said}; {more} rows wrong of {rows:,}")
    largest = max(given.callers)
    by = {
        protocol: {str(s): _median(found, protocol, size_s=s, callers=largest) for s in given.sizes}
        for protocol in PROTOCOLS
    }
    result(
        "protocols",
        callers=largest,
        completion_s=by,
        wrong_rows=wrong,
        rows_compared=compared,
        by_protocol_s={p: summary([c["seconds"] for c in found if c["protocol"] == p]) for p in PROTOCOLS},
        bytes_moved={
            protocol: {
                str(n): max(c["bytes"] for c in found if c["protocol"] == protocol and c["callers"] == n)
                for n in given.callers
            }
            for protocol in PROTOCOLS
        },
        changes=found,
    )


def rows(callers: int, rate: int, stream: int, first: int, count: int) -> pl.DataFrame:
    """Make calls; callers take turns, so that each has one in every window."""
    number = np.arange(first, first + count, dtype=np.int64)
    ts = BEGIN + number * 1_000_000 // rate
    return pl.DataFrame(
        {"src": number % callers, "duration": number * 7_919 % 600_000, "ts": pl.Series(ts).cast(st.TIME)}
    )


def _run(spark: Any, folder: Path, size: int, callers: int) -> tuple[list[dict[str, Any]], int]:
    """Run the query in real time, and change its instances with one protocol after the other; say how each went."""
    rate = max(RATE, 2 * callers // size)  # every caller has a call in every half of a window
    calls = st.source("calls", st.generate(partial(rows, callers, rate), rate=rate), ts="ts")
    windows = calls.aggregate(
        by="src",
        window=st.sliding(f"{size}s", every=f"{size * 500}ms"),
        n=st.count(),
        mean=st.mean("duration"),
        name="windows",
    )
    query = st.Query("protocols", windows.to(st.parquet_sink(folder / "out")))
    run = query.start(
        spark, checkpoint=folder / "checkpoint", instances={"calls": 2, "windows": 1}, trigger="100 milliseconds"
    )
    epochs_more(run, 3)
    time.sleep(max(callers / rate, size / 2))
    found = []
    for before, after in CHANGES:
        for protocol in PROTOCOLS:
            if len(run.last_snapshot.subqueries["windows"].busy) != before:
                run.scale("windows", before)
                epochs_more(run, 4, LONG)
            time.sleep(AT_LEAST)
            found.append(_change(run, before, after, protocol))
            epochs_more(run, 2, LONG)
    run.stop()
    return found, rate


def _change(run: Any, before: int, after: int, protocol: Protocol) -> dict[str, Any]:
    asked = time.time()
    run.scale("windows", after, protocol=protocol)
    while run.last_snapshot.subqueries["windows"].instances != after:
        if not run.active:
            run.wait()  # raises what went wrong
            raise RuntimeError(f"the run ended before it went from {before} to {after} instances")
        if time.time() > asked + LONG:
            there = run.last_snapshot.subqueries["windows"].instances
            raise TimeoutError(f"{before} → {after} by {protocol}: still {there} instances after {LONG:.0f} s")
        time.sleep(0.002)
    done, over = time.time(), list[float]()
    recreated = run.decisions(1)[-1].protocol == "window"
    while recreated and run.active and not over:
        if time.time() > asked + LONG:
            raise TimeoutError(f"{before} → {after} by {protocol}: old windows are still open after {LONG:.0f} s")
        over = _done_since(asked, run)
        time.sleep(0.002)
    done = over[0] if over else done
    epochs_more(run, 1, LONG)  # the decision's outcome is written down
    last = run.decisions(1)[-1]
    moved = last.outcome.bytes_moved if protocol == "state" and last.outcome else 0
    return {
        "change": f"{before} → {after}",
        "protocol": protocol,
        "as_carried_out": last.protocol,
        "seconds": round(done - asked, 4),
        "bytes": moved,
    }


def _done_since(asked: float, run: Any) -> list[float]:
    """Say when old owners have finished their windows since then."""
    return [at for at, text in run.events() if at > asked and "window recreation is done" in text]


def _wrong(folder: Path, size: int, rate: int, callers: int) -> tuple[int, int]:
    """Count the rows that plain Polars does not have, or has besides, up to the last window that was closed."""
    given = pl.read_parquet(folder / "*.parquet").select("src", "window_start", "n", "mean")
    last = given["window_start"].max()
    assert last is not None
    number = int(np.ceil((last.timestamp() + size - BEGIN / 1e6) * rate)) + 1  # type: ignore[union-attr]
    calls = rows(callers, rate, 0, 0, number)
    pane = pl.col("ts").dt.truncate(f"{size * 500}ms")
    starts = [calls.lazy().with_columns(window_start=pane - pl.duration(milliseconds=ms)) for ms in (0, size * 500)]
    wanted = (
        pl.concat(starts).group_by("src", "window_start").agg(n=pl.len().cast(pl.Int64), mean=pl.col("duration").mean())
    )
    expected = wanted.filter(pl.col("window_start") <= last).collect().select("src", "window_start", "n", "mean")
    rounded = pl.col("mean").round(6)
    return different(given.with_columns(rounded), expected.with_columns(rounded)), expected.height


def _median(found: list[dict[str, Any]], protocol: str, **like: Any) -> float:
    fits = [c["seconds"] for c in found if c["protocol"] == protocol and all(c[k] == v for k, v in like.items())]
    return round(statistics.median(fits), 4)


def draw(figures: Mapping[str, Any]) -> None:
    """Draw how long changes took, and what was copied."""
    found = figures["changes"]
    sizes, callers = (sorted({change[name] for change in found}) for name in ("size_s", "callers"))
    title = "completion of a change of owners: state recreation, window recreation, and neither"
    with picture("protocols", (1.4, 1), title=title) as (seconds, moved):
        for i, protocol in enumerate(PROTOCOLS):
            for size in sizes:
                medians = [_median(found, protocol, size_s=size, callers=n) for n in callers]
                label = protocol if size == sizes[0] else None
                seconds.plot(
                    callers, medians, color=COLOURS[i], marker="o", alpha=0.4 + 0.6 * size / max(sizes), label=label
                )
                if protocol == "window":
                    seconds.annotate(
                        f"{size} s", (callers[-1], medians[-1]), fontsize=7, xytext=(4, 0), textcoords="offset points"
                    )
            most = [max(c["bytes"] for c in found if c["protocol"] == protocol and c["callers"] == n) for n in callers]
            moved.plot(callers, [b / 1e6 for b in most], color=COLOURS[i], marker="o")
        seconds.set(ylabel="seconds", xscale="log", yscale="log")
        moved.set(ylabel="megabytes copied", xlabel="callers, each with two open windows")
