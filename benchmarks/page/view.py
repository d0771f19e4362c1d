"""The page: what one that is open costs a query with short epochs, and how soon it shows a checkpoint with 10,000 of them.

The cost is measured without a browser, which is mostly on somebody else's machine: a process listens to the page's events and asks for
what the overview asks for, as a browser does. The first view is measured in Chromium, from the address to the drawn overview, with a server that
has not looked at the checkpoint before; `whole_s` is when all 10,000 epochs are in its charts.
"""

import itertools
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

import springtide as st
from benchmarks.measure import result, say, scratch, session, summary
from springtide.state.history import History

EPOCHS = 150
ROWS = 100
WARM_UP = 15
ROUNDS = 3
VIEWS = 5
MANY = 10_000

LISTENER = """
import json, sys, urllib.request
address = sys.argv[1]
ask = lambda path: urllib.request.urlopen(address + path).read()
key = json.loads(ask("api/checkpoints"))["checkpoints"][0]["key"]
for line in urllib.request.urlopen(f"{address}api/c/{key}/events"):
    if line.startswith(b"data:"):
        ask(f"api/c/{key}/series?most=500")
"""


def main() -> None:
    spark = session()
    alone: list[float] = []
    seen: list[float] = []
    for _ in range(ROUNDS):  # turn about, so that a busy minute of the machine hits both
        alone += _epochs(spark, looked_at=False)
        seen += _epochs(spark, looked_at=True)
        say(f"epoch {statistics.median(alone) * 1000:.0f} ms alone, {statistics.median(seen) * 1000:.0f} ms looked at")
    spark.stop()
    first, whole = _views()
    result(
        "page",
        ratio=statistics.median(seen) / statistics.median(alone),
        first_view_s=statistics.median(first),
        alone_s=summary(alone),
        looked_at_s=summary(seen),
        first_s=summary(first),
        whole_s=summary(whole),
    )


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


def _epochs(spark: Any, *, looked_at: bool) -> list[float]:
    with scratch() as folder:
        query = _query(EPOCHS * ROWS, folder)
        run = query.start(spark, checkpoint=folder / "checkpoint", instances=2, rows_per_epoch=ROWS)
        if looked_at:
            with _page(folder / "checkpoint") as address:
                listener = subprocess.Popen([sys.executable, "-c", LISTENER, address], stderr=subprocess.DEVNULL)
                began = time.time()
                run.wait()
                listener.kill()
                listener.wait()
        else:
            began = 0.0
            run.wait()
        history = History(folder / "checkpoint").read("snapshots")
    at = [record["time"] for record in history]
    return [b - a for a, b in itertools.pairwise(at) if a > began][WARM_UP:]


@contextmanager
def _page(root: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "springtide.cli", "ui", str(root), "--port", "0", "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def _views() -> tuple[list[float], list[float]]:
    from playwright.sync_api import sync_playwright

    from springtide.runtime import inprocess
    from springtide.runtime.engine import Options

    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    first, whole = [], []
    with scratch() as folder, sync_playwright() as playwright:
        inprocess.run(_query(10 * ROWS, folder).plan(), folder / "checkpoint", Options(2, rows_per_epoch=ROWS))
        _lengthen(folder / "checkpoint")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for _ in range(VIEWS):
            with _page(folder / "checkpoint") as address:
                page = browser.new_page()
                started = time.perf_counter()
                page.goto(address)
                page.wait_for_selector("main .chart svg")
                first.append(time.perf_counter() - started)
                page.goto(page.url.replace("/overview", "/time"))
                page.get_by_text(f"{MANY:,} epochs").first.wait_for(timeout=120_000)
                whole.append(time.perf_counter() - started)
                page.close()
            say(f"first view after {first[-1]:.2f} s, all epochs after {whole[-1]:.2f} s")
        browser.close()
    return first, whole


def _lengthen(root: Path) -> None:
    """Give a checkpoint a past of many epochs: its last one again and again."""
    (last,) = History(root).read("snapshots", 1)
    shutil.rmtree(root / "history")
    (root / "history").mkdir()
    history = History(root)
    for i in range(MANY):
        history.append("snapshots", 1, last | {"time": last["time"] - (MANY - i), "epoch": i})
