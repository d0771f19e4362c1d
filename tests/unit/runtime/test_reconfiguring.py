"""The manager at work in the engine: what it decides takes effect with the next epoch, and changes no row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.elastic.decisions import decisions_of
from springtide.elastic.settings import elastic_of
from springtide.operators import state_view
from springtide.runtime import compacting
from springtide.runtime.engine import Engine, Options
from springtide.runtime.inprocess import run
from springtide.testing import PAUSE, at, compare


@dataclass
class Script:
    """A policy that wants what is written, one thing after the other."""

    wishes: list[int]
    seen: list[int] = field(default_factory=list)

    def decide(self, snapshot: st.Snapshot, history: Sequence[st.Snapshot]) -> Sequence[st.Proposal]:
        self.seen.append(snapshot.epoch)
        return [st.Proposal("counts", "it is written", instances=self.wishes.pop(0))] if self.wishes else []


class Ticking:
    """A clock that goes on by a second whenever it is looked at."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def counting(epochs: int) -> tuple[st.Query, Any]:
    rows: list[Any] = []
    for i in range(epochs):
        rows += [{"k": f"k{j}", "ts": at(f"{i * 10 + j}s")} for j in range(5)] + [PAUSE]
    sink = st.memory_sink()
    source = st.source("rows", st.memory(rows, schema={"k": pl.String, "ts": st.TIME}), ts="ts")
    counts = source.aggregate(by="k", window=st.sliding("30s", every="10s"), n=st.count(), name="counts")
    return st.Query("counting", counts.to(sink, name="out")), sink


def elastic(policy: Any, **more: Any) -> st.Elastic:
    return st.Elastic(policy=policy, balancing=None, every=0.0, grace=0.0, confirmations=1, **more)


def test_what_the_policy_wants_is_done_and_changes_no_row(tmp_path: Path) -> None:
    """SC-9, SC-10: 1 → 3 → 2 → 5 while the query runs."""
    query, sink = counting(8)
    used: list[int] = []

    def between(engine: Engine) -> bool:
        used.append(engine.maps["counts"].instances)
        return True

    options = Options(instances=1, elastic=elastic(Script([3, 2, 5])), clock=Ticking())
    engine = run(query.plan(buckets=16), tmp_path / "ckpt", options, between=between)
    assert used[:5] == [1, 3, 2, 5, 5]
    assert next(note for _, note in engine.events) == "scaled counts: 1 → 3 instances; it is written"
    compare(sink.rows(), query.run_reference().rows())
    decisions = [d for d in engine.history.read("decisions") if "kind" in d]
    assert [(d["before"]["instances"], d["after"]["instances"]) for d in decisions] == [(1, 3), (3, 2), (2, 5)]
    assert len([d for d in engine.history.read("decisions") if "done" in d]) == 3


@pytest.mark.parametrize("protocol", ["virtual", "state", "window"])
def test_from_1_to_64_instances_and_back(protocol: Any, tmp_path: Path) -> None:
    """SC-9, SM-7: by hand, in one step each."""
    query, sink = counting(6)
    used: list[int] = []

    def between(engine: Engine) -> bool:
        if engine.manifest.epoch in (1, 3):
            engine.scale("counts", 64 if engine.manifest.epoch == 1 else 1, protocol)
        used.append(engine.maps["counts"].instances)
        return True

    run(query.plan(buckets=64), tmp_path / "ckpt", Options(instances=1), between=between)
    assert used[:6] == [1, 1, 64, 64, 1, 1]
    compare(sink.rows(), query.run_reference().rows())


@pytest.mark.parametrize("protocol", ["virtual", "state", "window"])
def test_several_steps_at_once_while_the_last_change_is_settling(protocol: Any, tmp_path: Path) -> None:
    """SC-9, ST-5: every step has other instances in every epoch, while old windows of the change before are still being finished."""
    rows: list[Any] = []
    for i in range(12):
        rows += [{"k": f"k{j}", "ts": at(f"{i * 10 + j}s")} for j in range(5)] + [PAUSE]
    sink = st.memory_sink()
    source = st.source("rows", st.memory(rows, schema={"k": pl.String, "ts": st.TIME}), ts="ts")
    counts = source.aggregate(by="k", window=st.sliding("40s", every="10s"), n=st.count(), name="counts")
    sums = counts.aggregate(by="n", window=st.sliding("20s", every="10s"), keys=st.count(), name="sums")
    query = st.Query("two", sums.to(sink))
    settling = 0

    def between(engine: Engine) -> bool:
        nonlocal settling
        settling += bool(engine.manifest.old_owners)
        for step, wanted in zip(("rows", "counts", "sums"), range(engine.manifest.epoch + 2, 20), strict=False):
            engine.scale(step, 1 + wanted % 4, protocol)
        return True

    engine = run(query.plan(buckets=16), tmp_path / "ckpt", Options(instances=1), between=between)
    assert settling > 5 or protocol != "window"
    changed = decisions_of(engine.history.read("decisions"))
    assert {d.instruction.subquery: d.outcome is not None for d in changed} == dict.fromkeys(
        ("rows", "counts", "sums"), True
    )
    compare(sink.rows(), query.run_reference().rows())


