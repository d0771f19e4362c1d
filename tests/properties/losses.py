"""How the state of a run is kept, and lost: every loss is one that its durability promises to survive."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from pathlib import Path
from random import Random

from springtide.compiler.plan import Plan
from springtide.runtime.durability import Durability
from springtide.runtime.engine import Engine
from springtide.runtime.epoch import Epoch, TaskReport
from springtide.runtime.inprocess import execute
from springtide.runtime.persisting import Persister
from springtide.state.manifest import Manifest
from tests.properties.retries import Retries

RETRIED = 0.15
"""Of the cases: every task may run twice."""


class Faults:
    """One case's durability, its clocks, and what is done to its files. The seed decides all of it, and not how fast the machine is."""

    def __init__(self, seed: int, checkpoint: Path, *, remote: bool = False) -> None:
        """Decide how careful the runs are and how unlucky; `remote`: the checkpoint is in a store, and nodes have caches."""
        random = self._random = Random(seed + 0.25)
        self._ticks, self._work = Random(seed + 0.125), Random(seed + 0.375)
        self._checkpoint = checkpoint
        self._engine: Engine | None = None
        self._backup = checkpoint.with_suffix(".backup") if random.random() < 0.2 and not remote else None
        self._node = checkpoint.with_suffix(".node0") if remote else None
        self._lazy = random.random() < 0.4
        self._unlucky = random.choice([0, 0.1, 0.4])
        self._time = 0.0
        again = Random(seed + 0.0625)
        elsewhere = 0.0 if remote else 0.01  # another process does not have the store
        self._run = Retries(again, elsewhere=elsewhere).execute if again.random() < RETRIED else execute

    def durability(self) -> Durability:
        """Choose for a start: with every epoch, in the background, never."""
        random = self._random
        every = random.choice(["3s", "10s", "never"]) if self._lazy and random.random() < 0.8 else "epoch"
        return Durability(
            every,
            self._backup,
            retain=random.randint(1, 4),
            degree=random.randint(1, 3),
            shared_memory=self._checkpoint.with_suffix(".memory") if self._node is None else None,
            cache=self._node,
            buffer=random.random() < 0.3,
        )

    def timer(self) -> float:
        """Let some time pass with each look at the clock."""
        self._time += self._ticks.random()
        return self._time

    def execute(self, plan: Plan, epoch: Epoch) -> list[TaskReport]:
        """Run the tasks of an epoch, in some cases twice. How long they took is made up: maps are made from it."""
        reports, took = self._run(plan, epoch), self._work.random
        return [replace(r, busy=took(), wait=took(), began=took()) for r in reports]

    def between(self, engine: Engine) -> bool:
        """Lose something between two epochs; False when it is the whole process."""
        persister = engine.storage.persister
        if engine is not self._engine:
            self._engine = engine
            _hold(persister)
        if self._random.random() < 0.5:  # else a checkpoint that is under way is still so in the next epoch
            persister.wait()
        if self._random.random() >= self._unlucky:
            return True
        if self._random.random() < 0.2:  # as if it were killed: nothing is made durable any more
            persister.wait()
            engine.close = engine.storage.lease.release  # type: ignore[method-assign]
            return False
        self._lose(engine.storage.tiers.shared_memory)
        return True

    def afterwards(self) -> None:
        """Lose something between two starts."""
        if self._node is not None and self._random.random() < 0.5:  # another node goes on
            self._node = self._checkpoint.with_suffix(self._random.choice([".node0", ".node1"]))
        if self._random.random() < self._unlucky:
            left = sorted(self._checkpoint.with_suffix(".memory").glob("springtide-*"))
            self._lose(str(left[-1]) if left else None)

    def _lose(self, memory: str | None) -> None:
        if memory is not None:
            self._spoil(Path(memory))
        if self._backup is not None:
            self._spoil(self._checkpoint)
        for cache in sorted(self._node.glob("springtide-*")) if self._node is not None else ():
            self._spoil(cache)

    def _spoil(self, place: Path) -> None:
        """Remove all segments of a place, or remove, cut or change one."""
        files = sorted((place / "state").rglob("*.arrow"))
        what = self._random.choice(["all", "one", "cut", "changed"])
        if what == "all":
            shutil.rmtree(place / "state", ignore_errors=True)
        elif files:
            file = self._random.choice(files)
            data = file.read_bytes()
            file.unlink()  # not in place: a copy that somebody has mapped stays what it was
            middle = len(data) // 2
            if what == "cut":
                file.write_bytes(data[:middle])
            elif what == "changed":
                file.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])


def _hold(persister: Persister) -> None:
    """Let a checkpoint in the background begin its work when somebody waits for it: else the machine would decide how far it gets."""
    persist, wait, go = persister._persist, persister.wait, threading.Event()

    def persist_later(manifest: Manifest) -> None:
        go.wait()
        persist(manifest)

    def let_go() -> None:
        go.set()
        wait()
        go.clear()

    persister._persist, persister.wait = persist_later, let_go  # type: ignore[method-assign]
