"""Planning and committing an epoch, as functions of values: without disk, tasks or Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl

import springtide as st
from springtide.compiler.plan import Plan
from springtide.connectors import Slice
from springtide.runtime.buffers import joined, record
from springtide.runtime.committing import Batch, manifest_after, states_after, with_counts
from springtide.runtime.epoch import Epoch, EpochInput, Taken, TaskReport
from springtide.runtime.old_owners import with_old_owners
from springtide.runtime.planning import Ownership, plan_epoch, share_out, unrepeatable
from springtide.state.bucket_map import BucketMap
from springtide.state.manifest import Delivery, Manifest, SourceState, SubqueryState
from springtide.state.segment import Segment
from springtide.state.tiers import Tiers

TIERS = Tiers("nowhere")
HEAVY = BucketMap.even(4, 2)
MAPS = {"calls": BucketMap(0, 2, ()), "heavy": HEAVY}
TIMES = {"calls": {"0": 100}}


def plan(connector: Any) -> Plan:
    calls = st.source("calls", connector, ts="ts")
    heavy = calls.aggregate(by="src", window=st.tumbling("10s"), n=st.count(), name="heavy")
    return st.Query("heavy", heavy.to(st.memory_sink(), name="out")).plan(buckets=4)


SCHEMA = {"src": pl.String, "ts": st.TIME}
PLAN = plan(st.memory(schema=SCHEMA))


def slice_(position: int, rows: int, data: Any = None) -> Any:
    return Slice("0", position, rows, data, source="calls", time=100)


def taken(*slices: Any) -> Taken:
    return Taken(TIMES, {"calls": 100}, {"calls": list(slices)})


def segment(name: str, *, version: int = 0, instance: int = 0, rows: int = 10, high: int = 0) -> Segment:
    return Segment(
        file=f"state/heavy/{name}",
        kind="panes",
        epoch=0,
        instance=instance,
        version=version,
        rows=rows,
        bytes=100,
        low=0,
        high=high,
    )


def planned(owned: Ownership, given: EpochInput | None = None, **more: Any) -> Epoch:
    live = with_old_owners(PLAN, tuple(owned.old_owners))
    return plan_epoch(live, 7, TIERS, given or share_out(PLAN, owned.maps, taken(slice_(0, 5))), owned, **more)


def reports(marks: dict[str, int] | None = None, **more: Any) -> list[TaskReport]:
    """What the tasks of an epoch say: those of the prefix, of `heavy`, and of its old owners if they are asked for."""
    counts = {"calls": {"read": 5, "accepted": 3, "late": 1, "rejected": 1}}
    read = TaskReport("calls", 0, rows_in=5, times={"calls": {"0": 200}}, greatest={"calls": 250}, sources=counts)
    return [read, TaskReport("calls", 1), *(TaskReport("heavy", i, marks=marks or {}, **more) for i in (1, 0))]


# ── planning ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_epoch_knows_where_everything_runs() -> None:
    epoch = planned(Ownership(MAPS, {}))
    assert epoch.number == 7
    assert epoch.topology.levels == (("calls",), ("heavy",))
    assert epoch.topology.instances == {"calls": 2, "heavy": 2}
    assert [[s.position for s in part] for part in epoch.slices["calls"]] == [[0], []]
    assert (epoch.times, epoch.greatest) == (TIMES, {"calls": 100})
    assert not epoch.silent


def test_four_segments_of_a_size_are_merged_but_not_when_an_epoch_is_done_again() -> None:
    state = {"heavy": SubqueryState({}, tuple(segment(f"{i}") for i in range(4)))}
    files = tuple(f"state/heavy/{i}" for i in range(4))
    assert planned(Ownership(MAPS, state)).compact == {"heavy": {0: files}}
    assert planned(Ownership(MAPS, state), silent=True).compact == {}


def test_state_that_is_copied_is_written_anew_by_its_new_owners() -> None:
    state = {"heavy": SubqueryState({}, (segment("old"),))}
    after = MAPS | {"heavy": replace(HEAVY, version=1)}
    assert planned(Ownership(after, state, copying={"heavy"})).compact["heavy"] == {
        0: ("state/heavy/old",),
        1: ("state/heavy/old",),
    }
    assert planned(Ownership(after, state)).compact == {}


def test_old_owners_stand_beside_the_new_ones_with_windows_of_their_own() -> None:
    owned = Ownership(MAPS | {"heavy@old": BucketMap.even(4, 3)}, {}, old_owners={"heavy": 4})
    epoch = planned(owned)
    assert epoch.topology.levels == (("calls",), ("heavy", "heavy@old"))
    assert epoch.topology.instances["heavy@old"] == 3
    assert epoch.windows == {"heavy@old": (None, 4), "heavy": (5, None)}


def test_what_is_sent_again_has_as_many_instances_as_it_had() -> None:
    given = EpochInput(TIMES, {}, {}, {"calls": (("a",), ("b",), ())})
    epoch = planned(Ownership(MAPS, {}), given, silent=True)
    assert epoch.topology.instances == {"calls": 3, "heavy": 2}
    assert epoch.replayed == given.buffers


def test_what_only_this_process_knows_cannot_be_read_again() -> None:
    files = plan(st.csv("calls", schema=SCHEMA))
    plain, other = (share_out(files, MAPS, taken(slice_(0, 1, data))).slices for data in ([1, "x"], object()))
    assert unrepeatable(files, plain) == frozenset()
    assert unrepeatable(files, plain, always=True) == unrepeatable(files, other) == {"calls"}
    assert unrepeatable(PLAN, plain) == {"calls"}


def test_epochs_that_are_done_again_take_in_what_they_took_in() -> None:
    first = planned(Ownership(MAPS, {}), share_out(PLAN, MAPS, taken(slice_(0, 5, "a"), slice_(5, 2, "b"))))
    then = planned(Ownership(MAPS, {}), share_out(PLAN, MAPS, taken(slice_(7, 1, "c"))))
    again = joined([record(epoch, reports(), idle=False) for epoch in (first, then)])
    assert [s.data for s in again.slices["calls"][0]] == ["a", "b", "c"]
    assert (again.times, again.greatest, again.buffers) == (TIMES, {"calls": 100}, {})


# ── committing ────────────────────────────────────────────────────────────────────────────────────────────────────


def committed(before: Manifest, epoch: Epoch, told: list[TaskReport], **more: Any) -> Manifest:
    live = with_old_owners(PLAN, tuple(epoch.old_owners))
    sources = with_counts({"calls": SourceState(accepted=10, ended=True)}, epoch, told)
    return manifest_after(before, live, epoch, told, generation=2, sources=sources, **more)


def test_a_manifest_says_what_the_next_epoch_needs() -> None:
    before = Manifest(6, 1, batch=3, offsets="x", accounts={"source calls": {"read": 10, "accepted": 10}})
    rows = [Delivery("out", f"outbox/{i}", i, i) for i in (1, 0)]
    new = segment("new", high=9)
    epoch, told = planned(Ownership(MAPS, {})), reports({"window": 2}, outbox=(rows[0],), segments=(new,))
    found = committed(before, epoch, told)
    assert (found.epoch, found.generation, found.ended, found.batch, found.offsets) == (7, 2, True, 3, "x")
    assert found.maps == MAPS
    assert found.state == {"heavy": SubqueryState({"window": 2}, (new, new))}
    assert found.outbox == (rows[0], rows[0])
    assert found.sources["calls"] == SourceState(ended=True, greatest=250, accepted=13, late=1, rejected=1)
    assert found.accounts["source calls"] == {"read": 15, "accepted": 13, "late": 1, "rejected": 1}
    assert found.accounts["sink out"] == {"written": 2}
    taken_batch = committed(before, epoch, told, batch=Batch(4, "y"))
    assert (taken_batch.batch, taken_batch.offsets) == (4, "y")


def test_segments_go_when_they_are_written_anew_replaced_or_expired() -> None:
    merged = tuple(segment(f"{i}", high=100) for i in range(4))
    others = segment("late", high=100, instance=1), segment("early", high=1, instance=1)
    state = {"heavy": SubqueryState({}, (*merged, *others))}
    epoch = planned(Ownership(MAPS, state))
    (after,) = states_after(PLAN, epoch, reports({"window": 5})).values()
    assert [s.file for s in after.segments] == ["state/heavy/late"]
    (after,) = states_after(PLAN, epoch, reports({"window": 5}, replaced=("panes",))).values()
    assert after.segments == ()


def test_old_owners_are_gone_with_their_last_window() -> None:
    owned = Ownership(MAPS | {"heavy@old": HEAVY}, {}, old_owners={"heavy": 4})
    epoch = planned(owned)
    for closed, there in ((3, {"heavy": 4}), (4, {})):
        told = [*reports(), TaskReport("heavy@old", 0, marks={"window": closed})]
        found = committed(Manifest(6, 1), epoch, told)
        assert found.old_owners == there
        assert ("heavy@old" in found.maps) == ("heavy@old" in found.state) == bool(there)
