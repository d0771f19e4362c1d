"""The kind `two_drivers`: drivers that do not know of each other, over one store, each paused at any step and woken up later.

    over one folder      on a file system without locks
    over one backup      machines with folders of their own, that take over from each other and come back
    over one store       nodes with nothing but their caches, and a store that misbehaves

Whoever is woken up when is decided by the seed, at every write, removal and publication; what a driver does in the background is done in its turn. In some
cases drivers replace the query between two epochs, by another form with the same rows for the sink. In others they keep one or two epochs, so that whoever wakes
up finds nothing of what it had read. In the end one driver runs alone, and the sink has every row once.
"""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

import polars as pl

import springtide as st
from springtide.query.errors import SpringtideError
from springtide.runtime import inprocess, persisting
from springtide.runtime.durability import Durability
from springtide.runtime.engine import Engine, Options
from springtide.sinks.memory import MemorySink
from springtide.state.checkpoint import KEEP, Checkpoint
from springtide.state.errors import AnotherFormError
from springtide.state.stores import Store
from tests.contract.forgetful_disk import AtOnce
from tests.stores.in_turn import in_turn
from tests.stores.misbehaving import Misbehaving, served

STEPS = 400
"""Steps of drivers after which a case ends whatever they do."""
SWAPPED = 0.4
"""Of the cases: drivers replace the query."""


class Turns:
    """Lets one thread at a time go on, from pause to pause: which one is somebody else's choice."""

    def __init__(self) -> None:
        self._own = threading.local()

    def start(self, work: Callable[[], None]) -> Turn:
        """Have a thread wait for its first turn."""
        return Turn(self, work)

    def pause(self, place: str) -> None:
        """Wait for the next turn, if this thread has turns."""
        turn: Turn | None = getattr(self._own, "turn", None)
        if turn is not None:
            turn.yields()

    def enter(self, turn: Turn) -> None:
        self._own.turn = turn


class Turn:
    """A thread that goes on when it is told to."""

    def __init__(self, turns: Turns, work: Callable[[], None]) -> None:
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self.done = False
        self._turns, self._work = turns, work
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def step(self) -> None:
        """Let it go on to its next pause."""
        self._go.release()
        self._back.acquire()

    def yields(self) -> None:
        self._back.release()
        self._go.acquire()

    def _run(self) -> None:
        self._go.acquire()
        self._turns.enter(self)
        try:
            self._work()
        finally:
            self.done = True
            self._back.release()


def run_case(seed: int, folder: Path) -> str | None:
    """Run drivers in an order that the seed decides; compare the sink with the reference."""
    random = Random(seed)
    how = random.choice(["folder", "backup", "store"])
    bucket = Misbehaving(seed, trouble=random.choice([0.0, 0.1, 0.3]))
    swaps, forgets = Random(seed + 0.5), Random(seed + 0.25)
    retain, bucket.lag = forgets.choice([(KEEP, 3), (KEEP, 3), (1, 3), (2, 60)])
    with served(bucket=bucket):
        return _run_case(random, how, folder, swaps if swaps.random() < SWAPPED else None, retain)


def _run_case(random: Random, how: str, folder: Path, swaps: Random | None, retain: int) -> str | None:
    shared = how == "folder"
    every = random.choice(["epoch", "epoch", "never" if retain == KEEP else "1us"]) if not shared else "epoch"
    rows = [
        {"k": f"k{random.randrange(4)}", "x": random.randrange(9), "ts": i * 1_000_000}
        for i in range(random.choice([4, 6, 8, 8, 12, 24]) if retain == KEEP else 24)
    ]
    sink, wrong = MemorySink(), list[str]()
    query = _query(rows, sink)
    turns = Turns()
    roots: list[Path | str] = [folder / "one", folder / "one" if shared else folder / "two"]
    roots = ["fake://bucket/ckpt"] * 2 if how == "store" else roots
    backup = folder / "backup" if how == "backup" else None

    def driver(number: int) -> Callable[[], None]:
        forms = Forms(rows, sink, None if swaps is None else Random(swaps.random()))
        cut, memory = random.randint(1, 5) if retain == KEEP else 1, folder / f"memory{number}"
        cache = folder / f"node{number % 2}"
        durability = Durability(every=every, backup=backup, shared_memory=memory, cache=cache, retain=retain)
        options = Options(random.randint(1, 2), rows_per_epoch=cut, durability=durability)

        def work() -> None:
            try:
                forms.run(roots[number % 2], options)
            except SpringtideError as error:
                if "taken over" not in str(error) and "is in use" not in str(error):
                    wrong.append(f"driver {number}: {error}")
            except Exception as error:
                wrong.append(f"driver {number}: {type(error).__name__}: {error}")

        return work

    with _paused(turns, locks=not shared):
        at_work, begun = [turns.start(driver(0))], 1
        for _ in range(STEPS):
            if begun < 4 and (not at_work or random.random() < 0.06):
                at_work.append(turns.start(driver(begun)))
                begun += 1
            if not at_work:
                break
            turn = random.choice(at_work)
            for _ in range(random.choice([1, 1, 3, 10, 30] if retain == KEEP else [1, 1, 3, 10, 100])):
                if not turn.done:
                    turn.step()
            at_work = [t for t in at_work if not t.done]
        for turn in at_work:
            while not turn.done:
                turn.step()
    driver(4)()
    expected = query.run_reference().rows()
    found = sink.rows()
    keys = ["k", "window_start"]
    if not wrong and not found.sort(keys).equals(expected.select(found.columns).sort(keys)):
        wrong.append(f"{found.height} rows, not {expected.height}: {found.sort(keys)} and {expected.sort(keys)}")
    return "; ".join(wrong) or None


