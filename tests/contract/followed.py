"""The kind `followed`: whatever happens to the files of a followed folder, each is read once, or it is said why not.

Files come under any names, are archived, replaced, taken away before they are read, or are no files of their kind; runs are stopped and
start again, some between a look and the epoch. files seen = files read + reported, and the rows are those of the files that were read.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import polars as pl

import springtide as st
from springtide.connectors import file_ledger as ledger
from springtide.runtime import ledgers
from springtide.runtime.durability import Durability
from springtide.runtime.engine import Engine, Options
from springtide.runtime.inprocess import execute
from springtide.state.checkpoint import Checkpoint
from springtide.state.manifest import SourceState

COLUMNS = {"x": pl.Int64}


class _Case:
    """A folder, a checkpoint, and what is expected of them."""

    def __init__(self, chance: random.Random, folder: Path) -> None:
        self.chance, self.files, self.checkpoint = chance, folder / "in", folder / "ckpt"
        self.archive, self.backup = folder / "archive", folder / "backup" if chance.random() < 0.2 else None
        self.files.mkdir()
        self.archive.mkdir()
        self.kind = chance.choice(["csv", "parquet"])
        self.sink, self.clock, self.next = st.memory_sink(), 1_700_000_000, 0
        self.seen: dict[str, list[int]] = {}
        """Files that a look may have seen, and their rows."""
        self.garbage: set[str] = set()
        self.changed: set[str] = set()
        self.said: list[str] = []
        self.engine: Engine | None = None

    def path(self, name: str) -> Path:
        return self.files / f"{name}.{self.kind}"

    def write(self, name: str, rows: int) -> None:
        self.clock += 1
        xs = list(range(self.next, self.next + rows))
        frame, path = pl.DataFrame({"x": xs}, schema=COLUMNS), self.path(name)
        frame.write_csv(path) if self.kind == "csv" else frame.write_parquet(path)
        os.utime(path, (self.clock, self.clock))
        self.next += rows
        self.seen[name] = xs

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────────

    def come(self) -> None:
        """A new file comes, somewhere among the names."""
        self.write(f"{self.chance.randrange(10**6)}-{self.next}-{len(self.seen)}", self.chance.randrange(4))

    def garble(self) -> None:
        """A file comes that is none, or not yet."""
        if self.kind == "parquet":
            name = f"garbage-{self.clock}"
            self.clock += 1
            self.path(name).write_bytes(
                self.chance.choice([b"", b"PAR1", b"PAR1xxxxxxxxPAR1", b"PAR1\x15\0\4\0\0\0PAR1"])
            )
            os.utime(self.path(name), (1, 1))
            self.garbage.add(name)

    def repair(self) -> None:
        """A file that was none is written to its end."""
        if self.garbage:
            name = self.garbage.pop()
            self.write(name, 2)

    def hide(self) -> None:
        """A file comes that is not meant."""
        (self.files / f"_x{self.chance.randrange(9)}.{self.kind}").write_bytes(b"\xff")

    def work(self) -> None:
        """Some epochs."""
        for _ in range(self.chance.randint(1, 3)):
            if self.running.has_work():
                self.running.run()

    def stop(self) -> None:
        """The run ends, perhaps between a look and the epoch."""
        if self.engine is not None:
            if self.chance.random() < 0.5:
                self.engine.has_work()
            self.said += [text for _, text in self.engine.events]
            self.engine.close()
            self.engine = None

    def put_away(self) -> None:
        """A file that was read is archived."""
        for name in set(self.some_read()) - self.changed:  # nobody can know what a file was that is gone
            self.path(name).rename(self.archive / name)

    def change(self) -> None:
        """A file that was read is written anew, with more in it."""
        for name in self.some_read():
            kept, self.next = self.seen[name], self.next + 50
            self.write(name, len(kept) + 30)
            self.seen[name] = kept
            self.changed.add(name)

    def some_read(self) -> list[str]:
        """Choose a file that is certainly read and not open any more."""
        done = self.done()
        there = sorted(n for n in done if self.path(n).exists())
        return self.chance.sample(there, min(1, len(there)))

    def done(self) -> set[str]:
        files = set()
        for of in self.state.ledgers():
            base = self.running.form.ledgers.opened("s", "", self.state.position)["ledger"]["base"]
            files |= {r[0] for r in of["recent"] if r[4] != "gone"} | {
                n for n, r in base.records.items() if r.fate != "gone"
            }
        return {name.removesuffix(f".{self.kind}") for name in files}

    @property
    def state(self) -> SourceState:
        return self.running.manifest.sources.get("s", SourceState())

    @property
    def running(self) -> Engine:
        if self.engine is None:
            make = st.csv if self.kind == "csv" else st.parquet
            source = st.source("s", make(self.files, schema=COLUMNS, follow=True))
            plan = st.Query("followed", source.to(self.sink)).plan(buckets=2)
            options = Options(
                1, rows_per_epoch=self.chance.choice([1, 3, 100]), durability=Durability(backup=self.backup)
            )
            self.engine = Engine(plan, Checkpoint(self.checkpoint), lambda epoch: execute(plan, epoch), options)
            self.engine.begin()
        return self.engine

    # ── what must be ──────────────────────────────────────────────────────────────────────────────────────────────

    def verdict(self) -> str | None:
        """Read everything, and say what is wrong."""
        while self.running.has_work():
            self.running.run()
        state, position = self.state, self.state.position or {}
        got = Counter(self.sink.rows()["x"].to_list() if self.sink.epochs else [])
        expected = Counter(x for xs in self.seen.values() for x in xs)
        counts, begun = (
            state.files if state.ledgers() else {"read": 0, "changed": 0, "gone": 0},
            bool(position.get("file")),
        )
        self.stop()
        if got != expected:
            return f"{got - expected} too much, {expected - got} missing"
        if counts["read"] + counts["changed"] + counts["gone"] + begun != len(self.seen):
            return f"{len(self.seen)} files were seen; {counts}, begun {begun}"
        if counts["changed"] != len(self.changed):
            return f"{self.changed} have changed; {counts}"
        for name in self.changed:
            if not any(f"{name}.{self.kind} " in text and "since it was read" in text for text in self.said):
                return f"nobody said that {name} has changed: {self.said}"
        for name in self.garbage:
            if not any(f"{name}.{self.kind} cannot be read" in text for text in self.said):
                return f"nobody said that {name} cannot be read: {self.said}"
        return None


def run_case(seed: int, folder: Path) -> str | None:
    """Let things happen to a folder."""
    case = _Case(random.Random(f"followed {seed}"), folder)
    before = ledgers.RECENT, ledger._LOOKED_AT
    ledgers.RECENT, ledger._LOOKED_AT = case.chance.choice([1, 4, 256]), case.chance.choice([2, 1000])
    try:
        acts = (
            [case.come] * 4
            + [case.work] * 3
            + [case.stop, case.put_away, case.change, case.garble, case.repair, case.hide]
        )
        for _ in range(case.chance.randint(3, 14)):
            case.chance.choice(acts)()
        case.stop()
        return case.verdict()
    finally:
        ledgers.RECENT, ledger._LOOKED_AT = before
