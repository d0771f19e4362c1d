"""Many random cases in several processes, for a while or up to a number: what ran, what was wrong.

Each process takes every nth seed of each kind, and always the kind that had least of its share of the time so far. Which cases there is
time for is up to the machine; what a case does is up to its kind and seed. A case that hangs, or ends its process, is wrong; another process goes
on with the next one.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import multiprocessing
import os
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path

PROCESSES = 2
STUCK = 120.0
"""Seconds after which a case is taken to be stuck, which is wrong too; the longest ones take a few."""


@dataclass(frozen=True)
class Wrong:
    """A case that went wrong."""

    kind: str
    seed: int
    what: str

    def __str__(self) -> str:
        return f"{self.kind}, seed {self.seed}: {self.what}\nto run it again: make contract KIND={self.kind} SEED={self.seed} CASES=1"


@dataclass
class Total:
    """How many cases of each kind ran, how long they took, and which were wrong."""

    counts: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    wrong: list[Wrong] = field(default_factory=list)

    @property
    def cases(self) -> int:
        """All kinds together."""
        return sum(self.counts.values())

    def add(self, kind: str, seconds: float) -> None:
        """Count a case."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.seconds[kind] = self.seconds.get(kind, 0.0) + seconds


@dataclass(frozen=True)
class Job:
    """What the processes are to run: kinds, from a seed on, for so long, at most so many of each kind."""

    kinds: Sequence[str]
    seed: int
    seconds: float
    cases: int | None = None
    stuck: float = STUCK
    catalogue: str = "tests.contract.kinds"
    """The module that has the kinds."""

    def seeds(self, process: int, processes: int, begun: int) -> range:
        """Name the seeds of one process, but for those of one kind that were begun already."""
        last = self.seed + self.cases if self.cases is not None else self.seed + 10**12
        return range(self.seed + process + begun * processes, last, processes)


def run(job: Job, said: Callable[[Total], None] = lambda _: None, processes: int = PROCESSES) -> Total:
    """Run a job in processes of its own; what was done so far is said now and then."""
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # the processes share the cores
    os.environ["RUST_BACKTRACE"] = "0"  # a panic that a case is about takes 15 ms to describe
    context = multiprocessing.get_context("spawn")
    total, until = Total(), time.monotonic() + job.seconds
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(memory_folder())
        workers = [_Worker(context, job, folder / str(number), number, processes) for number in range(processes)]
        stack.callback(lambda: [worker.end() for worker in workers])
        for worker in workers:
            worker.start(until)
        while at_work := {w.connection: w for w in workers if not w.is_done}:
            for connection in wait(list(at_work), timeout=1.0):
                assert isinstance(connection, Connection)
                at_work[connection].hear(total)
            for worker in at_work.values():
                if worker.is_stuck:
                    worker.give_up(total, f"not done after {job.stuck:.0f} s")
                if worker.is_gone:
                    worker.start(until)
            said(total)
    return total


class _Worker:
    """A process that runs cases, seen from outside; another one takes its place if a case does something to it."""

    def __init__(
        self, context: multiprocessing.context.SpawnContext, job: Job, folder: Path, number: int, processes: int
    ) -> None:
        self._context, self._job, self._folder = context, job, folder
        self._number, self._processes = number, processes
        self._begun = dict.fromkeys(job.kinds, 0)
        self._used = dict.fromkeys(job.kinds, 0.0)
        self.is_done = False

    def start(self, until: float) -> None:
        """Have a process go on with the cases that were not begun yet."""
        self.connection, other = self._context.Pipe(duplex=False)
        self._folder.mkdir(exist_ok=True)
        given = (other, self._job, self._folder, self._number, self._processes, until, self._begun, self._used)
        self._process = self._context.Process(target=_work, args=given, daemon=True)
        self._process.start()
        other.close()
        self._now: tuple[str, int] | None = None
        self._since = time.monotonic()
        self.is_gone = False

    def hear(self, total: Total) -> None:
        """Take one message."""
        try:
            match self.connection.recv():
                case ("begin", kind, seed):
                    self._now, self._since = (kind, seed), time.monotonic()
                    self._begun[kind] += 1
                case ("done", kind, seconds):
                    self._now = None
                    self._used[kind] += seconds
                    total.add(kind, seconds)
                case ("wrong", kind, seed, what):
                    total.wrong.append(Wrong(kind, seed, what))
                case "end":
                    self.is_done = True
        except EOFError:
            self._process.join()
            self.give_up(total, f"the process died, exit code {self._process.exitcode}")

    @property
    def is_stuck(self) -> bool:
        return self._now is not None and not self.is_done and time.monotonic() - self._since > self._job.stuck

    def give_up(self, total: Total, what: str) -> None:
        """End the process, and count the case that it was at as wrong; without one there is no use in another process."""
        kind, seed = self._now or ("none", 0)
        total.wrong.append(Wrong(kind, seed, what))
        self._process.kill()
        self._process.join()
        if self._now is None:
            self.is_done = True
        else:
            total.add(kind, time.monotonic() - self._since)
            self._used[kind] += time.monotonic() - self._since
            self.is_gone = True

    def end(self) -> None:
        if self._process.is_alive():
            self._process.join(timeout=5)
            self._process.kill()
        self._process.join()


def _work(
    connection: Connection,
    job: Job,
    folder: Path,
    number: int,
    processes: int,
    until: float,
    begun: dict[str, int],
    used: dict[str, float],
) -> None:
    """Run cases until time is over; the parent hears of every one."""
    kinds = importlib.import_module(job.catalogue).KINDS
    seeds = {kind: iter(job.seeds(number, processes, begun[kind])) for kind in job.kinds}
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)  # a case leaves little behind; looking for it took a tenth of the time
    while seeds and time.monotonic() < until:
        kind = min(seeds, key=lambda k: used[k] / kinds[k].share)
        seed = next(seeds[kind], None)
        if seed is None:
            del seeds[kind]
            continue
        connection.send(("begin", kind, seed))
        started = time.monotonic()
        faulthandler.dump_traceback_later(job.stuck * 0.9)  # says where it is stuck
        what = attempt(kinds[kind].run_case, seed, folder / f"{kind}-{seed}")
        took = time.monotonic() - started
        used[kind] += took
        if what is not None:
            connection.send(("wrong", kind, seed, what))
        connection.send(("done", kind, took))
    faulthandler.cancel_dump_traceback_later()
    connection.send("end")
    connection.close()


def attempt(run_case: Callable[[int, Path], str | None], seed: int, folder: Path) -> str | None:
    """Run one case in a folder of its own; what it raises is what is wrong."""
    # Not above: how many threads Polars has is decided before it is imported.
    from polars.exceptions import PanicException

    folder.mkdir()
    try:
        return run_case(seed, folder)
    except (Exception, PanicException):
        return traceback.format_exc().strip()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def memory_folder() -> Iterator[Path]:
    """Give a folder in memory where there is one: thousands of manifests are written through to the disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="springtide-contract-", dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)
