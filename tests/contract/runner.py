"""Many random cases in several processes, for a while or up to a number: what ran, what was wrong.

Each process takes every nth seed of each kind, and always the kind that had least of its share of the time so far. Which cases there is
time for is up to the machine; what a case does is up to its kind and seed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
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
STUCK = 300.0
"""Seconds after which a case is taken to be stuck; the longest ones take a few."""


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

    def seeds(self, process: int, processes: int) -> range:
        """Name the seeds of one process."""
        last = self.seed + self.cases if self.cases is not None else self.seed + 10**12
        return range(self.seed + process, last, processes)


def run(job: Job, said: Callable[[Total], None] = lambda _: None, processes: int = PROCESSES) -> Total:
    """Run a job in processes of its own; what was done so far is said now and then."""
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # the processes share the cores
    os.environ["RUST_BACKTRACE"] = "0"  # a panic that a case is about takes 15 ms to describe
    context = multiprocessing.get_context("spawn")
    total, workers = Total(), dict[Connection, _Worker]()
    for number in range(processes):
        worker = _Worker(context, job, number, processes)
        workers[worker.connection] = worker
    with contextlib.ExitStack() as stack:
        for worker in workers.values():
            stack.callback(worker.end)
        while workers:
            ready = wait(list(workers), timeout=5.0)
            for connection in ready:
                assert isinstance(connection, Connection)
                if not workers[connection].hear(total):
                    del workers[connection]
            for connection in [c for c, w in workers.items() if w.stuck]:
                total.wrong.append(workers.pop(connection).blame(f"not done after {STUCK:.0f} s"))
            said(total)
    return total


class _Worker:
    """A process that runs cases, seen from outside."""

    def __init__(self, context: multiprocessing.context.SpawnContext, job: Job, number: int, processes: int) -> None:
        self.connection, other = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(other, job, number, processes), daemon=True)
        self._process.start()
        other.close()
        self._now: tuple[str, int] | None = None
        self._heard = time.monotonic()

    def hear(self, total: Total) -> bool:
        """Take one message; False when there will be no more."""
        self._heard = time.monotonic()
        try:
            match self.connection.recv():
                case ("begin", kind, seed):
                    self._now = kind, seed
                case ("done", kind, seconds):
                    total.add(kind, seconds)
                case ("wrong", kind, seed, what):
                    total.wrong.append(Wrong(kind, seed, what))
                case "end":
                    self._now = None
                    return False
        except EOFError:
            self._process.join()
            total.wrong.append(self.blame(f"the process died, exit code {self._process.exitcode}"))
            return False
        return True

    @property
    def stuck(self) -> bool:
        return time.monotonic() - self._heard > STUCK

    def blame(self, what: str) -> Wrong:
        """Say that the case at work did something to the process."""
        kind, seed = self._now or ("none", 0)
        return Wrong(kind, seed, what)

    def end(self) -> None:
        if self._process.is_alive():
            self._process.join(timeout=5)
            self._process.kill()
        self._process.join()


def _work(connection: Connection, job: Job, number: int, processes: int) -> None:
    """Run cases until time is over; the parent hears of every one."""
    from tests.contract.kinds import KINDS

    until = time.monotonic() + job.seconds
    used = dict.fromkeys(job.kinds, 0.0)
    seeds = {kind: iter(job.seeds(number, processes)) for kind in job.kinds}
    with memory_folder() as folder:
        gc.freeze()
        gc.set_threshold(100_000, 20, 100)  # a case leaves little behind; looking for it took a tenth of the time
        while seeds and time.monotonic() < until:
            kind = min(seeds, key=lambda k: used[k] / KINDS[k].share)
            seed = next(seeds[kind], None)
            if seed is None:
                del seeds[kind]
                continue
            connection.send(("begin", kind, seed))
            started = time.monotonic()
            faulthandler.dump_traceback_later(STUCK - 10)  # says where it is stuck
            what = attempt(KINDS[kind].run_case, seed, folder / f"{kind}-{seed}")
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
