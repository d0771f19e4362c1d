"""Slots before buckets, in the engine: request → wait → new map; new map → release. The cluster is a toy, the engine is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.elastic.decisions import decisions_of
from springtide.elastic.resources.local import LocalSlots
from springtide.elastic.settings import Elastic
from springtide.runtime.engine import Engine, Options
from springtide.runtime.inprocess import execute
from springtide.state.answers import read_answer
from springtide.state.checkpoint import Checkpoint
from springtide.state.control import Command, send
from springtide.testing import PAUSE, at, compare

EPOCHS = 12


@dataclass
class Toy:
    """A cluster whose slots come when the test says so."""

    have: int = 1
    asked: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    wanted: list[st.Executors | None] = field(default_factory=list)

    def slots(self) -> int:
        return self.have

    executors = slots

    def most(self) -> None:
        return None

    def grows(self) -> bool:
        return True

    def request(self, slots: int) -> None:
        self.asked.append(slots)

    def release(self, slots: int) -> None:
        self.kept.append(slots)
        self.have = min(self.have, slots)

    def want(self, executors: st.Executors | None) -> None:
        self.wanted.append(executors)

    def close(self) -> None:
        self.asked.append(0)


class Hand:
    """A clock that somebody moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def counting() -> tuple[st.Query, Any]:
    rows: list[Any] = []
    for i in range(EPOCHS):
        rows += [{"k": f"k{j}", "ts": at(f"{i * 10 + j}s")} for j in range(5)] + [PAUSE]
    sink = st.memory_sink()
    source = st.source("rows", st.memory(rows, schema={"k": pl.String, "ts": st.TIME}), ts="ts")
    counts = source.aggregate(by="k", window=st.sliding("30s", every="10s"), n=st.count(), name="counts")
    return st.Query("counting", counts.to(sink, name="out")), sink


def elastic(**more: Any) -> Elastic:
    executors = st.Executors(warm=0, wait=10.0)
    return st.Elastic(policy=st.Manual(), balancing=None, every=0.0, grace=0.0, executors=executors, **more)


@contextmanager
def running(folder: Path, toy: Toy, clock: Hand, **more: Any) -> Iterator[Engine]:
    """Start the query, and see that every row is there in the end."""
    query, sink = counting()
    plan = query.plan(buckets=16)
    options = Options(instances=1, elastic=elastic(**more), clock=clock, timer=clock)
    engine = Engine(plan, Checkpoint(folder / "ckpt"), lambda epoch: execute(plan, epoch), options, toy)
    yield engine
    while not engine.manifest.ended:
        epoch(engine)
    engine.close()
    assert toy.asked[-1] == 0
    compare(sink.rows(), query.run_reference().rows())


def epoch(engine: Engine) -> int:
    """Run an epoch; with how many instances?"""
    assert engine.has_work()
    return engine.run().maps["counts"].instances


@pytest.fixture
def clock() -> Hand:
    return Hand()


def test_buckets_move_when_the_slots_are_there(tmp_path: Path, clock: Hand) -> None:
    """SC-12: the query runs on while they come."""
    toy = Toy()
    with running(tmp_path, toy, clock) as engine:
        assert toy.asked == [1]
        epoch(engine)
        engine.scale("counts", 4)
        assert toy.asked[-1] == 4
        assert [epoch(engine), epoch(engine)] == [1, 1]
        toy.have = 3
        assert epoch(engine) == 1
        toy.have = 4
        assert epoch(engine) == 4
        assert [note for _, note in engine.events] == [
            "counts waits for executors to have 4 instances",
            "scaled counts: 1 → 4 instances",
        ]
        assert min(toy.kept[1:]) == 4, "nothing is given back while it is waited for"


def test_waiting_is_part_of_the_cost(tmp_path: Path, clock: Hand) -> None:
    """From the decision on it counts, also when not all came."""
    toy = Toy()
    with running(tmp_path, toy, clock) as engine:
        engine.scale("counts", 2)
        clock.now += 7.0
        toy.have = 2
        epoch(engine)
        engine.scale("counts", 8)
        clock.now += 12.0
        toy.have = 3
        epoch(engine)
        engine.scale("counts", 1)
        epoch(engine)
        decisions = decisions_of(engine.history.read("decisions"))
        assert [d.change for d in decisions] == ["1 → 2 instances", "2 → 3 instances", "3 → 1 instance"]
        assert [(d.at, d.waited, d.took) for d in decisions] == [(100, 7, 7), (107, 12, 12), (119, 0, 0)]


def test_slots_go_when_the_buckets_have_left(tmp_path: Path, clock: Hand) -> None:
    toy = Toy(4)
    with running(tmp_path, toy, clock) as engine:
        engine.scale("counts", 4)
        assert epoch(engine) == 4, "there are slots: it need not wait"
        engine.scale("counts", 2)
        assert toy.kept[-1] == 4, "not before an epoch without them"
        assert epoch(engine) == 2
        assert (toy.kept[-1], toy.have) == (2, 2)


def test_executors_that_never_come(tmp_path: Path, clock: Hand) -> None:
    """The change is made as far as they go that came; with none it is dropped, and the log says so."""
    toy = Toy(2)
    with running(tmp_path, toy, clock) as engine:
        engine.scale("counts", 2)
        assert epoch(engine) == 2
        engine.scale("counts", 8)
        assert epoch(engine) == 2
        toy.have = 5
        clock.now += 9.0
        assert epoch(engine) == 2
        clock.now += 1.0
        assert epoch(engine) == 5
        assert toy.kept[-1] == 5, "the rest is not asked for any more"
        dropped, held = [note for _, note in engine.events][-2:]
        assert dropped.startswith("scale counts: 2 → 8 instances; ")
        assert "executors came for 5 of 8 instances" in dropped
        assert held.startswith("scaled counts: 2 → 5 instances; ")
        assert "held at 5" in held
        engine.scale("counts", 9)
        clock.now += 10.0
        assert epoch(engine) == 5
        assert toy.kept[-1] == 5
        manager = engine.reconfiguring.manager
        assert manager is not None
        assert not manager.underway
        assert [r.rule for r in manager.refusals] == ["dropped", "dropped"]


