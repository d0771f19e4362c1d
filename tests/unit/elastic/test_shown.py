"""What notebooks show of snapshots and decisions."""

from __future__ import annotations

from springtide.elastic.decisions import Decisions, decisions_of
from springtide.elastic.snapshot import Snapshot, SourceLoad, SubqueryLoad
from springtide.state.bucket_map import BucketMap


def test_a_snapshot_is_a_table() -> None:
    heavy = SubqueryLoad(BucketMap.even(4, 2), (60, 40), (1, 1), (0.3, 0.2), upstream=("calls",), state_bytes=12_345)
    calls = SubqueryLoad(BucketMap.even(0, 1), (100,), (100,), (0.1,), sources=("calls",))
    now = Snapshot(8.0, 7, 0.5, 1.0, {"calls": SourceLoad(100, 120, 20)}, {"calls": calls, "<b>": heavy})
    shown = now._repr_html_()
    assert "epoch 7: 0.50 s of work in 1.00 s" in shown
    assert "12,345" in shown
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown


def test_decisions_are_a_table_with_what_they_cost() -> None:
    before, after = ({"version": n, "instances": n, "owners": [0, n - 1]} for n in (1, 2))
    record = {
        "id": "1",
        "at": 9.0,
        "time": 8.0,
        "epoch": 7,
        "kind": "scale",
        "subquery": "heavy",
        "reason": "more <is> better",
        "before": before,
        "after": after,
        "moved": [1],
        "trigger": None,
    }
    outcome = {"id": "1", "done": 9.5, "in_epoch": 8, "seconds": 0.4, "extra_seconds": -0.1, "bytes_moved": 4_096}
    decisions = Decisions(decisions_of([record, outcome]))
    shown = decisions._repr_html_()
    for text in ("heavy", "1 → 2 instances", "more &lt;is&gt; better", "4,096", "-0.10 s"):
        assert text in shown
    assert "1 → 2 instances" in decisions[0]._repr_html_()
