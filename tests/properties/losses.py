"""How the state of a run is kept, and lost: every loss is one that its durability promises to survive."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

from springtide.runtime.durability import Durability
from springtide.runtime.engine import Engine


class Faults:
    """One case's durability, its clock, and what is done to its files."""

    def __init__(self, random: Random, checkpoint: Path) -> None:
        """Decide how careful the runs are and how unlucky."""
        self._random, self._checkpoint = random, checkpoint
        self._backup = checkpoint.with_suffix(".backup") if random.random() < 0.2 else None
        self._lazy = random.random() < 0.4
        self._unlucky = random.choice([0, 0.1, 0.4])
        self._time = 0.0

    def durability(self) -> Durability:
        """Choose for a start: with every epoch, in the background, never."""
        random = self._random
        every = random.choice(["3s", "10s", "never"]) if self._lazy and random.random() < 0.8 else "epoch"
        return Durability(
            every,
            self._backup,
            retain=random.randint(1, 4),
            degree=random.randint(1, 3),
            memory=self._checkpoint.with_suffix(".memory"),
            buffer=random.random() < 0.3,
        )

    def timer(self) -> float:
        """Let some time pass with each look at the clock."""
        self._time += self._random.random()
        return self._time

    def between(self, engine: Engine) -> bool:
        """Lose something between two epochs; False when it is the whole process."""
        if self._random.random() >= self._unlucky:
            return True
        if self._random.random() < 0.2:  # as if it were killed: nothing is made durable any more
            engine.storage.persister.wait()
            engine.close = engine.storage.lease.release  # type: ignore[method-assign]
            return False
        self._lose(engine.storage.tiers.memory)
        return True

    def afterwards(self) -> None:
        """Lose something between two starts."""
        if self._random.random() < self._unlucky:
            self._lose(str(self._checkpoint.with_suffix(".memory")))

    def _lose(self, memory: str | None) -> None:
        if memory is not None:
            self._spoil(Path(memory))
        if self._backup is not None:
            self._spoil(self._checkpoint)

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
