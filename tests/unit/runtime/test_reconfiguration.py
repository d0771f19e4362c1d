"""Events in, actions out: the bucket maps of a run without clock, threads, cluster or checkpoint.

time      0          5          9          10
slots     1          1          3          3
event     Scale(4)   Due        Due        Due
action    request 4  —          —          dropped; applied with the 3 that came
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.query.ids import EpochNumber, Generation, InstanceId
from springtide.runtime.changes import (
    Action,
    Applied,
    Committed,
    Due,
    Event,
    Finished,
    Measured,
    Moment,
    Move,
    Note,
    Pause,
    Rebalance,
    Recovered,
    ReleaseSlots,
    RequestSlots,
    Resume,
    Scale,
    Start,
    Waits,
)
from springtide.runtime.old_owners import at_old_owners
from springtide.runtime.reconfiguration import Reconfiguration
from springtide.state.bucket_map import BucketMap
from springtide.state.instructions import Instruction
from springtide.state.manifest import Manifest, SubqueryState
from springtide.state.segment import Segment
from tests.unit.elastic.measured import measured

NOTHING = Manifest(EpochNumber(-1), Generation(1))
LOCAL = Moment(0.0)
"""Nobody can be asked for slots."""
BUCKETS = 8


@dataclass
class Script:
    """A policy that wants what is written, one thing after the other."""

    wanted: list[int] = field(default_factory=list)

    def decide(self, snapshot: st.Snapshot, history: Sequence[st.Snapshot]) -> Sequence[st.Proposal]:
        return [st.Proposal("heavy", "it is written", instances=self.wanted.pop(0))] if self.wanted else []


def plan() -> Any:
    source = st.source("calls", st.memory([], schema={"k": pl.String, "ts": st.TIME}), ts="ts")
    heavy = source.aggregate(by="k", window=st.sliding("30s", every="10s"), n=st.count(), name="heavy")
    return st.Query("calls", heavy.to(st.memory_sink(), name="out")).plan(buckets=BUCKETS)


def elastic(*wanted: int, **more: Any) -> st.Elastic:
    executors = st.Executors(warm=0, wait=10.0)
    policy = Script(list(wanted))
    return st.Elastic(policy=policy, balancing=None, every=0.0, grace=0.0, confirmations=1, executors=executors, **more)


def started(settings: st.Elastic | None = None, manifest: Manifest = NOTHING, instances: int = 1) -> Reconfiguration:
    machine = Reconfiguration(plan(), manifest, settings)
    machine.handle(Start(instances), LOCAL)
    return machine


def told(actions: Sequence[Action]) -> list[str]:
    return [a.text for a in actions if isinstance(a, Note)]


def made(actions: Sequence[Action]) -> Instruction:
    return next(a.instruction for a in actions if isinstance(a, Applied | Waits))


def epoch(machine: Reconfiguration, **more: Any) -> Measured:
    """Return what is measured of an epoch with the maps of now."""
    snapshot = measured([0.5] * machine.maps["heavy"].instances, buckets=machine.maps["heavy"], **more)
    load = replace(snapshot.subqueries["heavy"], map=machine.maps["calls"], rows_in=(), rows_out=(), busy=(), wait=())
    load = replace(load, bucket_rows=(), bucket_busy=(), bucket_bytes=())
    return Measured(replace(snapshot, subqueries={**snapshot.subqueries, "calls": load}))


def test_a_run_begins_as_wanted_as_before_or_as_usual() -> None:
    machine = Reconfiguration(plan(), NOTHING)
    assert machine.handle(Start({"out": 3}, usual=2), LOCAL) == [RequestSlots(3)]
    assert {n: m.instances for n, m in machine.maps.items()} == {"calls": 2, "heavy": 3}
    before = replace(NOTHING, maps=dict(machine.maps))
    again = Reconfiguration(plan(), before)
    assert again.handle(Start(usual=7), LOCAL) == [RequestSlots(3)]
    assert again.maps == machine.maps
    assert Reconfiguration(plan(), before).handle(Start(100), LOCAL) == [RequestSlots(100)]


def test_what_a_person_asks_for_is_applied_at_once_where_slots_cannot_be_asked_for() -> None:
    machine = started()
    before = machine.maps["heavy"]
    actions = machine.handle(Scale("out", 4), LOCAL)
    instruction = made(actions)
    assert actions == [
        RequestSlots(4),
        Applied(instruction, "virtual"),
        Note("scaled heavy: 1 → 4 instances"),
    ]
    assert (instruction.before, instruction.after) == (before, machine.maps["heavy"])
    assert machine.handle(Scale("heavy", 4), LOCAL) == []
    assert machine.handle(Move("heavy", [0], machine.maps["heavy"].owners[0]), LOCAL) == []
    moved = machine.handle(Move("heavy", [0, 1], 3), LOCAL)
    assert [type(a) for a in moved] == [Applied, Note], "moving buckets needs no more slots"
    assert machine.maps["heavy"].owners[:2] == (3, 3)
    assert [type(a) for a in machine.handle(Rebalance("heavy"), LOCAL)] == [Applied, Note]


@pytest.mark.parametrize(
    "event",
    [
        Scale("heavy", 0),
        Scale("heavvy", 2),
        Scale("heavy", 2, "windows"),  # type: ignore[arg-type]
        Move("heavy", [], 0),
        Move("heavy", [BUCKETS], 0),
        Move("heavy", [0], 1),
        Rebalance("calls"),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_has_changed(event: Event) -> None:
    machine = started()
    before = dict(machine.maps)
    with pytest.raises(st.QueryError):
        machine.handle(event, LOCAL)
    assert machine.maps == before
    assert machine.handle(Due(), LOCAL) == []


def test_a_change_waits_for_slots_and_is_applied_when_they_come() -> None:
    machine = started(elastic())
    before = machine.maps["heavy"]
    actions = machine.handle(Scale("heavy", 4), Moment(100.0, 1, grows=True))
    assert actions[:2] == [RequestSlots(4), Waits(made(actions))]
    assert machine.maps["heavy"] == before
    assert set(machine.waiting) == {"heavy"}
    assert machine.handle(Due(), Moment(105.0, 3, grows=True)) == []
    done = machine.handle(Due(), Moment(107.0, 4, grows=True))
    assert done[0] == Applied(made(actions), "virtual", waited=7.0)
    assert machine.maps["heavy"].instances == 4
    assert not machine.waiting


def test_a_change_is_made_as_far_as_the_slots_go_that_came() -> None:
    machine = started(elastic())
    machine.handle(Scale("heavy", 4), Moment(0.0, 1, grows=True))
    assert machine.handle(Due(), Moment(9.0, 3, grows=True)) == []
    actions = machine.handle(Due(), Moment(10.0, 3, grows=True))
    assert [type(a) for a in actions] == [Note, RequestSlots, Applied, Note]
    assert isinstance(actions[2], Applied)
    assert (actions[2].instruction.after.instances, actions[2].waited) == (3, 10.0)
    assert machine.manager is not None
    assert [r.rule for r in machine.manager.refusals] == ["dropped"]


def test_a_later_wish_takes_the_place_of_one_that_waits() -> None:
    machine = started(elastic())
    machine.handle(Scale("heavy", 8), Moment(0.0, 1, grows=True))
    assert machine.handle(Scale("heavy", 2), Moment(0.0, 1, grows=True))[0] == RequestSlots(2)
    machine.handle(Due(), Moment(1.0, 8, grows=True))
    assert machine.maps["heavy"].instances == 2


def test_the_manager_decides_after_an_epoch_and_the_next_one_shows_the_cost() -> None:
    machine = started(elastic(3))
    decided = machine.handle(epoch(machine, time=10.0), LOCAL)
    assert [type(a) for a in decided] == [RequestSlots, Applied, Note, ReleaseSlots]
    assert decided[-1] == ReleaseSlots(3), "what the next epoch needs"
    machine.handle(Committed(replace(NOTHING, epoch=EpochNumber(1), maps=dict(machine.maps))), LOCAL)
    shown = machine.handle(epoch(machine, time=20.0), LOCAL)
    assert isinstance(shown[0], Finished)
    assert (shown[0].instruction, shown[0].outcome.time) == (made(decided), 20.0)
    assert not any(isinstance(a, Finished) for a in machine.handle(epoch(machine, time=30.0), LOCAL)), "once"


def test_while_paused_only_people_change_anything() -> None:
    machine = started(elastic(3, 4))
    assert told(machine.handle(Pause(), LOCAL)) == ["elasticity is paused"]
    assert [type(a) for a in machine.handle(epoch(machine), LOCAL)] == [ReleaseSlots]
    assert any(isinstance(a, Applied) for a in machine.handle(Scale("heavy", 2), LOCAL))
    assert len(told(machine.handle(Resume(), LOCAL))) == 1
    assert started().handle(Pause(), LOCAL) == [], "without a manager there is nothing to pause"


def with_a_window(machine: Reconfiguration) -> Manifest:
    """Return a manifest with state in an open window."""
    written = {"epoch": EpochNumber(0), "instance": InstanceId(0), "version": 0}
    pane = Segment("state/x", "panes", **written, rows=1, bytes=1, low=0, high=0)  # type: ignore[arg-type]
    state = {"heavy": SubqueryState({}, (pane,))}
    return replace(NOTHING, epoch=EpochNumber(0), maps=dict(machine.maps), state=state)


def test_windows_stay_with_their_old_owners_until_those_have_given_them() -> None:
    """SC-9: window recreation, from the change to its end."""
    machine = started()
    manifest = with_a_window(machine)
    machine.handle(Committed(manifest), LOCAL)
    before = machine.maps["heavy"]
    actions = machine.handle(Scale("heavy", 2, "window"), LOCAL)
    assert Applied(made(actions), "window") in actions
    owned = machine.ownership(manifest)
    assert owned.maps[at_old_owners("heavy")] == before
    assert owned.state[at_old_owners("heavy")] == manifest.state["heavy"]
    assert owned.state["heavy"].segments == ()
    last = owned.old_owners["heavy"]
    going_on = replace(manifest, epoch=EpochNumber(1), old_owners={"heavy": last}, state=dict(owned.state))
    assert machine.handle(Committed(going_on), LOCAL) == []
    again = machine.handle(Scale("heavy", 3, "window"), LOCAL)
    assert Applied(made(again), "virtual") in again, "no second window recreation before the first is over"
    assert len(told(machine.handle(Committed(replace(going_on, old_owners={})), LOCAL))) == 1
    assert at_old_owners("heavy") not in machine.maps
    assert not machine.ownership(manifest).old_owners


def test_state_is_copied_in_one_epoch() -> None:
    machine = started()
    machine.handle(Scale("heavy", 2, "state"), LOCAL)
    assert machine.ownership(NOTHING).copying == {"heavy"}
    machine.handle(Committed(NOTHING), LOCAL)
    assert machine.ownership(NOTHING).copying == frozenset()


def test_after_a_recovery_the_rebuilt_maps_hold_but_for_those_about_to_change() -> None:
    machine = started()
    machine.handle(Scale("calls", 2), LOCAL)
    split = BucketMap.even(BUCKETS, 2, version=5)
    rebuilt = replace(NOTHING, maps={"heavy": split, "calls": BucketMap.even(0, 1)})
    assert machine.handle(Recovered(rebuilt, fixed={"calls"}), LOCAL) == []
    assert machine.maps["heavy"] == split
    assert machine.maps["calls"].instances == 2


def test_what_waited_when_the_run_ended_waits_again_unless_the_map_is_another() -> None:
    machine = started(elastic())
    machine.handle(Scale("heavy", 4), Moment(0.0, 1, grows=True))
    assert machine.manager is not None
    left = replace(NOTHING, maps=dict(machine.maps), elastic=machine.manager.state)
    again = Reconfiguration(plan(), left, elastic())
    assert [type(a) for a in again.handle(Start(), Moment(0.0, 1, grows=True))] == [
        RequestSlots,
        Waits,
        Note,
        RequestSlots,
    ]
    other = Reconfiguration(plan(), left, elastic())
    assert other.handle(Start(2), Moment(0.0, 1, grows=True)) == [RequestSlots(2)]
    assert other.manager is not None
    assert not other.manager.underway
