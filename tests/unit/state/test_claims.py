"""The log of a checkpoint: whoever makes the next record first has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import springtide as st
from springtide.state.checkpoint import Checkpoint
from springtide.state.claims import Lease, take
from springtide.state.log import Claim, Log, Slot
from springtide.state.manifest import Manifest
from springtide.state.stores import Store
from tests.stores.misbehaving import Misbehaving, served

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


@pytest.fixture(params=["a folder", "a store"])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Log]:
    with served(bucket=Misbehaving(0, trouble=0.0)):
        yield Log(Store.at(tmp_path / "ckpt" if request.param == "a folder" else "fake://bucket/ckpt"))


def forget(log: Log, lease: Lease, *epochs: int) -> None:
    """Do what a run does with old records."""
    slots = [slot for epoch in epochs for slot in lease.epochs.pop(epoch)]
    log.note_forgotten(slots, lease.ends)
    log.forget(slots)


def committed(log: Log, lease: Lease, *epochs: int) -> None:
    for epoch in epochs:
        lease.commit(Manifest(epoch, lease.generation))


@pytest.mark.parametrize("by", ["its run", "a later run"])
def test_a_claim_in_a_slot_that_was_forgotten_fences_nobody_off(place: Log, by: str) -> None:
    """Somebody read the log, and is so slow that the epochs that came then are forgotten by now."""
    one = lease_of(place, "one")
    committed(place, one, 0, 1, 2)
    seen = place.read()
    committed(place, one, 3, 4, 5, 6)
    if by == "a later run":
        one = lease_of(place, "later")
        committed(place, one, 7, 8)
    forget(place, one, 1, 3, 4, 5)
    assert not place.has(seen.next()[0])
    assert take(place, seen, "slow") is None
    committed(place, one, 9)
    two = lease_of(place, "slow")
    assert two.slot.epoch == 10
    with pytest.raises(st.CheckpointError, match="was taken over by a newer run"):
        committed(place, one, 10)
    committed(place, two, 10)


@pytest.mark.parametrize("last", [2, None])
@pytest.mark.parametrize("place", ["a store"], indirect=True)
def test_so_does_a_claim_made_by_a_listing_that_is_far_behind(
    place: Log, last: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that it shows may be gone, or only what came next; a claim that somebody made by it, and died, does not count either."""
    one = lease_of(place, "one")
    committed(place, one, 0, 1, 2)
    then = place.slots()
    committed(place, one, 3, 4, 5, 6)
    forget(place, one, *(epoch for epoch in range(6) if epoch != last))
    for stray in ("somebody", "another"):
        with monkeypatch.context() as patched:
            patched.setattr(Log, "slots", lambda self, then=then: then)
            records = place.read()
            assert take(place, records, "late") is None
            slot, generation = records.next()
            assert place.make(slot, Claim.of(generation, stray).encode())
        then = [*then, slot]
    committed(place, one, 7)
    assert lease_of(place, "late").slot.epoch == 8


def test_records_that_nobody_can_have_made_are_refused(log: Log) -> None:
    one = lease_of(log, "one")
    committed(log, one, 0, 1)
    lease_of(log, "two")
    log.make(Slot(3, 1), Claim.of(9, "nobody").encode())
    with pytest.raises(st.CheckpointError, match="has a record 000000003 of a run that had lost it before"):
        lease_of(log, "three")


def test_notes_go_with_the_claims_of_their_generations(place: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("springtide.state.claims.CLAIMS", 3)
    for run in range(9):
        lease = lease_of(place, str(run))
        committed(place, lease, run)
        forget(place, lease, *(epoch for epoch in lease.epochs.copy() if epoch < run))
    notes = [f for f in place.store.list() if "forgotten" in f or "ended" in f]
    assert len(notes) <= 4
    assert bool(notes) == (place.store.local is None)


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
