"""What a proposal means for a map."""

from __future__ import annotations

import json

import pytest

from springtide.elastic.instructions import instruct
from springtide.elastic.policies.policy import Proposal
from springtide.state.bucket_map import BucketMap
from springtide.state.instructions import Instruction, Refusal, Trigger

OWN = BucketMap.even(6, 2, version=4)


def test_instances_buckets_and_whole_maps() -> None:
    wishes = [
        Proposal("heavy", "why", instances=3),
        Proposal("heavy", "why", moves={0: 1, 3: 0}),
        Proposal("heavy", "why", owners=(0, 0, 0, 1, 1, 1)),
        Proposal("heavy", "why", instances=3, owners=(0, 1, 2, 0, 1, 2)),
    ]
    found = [i for i in (instruct(wish, OWN, 1.0, 7) for wish in wishes) if i]
    assert [(i.kind, i.after.instances, i.moved) for i in found] == [
        ("scale", 3, (4, 5)),
        ("move", 2, (0, 3)),
        ("rebalance", 2, (1, 4)),
        ("scale", 3, (2, 3, 4, 5)),
    ]
    assert {i.after.version for i in found} == {5}


def test_what_changes_nothing_is_nothing() -> None:
    assert instruct(Proposal("heavy", "why", instances=2), OWN, 1.0, 7) is None
    assert instruct(Proposal("heavy", "why", moves={0: 0}), OWN, 1.0, 7) is None
    assert instruct(Proposal("heavy", "why", owners=OWN.owners), OWN, 1.0, 7) is None


@pytest.mark.parametrize(
    "proposal",
    [
        Proposal("heavy", "why", instances=0),
        Proposal("heavy", "why", instances=7),
        Proposal("heavy", "why", moves={6: 0}),
        Proposal("heavy", "why", moves={0: 2}),
        Proposal("heavy", "why", owners=(0, 1)),
    ],
)
def test_what_cannot_be_is_an_error(proposal: Proposal) -> None:
    with pytest.raises(ValueError, match=r"."):
        instruct(proposal, OWN, 1.0, 7)


def test_a_proposal_says_one_thing() -> None:
    with pytest.raises(ValueError, match="must say instances, moves or owners"):
        Proposal("heavy", "why")
    with pytest.raises(ValueError, match="it can be only one of them"):
        Proposal("heavy", "why", instances=2, moves={0: 1})


def test_instructions_and_refusals_say_what_they_are() -> None:
    scaled = instruct(Proposal("heavy", "utilisation of 95% is over 90%", instances=3), OWN, 1.0, 7)
    moved = instruct(Proposal("heavy", "by hand", moves={0: 1}), OWN, 1.0, 7)
    assert str(scaled) == "scale heavy: 2 → 3 instances; utilisation of 95% is over 90%"
    assert str(moved) == "move heavy: 1 of 6 buckets; by hand"
    refused = Refusal(1.0, 7, "heavy", "limit", "9 instances", "it has 4 at most", times=3)
    assert str(refused) == "refused for heavy: 9 instances; it has 4 at most (3 times)"


def test_an_instruction_comes_back_from_json() -> None:
    wish = Proposal("heavy", "why", Trigger("utilisation", 0.95, 0.9), instances=3)
    for proposal in (wish, Proposal("heavy", "by hand", moves={0: 1})):
        instruction = instruct(proposal, OWN, 1.0, 7)
        assert instruction is not None
        assert Instruction.from_json(json.loads(json.dumps(instruction.to_json()))) == instruction
