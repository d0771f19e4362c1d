"""Two records of a decision are one for people."""

from __future__ import annotations

from typing import Any

from springtide.elastic.decisions import Outcome, decisions_of
from springtide.elastic.instructions import instruct
from springtide.elastic.policies.policy import Proposal
from springtide.state.bucket_map import BucketMap
from springtide.state.instructions import Trigger


def decided(key: str, at: float, subquery: str = "heavy", **wish: Any) -> dict[str, Any]:
    trigger = Trigger("utilisation", 0.97, 0.9)
    told = instruct(Proposal(subquery, "it is busy", trigger, **wish), BucketMap.even(8, 2), time=at - 1, epoch=7)
    assert told is not None
    return {"at": at, "id": key, "what": str(told), "something_new": 1} | told.to_json()


def done(key: str, at: float) -> dict[str, Any]:
    cost = {"seconds": 0.5, "extra_seconds": 0.1, "bytes_moved": 4096}
    return {"at": at, "id": key, "done": at, "in_epoch": 8} | cost


def test_a_decision_and_its_outcome() -> None:
    (decision,) = decisions_of([decided("a", 10.0, instances=4), done("a", 12.5)])
    assert decision.outcome == Outcome(12.5, 8, 0.5, 0.1, 4096)
    assert (decision.took, decision.change) == (2.5, "2 → 4 instances")
    assert decision.instruction.trigger == Trigger("utilisation", 0.97, 0.9)


def test_waiting_for_executors_is_part_of_what_it_took() -> None:
    record = decided("a", 10.0, instances=4) | {"waited": 8.0}
    (decision,) = decisions_of([record, done("a", 12.5)])
    assert (decision.at, decision.waited, decision.took) == (2.0, 8.0, 10.5)


def test_words_for_changes() -> None:
    records = [
        decided("a", 1.0, instances=1),
        decided("b", 2.0, moves={0: 1}),
        decided("c", 3.0, owners=(1, 0) * 4),
    ]
    assert [d.change for d in decisions_of(records)] == ["2 → 1 instance", "moved", "balanced"]


def test_what_was_overtaken_before_it_took_effect() -> None:
    records = [decided("a", 1.0, instances=3), decided("b", 1.1, instances=4), decided("c", 1.2, "other", instances=4)]
    assert [d.overtaken for d in decisions_of([*records, done("b", 2.0)])] == [True, False, False]


def test_an_outcome_alone_is_left_out() -> None:
    assert decisions_of([done("a", 1.0)]) == []
