"""Several drivers of one query in trouble: a leader with one that stands by, or two replicas. Whoever is at work is killed with its JVM and its workers, or paused and woken up later.

In the end everything is read, all drivers stop, and what the sinks hold must be what the reference gives.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from springtide.state.checkpoint import Checkpoint
from tests.chaos import queries
from tests.chaos.runner import Outcome, compare_with_the_reference
from tests.spark.processes import end_the_group, start_child

HOW = ("standby", "replicas")
_PACE = 0.3
"""Seconds between two files."""
_AHEAD = 300
"""Rows that wait at most."""
_LIMIT = 300.0
"""Seconds without progress after which something is wrong."""


def torment_several(how: str, name: str, folder: Path, random: Random, seconds: float) -> Outcome:
    """Run a query with several drivers for so long, and see what it gives."""
    return _Several(how, name, folder, random).run(seconds)


class _Several:
    def __init__(self, how: str, name: str, folder: Path, random: Random) -> None:
        self.how, self.name, self.folder, self.random = how, name, folder, random
        self.outcome, self.began, self.files, self.fed = Outcome(), time.monotonic(), 0, threading.Event()
        self.drivers: dict[str, subprocess.Popen[str]] = {}
        self.who: dict[str, str] = {}
        self.paused: list[subprocess.Popen[str]] = []
        self.all: list[subprocess.Popen[str]] = []
        self.started = 0

    def run(self, seconds: float) -> Outcome:
        self._feed()
        feeder = threading.Thread(target=self._feed_on, daemon=True)
        feeder.start()
        try:
            for place in ("a", "b"):
                self._start(place)
            self._until(lambda: self._accepted() > 0, "the first epoch")
            end = time.monotonic() + seconds
            while time.monotonic() < end and not self.outcome.failures:
                self._strike()
            self.fed.set()
            feeder.join()
            self._finish()
        finally:
            self.fed.set()
            for child in self.all:
                end_the_group(child)
                child.wait()
        if not self.outcome.failures:
            compare_with_the_reference(self.name, self.folder, self.files * queries.ROWS, self.outcome, self._say)
        return self.outcome

    # ── what is done to them ──────────────────────────────────────────────────────────────────────────────────────

    def _strike(self) -> None:
        """Let them work for a while; then kill or pause one that is at work, and start another in its place."""
        before = self._accepted()
        self._until(lambda: self._accepted() > before, "rows are read")
        if self.outcome.failures:
            return
        time.sleep(self.random.uniform(0.0, 2.0))
        place = self.random.choice(
            [p for p, d in self.drivers.items() if self._is_at_work(p) and d.poll() is None] or ["a"]
        )
        driver, pause = self.drivers.pop(place), self.how == "standby" and self.random.random() < 0.4
        kind = ("pause of a leader" if pause else "kill of a leader") if self.how == "standby" else "kill of a replica"
        self.outcome.injected[kind] += 1
        self._say(f"{kind}: {place}")
        since, seen = time.monotonic(), self._accepted()
        os.killpg(driver.pid, signal.SIGSTOP if pause else signal.SIGKILL)
        if pause:
            self.paused.append(driver)
        else:
            driver.wait()
        self._until(lambda: self._accepted() > seen, f"the next epoch after a {kind}")
        self.outcome.waited.setdefault(kind, []).append(time.monotonic() - since)
        for sleeper in self.paused if self.random.random() < 0.5 else ():
            os.killpg(sleeper.pid, signal.SIGCONT)  # it finds that it is not at work any more
        self._start(place)

    def _is_at_work(self, place: str) -> bool:
        return self.how == "replicas" or (self.folder / f"{self.who[place]}-leads").exists()

    def _start(self, place: str) -> None:
        self.started += 1
        self.who[place] = who = place if self.how == "replicas" else f"{place}{self.started}"
        instances = self.random.randint(1, 4)
        log = self.folder / f"{who}.log"
        self.drivers[place] = start_child("several", self.folder, self.name, self.how, who, instances, log=log)
        self.all.append(self.drivers[place])

    def _finish(self) -> None:
        """Let everything be read, and all drivers stop."""
        wanted = 2 * self.files * queries.ROWS
        self._until(lambda: self._accepted() == wanted, "all rows are read")
        if self.how == "replicas":
            self._until(lambda: all(self._of(self.folder / p) == wanted for p in self.drivers), "both have read all")
        (self.folder / "end").touch()
        for place, driver in self.drivers.items():
            if self.how == "replicas" or self._is_at_work(place):
                try:
                    code = driver.wait(_LIMIT)
                except subprocess.TimeoutExpired:
                    code = None
                if code != 0:
                    self._fail(f"{place} ended with {code}")

    # ── small things ──────────────────────────────────────────────────────────────────────────────────────────────

    def _until(self, is_so: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + _LIMIT
        while not self.outcome.failures and not is_so():
            if time.monotonic() > end:
                self._fail(f"{what}: not within {_LIMIT:.0f} s")
            for place, driver in self.drivers.items():
                if driver.poll() not in (None, 0):
                    self._fail(f"{place} ended with {driver.poll()}: {what}")
            time.sleep(0.05)

    def _feed(self) -> None:
        for which in queries.INPUTS:
            queries.feed(self.folder, which, self.files)
        self.files += 1

    def _feed_on(self) -> None:
        while not self.fed.wait(_PACE):
            if 2 * self.files * queries.ROWS - self._accepted() < _AHEAD:
                self._feed()

    def _accepted(self) -> int:
        places = ("a", "b") if self.how == "replicas" else ("checkpoint",)
        return max(self._of(self.folder / place) for place in places)

    def _of(self, root: Path) -> int:
        for _ in range(10):  # while it is read a newer one may come, and this one go
            try:
                latest = Checkpoint(root).latest() if (root / "springtide.json").exists() else None
                return 0 if latest is None else sum(s.accepted for s in latest.sources.values())
            except Exception:
                time.sleep(0.02)
        return 0

    def _fail(self, what: str) -> None:
        logs = "\n".join(f"{log.name}: {log.read_text('utf-8')[-1500:]}" for log in sorted(self.folder.glob("*.log")))
        self.outcome.failures.append(f"{self.name} ({self.how}): {what}")
        self._say(f"{what}\n{logs}")

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:6.1f} s  {text}", flush=True)
