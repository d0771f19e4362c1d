"""The kind `sinks`: sinks with a past. Runs are stopped and killed, at any step, files are taken away, checkpoints are copied, restored and damaged, and
older copies of the place are brought back.

Whatever happens, every row comes to a sink exactly once, or for a function once under each epoch's number; and what would lose or double rows is
refused, and changes nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import springtide as st
from springtide import state
from springtide.state.checkpoint import Checkpoint
from springtide.state.log import is_claim
from tests.unit.sinks.kinds import EPOCHS, PER_EPOCH, ROWS, Died, Folder, Function, Memory, Runs, Sink, Table, query_of

ALL = list(range(ROWS))
_CALLS = ("link", "rename", "replace", "fsync")
"""The calls at which a process may die."""


def run_case(seed: int, folder: Path) -> str | None:
    """Torment one sink, and count its rows."""
    case = Case(Random(seed), folder)
    for _ in range(case.random.randrange(1, 7)):
        event = case.random.choice(case.events)
        if (wrong := event()) is not None:
            return f"{wrong}, after {', '.join(case.log)}"
    case.log.append("to the end")
    case.runs.run(case.query())
    given = case.sink.rows() if case.sink.remembers else case.sink.rows_once()
    return None if given == ALL else f"{given} came, after {', '.join(case.log)}"


class Case:
    """A sink, a checkpoint, and what happens to them."""

    def __init__(self, random: Random, folder: Path) -> None:
        self.random, self.folder, self.log = random, folder, list[str]()
        self.sink: Sink = random.choice([Folder, Folder, Folder, Table, Memory, Function])(folder)
        backup = random.random() < 0.3
        durability = st.Durability(backup=str(folder / "backup")) if backup else st.Durability()
        self.runs, self.roots = Runs(folder / "0", durability), 1
        self.events: list[Callable[[], str | None]] = [
            *(self.stopped, self.stopped, self.killed, self.killed, self.killed),
            *(self.forgotten, self.elsewhere if backup else self.restored),
            *((self.taken_over,) if self.sink.remembers and not backup else ()),
            *((self.by_another, self.older) if self.sink.remembers else ()),
            *((self.set_back,) if isinstance(self.sink, Folder | Table) else ()),
        ]

    def query(self) -> st.Query:
        return query_of(self.sink.connector())

    def take(self) -> None:
        if self.random.random() < 0.5:
            self.sink.consume()

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────────

    def stopped(self) -> None:
        """Some epochs, and a clean stop: nothing may come again, to whatever sink."""
        self.log.append("stopped")
        self.runs.run(self.query(), self.random.randrange(3), self.take)

    def killed(self) -> None:
        """Some epochs, and death at any call that changes a file."""
        n = self.random.randrange(1, 60)
        self.log.append(f"killed at {n}")
        with mortal(n, self.take):
            self.runs.run(self.query(), self.random.randrange(1, 3), self.take)
        self.take()

    def forgotten(self) -> str | None:
        """The newest manifest is removed: if sinks have its rows and no backup has it, that must be noticed."""
        root = self.runs.root
        newest = Checkpoint(root).latest() if root.exists() else None
        known = (root / "published").read_text() if (root / "published").exists() else ""
        if newest is None or f'"epoch": {newest.epoch},' not in known or '"out"' not in known:
            return None
        read = Checkpoint(root).log.read()
        if read.brought() is not None:
            return None  # it is in a claim, which no run is without
        self.log.append(f"without manifest {newest.epoch}")
        path = root / max(s for s in read.data if s.epoch == newest.epoch and not is_claim(read.data[s])).path
        if self.runs.durability.backup:
            return path.unlink()  # a run finds it there
        path.rename(self.folder / "manifest")
        try:
            return self.must_refuse(self.runs)
        finally:
            (self.folder / "manifest").rename(path)

    def elsewhere(self) -> None:
        """The machine is gone; another one has the backup, if there was anything yet."""
        if (self.folder / "backup" / "springtide.json").exists():
            self.log.append("elsewhere")
            shutil.rmtree(self.runs.root, ignore_errors=True)

    def restored(self) -> None:
        """A new checkpoint is made of the newest epoch, and the query goes on with that."""
        if self.epochs():
            self.log.append("restored")
            state.restore(self.runs.root, self.folder / str(self.roots))
            self.runs.root, self.roots = self.folder / str(self.roots), self.roots + 1

    def taken_over(self) -> str | None:
        """A restored checkpoint goes on to publish; the old one is then refused."""
        if not self.epochs() or Checkpoint(self.runs.root).epochs()[-1] >= EPOCHS - 1:
            return None
        old = Runs(self.runs.root)
        self.restored()
        self.log.append("one more")
        self.runs.run(self.query(), 1, self.take)
        return self.must_refuse(old)

    def by_another(self) -> str | None:
        """Another query, or the same with a new checkpoint, finds the place in use."""
        published = self.epochs() and self.sink.rows()
        if not published:
            return None
        self.log.append("by another")
        self.roots += 1
        return self.must_refuse(Runs(self.folder / f"other-{self.roots}"), self.random.choice(["past", "other"]))

    def older(self) -> str | None:
        """A checkpoint that is restored at an older epoch finds rows that it does not know."""
        epochs = self.epochs()
        if len(epochs) < 2 or not self.has_rows_of(epochs[-1]):
            return None
        at = self.random.choice(epochs[:-1])
        self.log.append(f"older, at {at}")
        self.roots += 1
        state.restore(self.runs.root, self.folder / f"older-{self.roots}", at=at)
        return self.must_refuse(Runs(self.folder / f"older-{self.roots}"))

    def set_back(self) -> str | None:
        """An older copy of the place is brought back: its last epoch comes again, and if it has lost more that is noticed."""
        assert isinstance(self.sink, Folder | Table)
        self.runs.run(self.query(), 0)
        if isinstance(self.sink, Folder) and not any(self.sink.path.glob(".springtide=*")):
            return None  # without a ledger it is one that a reader took away
        place, copy, newest = self.sink.path, self.folder / "copy", self.folder / "newest"
        before = self.sink.rows()
        _copied(place, copy)
        self.runs.run(self.query(), self.random.choice([1, 1, 2]))
        lost = (len(self.sink.rows()) - len(before)) // PER_EPOCH
        self.log.append(f"set back by {lost}")
        _moved(place, newest)
        _moved(copy, place)
        if lost > 1:
            wrong = self.must_refuse(self.runs)
            _moved(newest, place)
            return wrong
        self.runs.run(self.query(), 0)
        _removed(newest)
        came = self.sink.rows()
        return None if len(came) == len(before) + lost * PER_EPOCH else f"{came} came, where {before} were"

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def epochs(self) -> list[int]:
        return Checkpoint(self.runs.root).epochs() if (self.runs.root / "springtide.json").exists() else []

    def has_rows_of(self, epoch: int) -> bool:
        if isinstance(self.sink, Table):
            return len(self.sink.rows()) > epoch * PER_EPOCH
        if isinstance(self.sink, Folder):
            return any(f.name.split("=")[5:6] == [str(epoch)] for f in self.sink.path.glob(".springtide=*"))
        return isinstance(self.sink, Memory) and epoch in self.sink.sink.epochs

    def must_refuse(self, runs: Runs, name: str = "past") -> str | None:
        before = self.seen()
        try:
            runs.run(query_of(self.sink.connector(), name=name))
        except (st.SinkError, st.CheckpointError):
            return None if self.seen() == before else "what was refused has changed something"
        return "it was not refused"

    def seen(self) -> list[Any]:
        names = sorted(f.name for f in self.sink.path.iterdir()) if isinstance(self.sink, Folder) else []
        return [self.sink.rows(), names]


def _copied(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    elif source.exists():
        shutil.copyfile(source, target)


def _moved(source: Path, target: Path) -> None:
    _removed(target)
    if source.exists():
        source.rename(target)


def _removed(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def mortal(n: int, take: Callable[[], None]) -> Iterator[None]:
    """Let the process die at the n-th call that changes a file, and a reader take files before any of them."""
    left, real = [n], {name: getattr(os, name) for name in _CALLS}

    def wrapped(call: Callable[..., Any]) -> Callable[..., Any]:
        def calling(*arguments: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                for name in _CALLS:
                    setattr(os, name, real[name])
                raise Died
            if left[0] % 7 == 0:
                take()
            return call(*arguments, **more)

        return calling

    for name in _CALLS:
        setattr(os, name, wrapped(real[name]))
    try:
        yield
    finally:
        for name in _CALLS:
            setattr(os, name, real[name])