def test_fewer_came_than_the_limits_allow(tmp_path: Path, clock: Hand) -> None:
    toy = Toy()
    with running(tmp_path, toy, clock, min=4, max=8) as engine:
        engine.reconfiguring.pause()
        engine.scale("counts", 6)
        toy.have = 3
        clock.now += 10.0
        assert epoch(engine) == 1
        assert "3 instances would be outside the limits, 4 to 8" in engine.events[-1][1]


def test_what_is_asked_for_later_takes_the_place_of_what_waits(tmp_path: Path, clock: Hand) -> None:
    toy = Toy()
    with running(tmp_path, toy, clock) as engine:
        engine.scale("counts", 8)
        engine.scale("counts", 2)
        assert toy.asked[-1] == 2
        toy.have = 2
        assert epoch(engine) == 2
        toy.have = 8
        assert epoch(engine) == 2


def test_a_slot_that_is_lost_takes_no_instance_along(tmp_path: Path, clock: Hand) -> None:
    """Spark runs its tasks elsewhere, and its cluster manager replaces the executor."""
    toy = Toy(4)
    with running(tmp_path, toy, clock) as engine:
        engine.scale("counts", 4)
        epoch(engine)
        toy.have = 2
        assert epoch(engine) == 4
        engine.reconfiguring.rebalance("counts")
        engine.scale("counts", 3)
        assert epoch(engine) == 3, "fewer instances never wait"


def test_what_waits_survives_a_restart(tmp_path: Path, clock: Hand) -> None:
    query, _ = counting()
    plan = query.plan(buckets=16)
    options = Options(instances=1, elastic=elastic(), clock=clock, timer=clock)
    engine = Engine(plan, Checkpoint(tmp_path / "ckpt"), lambda epoch: execute(plan, epoch), options, Toy())
    engine.scale("counts", 4)
    assert epoch(engine) == 1
    engine.close()
    toy = Toy()
    with running(tmp_path, toy, clock) as engine:
        assert toy.asked == [4, 4]
        assert epoch(engine) == 1
        toy.have = 4
        assert epoch(engine) == 4


def test_without_anybody_to_ask_nothing_waits(tmp_path: Path) -> None:
    query, sink = counting()
    plan = query.plan(buckets=16)
    engine = Engine(plan, Checkpoint(tmp_path / "ckpt"), lambda epoch: execute(plan, epoch), Options(1), LocalSlots(2))
    engine.scale("counts", 8)
    while not engine.manifest.ended:
        assert epoch(engine) == 8
    engine.close()
    compare(sink.rows(), query.run_reference().rows())
    assert engine.snapshot is not None
    assert (engine.snapshot.slots, engine.snapshot.executors) == (2, 1)


# ── what the person who asked is told (issue 12) ──────────────────────────────────────────────────────────────────


def answered(engine: Engine, command: Path) -> tuple[str, bool, tuple[int, int] | None]:
    answer = read_answer(command)
    assert answer is not None
    change = answer.change
    return answer.status, answer.final, (change.before, change.after) if change else None


def scale(engine: Engine, instances: int) -> Path:
    command = send(engine.checkpoint.root, Command("scale", {"step": "counts", "instances": instances}))
    engine.take_commands()
    return command


def test_a_command_that_waits_says_so_until_it_is_done(tmp_path: Path, clock: Hand) -> None:
    toy = Toy()
    with running(tmp_path, toy, clock) as engine:
        command = scale(engine, 4)
        epoch(engine)
        assert answered(engine, command) == ("waiting", False, None)
        assert not command.exists(), "the manifest has it: the next run goes on with it"
        toy.have = 4
        epoch(engine)
        assert answered(engine, command) == ("done", True, (1, 4))


def test_a_command_for_which_some_executors_come_is_done_in_part(tmp_path: Path, clock: Hand) -> None:
    toy = Toy()
    with running(tmp_path, toy, clock) as engine:
        command = scale(engine, 8)
        epoch(engine)
        clock.now, toy.have = clock.now + 12.0, 3
        epoch(engine)
        assert answered(engine, command) == ("done", True, (1, 3))


def test_a_command_for_which_no_executor_comes_fails(tmp_path: Path, clock: Hand) -> None:
    toy = Toy()
    with running(tmp_path, toy, clock) as engine:
        command = scale(engine, 8)
        epoch(engine)
        clock.now += 12.0
        epoch(engine)
        assert answered(engine, command) == ("failed", True, None)


def test_executors_follow_the_settings(tmp_path: Path) -> None:
    """A run that was started without elasticity gets executors once it has it; a change that is refused leaves them alone."""
    toy, hand = Toy(), Hand()
    with running(tmp_path, toy, hand) as engine:
        before, more = engine.form.elastic, st.Elastic(executors=st.Executors(warm=3))
        assert before is not None
        engine.change_elasticity(None)
        engine.change_elasticity(more)
        with pytest.raises(st.QueryError, match="no such step"):
            engine.change_elasticity(st.Elastic(limits={"nobody": (1, 2)}))
        plan = counting()[0].plan(buckets=8)
        with pytest.raises(st.QueryError, match="not 16"):
            engine.replace(plan, lambda epoch: execute(plan, epoch), None)
        assert toy.wanted == [None, more.executors, st.Executors(), more.executors, None, more.executors]
        engine.change_elasticity(before)
