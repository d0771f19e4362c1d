"""The kind `replicas`: several runs of one query, each with its own checkpoint, over one group; each paused at any step, woken up late, never, or started again.

Whoever goes on when is decided by the seed, at every write to the group, at every step of a sink and whenever one waits for another; time passes only then. They
have different instances and different limits, are scaled while they run, and new ones begin with a savepoint of another. By the seed the group is in a store that
misbehaves, and what is published goes to folders, to such a store, or to tables with transactions. In the end all go on to their end, and the sinks have every row once.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import polars as pl

import springtide as st
from springtide.connectors import Entry, LedgerSink, Owner, Publication, Target
from springtide.query.errors import SpringtideError
from springtide.runtime import inprocess
from springtide.runtime.engine import Engine, Options
from springtide.runtime.identity import begin_from
from springtide.runtime.patience import Patience
from springtide.runtime.reference.difference import difference
from springtide.sinks.bucket import Bucket
from springtide.sinks.folder import Folder
from springtide.state.savepoints import save
from springtide.state.stores import Store
from tests.contract.two_drivers import Turn, Turns
from tests.stores.misbehaving import Misbehaving, served

STEPS = 300
"""Choices of who goes on, after which all go on to their end."""
BUCKETS = 4
SINKS = ("sums-out", "some-out")
_STALE = ("taken over", "is in use", "already, with the checkpoint", "has not published", "is stale")
"""What one is told that was paused while another run of the same replica had its checkpoint, or whose savepoint came too early."""


@dataclass(frozen=True)
class Table(LedgerSink):
    """A target with transactions, in this process."""

    name: str
    rows: list[pl.DataFrame] = field(default_factory=list, compare=False)
    entries: list[Entry] = field(default_factory=list, compare=False)

    def describe(self) -> str:
        return f"the table {self.name}"

    def connect(self, owner: Owner) -> Target:
        return Connection(self)


@dataclass
class Connection(Target):
    table: Table

    def entry(self) -> Entry | None:
        return self.table.entries[-1] if self.table.entries else None

    def swap(self, before: Entry | None, after: Entry, publication: Publication | None) -> bool:
        if self.entry() != before:
            return False
        self.table.entries.append(after)
        if publication is not None:
            self.table.rows.append(publication.frame())
        return True


class Clock:
    """Time that passes when somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def run_case(seed: int, folder: Path) -> str | None:
    """Run replicas in an order that the seed decides; compare the sinks with the reference."""
    random = Random(seed)
    bucket = Misbehaving(seed, trouble=random.choice([0.0, 0.1, 0.3]))
    with served(bucket=bucket):
        sinks = Random(f"{seed}-sinks").choice(["folder", "folder", "store", "table"])
        return Case(random, folder, bucket, in_store=random.random() < 0.3, sinks=sinks).run()


