"""A lease in ZooKeeper, whose server goes away and comes back: the run at work goes on, whoever waits goes on waiting, and nobody gets stuck (SM-6)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import springtide as st
from springtide.query.errors import SpringtideError
from springtide.runtime import zookeeper as zookeeper_module
from springtide.runtime.durability import Durability
from springtide.runtime.engine import Engine, Options
from springtide.runtime.inprocess import execute
from springtide.runtime.standby import Seen, StandbyEnded, lead_of
from springtide.runtime.zookeeper import ZooKeeperLead
from springtide.state.claims import Overtaken, Sighting
from springtide.state.errors import AwayError
from springtide.state.names import RUNNING
from springtide.state.pulse import Sign
from springtide.state.stores import Store
from tests.machine import LONG
from tests.servers.zookeeper import ZooKeeper, zookeeper
from tests.unit.runtime.crashing import every_row_is_there_once, files_to_files, write_input


class Standing:
    """One of those who stand by, in a thread of its own."""

    def __init__(self, lead: ZooKeeperLead) -> None:
        self.lead, self._came, self._result = lead, threading.Event(), list[Sighting | BaseException]()
        self.wait()

    def wait(self) -> None:
        self._came.clear()
        self._result.clear()
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        try:
            self._result.append(self.lead.wait(lambda: None))
        except BaseException as error:
            self._result.append(error)
        self._came.set()

    @property
    def waits(self) -> bool:
        return not self._came.is_set()

    def result(self) -> Sighting | BaseException:
        assert self._came.wait(LONG), "it waits for ever"
        return self._result[0]


class Several:
    """Runs of one query that share a checkpoint and a server."""

    def __init__(self, folder: Path, server: ZooKeeper) -> None:
        self.folder, self.server = folder, server
        self.told: list[str] = []
        self._leads: list[ZooKeeperLead] = []

    def lead(self, cancelled: Callable[[], bool] | None = None) -> ZooKeeperLead:
        lease = f"zk://{self.server.address}/numbers"
        standby = st.Standby("2s", lease, told=self.told.append, cancelled=cancelled)
        made = lead_of(standby, Durability().checkpoint(self.folder / "checkpoint"), Durability())
        assert isinstance(made, ZooKeeperLead)
        self._leads.append(made)
        return made

    def engine(self, sighting: Sighting) -> Engine:
        plan = files_to_files(self.folder).plan(buckets=8)
        options = Options(2, rows_per_epoch=10, sighting=sighting, signs=0.4)
        engine = Engine(
            plan, options.durability.checkpoint(self.folder / "checkpoint"), lambda epoch: execute(plan, epoch), options
        )
        engine.begin()
        return engine

    def close(self) -> None:
        for lead in self._leads:
            lead.resign()


@pytest.fixture
def several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Several]:
    write_input(tmp_path)
    (tmp_path / "zookeeper").mkdir()
    with zookeeper(tmp_path / "zookeeper") as server:
        made = Several(tmp_path, server)
        yield made
        made.close()


def epoch(engine: Engine) -> None:
    assert engine.has_work()
    engine.run()


def test_a_server_that_goes_and_comes_back(several: Several, monkeypatch: pytest.MonkeyPatch) -> None:
    first = several.lead()
    engine = several.engine(first.wait(lambda: None))
    epoch(engine)
    second, weary = Standing(several.lead()), threading.Event()
    third = Standing(several.lead(cancelled=weary.is_set))
    until(lambda: len(several.told) == 2)

    several.server.stop()
    epoch(engine)
    epoch(engine)
    assert second.waits, "nobody says that it is its turn"
    weary.set()
    assert isinstance(third.result(), StandbyEnded), "Ctrl-C is heard though no server answers"
    with monkeypatch.context() as patch:
        patch.setattr(zookeeper_module, "_CONNECT", 0.1)
        with pytest.raises(SpringtideError, match="ZooKeeper does not answer at"):
            several.lead()

    several.server.start()
    epoch(engine)  # whether or not the session was still good: nobody has claimed the checkpoint
    first.resign()  # the session is over, but not the run
    seen = second.result()
    assert isinstance(seen, Sighting)
    epoch(engine)
    with pytest.raises(Overtaken):
        several.engine(seen)
    second.wait()  # it has the lock already: now the signs of life of the run at work count
    epoch(engine)
    assert second.waits
    engine.close()
    seen = second.result()
    assert isinstance(seen, Sighting)
    other = several.engine(seen)
    while not other.manifest.ended:
        epoch(other)
    other.close()
    every_row_is_there_once(several.folder)


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


# ── what follows when the lock has come; no server is needed ──────────────────────────────────────────────────────


class Free:
    """A client whose lock is free."""

    is_acquired = False

    def __init__(self, **_: object) -> None:
        pass

    def start(self, timeout: float) -> None:
        pass

    stop = close = lambda self: None

    def Lock(self, path: str) -> Free:  # noqa: N802 (kazoo calls it so)
        return self

    def acquire(self) -> bool:
        self.happens()
        return True

    def happens(self) -> None:
        """Do nothing, unless a test says what happens while it waits."""


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ZooKeeperLead, list[str]]:
    monkeypatch.setattr(zookeeper_module, "KazooClient", Free)
    told = list[str]()
    standby = st.Standby("100ms", "zk://nowhere:1/numbers", told=told.append)
    lead = lead_of(standby, Durability().checkpoint(tmp_path), Durability())
    assert isinstance(lead, ZooKeeperLead)
    return lead, told


def test_a_store_that_is_away_when_the_lock_comes_ends_nobody(
    alone: tuple[ZooKeeperLead, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (lead, told), errors = alone, [OSError("no route to host"), AwayError("s3://b", "is away", "wait")]
    looks = Seen.sighting

    def away(self: Seen) -> Sighting:
        if errors:
            raise errors.pop()
        return looks(self)

    monkeypatch.setattr(Seen, "sighting", away)
    assert lead.wait(lambda: None).last is None
    assert [text for text in told if "cannot be read" in text][1].endswith("no route to host")


def test_nobody_goes_on_with_a_query_that_was_stopped_meanwhile(
    alone: tuple[ZooKeeperLead, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead, store = alone[0], Store.at(tmp_path)

    def stop() -> None:
        store.write(RUNNING, replace(Sign.of(1.0, 7), stopped=True).encode())

    monkeypatch.setattr(Free, "happens", lambda self: stop())
    with pytest.raises(StandbyEnded, match="somebody stopped the query"):
        lead.wait(lambda: None)
    monkeypatch.undo()
    lead.wait(lambda: None)  # started afterwards it goes on
