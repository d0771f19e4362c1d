"""The page: what one that is open costs a query with short epochs, and how soon it shows a checkpoint with 10,000 of them.

The cost is measured without a browser, which is mostly on somebody else's machine: a process listens to the page's events and asks for
what the overview asks for, as a browser does. The first view is measured in Chromium, from the address to the drawn overview, with a server that
has not looked at the checkpoint before; `whole_s` is when all 10,000 epochs are in its charts. ARGS=--small tries it out.
"""

import itertools
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

import springtide as st
from benchmarks.measure import result, say, scratch, session, summary
from springtide.state.history import History

ROWS = 100


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    epochs: int = 500
    warm_up: int = 15
    rounds: int = 3
    turn: float = 4.0
    """Seconds for which a page is open, and then for which none is."""
    settling: float = 1.0
    """Seconds at the beginning of a turn that do not count: a page begins or ends."""
    views: int = 5
    many: int = 10_000
    """Epochs of the checkpoint that is looked at."""


SMALL = Size(epochs=100, warm_up=5, rounds=1, views=1, many=1_000)
"""To see whether it runs: its figures mean nothing, and are not kept."""

LISTENER = """
import json, sys, urllib.request
address = sys.argv[1]
ask = lambda path: urllib.request.urlopen(address + path).read()
key = json.loads(ask("api/checkpoints"))["checkpoints"][0]["key"]
for line in urllib.request.urlopen(f"{address}api/c/{key}/events"):
    if line.startswith(b"data:"):
        ask(f"api/c/{key}/series?most=500")
"""


def main(*options: str) -> None:
    how = SMALL if "--small" in options else Size()
    spark = session()
    alone: list[float] = []
    seen: list[float] = []
    for _ in range(how.rounds):
        not_seen, looked_at = _epochs(spark, how)
        alone += not_seen
        seen += looked_at
        say(f"epoch {statistics.median(alone) * 1000:.0f} ms alone, {statistics.median(seen) * 1000:.0f} ms looked at")
    spark.stop()
    first, whole = _views(how)
    figures = {
        "ratio": statistics.median(seen) / statistics.median(alone),
        "first_view_s": statistics.median(first),
        "alone_s": summary(alone),
        "looked_at_s": summary(seen),
        "first_s": summary(first),
        "whole_s": summary(whole),
    }
    if how is SMALL:
        print(json.dumps(figures))
    else:
        result("page", **figures)


def _query(count: int, folder: Path) -> st.Query:
    begin = datetime(2024, 1, 1, tzinfo=UTC)
    rows = pl.DataFrame(
        {
            "key": [f"k{i % 17}" for i in range(count)],
            "x": range(count),
            "ts": [begin + timedelta(milliseconds=20 * i) for i in range(count)],
        }
    )
    events = st.source("events", st.memory(rows.cast({"ts": st.TIME})), ts="ts")
    window = st.sliding("10s", every="1s")
    totals = events.aggregate(by="key", window=window, n=st.count(), total=st.sum("x"), name="totals")
    return st.Query("page", totals.to(st.parquet_sink(folder / "out")))


def _epochs(spark: Any, how: Size) -> tuple[list[float], list[float]]:
    """Return the seconds of the epochs that nobody looked at, and of those that a page did, of one run: turn about within it."""
    with scratch() as folder:
        query = _query(how.epochs * ROWS, folder)
        run = query.start(spark, checkpoint=folder / "checkpoint", instances=2, rows_per_epoch=ROWS)
        turns: list[tuple[float, float, bool]] = []
        with _page(folder / "checkpoint") as address:
            while run.active:
                for looked_at in (False, True):
                    began = time.time()
                    listener = (
                        subprocess.Popen([sys.executable, "-c", LISTENER, address], stderr=subprocess.DEVNULL)
                        if looked_at
                        else None
                    )
                    run.wait(how.turn)
                    if listener is not None:
                        listener.kill()
                        listener.wait()
                    turns.append((began + how.settling, time.time(), looked_at))
            run.wait()
        at = [record["time"] for record in History(folder / "checkpoint").read("snapshots")]
    found: dict[bool, list[float]] = {False: [], True: []}
    for a, b in itertools.islice(itertools.pairwise(at), how.warm_up, None):
        for began, ended, looked_at in turns:
            if began <= a and b <= ended:
                found[looked_at].append(b - a)
    return found[False], found[True]


@contextmanager
def _page(root: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "springtide.cli", "ui", str(root), "--port", "0", "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def _views(how: Size) -> tuple[list[float], list[float]]:
    from playwright.sync_api import sync_playwright

    from springtide.runtime import inprocess
    from springtide.runtime.engine import Options

    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    first, whole = [], []
    with scratch() as folder, sync_playwright() as playwright:
        inprocess.run(_query(10 * ROWS, folder).plan(), folder / "checkpoint", Options(2, rows_per_epoch=ROWS))
        _lengthen(folder / "checkpoint", how.many)
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for _ in range(how.views):
            with _page(folder / "checkpoint") as address:
                page = browser.new_page()
                started = time.perf_counter()
                page.goto(address)
                page.wait_for_selector("main .chart svg")
                first.append(time.perf_counter() - started)
                page.goto(page.url.replace("/overview", "/time"))
                page.get_by_text(f"{how.many:,} epochs").first.wait_for(timeout=120_000)
                whole.append(time.perf_counter() - started)
                page.close()
            say(f"first view after {first[-1]:.2f} s, all epochs after {whole[-1]:.2f} s")
        browser.close()
    return first, whole


def _lengthen(root: Path, many: int) -> None:
    """Give a checkpoint a past of many epochs: its last one again and again."""
    (last,) = History(root).read("snapshots", 1)
    shutil.rmtree(root / "history")
    (root / "history").mkdir()
    history = History(root)
    for i in range(many):
        history.append("snapshots", 1, last | {"time": last["time"] - (many - i), "epoch": i})
