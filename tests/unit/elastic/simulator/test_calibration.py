"""Calibration: a model from a run gives that run again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.elastic.fidelity import known_degrees
from springtide.elastic.policies.learned import Learned
from springtide.elastic.policies.manual import Manual
from springtide.elastic.policies.threshold import Threshold
from springtide.elastic.settings import Elastic
from springtide.elastic.simulator import calibration, cluster
from springtide.elastic.simulator.model import Model, ModelStep
from springtide.elastic.simulator.topologies import TOPOLOGIES
from springtide.elastic.simulator.traces import Trace, trace


@pytest.mark.parametrize("topology", sorted(TOPOLOGIES))
def test_a_model_is_found_again(topology: str) -> None:
    model = TOPOLOGIES[topology]
    load = trace("3-step", model.rate(20))
    model = replace(model.paced(1.0, load.peak), startup=10.0)
    real = cluster.run(model, load, Elastic(policy=Threshold()), seed=1, keep=True)
    found = calibration.calibrated(real.snapshots)
    assert found.pace == pytest.approx(1.0, rel=0.1)
    assert found.fixed(20) == pytest.approx(model.fixed(20), rel=0.3)
    for name, step in model.steps.items():
        assert found.steps[name].cost == pytest.approx(step.cost, rel=0.05)
        assert found.steps[name].takes * found.steps[name].selectivity == pytest.approx(
            step.takes * step.selectivity, rel=0.05
        )
        assert found.steps[name].upstream == step.upstream


def test_what_an_instance_costs_in_any_case_is_not_the_rows_cost() -> None:
    """Where the number of instances does not follow the rows the two can be told apart."""
    model = Model({"only": ModelStep(0.01, task=0.05)}).paced(1.0, 800)
    real = cluster.run(
        model,
        Trace("wave", 400 + 300 * np.sin(np.arange(120) / 10)),
        Elastic(policy=Manual(), balancing=None),
        degrees={"only": 12},
        keep=True,
    )
    found = calibration.calibrated(real.snapshots).steps["only"]
    assert found.cost == pytest.approx(0.01, rel=0.05)
    assert found.task == pytest.approx(0.05, rel=0.2)


def test_a_pace_is_that_of_epochs_that_waited() -> None:
    model = Model({"only": ModelStep(0.01)}).paced(1.0, 400)
    late = cluster.run(model, Trace("jump", np.repeat([50.0, 500.0], 100)), Elastic(policy=Manual()), keep=True)
    assert calibration.calibrated(late.snapshots).pace == pytest.approx(1.0)


def test_model_and_run_agree() -> None:
    """Calibrated on the first third, like the benchmark."""
    model = TOPOLOGIES["linear"]
    load = trace("sine", model.rate(20))
    model = replace(model.paced(1.0, load.peak), startup=10.0)
    elastic = Elastic(policy=Learned())
    real = cluster.run(model, load, elastic, seed=1, keep=True)
    third = real.snapshots[: len(real.snapshots) // 3]
    found = replace(calibration.calibrated(third), startup=10.0)
    again = cluster.run(
        found, calibration.load_of(real.snapshots), elastic, seed=2, degrees=calibration.first_degrees(real.snapshots)
    )
    assert calibration.degree_error_pct(again, real.snapshots) < 15
    assert calibration.degree_error_pct(real, real.snapshots) < 1


def test_two_epochs_at_least() -> None:
    with pytest.raises(ValueError, match="two epochs with rows"):
        calibration.calibrated([])


def test_what_is_known_is_followed() -> None:
    """Up to a time the instances are those of the run, whatever a policy thinks; then it decides."""
    model = Model({"only": ModelStep(0.01)}).paced(1.0, 400)
    load = Trace("steady", np.full(60, 300.0))
    known = [(0.0, {"only": 7}), (20.0, {"only": 2}), (30.0, {"only": 9})]
    run = cluster.run(replace(model, startup=0.0), load, Elastic(policy=Threshold()), degrees={"only": 7}, known=known)
    at = {round(e.start): e.degrees["only"] for e in run.epochs}
    assert [at[t] for t in (5, 15, 25)] == [7, 7, 2]
    assert at[min(t for t in at if t >= 30)] == 9
    assert run.epochs[-1].degrees["only"] < 9, "3 rows' worth of work in a second"
    assert all(instruction.time >= 30 for instruction in run.done)


def test_the_known_degrees_of_a_run() -> None:
    model = Model({"only": ModelStep(0.01)}).paced(1.0, 400)
    real = cluster.run(
        model, Trace("steady", np.full(30, 100.0)), Elastic(policy=Manual()), degrees={"only": 3}, keep=True
    )
    known = known_degrees(real.snapshots, until=10.0)
    assert len(known) == 10
    assert all(degrees == {"only": 3} for _, degrees in known)
    assert [round(time) for time, _ in known] == list(range(10))


def test_a_few_long_epochs_do_not_make_rows_dear() -> None:
    """Workers that start, other work on the machine: single epochs that took ten times as long."""
    model = Model({"only": ModelStep(0.01, noise=0.01)}).paced(1.0, 800)
    load = Trace("wave", 400 + 300 * np.sin(np.arange(120) / 10))
    real = cluster.run(model, load, Elastic(policy=Manual(), balancing=None), degrees={"only": 12}, keep=True)
    slow = [
        replace(s, subqueries={"only": replace(own, busy=tuple(10 * b for b in own.busy))}) if i % 9 == 0 else s
        for i, s in enumerate(real.snapshots)
        for own in s.subqueries.values()
    ]
    found = calibration.calibrated(slow).steps["only"]
    assert found.cost == pytest.approx(0.01, rel=0.05)
    assert found.noise < 0.05
