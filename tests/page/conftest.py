"""A server, a browser and queries for the page. The browser is the machine's Chromium; where there is none, its tests are skipped."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

import springtide as st
from springtide.runtime import inprocess
from springtide.runtime.engine import Options
from springtide.state.stores import Store
from springtide.ui.app import application
from springtide.ui.gallery import Gallery
from springtide.ui.guard import Rules
from springtide.ui.serve import ServeOptions, rules_of

PICTURES = Path(__file__).parents[2] / "build" / "page"
"""Where the tests leave a picture of each view."""
PATIENCE = 180_000
"""Milliseconds that a test waits for what must come; no test is faster or slower for it."""
BEGIN = datetime(2024, 5, 1, tzinfo=UTC)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The machine's Chromium."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("there is no Chromium here to look at the page with: `make test` installs Debian's where it may")
    with sync_playwright() as playwright:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        found = playwright.chromium.launch(executable_path=program, args=options)
        yield found
        found.close()


Look = Callable[..., Page]


@pytest.fixture
def look(browser: Browser) -> Iterator[Look]:
    """`look(address)` opens a page as a person of their own; what goes wrong in it fails the test."""
    wrong: list[str] = []
    contexts: list[BrowserContext] = []

    def opened(address: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(f"a script asks: {dialog.message}"))
        page.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)
        page.on("request", lambda asked: wrong.append(f"asks {asked.url}") if "127.0.0.1" not in asked.url else None)
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """`serve(folder)` shows a checkpoint, or a folder of them, on a free port; give its address."""
    with ExitStack() as stack:
        yield lambda where, rules=None: stack.enter_context(serving(where, rules))


@contextmanager
def serving(where: Path, rules: Rules | None = None) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    app = application(Gallery(where), rules or rules_of(ServeOptions()), lambda: server.should_exit)
    server = uvicorn.Server(
        uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1, ws="none")
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


# ── queries ───────────────────────────────────────────────────────────────────────────────────────────────────────


def numbers(count: int, name: str = "numbers", step: str = "sums", key: str = "k") -> st.Query:
    """Numbers of sixteen keys, every fifth of one of them, a few late and a few without a time; sums per minute, and the largest of them."""
    rows: list[dict[str, Any]] = []
    for i in range(count):
        which = f"{key}0" if i % 5 == 0 else f"{key}{i % 16}"
        late, bad = i % 50 == 40, i % 100 == 73
        rows.append({"k": which, "n": i, "ts": None if bad else BEGIN + timedelta(seconds=i - 60 * late)})
    frame = pl.DataFrame(rows, schema={"k": pl.String, "n": pl.Int64, "ts": st.TIME})
    x = st.source("x", st.memory(frame), ts="ts")
    sums = x.filter(pl.col("n") >= 0, name="whole").aggregate(
        by="k", window=st.tumbling("1m"), total=st.sum("n"), name=step
    )
    most = sums.aggregate(window=st.tumbling("5m"), most=st.max("total"), name="most")
    return st.Query(name, most.to(st.memory_sink(), name="out"))


@pytest.fixture(scope="session")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a query that has ended, whose instances and buckets were changed on the way."""
    root = tmp_path_factory.mktemp("ended") / "ckpt"
    changes: dict[int, Callable[[inprocess.Engine], None]] = {
        3: lambda engine: engine.scale("sums", 4),
        6: lambda engine: engine.move("sums", _two_of_others(engine, "sums", 3), 3),
        12: lambda engine: engine.note("something happened"),
    }

    def between(engine: inprocess.Engine) -> bool:
        change = changes.get(engine.manifest.epoch)
        if change is not None:
            change(engine)
        return True

    inprocess.run(numbers(2000).plan(), root, Options({"sums": 2, "most": 2}, rows_per_epoch=100), between=between)
    return root


def _two_of_others(engine: inprocess.Engine, step: str, instance: int) -> list[int]:
    """Two buckets that are not this instance's; which those are follows from measured loads."""
    owners = engine.maps[step].owners
    return [bucket for bucket, owner in enumerate(owners) if owner != instance][:2]


_BRISK = 300
"""So many epochs of a query at work are short."""


class AtWork:
    """A query at work in another thread, until it is told to go on to its end, or to stop.

    It must not end while somebody looks, however long that takes: after some epochs it goes slowly, and not at all beyond `last`.
    """

    def __init__(self, root: Path | str, query: st.Query, options: Options, last: int | None = None) -> None:
        self.root, self._last = root, last
        self.hurry, self.over = threading.Event(), threading.Event()
        self._thread = threading.Thread(
            target=inprocess.run, args=(query.plan(), root, options), kwargs={"between": self._between}
        )
        self._thread.start()

    def _between(self, engine: inprocess.Engine) -> bool:
        epoch = engine.manifest.epoch
        if not self.hurry.is_set():
            self.over.wait(0.05 if epoch < _BRISK else 2.0)
        while epoch == self._last and not self.hurry.is_set() and not self.over.is_set():
            self.over.wait(0.05)
        return not engine.take_commands() and not self.over.is_set()

    def wait(self) -> None:
        self._thread.join()

    def begun(self) -> AtWork:
        while not Store.at(self.root).list("history"):
            assert self._thread.is_alive(), "the query has ended before its first epoch was measured"
            time.sleep(0.01)
        return self


@pytest.fixture
def at_work(tmp_path: Path) -> Iterator[Callable[..., AtWork]]:
    """`at_work()` starts a query that has much to do, a few rows at a time."""
    started: list[AtWork] = []

    def start(
        name: str = "ckpt",
        query: st.Query | None = None,
        elastic: bool = True,
        where: str | None = None,
        last: int | None = None,
    ) -> AtWork:
        settings = st.Elastic(policy=st.Manual(), balancing=None, max=8) if elastic else None
        options = Options(2, rows_per_epoch=20, elastic=settings)
        started.append(AtWork(where or tmp_path / name, query or numbers(20_000), options, last))
        return started[-1].begun()

    yield start
    for run in started:
        run.over.set()
        run.wait()
