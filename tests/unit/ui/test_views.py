"""What the page is told of a query: from manifests and snapshots, as plain JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.elastic.snapshot import Snapshot, SourceLoad, SubqueryLoad
from springtide.query.types import END_OF_TIME
from springtide.runtime.identity import identity
from springtide.state.bucket_map import BucketMap
from springtide.state.instructions import Refusal
from springtide.state.manager_state import ManagerState
from springtide.state.manifest import Manifest, SourceState, SubqueryState
from springtide.state.metrics import EpochMetrics
from springtide.state.segment import Segment
from springtide.ui.buckets import buckets, hottest
from springtide.ui.decisions import decisions
from springtide.ui.graph import graph
from springtide.ui.live import encoded
from springtide.ui.now import CheckpointNow, held_by, now_of, state_of

WHEN = 1_714_521_600_000_000


def query() -> st.Query:
    calls = st.source("calls", st.memory(schema={"src": pl.String, "n": pl.Int64, "ts": st.TIME}), ts="ts")
    sums = calls.filter(pl.col("n") > 0, name="some").aggregate(
        by="src", window=st.tumbling("1h"), total=st.sum("n"), name="sums"
    )
    return st.Query("q", sums.to(st.memory_sink(), name="out"), calls.late.to(st.memory_sink(), name="late"))


def manifest(epoch: int, **more: Any) -> Manifest:
    counted = {
        "source calls": {"accepted": 100 * epoch, "late": epoch, "rejected": 0, "read": 101 * epoch},
        "exchange calls: some → sums": {"sent": 50 * epoch, "received": 50 * epoch},
        "sink out": {"given": 10 * epoch, "written": 10 * epoch},
    }
    segment = Segment(
        "state/sums/x.arrow", "panes", epoch=epoch, instance=0, version=0, rows=7, bytes=700, low=0, high=0
    )
    found = Manifest(
        epoch,
        1,
        sources={"calls": SourceState(times={"a": WHEN, "b": WHEN + 5_000_000}, accepted=100 * epoch, late=epoch)},
        maps={"calls": BucketMap.even(0, 1), "sums": BucketMap.even(4, 2)},
        state={"sums": SubqueryState({}, (segment,))},
        metrics=EpochMetrics(100.0 + epoch, 0.5, 100, 10, 3, events=((99.0 + epoch, f"event {epoch}"),)),
        accounts=counted,
    )
    return replace(found, **more)


def snapshot(epoch: int, owners: tuple[int, ...] = (0, 1, 0, 1), rows: tuple[int, ...] = (90, 5, 5, 0)) -> Snapshot:
    sums = SubqueryLoad(
        BucketMap(epoch, 2, owners),
        (95, 5),
        (8, 2),
        (0.4, 0.1),
        upstream=("calls",),
        bucket_rows=rows,
        bucket_bytes=(400, 200, 100, 0),
    )
    calls = SubqueryLoad(BucketMap.even(0, 1), (100,), (100,), (0.1,), sources=("calls",))
    return Snapshot(100.0 + epoch, epoch, 0.5, 1.0, {"calls": SourceLoad(100, 120, 3)}, {"calls": calls, "sums": sums})


def seen(**more: Any) -> CheckpointNow:
    kept = [manifest(e) for e in (1, 2, 3)]
    return replace(CheckpointNow(identity(query().plan()), kept, True, [snapshot(3)]), **more)


def test_everything_about_now_is_json() -> None:
    found = now_of(seen(savepoints={"before": manifest(2)}))
    assert json.loads(encoded(found)) == json.loads(json.dumps(found))
    assert (found["query"], found["state"], found["epoch"]) == ("q", "running", 3)
    overview = found["overview"]
    assert (overview["read"], overview["arriving"], overview["out"]) == (100.0, 120.0, 10.0)
    assert (overview["rows_in"], overview["rows_out"], overview["late"], overview["backlog"]) == (303, 30, 3, 3)
    assert [s["name"] for s in found["savepoints"]] == ["before"]
    assert found["events"][0] == {"at": 102.0, "text": "event 3"}
    calls, sums = found["subqueries"]
    assert (calls["stateful"], sums["stateful"], sums["state_bytes"]) == (False, True, 700)
    assert [round(e["utilisation"], 3) for e in sums["each"]] == [0.5, 0.125]
    assert [e["buckets"] for e in sums["each"]] == [2, 2]


@pytest.mark.parametrize(
    ("more", "state"),
    [
        ({}, "running"),
        ({"running": False}, "stopped"),
        ({"running": False, "kept": [manifest(3, ended=True)]}, "ended"),
        ({"running": False, "kept": ()}, "waiting"),
        ({"kept": ()}, "running"),
        ({"gone": "it is not there"}, "gone"),
    ],
)
def test_whether_it_runs(more: dict[str, Any], state: str) -> None:
    assert state_of(seen(**more)) == state
    assert now_of(seen(**more))["state"] == state


def test_the_graph_has_rates_on_its_edges() -> None:
    found = now_of(seen())["graph"]
    assert [(q["name"], [s["name"] for s in q["steps"]]) for q in found["subqueries"]] == [
        ("calls", ["calls", "some", "late"]),
        ("sums", ["sums", "out"]),
    ]
    (exchange,) = found["exchanges"]
    assert (exchange["from"], exchange["to"], exchange["rate"]) == ("calls", "sums", 50.0)
    assert {(e["from"], e["to"]): e["rate"] for e in found["edges"]} == {
        ("calls", "some"): 100.0,
        ("calls", "late"): None,
        ("sums", "out"): 10.0,
    }


def test_an_older_checkpoint_has_boxes_without_steps() -> None:
    found = graph({"query": "q"}, [manifest(1), manifest(2)], snapshot(2))
    assert [q["name"] for q in found["subqueries"]] == ["calls", "sums"]
    assert [(e["from"], e["to"], e["rate"]) for e in found["exchanges"]] == [("calls", "sums", 100.0)]
    assert [q["name"] for q in graph({"query": "q"}, [manifest(1)], None)["subqueries"]] == ["calls", "sums"]


def test_what_holds_the_merged_time_back() -> None:
    assert held_by(SourceState(times={"a": WHEN, "b": WHEN + 5_000_000})) == {"stream": "a", "seconds": 5.0}
    assert held_by(SourceState(times={"a": WHEN, "b": WHEN})) is None
    assert held_by(SourceState(times={"a": WHEN, "b": END_OF_TIME})) is None
    (source,) = now_of(seen())["sources"]
    assert (source["time"], source["held_by"]["stream"], source["streams"]) == (WHEN / 1e6, "a", 2)


def test_refusals_come_newest_first_and_damage_to_them_hides_nothing_else() -> None:
    memory = ManagerState(paused=True).refused(Refusal(1.0, 1, "sums", "grace", "3 instances", "too soon"))
    found = now_of(seen(kept=[manifest(3, elastic=memory)]))
    assert (found["elastic"], found["paused"], found["refusals"][0]["why"]) == (True, True, "too soon")
    assert now_of(seen(kept=[manifest(3, elastic=None)]))["refusals"] == []


def test_buckets_with_load_state_and_owner() -> None:
    found = buckets(snapshot(3), "sums")
    assert (found["owners"], found["bytes"]) == ([0, 1, 0, 1], [400, 200, 100, 0])
    assert found["load"][0] == max(found["load"])
    assert found["rows"] == [90.0, 5.0, 5.0, 0.0]


def test_the_hottest_buckets_are_followed_from_owner_to_owner() -> None:
    found = hottest([snapshot(1), snapshot(2, owners=(1, 1, 0, 1))], "sums", most=2)
    assert [b["bucket"] for b in found["buckets"]] == [0, 1]
    assert found["buckets"][0]["owner"] == [0, 1]
    assert found["buckets"][0]["share"] == [0.9, 0.9]
    assert hottest([], "sums")["buckets"] == []


def test_decisions_tell_what_why_and_what_it_cost() -> None:
    maps = [{"version": n, "instances": n, "owners": [0, n - 1]} for n in (1, 2)]
    begun = {
        "id": "1",
        "at": 9.0,
        "time": 8.0,
        "epoch": 7,
        "kind": "scale",
        "subquery": "sums",
        "reason": "busy",
        "before": maps[0],
        "after": maps[1],
        "moved": [1],
    }
    begun["trigger"] = {"metric": "utilisation", "value": 0.95, "bound": 0.9}
    done = {"id": "1", "done": 10.5, "in_epoch": 8, "seconds": 0.5, "extra_seconds": 0.1, "bytes_moved": 300}
    (found,) = decisions([begun, done], running=True)
    assert (found["change"], found["before"], found["after"]) == ("1 → 2 instances", 1, 2)
    assert found["trigger"]["text"] == "utilisation 0.95 > 0.9"
    assert (found["took"], found["extra"], found["bytes"], found["epoch"], found["state"]) == (1.5, 0.1, 300, 8, "done")
    assert decisions([begun], running=True)[0]["state"] == "under way"
    assert decisions([begun], running=False)[0]["state"] == "waits"