class Case:
    """One case."""

    def __init__(self, random: Random, folder: Path, bucket: Misbehaving, *, in_store: bool, sinks: str) -> None:
        self.random, self.folder, self.clock, self.turns = random, folder, Clock(), Turns()
        self.group: str | Path = "fake://bucket/group" if in_store else folder / "group"
        self.bucket, self.sinks, self.tables = bucket, sinks, {name: Table(name) for name in SINKS}
        self.rows = random.choice([8, 16, 24])
        self.files = random.random() < 0.4
        if self.files:
            (folder / "in").mkdir(parents=True)
            for first in range(0, self.rows, 4):
                _numbers(0, first, min(4, self.rows - first)).write_parquet(folder / "in" / f"{first:04d}.parquet")
        self.wrong = list[str]()
        self.saved = 0

    def run(self) -> str | None:
        with self._paused():
            at_work = [self.turns.start(self._replica(name)) for name in self.random.choice(["a", "ab", "ab", "abc"])]
            begun = len(at_work)
            for _ in range(STEPS):
                if begun < 5 and self.random.random() < 0.1:
                    at_work += self._more()
                    begun += 1
                turn = self.random.choice(at_work)
                for _ in range(self.random.choice([1, 3, 10, 20])):
                    if not turn.done:
                        turn.step()
                at_work = [t for t in at_work if not t.done]
                if not at_work:
                    break
            while at_work:  # in turns, for one may wait for another
                for turn in at_work:
                    turn.step()
                at_work = [t for t in at_work if not t.done]
            if not self.wrong:  # for it time passes too, if all others were told to end
                self._replica("last", fresh=True)()
        return "; ".join(self.wrong) or self._compare()

    def _more(self) -> list[Turn]:
        """Start a new replica, one that was there before, or one from a savepoint of another."""
        name = self.random.choice(["a", "b", "c"])
        if self.random.random() < 0.3 and (self.folder / "a" / "springtide.json").exists():
            self.saved += 1
            name, own = f"s{self.saved}", f"at{self.saved}"
            try:
                savepoint = save(self.folder / "a", own)
                begin_from(savepoint, self._query().plan(buckets=BUCKETS), self.folder / name)
            except SpringtideError:  # nothing is there yet
                return []
        return [self.turns.start(self._replica(name))]

    def _replica(self, name: str, *, fresh: bool = False) -> Callable[[], None]:
        random = Random(self.random.random())
        replica = st.Replicated(Store.at(self.group), name, after=random.choice(["10ms", "1s", "5s"]))
        shift = random.uniform(-600, 600)
        options = Options(
            random.randint(1, 3),
            rows_per_epoch=random.choice([2, 3, 5]),
            patience=600.0,
            replica=replica,
            timer=self.clock,
            clock=lambda: self.clock.now + shift,  # clocks differ by minutes
        )
        plan = self._query().plan(buckets=BUCKETS)

        def between(engine: Engine) -> bool:
            if random.random() < 0.2:
                engine.scale(random.choice(["sums", "rows"]), random.randint(1, 3))
            return True

        def work() -> None:
            try:
                inprocess.run(plan, self.folder / name, options, between=None if fresh else between)
            except SpringtideError as error:
                if not any(text in str(error) for text in _STALE):
                    self.wrong.append(f"replica {name}: {error}")
            except Exception as error:
                self.wrong.append(f"replica {name}: {type(error).__name__}: {error}")

        return work

    def _query(self) -> st.Query:
        schema = {"k": pl.Int64, "x": pl.Int64, "ts": st.TIME}
        made = st.generate(_numbers, rate=None, total=self.rows, streams=2)
        connector = st.parquet(self.folder / "in", schema=schema) if self.files else made
        rows = st.source("rows", connector, ts="ts", max_disorder="3s")
        sums = rows.aggregate(by="k", window=st.tumbling("5s"), total=st.sum("x"), n=st.count(), name="sums")
        some = rows.filter(pl.col("x") > 4, name="some")
        made = zip(SINKS, (sums, some), strict=True)
        return st.Query("replicas", *(stream.to(self._sink(name), name=name) for name, stream in made))

    def _sink(self, name: str) -> Any:
        if self.sinks == "table":
            return self.tables[name]
        return st.parquet_sink(self.folder / name if self.sinks == "folder" else f"fake://bucket/{name}")

    def _found(self, name: str) -> list[pl.DataFrame]:
        if self.sinks == "table":
            return self.tables[name].rows
        if self.sinks == "folder":
            return [pl.read_parquet(file) for file in sorted((self.folder / name).glob("*.parquet"))]
        shown = [path for path in self.bucket.files if path.startswith(f"{name}/part-")]
        return [pl.read_parquet(self.bucket.files[path]) for path in shown]

    def _compare(self) -> str | None:
        expected = self._query().run_reference()
        for name in SINKS:
            wanted = expected.rows(name)
            frames = self._found(name)
            found = pl.concat(frames) if frames else wanted.clear()
            if (said := difference(found, wanted, 0.0)) is not None:
                return f"{name}: {said}"
        return None

    def _paused(self) -> Any:
        """Have replicas pause before and after all that others can see, and where they wait."""
        turns, clock, stack = self.turns, self.clock, _Patches()

        def around(act: Callable[..., Any]) -> Callable[..., Any]:
            def paused(*given: Any, **named: Any) -> Any:
                turns.pause("before")
                done = act(*given, **named)
                turns.pause("after")
                return done

            return paused

        def wait(_: Patience, seconds: float) -> None:
            clock.now += 5 * seconds
            turns.pause("wait")

        shared: dict[Any, tuple[str, ...]] = {
            Store: ("create", "write", "delete"),
            Folder: ("_stage", "_record", "_reveal"),
            Bucket: ("_record_shown", "_show"),
            Connection: ("swap",),
        }
        for owner, names in shared.items():
            for name in names:
                stack.add(mock.patch.object(owner, name, around(getattr(owner, name))))
        stack.add(mock.patch.object(Patience, "_wait", wait))
        stack.add(mock.patch.object(fcntl, "flock", return_value=None))
        return stack


class _Patches:
    """Several patches at once."""

    def __init__(self) -> None:
        self._all = list[Any]()

    def add(self, patch: Any) -> None:
        self._all.append(patch)

    def __enter__(self) -> None:
        for patch in self._all:
            patch.start()

    def __exit__(self, *_: object) -> None:
        for patch in self._all:
            patch.stop()


def _numbers(stream: int, first: int, count: int) -> pl.DataFrame:
    i = pl.int_range(first, first + count, eager=True)
    return pl.DataFrame({"k": (i * i + stream) % 3, "x": i * 7 % 11, "ts": ((i - i % 3) * 1_000_000).cast(st.TIME)})
