"""One query under random kills, changes and restarts, compared with the reference in the end.

Files come all the time. A driver of its own runs the query; when it dies, or is stopped, the next one starts at another number of
instances, and sometimes with another durability or without what was on its disk. In the end everything is read, and what the sinks hold
must be what the reference gives.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median

import polars as pl
import psutil

from benchmarks.elastic.standalone import executors_of
from springtide.query import steps
from springtide.runtime.failpoints import PLACES
from springtide.runtime.reference.difference import difference
from springtide.state.checkpoint import Checkpoint
from springtide.state.control import Command, send
from springtide.state.manifest import Manifest
from tests.chaos import queries
from tests.spark.processes import end_the_group, jvm_of, start_child, wait_for_the_group, workers_of

BUCKETS = 16
_PACE = 0.3
"""Seconds between two files."""
_AHEAD = 300
"""Rows that wait at most: who has much to read has long epochs, and little happens between them."""
_PATIENCE = 90.0
"""Seconds without an epoch, or without an end, after which something is wrong."""
_START = 300.0
"""The same before the first epoch of a start: a JVM, imports and cold workers take long on a busy machine."""
_FATES = {"driver": 2, "driver at a step of the commit": 2, "JVM": 1, "stop": 2, "local store": 1}
"""How a run ends, and how often."""
_CHANGES = {"worker": 4, "executor": 0, "local state": 2, "scale": 4, "move": 3, "rebalance": 2}
"""What happens to a run meanwhile."""


@dataclass
class Outcome:
    """What was done and what came of it."""

    injected: Counter[str] = field(default_factory=Counter)
    waited: dict[str, list[float]] = field(default_factory=dict)
    """Seconds from a fault until the next epoch was committed, where nothing else happened in between."""
    rows: int = 0
    compared: int = 0
    wrong: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.wrong and not self.failures

    def __add__(self, other: Outcome) -> Outcome:
        kinds = self.waited | other.waited
        return Outcome(
            self.injected + other.injected,
            {kind: self.waited.get(kind, []) + other.waited.get(kind, []) for kind in kinds},
            self.rows + other.rows,
            self.compared + other.compared,
            self.wrong + other.wrong,
            self.failures + other.failures,
        )

    def lines(self) -> list[str]:
        """Say it, one line each."""
        return [
            *(f"{count:6} × {kind}{self._until_the_next(kind)}" for kind, count in sorted(self.injected.items())),
            f"{sum(self.injected.values()):6} faults and changes injected",
            f"{self.rows:6} rows read",
            f"{self.compared:6} rows compared",
            f"{self.wrong:6} rows wrong",
            f"{len(self.failures):6} failures that nobody injected",
            *(f"       {failure}" for failure in self.failures),
        ]

    def _until_the_next(self, kind: str) -> str:
        seconds = self.waited.get(kind)
        if not seconds:
            return ""
        return f": the next epoch after {median(seconds):.1f} s (median), {max(seconds):.1f} s (longest)"


def torment(name: str, folder: Path, random: Random, seconds: float, master: str | None = None) -> Outcome:
    """Run a query for so long, and see what it gives."""
    return _Torment(name, folder, random, master).run(seconds)


def compare_with_the_reference(
    name: str, folder: Path, count: int, outcome: Outcome, say: Callable[[str], None]
) -> None:
    """Add to an outcome what the sinks of a query have, and what of it is wrong."""
    inputs = {which: queries.rows(which, 0, count) for which in queries.INPUTS}
    query = queries.query(name, folder)
    expected = query.run_reference(inputs, bounded=False)
    outcome.rows += 2 * count
    for sink in query.of_kind(steps.Sink):
        wanted, found = expected.rows(sink), pl.read_parquet(folder / sink / "*.parquet")
        outcome.compared += wanted.height
        if (said := difference(found, wanted, 0.0)) is not None:
            outcome.wrong += sum(map(int, re.findall(r"(\d+) (?:rows? changed|missing|extra)", said)))
            say(said)
    say(f"{2 * count} rows read, {outcome.compared} compared, {outcome.wrong} wrong")


class _Torment:
    def __init__(self, name: str, folder: Path, random: Random, master: str | None) -> None:
        self.name, self.folder, self.random, self.master = name, folder, random, master
        self.root = folder / "checkpoint"
        self.outcome, self.began = Outcome(), time.monotonic()
        self.fed, self.files = threading.Event(), 0
        self.log = folder / "driver.log"
        self.child: subprocess.Popen[str] | None = None
        self.children: list[subprocess.Popen[str]] = []
        self.to_die_at: str | None = None
        self.struck: tuple[str, float, int] | None = None
        """What happened last, when, and in which epoch; None when an epoch has come since, or something else."""

    # ── the course of things ──────────────────────────────────────────────────────────────────────────────────────

    def run(self, seconds: float) -> Outcome:
        self._feed()
        feeder = threading.Thread(target=self._feed_on, daemon=True)
        feeder.start()
        try:
            self._start()
            self._commits()  # a slow machine has its first epoch late: the time counts from there
            until = time.monotonic() + seconds
            while time.monotonic() < until and not self.outcome.failures:
                self._one_run(until)
            self.fed.set()
            feeder.join()
            if not self.outcome.failures:
                self._finish()
        finally:
            self.fed.set()
            for child in self.children:
                end_the_group(child)
                child.wait()
        if not self.outcome.failures:
            self._compare()
        return self.outcome

    def _one_run(self, until: float) -> None:
        """Start, torment, and end it in one way or the other."""
        fate = self._choose(_FATES)
        self._start(deadly=fate == "driver at a step of the commit")
        if not self._commits():
            return
        while time.monotonic() < until:
            self._wait(self.random.uniform(0.1, 1.2))
            if self._has_ended():
                return
            if self.random.random() < 0.12 and self.to_die_at is None:
                return self._end(fate)
            self._change(self._choose(_CHANGES | ({"executor": 4, "worker": 0} if self.master else {})))

    def _start(self, *, deadly: bool = False) -> None:
        instances, durability = self.random.randint(1, 4), self.random.choice(["epoch", "epoch", "1s"])
        if self.child is None:
            place, visit = self.random.choice(PLACES), self.random.randint(1, 12)
            self.to_die_at = f"{place}:{visit}" if deadly else None
            more = {"SPRINGTIDE_FAIL": self.to_die_at} if self.to_die_at else {}
            self._say(f"start with {instances} instances, durability {durability}{', deadly' * deadly}")
            arguments = (self.folder, self.name, instances, durability, self.master or "local[2,4]")
            self.log.unlink(missing_ok=True)
            self.child = start_child("chaos", *arguments, log=self.log, **more)
            self.children.append(self.child)

    def _commits(self) -> bool:
        """Wait for the first epoch of this run; False when it ended first."""
        before = max(self._epoch(), -1 if self.struck is None else self.struck[2])
        last = time.monotonic() + _START
        while self._epoch() <= before:
            if self._has_ended():
                return False
            if time.monotonic() > last:
                self._fail("no epoch was committed")
                return False
            time.sleep(0.02)
        self._look()
        return True

    def _wait(self, seconds: float) -> None:
        """Wait, and every other time also for the epoch after what happened last."""
        whole = self.random.random() < 0.5
        end, last = time.monotonic() + seconds, time.monotonic() + _PATIENCE
        while time.monotonic() < end or (whole and self.struck is not None and time.monotonic() < last):
            assert self.child is not None
            if self.child.poll() is not None:
                return
            self._look()
            time.sleep(0.02)

    def _look(self) -> None:
        """See whether an epoch has come since the last fault."""
        if self.struck is not None and self._epoch() > self.struck[2]:
            kind, since, _ = self.struck
            self.outcome.waited.setdefault(kind, []).append(time.monotonic() - since)
            self.struck = None

    def _has_ended(self) -> bool:
        """Tell whether the driver is dead; if nobody wanted that, something is wrong."""
        child = self.child
        assert child is not None
        if child.poll() is None:
            return False
        self.child = None
        if child.returncode == -signal.SIGKILL and self.to_die_at is not None:
            self._count("driver at a step of the commit", self.to_die_at)
        else:
            self._fail(f"the run ended with {child.returncode}", self.log.read_text("utf-8"))
        return True

    def _finish(self) -> None:
        """Let everything be read, and stop."""
        for _ in range(5):
            self._start()
            if self._reads_all():
                send(self.root, Command("stop"))
                return self._goes("the end", _START)  # where nothing was left to read, it may not have started yet
            if self.outcome.failures:
                return

    def _reads_all(self) -> bool:
        wanted, seen, last = self.files * queries.ROWS, self._accepted(), time.monotonic() + _START
        while (found := self._accepted()) < 2 * wanted:
            if found > seen:
                seen, last = found, time.monotonic() + _PATIENCE
            if self._has_ended():
                return False
            if time.monotonic() > last:
                self._fail(f"only {found} of {2 * wanted} rows were read")
                return False
            time.sleep(0.05)
        return True

    def _compare(self) -> None:
        compare_with_the_reference(self.name, self.folder, self.files * queries.ROWS, self.outcome, self._say)

    # ── what is done to a run ─────────────────────────────────────────────────────────────────────────────────────

    def _change(self, kind: str) -> None:
        assert self.child is not None
        random, manifest = self.random, self._manifest()
        if kind == "worker":
            workers = workers_of(self.child.pid)
            if workers:
                self._kill(random.choice(workers), kind)
        elif kind == "local state":  # what there is of it on this machine, while the query runs
            for place in (self.folder / "memory", self.root / "state"):
                shutil.rmtree(place, ignore_errors=True)
            self._count(kind)
        elif kind == "executor":
            application = (self.folder / "application").read_text()
            executors = executors_of(application)
            if executors:
                self._kill(random.choice(executors), kind)
        elif manifest is not None:
            options: dict[str, object] = {"step": "main"}
            if random.random() < 0.5:
                options["protocol"] = random.choice(["virtual", "state", "window"])
            if kind == "scale":
                options["instances"] = random.randint(1, 5)
            elif kind == "move":
                options["buckets"] = random.sample(range(BUCKETS), random.randint(1, 6))
                options["to"] = random.randrange(manifest.maps["main"].instances)
            send(self.root, Command(kind, options))
            self._count(kind, str(options))

    def _end(self, fate: str) -> None:
        child = self.child
        assert child is not None
        if fate == "stop":
            send(self.root, Command("stop"))
            self._count(fate)
            return self._goes(fate)
        jvm = jvm_of(child.pid)
        if fate == "JVM":
            if jvm is not None:
                self._kill(jvm, fate)
                return self._goes(fate, killed=True)
            return None
        fate = "driver" if fate.startswith("driver") else fate
        self._count(fate)
        child.kill()
        child.wait()
        self.child = None
        if fate == "local store":
            wait_for_the_group(child)
            shutil.rmtree(self.root)
            shutil.rmtree(self.folder / "memory", ignore_errors=True)
        elif self.random.random() < 0.5:  # else the next driver starts while tasks of this one still run
            wait_for_the_group(child)
        return None

    def _goes(self, why: str, patience: float = _PATIENCE, *, killed: bool = False) -> None:
        """Wait until the driver has ended."""
        assert self.child is not None
        try:
            self.child.wait(patience)
        except subprocess.TimeoutExpired:
            self._fail(f"the driver is still there {patience:g} s after: {why}")
            return
        if not killed and self.child.returncode != 0:
            self._fail(f"{why}: the run ended with {self.child.returncode}", self.log.read_text("utf-8"))
        self.child = None

    def _kill(self, process: psutil.Process, kind: str) -> None:
        try:
            process.kill()
            self._count(kind)
        except psutil.NoSuchProcess:
            pass

    # ── small things ──────────────────────────────────────────────────────────────────────────────────────────────

    def _choose(self, weights: dict[str, int]) -> str:
        return self.random.choices(list(weights), list(weights.values()))[0]

    def _feed(self) -> None:
        for which in queries.INPUTS:
            queries.feed(self.folder, which, self.files)
        self.files += 1

    def _feed_on(self) -> None:
        while not self.fed.wait(_PACE):
            if 2 * self.files * queries.ROWS - self._accepted() < _AHEAD:
                self._feed()

    def _manifest(self) -> Manifest | None:
        for _ in range(10):  # while it is read a newer one may come, and this one go
            try:
                return Checkpoint(self.root).latest()
            except Exception:
                time.sleep(0.02)
        return None

    def _epoch(self) -> int:
        epochs = Checkpoint(self.root).epochs()
        return epochs[-1] if epochs else -1

    def _accepted(self) -> int:
        manifest = self._manifest()
        return sum(s.accepted for s in manifest.sources.values()) if manifest else 0

    def _count(self, kind: str, more: str = "") -> None:
        self.outcome.injected[kind] += 1
        self.struck = kind, time.monotonic(), self._epoch()
        self._say(f"{kind}{': ' * bool(more)}{more}")

    def _fail(self, what: str, noise: str = "") -> None:
        last = noise.strip().splitlines()[-1:]
        self.outcome.failures.append(": ".join([self.name, what, *last]))
        self._say("\n".join([what, *noise.strip().splitlines()[-40:]]))

    def _say(self, text: str) -> None:
        seconds = time.monotonic() - self.began
        print(f"{seconds:6.1f} s  epoch {self._epoch():4}  {text}", flush=True)
