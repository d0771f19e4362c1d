"""DS2: true rates, target rates, at most three steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as some

from springtide.elastic.policies.ds2 import DS2
from springtide.elastic.settings import Elastic
from springtide.elastic.simulator import cluster
from springtide.elastic.simulator.model import Model, ModelStep
from springtide.elastic.simulator.topologies import TOPOLOGIES
from springtide.elastic.simulator.traces import Trace
from tests.unit.elastic.measured import measured


def wanted(*utilisation: float, **how: int) -> int | None:
    found = DS2().decide(measured(utilisation, **how), [])
    return found[0].instances if found else None


def test_waiting_is_not_work() -> None:
    assert wanted(0.4, 0.4, 0.4, 0.4) == 2, "1.6 instances are busy"
    assert wanted(1.0, 1.0, rows=1000, arrived=2500) == 5
    assert wanted(0.9, 0.9) is None


def test_backlog_is_no_target() -> None:
    assert wanted(1.0, 1.0, rows=1000, arrived=900, backlog=9_000_000) is None


def test_a_decision_says_why() -> None:
    (proposal,) = DS2().decide(measured([1.0, 1.0], rows=1000, arrived=2000), [])
    assert proposal.reason.startswith("400 rows/s are coming and an instance does 100 ")
    assert proposal.reason.endswith("4 instead of 2")


@settings(max_examples=8, deadline=None)
@given(
    some.sampled_from(sorted(TOPOLOGIES)), some.floats(5, 300), some.lists(some.integers(1, 40), min_size=7, max_size=7)
)
def test_three_steps_are_enough(topology: str, rate: float, start: list[int]) -> None:
    model = TOPOLOGIES[topology]
    still = {name: replace(step, noise=0.0) for name, step in model.steps.items()}
    quiet = replace(Model(still), launch=0.0, startup=0.0, handover=0.0, rows_per_epoch=round(4 * rate) + 1)
    load = Trace("steady", np.full(90, rate))
    elastic = Elastic(policy=DS2(), balancing=None, every=1, grace=0, confirmations=1)
    degrees = dict(zip(model.steps, start, strict=False))
    run = cluster.run(quiet, load, elastic, degrees=degrees)
    for name in model.steps:
        changes = [i.after.instances - i.before.instances for i in run.done if i.subquery == name]
        # Then it is there; a load between two whole numbers may still go from one to the other and back.
        assert all(abs(change) <= 1 for change in changes[3:])


def test_one_step() -> None:
    """Nothing but one subquery: the paper's number at once."""
    model = replace(Model({"only": ModelStep(0.1, noise=0.0)}), overhead=0.0, launch=0.0, startup=0.0, handover=0.0)
    run = cluster.run(
        model,
        Trace("steady", np.full(90, 35.0)),
        Elastic(policy=DS2(), balancing=None, every=1, grace=0, confirmations=1),
        degrees={"only": 1},
    )
    assert [i.after.instances for i in run.done][-1] == 4
