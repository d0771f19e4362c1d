"""Standing by: what a run that waits does with a leader that works, dies, ends or is stopped."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import springtide as st
from springtide.runtime import engine as engine_module
from springtide.runtime import inprocess, publishing
from springtide.runtime.durability import Durability
from springtide.runtime.engine import Engine, Options
from springtide.runtime.failpoints import PLACES
from springtide.runtime.standby import Seen, StandbyEnded, StoreLead, standby_of
from springtide.sinks.memory import MemorySink
from springtide.state.checkpoint import Checkpoint
from springtide.state.log import Slot
from springtide.state.manifest import Manifest
from springtide.state.names import RUNNING
from springtide.state.pulse import Sign
from springtide.state.stores import Store
from tests.stores.misbehaving import Misbehaving, served
from tests.unit.runtime.crashing import every_row_is_there_once, run_files, write_input
from tests.unit.runtime.test_remote import URL, query
from tests.unit.state.test_checkpoint import IDENTITY


class Waiting:
    """A run that stands by, whose time passes only while it sleeps; what happens then is up to the test."""

    def __init__(self, root: Path, **given: object) -> None:
        self.root, self.now, self.told = root, 0.0, list[str]()
        self.happens: dict[int, Callable[[], object]] = {}
        self.looks = self.warmed = 0
        standby = st.Standby("5s", told=self.told.append, **given)  # type: ignore[arg-type]
        checkpoint = Checkpoint(root)
        self.lead = StoreLead(standby, Seen(checkpoint, checkpoint.store), lambda: self.now, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.looks += 1
        assert self.looks < 100, "it waits for ever"
        self.happens.get(self.looks, lambda: None)()

    def sign(self, number: int, **more: object) -> Callable[[], None]:
        text = Sign("process 1 on a", 0.0, 1.0, number, **more).encode()  # type: ignore[arg-type]
        return lambda: Store.at(self.root).write(RUNNING, text)

    def warm(self) -> None:
        self.warmed += 1


@pytest.fixture
def root(tmp_path: Path) -> Path:
    lease = Checkpoint(tmp_path / "ckpt").acquire(IDENTITY)
    lease.commit(Manifest(epoch=0, generation=lease.generation))
    lease.release()
    return tmp_path / "ckpt"


def test_nobody_runs(root: Path, tmp_path: Path) -> None:
    assert Waiting(root).lead.wait(lambda: None).last == Slot(0, 1)
    nothing = Waiting(tmp_path / "new").lead.wait(lambda: None)
    assert (nothing.made, nothing.last) == (False, None)


def test_it_waits_while_there_are_signs_and_goes_on_after_them(root: Path) -> None:
    waiting = Waiting(root)
    waiting.sign(0)()
    waiting.happens = {n: waiting.sign(n) for n in range(1, 11)}
    waiting.lead.wait(waiting.warm)
    assert waiting.now == 15.0
    assert waiting.warmed == 15
    assert waiting.told == ["standing by for process 1 on a"]


def test_a_run_that_hands_over_is_followed_at_once(root: Path) -> None:
    waiting = Waiting(root)
    waiting.sign(0)()
    waiting.happens = {2: (root / RUNNING).unlink}
    waiting.lead.wait(waiting.warm)
    assert waiting.now == 2.0


def test_a_query_that_is_stopped_needs_no_standby(root: Path) -> None:
    waiting = Waiting(root)
    waiting.sign(0)()
    waiting.happens = {2: waiting.sign(1, stopped=True)}
    with pytest.raises(StandbyEnded, match="somebody stopped the query"):
        waiting.lead.wait(waiting.warm)
    Waiting(root).lead.wait(lambda: None)  # started afterwards it goes on


def test_a_run_without_signs_is_known_by_its_lock(root: Path) -> None:
    lease, waiting = Checkpoint(root).acquire(IDENTITY), Waiting(root)
    waiting.happens = {7: lease.release}
    waiting.lead.wait(waiting.warm)
    assert waiting.now == 7.0


def test_the_waiting_can_be_ended(root: Path) -> None:
    waiting = Waiting(root, cancelled=lambda: True)
    waiting.sign(0)()
    with pytest.raises(StandbyEnded, match="was ended"):
        waiting.lead.wait(waiting.warm)


def test_a_store_that_is_away_is_no_dead_run(root: Path) -> None:
    waiting = Waiting(root)
    waiting.sign(0)()

    def away() -> None:
        (root / RUNNING).unlink()
        (root / RUNNING).mkdir()

    def back() -> None:
        (root / RUNNING).rmdir()
        waiting.sign(1)()

    waiting.happens = {2: away, 30: back}
    waiting.lead.wait(waiting.warm)
    assert waiting.now == 35.0
    assert "cannot be read" in waiting.told[1]


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(st.QueryError, match="too short"):
        st.Standby("1ms")
    with pytest.raises(st.QueryError, match="zk://"):
        st.Standby(lease="etcd://there")
    assert standby_of(None) is standby_of(False) is None
    assert standby_of(True) == st.Standby()


# ── what goes over ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Listening:
    """A policy that notes how many reports it is given."""

    heard: list[int]

    def decide(self, snapshot: st.Snapshot, history: Sequence[st.Snapshot]) -> Sequence[st.Proposal]:
        self.heard.append(len(history))
        return ()


def epochs(where: str | Path, node: Path, count: int) -> list[int]:
    """Run so many epochs more of a query, and return how many reports a policy was given before each."""
    policy, ran = Listening([]), list[int]()

    def between(engine: Engine) -> bool:
        ran.append(engine.manifest.epoch)
        return len(ran) <= count

    elastic = st.Elastic(policy=policy, every=0.0, balancing=None)
    options = Options(2, rows_per_epoch=5, elastic=elastic, durability=Durability(cache=node))
    inprocess.run(query(MemorySink()).plan(buckets=8), where, options, between=between)
    return policy.heard


def test_what_earlier_runs_measured_is_not_forgotten(tmp_path: Path) -> None:
    assert epochs(tmp_path / "ckpt", tmp_path, 3) == [0, 1, 2]
    assert epochs(tmp_path / "ckpt", tmp_path, 2) == [3, 4]
    for part in (tmp_path / "ckpt" / "history").glob("snapshots-*"):
        part.write_text('{"forged": 1}\n[]\nno JSON\n')
    assert epochs(tmp_path / "ckpt", tmp_path, 2) == [0, 1]


def test_nor_on_another_node(tmp_path: Path) -> None:
    with served(bucket=Misbehaving(7, trouble=0.0)):
        assert epochs(URL, tmp_path / "one", 3) == [0, 1, 2]
        assert epochs(URL, tmp_path / "two", 2) == [3, 4]


@pytest.mark.parametrize("place", PLACES)
def test_a_leader_that_is_overtaken_at_any_step_can_neither_commit_nor_publish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """It sleeps at that step of its third epoch while another takes over and runs to the end; then it wakes up."""
    write_input(tmp_path)
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)  # as on two machines
    visits = list[str]()

    def sleep(at: str) -> None:
        visits.append(at)
        if at == place and visits.count(place) == 3:
            run_files(tmp_path, 2, None)

    for module in (engine_module, publishing):
        monkeypatch.setattr(module, "failpoint", sleep)
    with pytest.raises(st.SpringtideError, match=r"taken over|stale|lost rows"):
        run_files(tmp_path, 1, None)
    every_row_is_there_once(tmp_path)