@pytest.mark.parametrize("window", [st.sliding("80s", every="10s"), st.last_n(7, every=3)], ids=["panes", "versions"])
def test_state_of_old_maps_is_taken_over_a_few_segments_at_a_time(
    window: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here two segments are many, and three rows are much."""
    monkeypatch.setattr(compacting, "CROWD", 2)
    monkeypatch.setattr(compacting, "ADOPTED", 3)
    rows: list[Any] = []
    for i in range(14):
        rows += [{"k": f"k{j}", "ts": at(f"{i * 10 + j}s")} for j in range(9) if (i + j) % 4] + [PAUSE]
    sink = st.memory_sink()
    source = st.source("rows", st.memory(rows, schema={"k": pl.String, "ts": st.TIME}), ts="ts")
    query = st.Query("few", source.aggregate(by="k", window=window, n=st.count(), name="counts").to(sink))
    partly = 0

    def between(engine: Engine) -> bool:
        nonlocal partly
        own, kept = engine.maps["counts"], engine.manifest.state.get("counts")
        if kept is not None:
            foreign = {s.file for s in kept.segments if s.version != own.version}
            taken = set(compacting.compaction(kept, own, {"totals"}).get(0, ()))
            partly += 0 < len(foreign & taken) < len(foreign)
        if engine.manifest.epoch in (3, 6, 9):
            engine.scale("counts", 5 if engine.manifest.epoch == 6 else 1)
        return True

    run(query.plan(buckets=16), tmp_path / "ckpt", Options(instances=5), between=between)
    assert partly > 0
    compare(sink.rows(), query.run_reference().rows())


def test_after_a_change_segments_of_others_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """4 → 5: the old instances keep their buckets and open nothing of others; only the new one has something of everybody."""
    opened: dict[int, set[int]] = {}
    whole = state_view.StateView._may_have

    def may_have(view: state_view.StateView, segment: Any, buckets: Sequence[int]) -> bool:
        found = whole(view, segment, buckets)
        if found:
            opened.setdefault(view.instance, set()).add(segment.instance)
        return found

    monkeypatch.setattr(state_view.StateView, "_may_have", may_have)
    query, sink = counting(8)

    def between(engine: Engine) -> bool:
        if engine.manifest.epoch == 4:
            engine.scale("counts", 5)
        return True

    # Nothing takes any time, so that only rows count: an old instance that seems idle would be given a bucket, too.
    run(query.plan(buckets=16), tmp_path / "ckpt", Options(instances=4, timer=lambda: 0.0), between=between)
    assert opened
    assert all(others == {instance} for instance, others in opened.items() if instance < 4)
    compare(sink.rows(), query.run_reference().rows())


def test_limits_are_by_step_and_refusals_are_told(tmp_path: Path) -> None:
    query, _ = counting(6)
    options = Options(instances=1, elastic=elastic(Script([9]), limits={"out": (1, 2)}), clock=Ticking())
    engine = run(query.plan(buckets=16), tmp_path / "ckpt", options)
    assert engine.manifest.maps["counts"].instances <= 2
    assert engine.events[-1][1].startswith("refused for counts: 9 instances;")


def test_while_paused_nothing_changes_but_by_hand(tmp_path: Path) -> None:
    query, sink = counting(6)
    policy = Script([4])

    def between(engine: Engine) -> bool:
        if engine.manifest.epoch == -1:
            engine.reconfiguring.pause()
        if engine.manifest.epoch == 2:
            engine.scale("counts", 2)
        return True

    engine = run(query.plan(), tmp_path / "ckpt", Options(1, elastic=elastic(policy), clock=Ticking()), between=between)
    assert policy.wishes == [4]
    assert engine.manifest.maps["counts"].instances == 2
    compare(sink.rows(), query.run_reference().rows())


def test_a_restart_goes_on_with_what_was_remembered(tmp_path: Path) -> None:
    query, sink = counting(8)
    plan = query.plan()

    def stop(engine: Engine) -> bool:
        if engine.manifest.epoch == 0:
            engine.reconfiguring.pause()
        return engine.manifest.epoch < 3

    run(plan, tmp_path / "ckpt", Options(1, elastic=elastic(Script([4, 4, 4])), clock=Ticking()), between=stop)
    engine = run(plan, tmp_path / "ckpt", Options(elastic=elastic(Script([7])), clock=Ticking()))
    assert engine.reconfiguring.manager is not None
    assert engine.reconfiguring.manager.paused, "that it was paused is in the checkpoint"
    compare(sink.rows(), query.run_reference().rows())


def test_what_says_how_elastic() -> None:
    assert elastic_of(None) is None
    assert elastic_of(False) is None
    assert elastic_of(True) == st.Elastic()
    policy = Script([])
    made = elastic_of(policy)
    assert made is not None
    assert made.policy is policy
    for wrong in (7, "threshold", Script):
        with pytest.raises(st.QueryError, match="says nothing about elasticity"):
            elastic_of(wrong)  # type: ignore[arg-type]
