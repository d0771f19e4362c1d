"""The manager: snapshots in, instructions out. Limits, grace, confirmations, slots, veto, refusals; what a restart keeps."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from springtide.elastic.manager import Manager
from springtide.elastic.policies.balancing import Balancing
from springtide.elastic.policies.manual import Manual
from springtide.elastic.policies.policy import Proposal
from springtide.elastic.policies.threshold import SC_10
from springtide.elastic.settings import Elastic
from springtide.elastic.snapshot import Snapshot, SourceLoad, SubqueryLoad
from springtide.state.bucket_map import BucketMap
from springtide.state.instructions import Instruction
from springtide.state.manager_state import ManagerState, check_manager_state
from springtide.state.parsing import NewerFormat
from tests.unit.elastic.measured import measured
from tests.wording import says

NOW = Elastic(every=5, grace=10, confirmations=1, balancing=None)
"""Decides with every snapshot of 5 s."""


@dataclass
class Scripted:
    """Wants what the test wants."""

    proposals: list[Proposal]

    def decide(self, snapshot: Snapshot, history: Sequence[Snapshot]) -> Sequence[Proposal]:
        return self.proposals


def wanting(*instances: int, **settings: object) -> Manager:
    proposals = [Proposal("heavy", "a test", instances=n) for n in instances]
    return Manager(replace(NOW, policy=Scripted(proposals), **settings))  # type: ignore[arg-type]


def degrees(instructions: Sequence[Instruction]) -> list[int]:
    return [i.after.instances for i in instructions]


def rules(manager: Manager) -> list[str]:
    return [r.rule for r in manager.refusals]


class Cluster:
    """Does as it is told, some snapshots later."""

    def __init__(self, manager: Manager, load: Callable[[float], float], delay: int = 0, instances: int = 1) -> None:
        self.manager, self.load, self.delay = manager, load, delay
        self.map, self.time = BucketMap.even(64, instances), 0.0
        self.todo: list[tuple[int, Instruction]] = []
        self.degrees: list[int] = []

    def run(self, steps: int) -> None:
        for step in range(steps):
            for due, instruction in self.todo:
                if due <= step:
                    assert instruction.before == self.map
                    self.map = instruction.after
            self.todo = [(due, i) for due, i in self.todo if due > step]
            self.time += 5.0
            busy = self.load(self.time) / self.map.instances
            now = measured(
                [min(1.0, busy)] * self.map.instances,
                time=self.time,
                rows=100_000,
                arrived=round(100_000 * max(1.0, busy)),
                buckets=self.map,
            )
            self.todo += [(step + 1 + self.delay, i) for i in self.manager.handle(now)]
            self.degrees.append(self.map.instances)


# ── summaries ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_short_epochs_are_gathered() -> None:
    #   period  1.5  1.5  1.5  1.5  1.5  1.5
    #   decide             ×              ×
    manager = wanting(2)
    answers = [manager.handle(measured([0.5], time=1.5 * i, period=1.5)) for i in range(6)]
    assert [bool(a) for a in answers] == [False, False, True, False, False, False]
    assert [summary.period for summary in manager.history] == [4.5, 4.5]
    assert rules(manager) == ["underway"]


@pytest.mark.parametrize(("period", "epochs"), [(1.0, 5), (0.98, 5), (1.2, 4), (1.8, 3), (4.0, 1), (4.8, 1), (30.0, 1)])
def test_a_report_is_as_long_as_whole_epochs_can_make_it(period: float, epochs: int) -> None:
    manager = wanting()
    for epoch in range(epochs):
        assert not manager.history
        manager.handle(measured([0.5], time=period * (epoch + 1), period=period))
    assert len(manager.history) == 1, "an epoch of 4.8 s is a summary: waiting for 9.6 would be further from 5"


def test_a_policy_sees_what_was_before() -> None:
    seen: list[int] = []

    class Counting:
        def decide(self, snapshot: Snapshot, history: Sequence[Snapshot]) -> Sequence[Proposal]:
            assert snapshot not in history
            seen.append(len(history))
            return ()

    manager = Manager(replace(NOW, policy=Counting(), remember=2))
    for i in range(4):
        manager.handle(measured([0.5], time=i))
    assert seen == [0, 1, 2, 2]


# ── the rules ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_instruction_is_a_new_map_with_a_reason() -> None:
    manager = Manager(replace(NOW, policy=SC_10))
    (instruction,) = manager.handle(measured([0.95] * 2, time=7.0))
    assert says(instruction, "scale heavy: 2 → 4 instances; ", "95%", "90%")
    assert (instruction.time, instruction.epoch, instruction.kind) == (7.0, 7, "scale")
    assert (instruction.before, instruction.after.version) == (BucketMap.even(64, 2), 1)
    assert len(instruction.moved) == 32


def test_limits_hold_and_what_they_cut_is_written_down() -> None:
    manager = wanting(9, max=4)
    (instruction,) = manager.handle(measured([0.9] * 2))
    assert instruction.after.instances == 4
    assert instruction.reason == "a test; held at 4: it has at most 4"
    assert str(manager.refusals[0]) == "refused for heavy: 9 instances; it has at most 4"


@pytest.mark.parametrize(
    ("wanted", "limits", "got"),
    [(9, {}, [9]), (9, {"max": 2}, []), (1, {"min": 2}, []), (9, {"limits": {"heavy": (1, 3)}}, [3]), (99, {}, [64])],
)
def test_limits(wanted: int, limits: dict[str, object], got: list[int]) -> None:
    assert degrees(wanting(wanted, **limits).handle(measured([0.5] * 2))) == got


def test_who_is_outside_the_limits_is_brought_back() -> None:
    assert degrees(Manager(replace(NOW, policy=Manual(), max=3)).handle(measured([0.6] * 8))) == [3]
    assert degrees(Manager(replace(NOW, policy=Manual(), min=4)).handle(measured([0.6]))) == [4]


def test_after_a_change_the_subquery_has_its_peace() -> None:
    #   time       0     5     10    15    20
    #   map        0     1     1     1     1
    #            told  done  grace      wanted again
    manager = wanting(2)
    (instruction,) = manager.handle(measured([0.9], time=0))
    manager.elastic = replace(manager.elastic, policy=Scripted([Proposal("heavy", "more", instances=3)]))
    after = [manager.handle(measured([0.9] * 2, time=t, buckets=instruction.after)) for t in (5.0, 10.0, 15.0)]
    assert [degrees(a) for a in after] == [[], [], [3]]
    assert [(r.rule, r.times) for r in manager.refusals] == [("grace", 2)]
    assert manager.refusals[0].why == "the last change was 5.0 s ago, less than 10 s"


def test_while_a_change_is_under_way_there_is_no_other() -> None:
    """Executors take their time: the same map is seen for a while."""
    manager = wanting(2)
    assert degrees(manager.handle(measured([0.9], time=0))) == [2]
    assert [manager.handle(measured([0.9], time=t)) for t in (5.0, 100.0)] == [(), ()]
    assert rules(manager) == ["underway"]
    assert [i.after.instances for i in manager.underway.values()] == [2]


def test_what_could_not_be_done_is_dropped_and_tried_again() -> None:
    manager = wanting(2)
    (instruction,) = manager.handle(measured([0.9], time=0))
    manager.drop(instruction, 20.0, "no executor came in 20 s")
    assert manager.handle(measured([0.9], time=25)) == ()
    assert degrees(manager.handle(measured([0.9], time=30))) == [2]
    assert rules(manager) == ["dropped", "grace"]


def test_fewer_instances_must_be_wanted_more_than_once() -> None:
    #   wanted     2     3    more    2     3      1
    #   summaries  1     2      0     1     2      3 → the most careful
    manager = wanting(confirmations=3)
    answers = []
    for time, n in enumerate((2, 3, 6, 2, 3, 1)):
        manager.elastic = replace(
            manager.elastic, policy=Scripted([Proposal("heavy", "a test", instances=n)] if n != 6 else [])
        )
        answers.append(degrees(manager.handle(measured([0.3] * 5, time=5.0 * time))))
    assert answers == [[], [], [], [], [], [3]]
    assert manager.refusals[0].why == "2 of 3 summaries in a row asked for it"


def test_more_instances_are_given_at_once() -> None:
    assert degrees(wanting(7, confirmations=3).handle(measured([0.9] * 5))) == [7]


def test_balancing_does_not_come_before_a_scale_in_that_is_due() -> None:
    manager = wanting(2, confirmations=2, balancing=Balancing())
    uneven = measured([0.5, 0.1, 0.1, 0.1], bucket_rows=[10] * 64)
    assert manager.handle(uneven) == ()
    (instruction,) = manager.handle(replace(uneven, time=5.0))
    assert instruction.kind == "scale"


def test_where_the_number_stays_the_load_is_balanced() -> None:
    manager = Manager(replace(NOW, policy=SC_10, balancing=Balancing()))
    (instruction,) = manager.handle(measured([0.9, 0.5, 0.5, 0.5], bucket_rows=[10] * 64))
    assert (instruction.kind, instruction.after.instances) == ("rebalance", 4)


def test_stages_share_slots_only_with_themselves() -> None:
    """`a` and `b` run side by side, `c` behind them."""
    sub = {
        name: SubqueryLoad(BucketMap.even(16, n), (1,) * n, (1,) * n, (1.0,) * n, upstream=up)
        for name, n, up in (("a", 2, ()), ("b", 3, ()), ("c", 1, ("a", "b")))
    }
    now = Snapshot(0.0, 0, 5.0, 5.0, {"s": SourceLoad(10)}, sub)
    wishes = [Proposal(name, "a test", instances=n) for name, n in (("a", 6), ("b", 1), ("c", 9))]
    manager = Manager(replace(NOW, policy=Scripted(wishes), slots=6))
    assert {i.subquery: i.after.instances for i in manager.handle(now)} == {"b": 1, "a": 5, "c": 6}
    assert rules(manager) == ["slots", "slots"]
    full = Manager(replace(NOW, policy=Scripted(wishes[:1]), slots=5))
    assert full.handle(now) == ()
    assert str(full.refusals[0]) == "refused for a: 6 instances; there are slots for 2 instances"


def test_a_veto_refuses() -> None:
    def veto(instruction: Instruction) -> str | None:
        return "not on a Friday" if instruction.after.instances > 2 else None

    manager = wanting(3, veto=veto)
    assert manager.handle(measured([0.9])) == ()
    assert str(manager.refusals[0]) == "refused for heavy: 3 instances; not on a Friday"
    assert degrees(wanting(2, veto=veto).handle(measured([0.9]))) == [2]


def test_code_of_users_that_fails_stops_nothing() -> None:
    def veto(instruction: Instruction) -> str | None:
        raise RuntimeError("no network")

    class Broken:
        def decide(self, snapshot: Snapshot, history: Sequence[Snapshot]) -> Sequence[Proposal]:
            raise ZeroDivisionError("division by zero")

    manager = wanting(2, veto=veto)
    assert manager.handle(measured([0.9])) == ()
    assert manager.refusals[0].why == "the veto failed, RuntimeError: no network"
    broken = Manager(replace(NOW, policy=Broken()))
    assert broken.handle(measured([0.9])) == ()
    assert says(broken.refusals[0], "refused for all: ", "Broken", "failed", "ZeroDivisionError: division by zero")


def test_proposals_that_cannot_be() -> None:
    wishes = [Proposal("light", "?", instances=2), Proposal("heavy", "?", moves={99: 0})]
    manager = Manager(replace(NOW, policy=Scripted(wishes)))
    assert manager.handle(measured([0.9])) == ()
    assert [r.why for r in manager.refusals] == ["there is no such subquery", "there is no bucket 99, they are 0 to 63"]


def test_a_paused_manager_measures_and_decides_nothing() -> None:
    manager = wanting(2)
    manager.pause()
    assert manager.handle(measured([0.9])) == ()
    assert (len(manager.history), manager.refusals) == (1, ())
    manager.resume()
    assert degrees(manager.handle(measured([0.9], time=5))) == [2]


# ── by hand ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_by_hand_there_is_no_grace_and_no_confirmation() -> None:
    manager = wanting(max=8)
    manager.pause()
    own = BucketMap.even(64, 4)
    for n in (8, 2, 1):
        instruction = manager.by_hand(Proposal("heavy", "by hand", instances=n), own, time=1.0, epoch=0)
        assert instruction is not None
        own = instruction.after
    assert own.instances == 1
    assert manager.by_hand(Proposal("heavy", "by hand", instances=1), own, 1.0, 0) is None
    with pytest.raises(ValueError, match=r"9 instances .* limits, 1 to 8"):
        manager.by_hand(Proposal("heavy", "by hand", instances=9), own, 1.0, 0)


def test_what_was_said_by_hand_is_not_undone_at_once() -> None:
    manager = wanting(2)
    instruction = manager.by_hand(Proposal("heavy", "by hand", instances=5), BucketMap.even(64, 1), 0.0, 0)
    assert instruction is not None
    after = [manager.handle(measured([0.1] * 5, time=t, buckets=instruction.after)) for t in (5.0, 10.0, 15.0)]
    assert [degrees(a) for a in after] == [[], [], [2]]


def test_by_hand_the_last_known_loads_count() -> None:
    manager = Manager(replace(NOW, policy=Manual()))
    rows = [640 if b == 0 else 10 for b in range(64)]
    manager.handle(measured([0.9, 0.5], bucket_rows=rows))
    instruction = manager.by_hand(Proposal("heavy", "by hand", instances=3), BucketMap.even(64, 2), 9.0, 1)
    assert instruction is not None
    owner = instruction.after.owners[0]
    assert len(instruction.after.buckets_of(owner)) < 10, "the hot bucket leaves little room beside it"


# ── restart ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def again(manager: Manager) -> Manager:
    """What a new process has of it."""
    history = [Snapshot.from_json(json.loads(json.dumps(s.to_json()))) for s in manager.history]
    kept = json.loads(json.dumps(manager.state.to_json()))
    check_manager_state("elastic", kept)
    return Manager(manager.elastic, ManagerState.from_json(kept), history)


def test_a_restart_goes_on_with_grace_confirmations_and_what_is_under_way() -> None:
    manager = wanting(2)
    (instruction,) = manager.handle(measured([0.9], time=0))
    manager = again(manager)
    assert manager.underway == {"heavy": instruction}
    manager.handle(measured([0.9] * 2, time=5, buckets=instruction.after))
    manager.elastic = replace(manager.elastic, policy=Scripted([Proposal("heavy", "", instances=3)]))
    manager = again(manager)
    assert manager.handle(measured([0.9] * 2, time=10, buckets=instruction.after)) == ()
    assert rules(manager) == ["grace"]
    assert degrees(again(manager).handle(measured([0.9] * 2, time=15, buckets=instruction.after))) == [3]


def test_a_pause_outlives_a_restart() -> None:
    manager = wanting(2)
    manager.pause()
    assert again(manager).paused


def test_another_format_is_refused() -> None:
    with pytest.raises(NewerFormat, match="format 9"):
        check_manager_state("elastic", ManagerState().to_json() | {"format": 9})


@given(some.lists(some.sampled_from([0.2, 0.7, 1.4, 3.0, 9.0]), min_size=1, max_size=12), some.integers(0, 3))
def test_restarted_or_not_the_decisions_are_the_same(loads: list[float], delay: int) -> None:
    one = Cluster(Manager(replace(NOW, policy=SC_10, confirmations=2)), lambda t: loads[int(t / 5) % len(loads)], delay)
    two = Cluster(Manager(replace(NOW, policy=SC_10, confirmations=2)), one.load, delay)
    for _ in range(12):
        one.run(1)
        two.manager = again(two.manager)
        two.run(1)
    assert one.degrees == two.degrees
    assert one.manager.state == two.manager.state


# ── together ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("delay", [0, 3])
def test_a_load_that_triples_is_followed_up_and_down(delay: int) -> None:
    #   load        1.2 ──┐  3.6 ──┐
    #                     └────────┴── 1.2
    cluster = Cluster(
        Manager(replace(NOW, policy=SC_10, confirmations=2)),
        lambda t: 3.6 if 100 < t <= 250 else 1.2,
        delay,
        instances=2,
    )
    cluster.run(80)
    changes = [n for n, before in zip(cluster.degrees[1:], cluster.degrees, strict=False) if n != before]
    assert changes == [6, 2]
    assert cluster.degrees.index(6) == 21 + delay


@given(some.lists(some.floats(0, 40), min_size=1, max_size=30), some.integers(0, 2))
def test_whatever_happens_limits_hold(loads: list[float], delay: int) -> None:
    elastic = replace(NOW, policy=SC_10, min=2, max=9, slots=7)
    cluster = Cluster(Manager(elastic), lambda t: loads[int(t / 5) % len(loads)], delay, instances=3)
    cluster.run(40)
    assert all(2 <= n <= 7 for n in cluster.degrees)


@given(some.floats(0.1, 30))
def test_a_steady_load_is_met_in_one_step_and_then_nothing_changes(load: float) -> None:
    cluster = Cluster(Manager(replace(NOW, policy=SC_10)), lambda t: load)
    cluster.run(30)
    changes = sum(n != before for n, before in zip(cluster.degrees[1:], cluster.degrees, strict=False))
    assert changes <= 1
    assert load / cluster.degrees[-1] <= 0.9 + 1e-4


def test_policies_know_the_limits() -> None:
    """What a subquery may not have is not shared out to others, where it would be of no use."""

    @dataclass
    class Seeing:
        most: int | None = None

        def decide(self, snapshot: Snapshot, history: Sequence[Snapshot]) -> Sequence[Proposal]:
            self.most = snapshot.subqueries["heavy"].most
            return ()

    for settings, most in (({}, 64), ({"max": 12}, 12), ({"limits": {"heavy": (1, 7)}}, 7), ({"max": 100}, 64)):
        policy = Seeing()
        Manager(replace(NOW, policy=policy, **settings)).handle(measured([0.5, 0.5]))  # type: ignore[arg-type]
        assert policy.most == most


def test_the_old_name_of_confirmations_still_works() -> None:
    with pytest.warns(DeprecationWarning, match="confirmations"):
        assert Elastic(patience=3).confirmations == 3
    assert replace(Elastic(confirmations=3), every=1.0).confirmations == 3
