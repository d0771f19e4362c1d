"""Foresight: Springtide's own predictive policy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from springtide.elastic.policies.foresight import Foresight
from springtide.elastic.policies.policy import Proposal
from springtide.elastic.snapshot import Snapshot, SourceLoad
from tests.unit.elastic.measured import measured


def summaries(arrivals: list[int], instances: int = 4, backlog: int = 0, took: float | None = None) -> list[Snapshot]:
    """Summaries of 5 s; an instance does 100 rows in one, and no more are read than fit."""
    found = []
    for i, arrived in enumerate(arrivals):
        read = min(arrived, 100 * instances)
        now = measured(
            [read / (100 * instances)] * instances, time=5.0 * (i + 1), rows=read, arrived=arrived, backlog=backlog
        )
        found.append(replace(now, epoch=i, seconds=5 * read / (100 * instances)))
    if took is not None:
        found[0] = replace(found[0], took={"heavy": took})
    return found


def wanted(seen: list[Snapshot], policy: Foresight | None = None) -> int | None:
    found = (policy or Foresight()).decide(seen[-1], seen[:-1])
    return found[0].instances if found else None


def test_a_steady_load_is_left_alone() -> None:
    assert wanted(summaries([350] * 20)) is None
    assert wanted(summaries([390] * 20)) is None, "97 % full and without noise: enough"


#    ╱ it will be too much only after the instances that are asked for now have come
def test_growing_load_gets_instances_in_time() -> None:
    ramp = [200 + 8 * i for i in range(20)]
    assert ramp[-1] == 352
    asked = wanted(summaries(ramp))
    assert asked is not None
    assert 5 <= asked <= 6, "352 now, in 70 s it will be some 470"
    assert wanted(summaries(ramp, took=1.0)) is None, "where instances come within a second there is time"


def test_a_jump_is_answered_at_once() -> None:
    assert wanted(summaries([200] * 15 + [800])) is not None


#                 ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▂█   the last summary has one second of the jump, its last epoch is in it
def test_of_a_jump_the_last_epoch_has_all() -> None:
    seen = summaries([200] * 19 + [320], instances=4)
    part = wanted(seen)
    last = seen[-1]
    known = replace(last, sources={n: replace(s, latest=160.0) for n, s in last.sources.items()})
    assert part is None, "320 in 5 s, for which 4 instances are enough"
    assert wanted([*seen[:-1], known]) == 9, "160 a second, with 1 % noise"
    begun = replace(last, sources={n: replace(s, latest=160.0, sooner=40.0) for n, s in last.sources.items()})
    assert wanted([*seen[:-1], begun]) is None, "its last epoch may have but a part of it: the next summary knows"
    noise = replace(last, sources={n: replace(s, latest=65.0) for n, s in last.sources.items()})
    assert wanted([*seen[:-1], noise]) is None, "hardly more than the summary has anyway"


def test_just_after_a_change_only_what_is_urgent_is_done() -> None:
    ramp = summaries([200 + 8 * i for i in range(20)])
    before = summaries([300] * 2, instances=3)
    assert wanted([*ramp[:17], *before, ramp[-1]]) is None, "next time is soon enough"
    full = summaries([420] * 20)
    assert wanted([*full[:17], *before, full[-1]]) == 5, "there is more to do than is done"


def test_a_backlog_is_worked_off_in_as_long_as_instances_take_to_come() -> None:
    steady = summaries([390] * 20, backlog=7000)
    #   390 in 5 s and 7,000 in 35 s: 390 + 1,000, with 1 % noise
    assert wanted(steady) == 14


def test_where_instances_come_at_once_a_backlog_has_time_all_the_same() -> None:
    steady = summaries([390] * 20, backlog=7000, took=0.0)
    #   390 in 5 s and 7,000 in 30 s: 390 + 1,167
    assert wanted(steady) == 16
    assert wanted(steady, Foresight(drain=60)) == 10


def test_instances_go_when_it_is_worth_it() -> None:
    assert wanted(summaries([250] * 20, instances=4)) == 3
    assert wanted(summaries([1850] * 20, instances=20)) is None, "one of twenty is not worth it"
    assert wanted(summaries([1600] * 20, instances=20)) == 17
    assert wanted(summaries([250] * 20, instances=4, backlog=1000)) is None, "not while rows wait"
    assert wanted(summaries([390] * 15 + [100] * 4)) is None, "not before the load has been low for some time"
    assert wanted(summaries([390] * 10 + [100] * 12)) == 2


def test_noise_is_headroom() -> None:
    quiet, noisy = summaries([380] * 24), summaries([380 + (25 if i % 3 else -25) for i in range(24)])
    assert wanted(quiet) is None
    assert wanted(noisy) == 5


def test_what_is_coming_counts() -> None:
    ramp = summaries([200 + 8 * i for i in range(20)])
    assert wanted([*ramp[:-1], replace(ramp[-1], coming={"heavy": 6})]) is None


def test_a_decision_says_why() -> None:
    seen = summaries([250] * 20)
    (proposal,) = Foresight().decide(seen[-1], seen[:-1])
    assert isinstance(proposal, Proposal)
    for said in ("50 rows/s", "up to 52", "next 70 s", "64% of the time", "3 instead of 4 instances"):
        assert said in proposal.reason


def test_nothing_read_says_nothing() -> None:
    idle = replace(measured([0.0]), sources={"calls": SourceLoad(0, 0)})
    assert Foresight().decide(idle, []) == ()


def test_settings_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="worth is a share"):
        Foresight(worth=1.5)
