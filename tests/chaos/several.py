"""Several drivers of one query in trouble: a leader with one that stands by, or two replicas. Whoever is at work is killed with its JVM and its workers, or paused and woken up later;
a replica that was killed comes back, or has lost its checkpoint and a new one begins with a savepoint of the other.

In the end everything is read, all drivers stop, and what the sinks hold must be what the reference gives.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from springtide.runtime.replicas.group import Group
from springtide.state.checkpoint import Checkpoint
from springtide.state.savepoints import save
from springtide.state.stores import Store
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
        self.woken: list[subprocess.Popen[str]] = []
        self.all: list[subprocess.Popen[str]] = []
        self.struck: subprocess.Popen[str] | None = None
        """The one that is being killed: its end is no failure."""
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
        """Let them work for a while; then kill or pause one that is at work. In the place of one that is gone another starts."""
        before = self._accepted()
        self._until(lambda: self._accepted() > before, "rows are read")
        time.sleep(self.random.uniform(0.0, 2.0))
        at_work = [p for p, d in self.drivers.items() if self._is_at_work(p) and d.poll() is None]
        if self.outcome.failures or not at_work:
            return
        place = self.random.choice(at_work)
        if self.how == "replicas":
            self._strike_a_replica(place)
        else:
            self._strike_a_leader(place)

    def _strike_a_leader(self, place: str) -> None:
        """Kill or pause it; the one that stands by takes over, and another begins to stand by. One that was paused wakes up when it is not at work any more."""
        driver, kind = self.drivers.pop(place), "pause" if self.random.random() < 0.4 else "kill"
        self._hit(driver, kind, f"{kind} of a leader", place, self._accepted)
        if kind == "pause":
            self.paused.append(driver)
        if self.random.random() < 0.5:
            self._wake()
        self._start(place)

    def _strike_a_replica(self, place: str) -> None:
        """Kill it, and start it again, or another with a savepoint of the one that is left; or pause it, and let it catch up."""
        (other,) = self.drivers.keys() - {place}
        driver, kind = self.drivers[place], self.random.choice(["pause", "kill", "loss"])
        what = {"pause": "pause of a replica", "kill": "kill of a replica", "loss": "loss of a replica's checkpoint"}
        self._until(lambda: self._read_by(other) > 0, "the other one is at work")
        self._hit(driver, kind, what[kind], place, lambda: self._read_by(other))
        if self.outcome.failures:
            return
        if kind == "pause":
            os.killpg(driver.pid, signal.SIGCONT)
            return
        del self.drivers[place]
        if kind == "kill":
            self._start(place)
            return
        gone = self.who[place]
        shutil.rmtree(self.folder / gone, ignore_errors=True)  # it may have died before it had one
        Group(Store.at(self.folder / "group")).release(gone)
        self._start(place, anew=str(save(self.folder / self.who[other], f"for-{self.started}")))

    def _hit(self, driver: subprocess.Popen[str], kind: str, what: str, place: str, read: Callable[[], int]) -> None:
        """Kill or pause a driver with its JVM and its workers, and wait until more rows are read without it."""
        self.outcome.injected[what] += 1
        self._say(f"{what}: {self.who[place]}")
        since, seen, self.struck = time.monotonic(), read(), driver
        os.killpg(driver.pid, signal.SIGSTOP if kind == "pause" else signal.SIGKILL)
        if kind != "pause":
            driver.wait()
        self._until(lambda: read() > seen, f"the next epoch after a {what}")
        self.outcome.waited.setdefault(what, []).append(time.monotonic() - since)
        self.struck = None

    def _wake(self) -> None:
        """Let leaders that were paused go on: they find that they are not at work any more, and end with an error."""
        for driver in self.paused:
            os.killpg(driver.pid, signal.SIGCONT)
        self.woken += self.paused
        self.paused = []

    def _is_at_work(self, place: str) -> bool:
        return self.how == "replicas" or (self.folder / f"{self.who[place]}-leads").exists()

    def _start(self, place: str, anew: str = "") -> None:
        """Start a driver; `anew`: a replica with a name and a checkpoint of its own, that begins with this savepoint."""
        self.started += 1
        if self.how == "standby" or anew or place not in self.who:
            self.who[place] = f"{place}{self.started}"
        who, instances = self.who[place], self.random.randint(1, 4)
        more = [anew] if anew else []
        log = self.folder / f"{who}.log"
        self.drivers[place] = start_child("several", self.folder, self.name, self.how, who, instances, *more, log=log)
        self.all.append(self.drivers[place])

    def _finish(self) -> None:
        """Let everything be read, and all drivers stop."""
        wanted = 2 * self.files * queries.ROWS
        self._wake()
        self._until(lambda: self._accepted() == wanted, "all rows are read")
        if self.how == "replicas":
            self._until(lambda: all(self._read_by(p) == wanted for p in self.drivers), "both have read all")
        for driver in self.woken:
            if self._ended_with(driver) in (None, 0):
                self._fail("a leader that was paused did not notice that another had taken over")
        (self.folder / "end").touch()
        for place, driver in self.drivers.items():
            if self._is_at_work(place) and (code := self._ended_with(driver)) != 0:
                self._fail(f"{self.who[place]} ended with {code}")
        if self.how == "replicas":
            for alarm in Group(Store.at(self.folder / "group")).alarms():
                self._fail(f"alarm: {alarm}")

    def _ended_with(self, driver: subprocess.Popen[str]) -> int | None:
        """Wait until a driver has ended; None if it does not."""
        try:
            return driver.wait(_LIMIT)
        except subprocess.TimeoutExpired:
            return None

    # ── small things ──────────────────────────────────────────────────────────────────────────────────────────────

    def _until(self, is_so: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + _LIMIT
        while not self.outcome.failures and not is_so():
            if time.monotonic() > end:
                self._fail(f"{what}: not within {_LIMIT:.0f} s")
            for place, driver in self.drivers.items():
                if driver.poll() is not None and driver is not self.struck:
                    self._fail(f"{self.who[place]} ended with {driver.poll()}: {what}")
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
        """Return the rows that are read: by the leader, or by the replica that has read most."""
        if self.how == "standby":
            return self._of(self.folder / "checkpoint")
        return max(map(self._read_by, [*self.drivers]), default=0)

    def _read_by(self, place: str) -> int:
        return self._of(self.folder / self.who[place])

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
