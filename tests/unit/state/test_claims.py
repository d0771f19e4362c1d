"""The log of a checkpoint: whoever makes the next record first has it."""

from __future__ import annotations

from pathlib import Path

import pytest

import springtide as st
from springtide.state.checkpoint import Checkpoint
from springtide.state.claims import take
from springtide.state.log import Claim, Log, Slot
from springtide.state.manifest import Manifest
from springtide.state.stores import Store

IDENTITY = {"query": "q", "steps": {}, "buckets": 8, "hash": "h", "polars": "2"}


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(Store.at(tmp_path / "ckpt"))


def lease_of(log: Log, token: str):
    lease = take(log, log.read(), token)
    assert lease is not None
    return lease


def test_names_tell_slots() -> None:
    assert [Slot.of(n) for n in ("000000007", "000000007.2", "000000007.partial", "notes.txt", "7")] == [
        Slot(7, 1),
        Slot(7, 2),
        None,
        None,
        None,
    ]
    assert Slot(1_234_567_890, 12).name == "1234567890.12"
    assert Slot.of("1234567890.12") == Slot(1_234_567_890, 12)


def test_a_claim_survives_writing() -> None:
    claim = Claim.of(3, "me", Manifest(7, 3, ended=True))
    assert Claim.decode(claim.encode()) == claim


@pytest.mark.parametrize("paused", ["before", "after"])
def test_a_commit_and_a_claim_at_the_same_moment(log: Log, paused: str) -> None:
    """Whichever comes first: the other knows."""
    one = lease_of(log, "one")
    one.commit(Manifest(0, one.generation))
    seen = log.read()
    if paused == "before":
        one.commit(Manifest(1, one.generation))
        assert take(log, seen, "two") is None, "epoch 1 came in between: it must be read"
        two = lease_of(log, "two")
        assert log.read().epochs() == [0, 1]
        two.commit(Manifest(2, two.generation))
    else:
        two = take(log, seen, "two")
        assert two is not None
        with pytest.raises(st.CheckpointError, match="was taken over by a newer run"):
            one.commit(Manifest(1, one.generation))
        two.commit(Manifest(1, two.generation))
    with pytest.raises(st.CheckpointError, match="was taken over by a newer run"):
        one.check()


def test_a_run_that_made_state_anew_says_so_once_it_is_sure_of_the_checkpoint(log: Log) -> None:
    one = lease_of(log, "one")
    one.commit(Manifest(0, one.generation))
    brought = one.bring(Manifest(0, one.generation, ended=True))
    assert log.read().manifests() == [brought]
    one.commit(Manifest(1, one.generation))
    assert [m.ended for m in log.read().manifests()] == [True, False]
    log.forget_epoch(0)
    assert log.read().epochs() == [1]
    lease_of(log, "two")
    with pytest.raises(st.CheckpointError, match="was taken over by a newer run"):
        one.bring(Manifest(1, one.generation, ended=True))
    assert [m.ended for m in log.read().manifests()] == [False]


def test_a_version_that_only_the_claim_has_is_the_one_that_counts(log: Log) -> None:
    """The run died between its claim and the record of the epoch's own."""
    one = lease_of(log, "one")
    one.commit(Manifest(0, one.generation))
    slot, generation = log.read().next()
    log.make(slot, Claim.of(generation, "one", Manifest(0, generation, ended=True)).encode())
    assert [m.ended for m in log.tail().manifests()] == [True]
    two = lease_of(log, "two")
    two.commit(Manifest(1, two.generation))
    assert [(m.epoch, m.ended) for m in log.read().manifests()] == [(0, True), (1, False)]


def test_a_version_whose_answer_was_lost_may_be_made_again(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    one = lease_of(log, "one")
    one.commit(Manifest(0, one.generation))
    make = Log.make

    def lost(self: Log, slot: Slot, data: bytes) -> bool:
        make(self, slot, data)
        raise OSError("no answer")

    monkeypatch.setattr(Log, "make", lost)
    with pytest.raises(OSError, match="no answer"):
        one.bring(Manifest(0, one.generation, old_owners={"n": 1}))
    monkeypatch.undo()
    one.bring(Manifest(0, one.generation, old_owners={"n": 2}))
    one.commit(Manifest(1, one.generation))
    assert [m.old_owners for m in log.read().manifests()] == [{"n": 2}, {}]


def test_old_claims_go_some_day(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("springtide.state.claims.CLAIMS", 3)
    for run in range(9):
        lease = lease_of(log, str(run))
        lease.commit(Manifest(run, lease.generation))
    assert len(log.read().claims()) <= 4
    assert log.read().epochs() == [*range(9)]


def test_a_checkpoint_of_an_older_version_goes_on(tmp_path: Path) -> None:
    """Before there were claims, manifests had plain names and a file counted the runs."""
    folder = tmp_path / "ckpt"
    Checkpoint(folder).make(IDENTITY)
    (folder / "manifests").mkdir()
    (folder / "generation").write_text("4")
    for epoch, generation in ((0, 2), (1, 4)):
        (folder / "manifests" / f"{epoch:09d}").write_bytes(Manifest(epoch, generation).encode())
    lease = Checkpoint(folder).acquire(IDENTITY)
    assert lease.generation == 5
    lease.commit(Manifest(2, 5))
    lease.release()
    assert [m.generation for m in Checkpoint(folder).history()] == [2, 4, 5]
