"""The simulator: the same manager against a model; AS-7, SE-10, SM-2, ST-9."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from springtide.elastic.policies.ds2 import DS2
from springtide.elastic.policies.foresight import Foresight
from springtide.elastic.policies.learned import Learned
from springtide.elastic.policies.manual import Manual
from springtide.elastic.policies.policy import Policy, Proposal
from springtide.elastic.policies.predictive import Predictive
from springtide.elastic.policies.threshold import Threshold
from springtide.elastic.settings import Elastic
from springtide.elastic.simulator import cluster, optimum
from springtide.elastic.simulator.cluster import SimulatedRun
from springtide.elastic.simulator.model import RECOVERY, Model, ModelStep, zipf
from springtide.elastic.simulator.score import score_of
from springtide.elastic.simulator.topologies import TOPOLOGIES
from springtide.elastic.simulator.traces import Trace, trace
from springtide.elastic.snapshot import Snapshot

STILL = Elastic(policy=Manual(), balancing=None)


def one(cost: float = 0.1, **how: object) -> Model:
    """A query of one subquery, without anything that disturbs."""
    plain = Model({"only": ModelStep(cost, noise=0.0)}, overhead=0.0, launch=0.0, handover=0.0)
    return replace(plain, **how)  # type: ignore[arg-type]


def steady(rate: float, seconds: int = 120) -> Trace:
    return Trace("steady", np.full(seconds, rate))


def simulate(topology: str, load: str, policy: Policy, instances: int = 20, **how: object) -> SimulatedRun:
    model = TOPOLOGIES[topology]
    shape = trace(load, model.rate(instances))
    return cluster.run(replace(model.paced(1.0, shape.peak), **how), shape, Elastic(policy=policy))  # type: ignore[arg-type]


# ── the model ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_who_can_keep_up_does_and_who_cannot_falls_behind() -> None:
    enough = cluster.run(one(), steady(30), STILL, degrees={"only": 4})
    assert max(e.p99 for e in enough.epochs) < 2
    assert sum(e.rows for e in enough.epochs) == pytest.approx(30 * 120, rel=0.02)
    few = cluster.run(one(rows_per_epoch=100), steady(30), STILL, degrees={"only": 2})
    assert few.epochs[-1].waiting == pytest.approx((30 - 20) * 120, rel=0.1), "20 rows/s are done, 10 stay"


def test_stages_come_one_after_the_other_and_share_the_time() -> None:
    model = Model({"a": ModelStep(0.1, noise=0.0), "b": ModelStep(0.1, ("a",), noise=0.0)}, overhead=0.0, launch=0.0)
    run = cluster.run(model, steady(10), STILL, degrees={"a": 2, "b": 2})
    assert run.epochs[5].end - run.epochs[5].start == pytest.approx(1.0)


def test_new_instances_come_after_the_start_up_and_go_at_once() -> None:
    class Night:
        def decide(self, snapshot: Snapshot, history: Sequence[Snapshot]) -> Sequence[Proposal]:
            n = 8 if 30 < snapshot.time < 90 else 2
            return [Proposal("only", "the clock", instances=n)]

    elastic = Elastic(policy=Night(), balancing=None, every=1, grace=0, confirmations=1)
    run = cluster.run(one(startup=20.0), steady(10), elastic, degrees={"only": 2})
    up, down = run.done
    assert (up.after.instances, down.after.instances) == (8, 2)
    degrees = [(e.start, e.degrees["only"], e.paid) for e in run.epochs]
    assert next(start for start, n, _ in degrees if n == 8) == pytest.approx(up.time + 20, abs=1.1)
    assert next(start for start, _, paid in degrees if paid == 8) == pytest.approx(up.time, abs=1.1), "paid at once"
    assert next(start for start, n, _ in degrees if start > 60 and n == 2) == pytest.approx(down.time, abs=1.1)


def test_a_run_depends_on_its_seed_and_nothing_else() -> None:
    model = replace(one(failures=2.0), steps={"only": ModelStep(0.1, noise=0.1)})
    first, same, other = (cluster.run(model, steady(30), Elastic(policy=DS2()), seed=s) for s in (1, 1, 2))
    assert first.epochs == same.epochs
    assert first.epochs != other.epochs


def test_failures_cost_the_epoch_and_more() -> None:
    run = cluster.run(one(failures=20.0), steady(30, 600), STILL, degrees={"only": 4}, seed=3)
    failed = [e for e in run.epochs if e.failed]
    assert failed
    assert min(e.end - e.start for e in failed) > RECOVERY


def test_st9_each_instance_costs_the_driver_something() -> None:
    model = one(launch=0.01)
    assert model.available(10) == pytest.approx(0.9)
    assert model.fixed(50) == pytest.approx(0.5)
    assert model.available(1000) == pytest.approx(0.9), "with more to do epochs become longer"


def test_slots_bound_a_stage() -> None:
    free = cluster.run(one(), steady(30), STILL, degrees={"only": 8})
    bound = cluster.run(one(slots=2), steady(30), STILL, degrees={"only": 8})
    assert free.epochs[5].work == pytest.approx(0.1 / 8)
    assert bound.epochs[5].work == pytest.approx(0.1 / 2)


def test_sm2_a_policy_sees_instances_and_buckets() -> None:
    run = cluster.run(one(), steady(30, 10), STILL, degrees={"only": 4}, keep=True)
    own = run.snapshots[-1].subqueries["only"]
    assert len(own.busy) == len(own.rows_in) == 4
    assert len(own.bucket_busy) == 256


# ── policies in it ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_skew_is_balanced_not_scaled() -> None:
    """One bucket has a sixth of the rows: from some number on, more instances only cost more."""
    model = replace(one(0.01, startup=5.0), steps={"only": ModelStep(0.01, weights=zipf(64, 1.2), buckets=64)})
    load = steady(500, 600)  # the hot bucket alone is busy all the time
    model = model.paced(1.0, 500)
    wild = cluster.run(model, load, Elastic(policy=Threshold()), degrees={"only": 2})
    learned = cluster.run(model, load, Elastic(policy=Learned(Threshold())), degrees={"only": 2})
    assert max(e.degrees["only"] for e in learned.epochs) < max(e.degrees["only"] for e in wild.epochs)


def test_as7_congestion_is_avoided() -> None:
    """5-step, linear, from one instance of each (ConfMin): static is buried, predictive is not."""
    still = simulate("linear", "5-step", Manual())
    autoscale = simulate("linear", "5-step", Predictive())
    assert still.epochs[-1].waiting > 20 * autoscale.epochs[-1].waiting


def test_as7_fewer_resources_than_the_expert_degree() -> None:
    """3-step, linear, from the degree that the peak needs (ConfExpt)."""
    model = TOPOLOGIES["linear"]
    load = trace("3-step", model.rate(20))
    expert = model.fewest(load.peak)
    runs = {
        name: cluster.run(model.paced(1.0, load.peak), load, Elastic(policy=policy, min=1), degrees=expert)
        for name, policy in {"still": Manual(), "predictive": Predictive(), "foresight": Learned(Foresight())}.items()
    }
    hours = {name: score_of(run).hours for name, run in runs.items()}
    rows = {name: sum(e.rows for e in run.epochs) for name, run in runs.items()}
    assert hours["foresight"] < 0.7 * hours["still"]
    assert hours["predictive"] < 0.9 * hours["still"]
    assert rows["foresight"] == pytest.approx(rows["still"], rel=0.02)


def test_se10_within_a_quarter_of_the_best_allocation() -> None:
    score = score_of(simulate("star", "ramp", Learned(Foresight())))
    assert score.excess_pct < 25
    assert score.late == 0


@pytest.mark.parametrize("policy", [Threshold(), DS2(), Predictive(), Learned()], ids=lambda p: type(p).__name__)
def test_every_policy_says_why(policy: Policy) -> None:
    run = simulate("advertising", "5-step", policy)
    assert run.done
    assert all(i.reason and "\n" not in i.reason for i in run.done)


def test_a_thousand_instances_take_seconds() -> None:
    model = Model({"only": ModelStep(0.1, buckets=4096)}).paced(10.0, 9000)
    load = Trace("wave", 6000 + 2500 * np.sin(np.arange(3600) / 300))
    begin = time.process_time()
    run = cluster.run(model, load, Elastic(policy=Learned()))
    assert max(e.degrees["only"] for e in run.epochs) > 800
    assert time.process_time() - begin < 30


def test_more_instances_than_buckets_are_of_no_use() -> None:
    with pytest.raises(ValueError, match=r"can use \d+ instances.*, not 1000"):
        TOPOLOGIES["linear"].rate(1000)
    wide = TOPOLOGIES["linear"].widened(1000)
    assert sum(wide.fewest(wide.rate(1000)).values()) == pytest.approx(1000, abs=2)


def test_the_optimum_is_enough_and_just_that() -> None:
    model = one()
    load = trace("3-step", 100)
    needed = optimum.needed(model, load)
    rates = load.averaged(model.pace)
    assert (needed * 10 >= rates * 0.995).all()
    assert ((needed - 1) * 10 < rates * 1.01).all()


def test_rows_that_fall_by_chance_fall_unevenly() -> None:
    even, uneven = (
        cluster.run(
            Model({"only": ModelStep(0.01, by_chance=chance, noise=0.0)}).paced(1.0, 400),
            Trace("steady", np.full(30, 100.0)),
            STILL,
            degrees={"only": 4},
            keep=True,
        )
        for chance in (False, True)
    )
    assert all(len(set(s.subqueries["only"].busy)) == 1 for s in even.snapshots if s.rows)
    busy = [s.subqueries["only"].busy for s in uneven.snapshots if s.rows]
    assert any(max(b) > 1.2 * min(b) for b in busy)
    assert all(sum(b) == pytest.approx(1.0, rel=0.05) for b in busy[1:])


def test_sources_are_looked_at_when_an_epoch_begins() -> None:
    """As in a real run: what comes while it runs is not known at its end, and only what it had no room for waits."""
    model = Model({"only": ModelStep(0.02)}).paced(1.0, 100)
    run = cluster.run(model, Trace("jump", np.repeat([50.0, 400.0], 20)), STILL, degrees={"only": 2}, keep=True)
    before = [s for s in run.snapshots if s.time < 20]
    assert all(s.backlog == 0 for s in before)
    first = next(s for s in run.snapshots if s.backlog)
    assert first.rows == 100
    assert first.time - first.seconds >= 20
