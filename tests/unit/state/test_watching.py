"""Who stands by: what follows from signs of life, and that one of several takes over."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

import springtide as st
from springtide.state.checkpoint import Checkpoint
from springtide.state.claims import Overtaken, Sighting
from springtide.state.log import Log, Slot
from springtide.state.manifest import Manifest
from springtide.state.mirror import Mirror
from springtide.state.names import RUNNING
from springtide.state.pulse import Pulse, Sign, read_sign
from springtide.state.stores import Store
from springtide.state.watching import Verdict, Watcher
from tests.unit.state.test_checkpoint import IDENTITY

ALIVE = Sign("process 1 on a", 100.0, every=1.0, number=7)
LATER = Sign("process 1 on a", 101.0, every=1.0, number=8)


def after(*looks: tuple[float, Sign | None, Sighting | None], seconds: float = 5.0) -> Watcher:
    watcher = Watcher(seconds)
    for now, sign, sighting in looks:
        watcher = watcher.saw(sign, sighting, now)
    return watcher


def test_a_run_that_gives_signs_is_waited_for() -> None:
    watcher = after((0.0, ALIVE, None), (4.9, LATER, None))
    assert watcher.verdict(9.8) is Verdict.WAIT


def test_the_same_sign_for_too_long_is_a_dead_run() -> None:
    watcher = after(
        (10.0, ALIVE, None), (12.0, ALIVE, Sighting(True, Slot(3, 1))), (14.0, ALIVE, Sighting(True, Slot(3, 1)))
    )
    assert watcher.verdict(14.9) is Verdict.WAIT
    assert watcher.verdict(15.0) is Verdict.GO


def test_a_commit_is_a_sign_of_life() -> None:
    watcher = after(
        (10.0, ALIVE, None), (12.0, ALIVE, Sighting(True, Slot(3, 1))), (14.0, ALIVE, Sighting(True, Slot(4, 1)))
    )
    assert watcher.verdict(15.0) is Verdict.WAIT
    assert watcher.verdict(19.0) is Verdict.GO


def test_a_run_with_rare_signs_is_waited_for_longer() -> None:
    rare = Sign("process 1 on a", 100.0, every=10.0)
    assert after((0.0, rare, None)).verdict(29.0) is Verdict.WAIT
    assert after((0.0, rare, None)).verdict(30.0) is Verdict.GO


def test_the_time_of_day_does_not_matter() -> None:
    """Clocks that differ, or are set back: a sign is compared with the one before it, not with a clock."""
    set_back = Sign("process 1 on a", -1e9, every=1.0, number=8)
    assert after((0.0, ALIVE, None), (1.0, set_back, None)).verdict(5.5) is Verdict.WAIT


def test_nobody_runs() -> None:
    assert after((0.0, None, None)).verdict(0.0, first=True) is Verdict.GO
    assert after((0.0, ALIVE, None), (1.0, None, None)).verdict(1.0) is Verdict.GO


def test_a_query_that_was_stopped_is_not_gone_on_with_unless_started_anew() -> None:
    stopped = Sign("process 1 on a", 100.0, stopped=True)
    assert after((0.0, ALIVE, None), (1.0, stopped, None)).verdict(1.0) is Verdict.END
    assert after((0.0, stopped, None)).verdict(0.0, first=True) is Verdict.GO


@pytest.mark.parametrize("forged", [b"", b"{}", b"[]", b'{"by": 1, "at": null}', b'{"by": "x", "at": 1, "every": "y"}'])
def test_what_is_no_sign_is_none(tmp_path: Path, forged: bytes) -> None:
    (tmp_path / RUNNING).write_bytes(forged)
    assert read_sign(Store.at(tmp_path)) is None


def test_signs_are_given_until_the_run_is_lost_and_removed_at_the_end(tmp_path: Path) -> None:
    with mock.patch("threading.Thread"):  # what it does in the background is done when the test says so
        signs_are_given(tmp_path)


def signs_are_given(tmp_path: Path) -> None:
    store, lost = Store.at(tmp_path), [False]
    pulse = Pulse(store, 3_600.0, lambda: lost[0])
    pulse.beat()
    first = read_sign(store)
    pulse.beat()
    second = read_sign(store)
    assert first is not None
    assert second is not None
    assert second.number > first.number
    lost[0] = True
    pulse.beat()
    assert read_sign(store) == second
    pulse.close()
    assert read_sign(store) == second, "a newer run's sign is not ours to remove"
    other = Pulse(store, 3_600.0, lambda: False)
    other.close(stopped=True)
    assert (read_sign(store) or first).stopped
    Pulse(store, 3_600.0, lambda: False).close()
    assert read_sign(store) is None


# ── taking over ───────────────────────────────────────────────────────────────────────────────────────────────────


def turn_of(root: Path) -> Sighting:
    slots = Log(Store.at(root)).slots()
    return Sighting((root / "springtide.json").exists(), slots[-1] if slots else None)


def test_one_of_two_who_stand_by_takes_over_and_the_dead_run_wakes_up_in_vain(tmp_path: Path) -> None:
    root = tmp_path / "ckpt"
    paused = Checkpoint(root).acquire(IDENTITY)
    paused.commit(Manifest(epoch=0, generation=paused.generation))
    seen = turn_of(root)
    first = Checkpoint(root).acquire(IDENTITY, seen)  # the lock is held by the paused run: it is replaced
    with pytest.raises(Overtaken):
        Checkpoint(root).acquire(IDENTITY, seen)
    with pytest.raises(st.CheckpointError, match="taken over"):
        paused.commit(Manifest(epoch=1, generation=paused.generation))
    first.commit(Manifest(epoch=1, generation=first.generation))
    first.release()
    paused.release()


def test_a_commit_between_the_look_and_the_claim_keeps_the_run(tmp_path: Path) -> None:
    root = tmp_path / "ckpt"
    slow = Checkpoint(root).acquire(IDENTITY)
    slow.commit(Manifest(epoch=0, generation=slow.generation))
    seen = turn_of(root)
    slow.commit(Manifest(epoch=1, generation=slow.generation))
    with pytest.raises(Overtaken):
        Checkpoint(root).acquire(IDENTITY, seen)
    slow.commit(Manifest(epoch=2, generation=slow.generation))
    slow.release()


def test_of_two_who_find_nothing_one_makes_the_checkpoint(tmp_path: Path) -> None:
    root = tmp_path / "ckpt"
    seen = turn_of(root)
    first = Checkpoint(root).acquire(IDENTITY, seen)
    with pytest.raises(Overtaken):
        Checkpoint(root).acquire(IDENTITY, seen)
    first.commit(Manifest(epoch=0, generation=first.generation))
    first.release()


def test_with_a_backup_the_turn_is_of_the_backup(tmp_path: Path) -> None:
    store = Store.at(tmp_path / "backup")
    mirror = Mirror(Checkpoint(tmp_path / "one"), store)
    gone = mirror.acquire(IDENTITY)
    gone.commit(Manifest(epoch=0, generation=gone.generation))
    seen = turn_of(tmp_path / "backup")
    other = Mirror(Checkpoint(tmp_path / "two"), store).acquire(IDENTITY, seen)
    with pytest.raises(Overtaken):
        Mirror(Checkpoint(tmp_path / "three"), store).acquire(IDENTITY, seen)
    other.release()
    gone.release()