class Forms:
    """The forms of the query that one driver knows, each with the same rows for the sink; by its `random` it goes from one to another."""

    def __init__(self, rows: list[dict[str, Any]], sink: MemorySink, random: Random | None) -> None:
        self._random = random
        count = 1 if random is None else 3
        self._plans = [_query(rows, sink, form).plan(buckets=4) for form in range(count)]

    def run(self, root: Path | str, options: Options) -> None:
        """Run in the form that the checkpoint has; another driver may replace it at any time, and a listing of the store may be old."""
        for plan in self._plans * 10:
            try:
                inprocess.run(plan, root, options, between=self._between)
            except AnotherFormError:
                continue
            return
        raise AssertionError("the checkpoint has none of the forms that there are")

    def _between(self, engine: Engine) -> bool:
        if self._random is not None and self._random.random() < 0.3:
            plan = self._random.choice(self._plans)
            engine.replace(plan, lambda epoch: inprocess.execute(plan, epoch), None)
        return not engine.manifest.ended


def _query(rows: list[dict[str, Any]], sink: MemorySink, form: int = 0) -> st.Query:
    """Make a form of the query: as it is, with another step that has state, or with a filter and another sink."""
    schema = {"k": pl.String, "x": pl.Int64, "ts": st.TIME}
    frame = pl.DataFrame(rows, schema={"k": pl.String, "x": pl.Int64, "ts": pl.Int64}).cast({"ts": st.TIME})
    source = st.source("rows", st.memory(frame, schema=schema), ts="ts")
    kept = source.filter(pl.col("x") >= 0) if form == 2 else source
    sums = kept.aggregate(by="k", window=st.tumbling("5s"), total=st.sum("x"), name="sums")
    ends = [sums.to(sink, name="out")]
    if form == 1:
        counts = source.aggregate(window=st.tumbling("3s"), n=st.count(), name="counts")
        ends.append(counts.to(st.memory_sink(), name="beside"))
    if form == 2:
        ends.append(source.to(st.memory_sink(), name="copy"))
    return st.Query("two", *ends)


class _paused:  # noqa: N801 - a context manager
    """Have drivers pause before and after all that others can see."""

    def __init__(self, turns: Turns, *, locks: bool) -> None:
        self._turns, self._patches = turns, list[Any]()
        for owner, name in (
            (Store, "create"),
            (Store, "write"),
            (Store, "put"),
            (Store, "delete"),
            (MemorySink, "publish"),
            (Checkpoint, "sweep"),
        ):
            self._patches.append(mock.patch.object(owner, name, self._around(getattr(owner, name), name)))
        self._patches.append(mock.patch.object(persisting, "threading", SimpleNamespace(Thread=AtOnce)))
        if not locks:
            self._patches.append(mock.patch.object(fcntl, "flock", return_value=None))

    def _around(self, act: Callable[..., Any], name: str) -> Callable[..., Any]:
        def paused(*given: Any, **named: Any) -> Any:
            self._turns.pause(name)
            done = act(*given, **named)
            self._turns.pause(name)
            return done

        return paused

    def __enter__(self) -> None:
        self._background = in_turn()
        for patch in self._patches:
            patch.start()

    def __exit__(self, *_: object) -> None:
        for patch in self._patches:
            patch.stop()
        self._background.close()
