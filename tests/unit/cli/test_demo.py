"""The demo's query is inside the package, so that an installed wheel has it; tests/spark runs the command."""

from __future__ import annotations

from collections import Counter

import polars as pl
import pytest

import springtide as st
from springtide.cli import demo
from springtide.cli.demo import HotCallers, heavy_callers, source, told
from springtide.elastic.decisions import Decision, Outcome
from springtide.elastic.instructions import instruct
from springtide.elastic.policies.policy import Proposal
from springtide.query.steps import Source
from springtide.state.bucket_map import BucketMap


def test_query_of_the_demo_finds_who_talks_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "ANSWER", 0.0)
    records = st.call_records(callers=20, per_second=1)(0, 0, 2_000)
    query = heavy_callers(st.source("calls", st.memory(records), ts="ts"), st.memory_sink())
    rows = query.run_reference().rows()
    assert {"600000000", "600000010"} <= set(rows["src"])  # every tenth is talkative
    assert rows.filter(pl.col("avg") <= pl.col("limit")).is_empty()


def test_one_caller_is_hot_and_then_another() -> None:
    make = HotCallers(st.call_records(callers=2000, per_second=10), jump=800)
    before, after = make(0, 0, 800), make(0, 800, 800)
    for records, caller in ((before, "600000170"), (after, "600001210")):
        ((most, calls),) = Counter(records["src"]).most_common(1)
        assert most == caller
        assert 100 <= calls <= 110
    assert make(1, 400, 800).equals(pl.concat([make(1, 400, 300), make(1, 700, 500)]))


def test_load_triples_and_falls_again() -> None:
    step = source(60).step
    assert isinstance(step, Source)
    due = step.connector.rate.due  # type: ignore[attr-defined]
    per_second = [due(t + 1) - due(t) for t in range(60)]
    assert per_second[0] == pytest.approx(10_000, rel=0.01)
    assert max(per_second) == pytest.approx(30_000, rel=0.01)
    assert per_second.index(max(per_second)) in (22, 23)
    assert per_second[46:] == pytest.approx([10_000] * 14, rel=0.01), "instances have time to go"
    assert due(60) == pytest.approx(step.connector.total, abs=2)  # type: ignore[attr-defined]


def test_what_was_decided_in_a_few_lines() -> None:
    def decision(before: int, outcome: Outcome | None, **wish: object) -> Decision:
        told = instruct(Proposal("heavy", "", **wish), BucketMap.even(8, before), time=0, epoch=0)  # type: ignore[arg-type]
        assert told is not None
        return Decision("a", 0.0, told, outcome)

    cost = [Outcome(1.0, 1, 0.5, extra, 500) for extra in (0.01, 0.03, 0.3)]
    made = [decision(2, cost[0], instances=5), decision(5, cost[2], moves={0: 1}), decision(5, cost[1], instances=4)]
    assert told(made) == [
        ("decisions", "2 × another number of instances, 1 × the same, other buckets"),
        ("instances", "2 → 5 → 4"),
        ("extra time", "+30 ms in the median of the switching epochs, +0.30 s at most"),
        ("state", "1.50 kB changed owners by name: nothing was copied"),
    ]
    assert told([]) == [("decisions", "0 × another number of instances, 0 × the same, other buckets")]
