"""Theta joins as heads: who gets, keeps and pairs what; that nobody is heavier than others; what is kept and when it is gone (SC-6, ST-6)."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.compiler.plan import Broadcast, Grid, Routing
from springtide.exchange.hashing import BUCKET
from springtide.exchange.order import PLACES
from springtide.exchange.routing import Numbering, split_by_instance
from springtide.operators import operator_of
from springtide.operators.theta.operator import shares
from springtide.query.steps import Sink
from springtide.runtime.engine import Engine, Options
from springtide.runtime.inprocess import run
from springtide.state.bucket_map import BucketMap
from springtide.testing import MemorySink, compare

COLUMNS = {"ts": st.TIME, "x": pl.Int64, "k": pl.String}
NEAR = (pl.col("x") - pl.col("x_right")).abs() <= 3


def source(name: str, rows: int, seed: int = 0) -> st.Stream:
    random = Random(seed)
    made = [{"ts": i // 2 * 1_000_000, "x": random.randint(0, 30), "k": f"{name}{i}"} for i in range(rows)]
    frame = pl.DataFrame(made, schema=COLUMNS | {"ts": pl.Int64}).with_columns(pl.col("ts").cast(st.TIME))
    return st.source(name, st.memory(frame), ts="ts")


def query_of(within: Any, routing: Any, rows: int = 0, *, itself: bool = False, predicate: pl.Expr = NEAR) -> st.Query:
    left = source("l", rows)
    right = left if itself else source("r", rows, 1)
    joined = left.theta_join(right, predicate, within=within, routing=routing, name="near")
    return st.Query("q", joined.to(st.memory_sink()))


def maps(cells: int, instances: int, seed: int) -> BucketMap:
    random = Random(seed)
    return BucketMap(1, instances, tuple(random.randrange(instances) for _ in range(cells)))


# ── who pairs what ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("routing", [Grid(3, 4), Grid(1, 1), Broadcast()], ids=str)
@pytest.mark.parametrize("instances", [1, 2, 5])
def test_every_pair_has_one_instance_that_gets_and_pairs_both(routing: Routing, instances: int) -> None:
    """SC-6, ST-6: whatever the bucket map. In a grid a tuple only goes where it can be paired."""
    cells = routing.rows * routing.columns if isinstance(routing, Grid) else 8
    buckets = [list(range(cells))] * 2
    for seed in range(5):
        owners = maps(cells, instances, seed)
        got = [
            [
                set() if rows is None else set(rows[BUCKET].to_list())
                for _, rows in split_by_instance(frame, routing, side, owners.owners, instances)
            ]
            for side, frame in enumerate(pl.DataFrame({BUCKET: b}, schema={BUCKET: pl.UInt16}) for b in buckets)
        ]
        new_new: list[tuple[int, int]] = []
        new_old: list[tuple[int, int]] = []
        old_new: list[tuple[int, int]] = []
        for i in range(instances):
            for share in shares(routing, owners, i):
                new_left = buckets[0] if share.new_left is None else share.new_left
                new_right = buckets[1] if share.new_right is None else share.new_right
                assert set(new_left) <= got[0][i]
                assert set(share.right) | set(new_right) <= got[1][i]
                new_new += [(a, b) for a in new_left for b in share.right]
                new_old += [(a, b) for a in new_left for b in share.right]
                old_new += [(a, b) for a in share.left for b in new_right]
        every = sorted((a, b) for a in buckets[0] for b in buckets[1])
        assert sorted(new_new) == sorted(new_old) == sorted(old_new) == every


def test_tuples_are_sent_with_buckets_in_turn_and_with_their_places_only_where_order_counts() -> None:
    plan = query_of("5s", "grid").plan(buckets=16)
    tuples = pl.LazyFrame({"ts": [0] * 6, "x": [7] * 6, "k": ["a"] * 6}).cast({"ts": st.TIME})
    left, right = (
        operator_of(plan, "near").send(e, tuples, Numbering(1, "kept")).collect()
        for e in sorted(plan.exchanges, key=lambda e: e.side)
    )
    assert left[BUCKET].to_list() == [4, 8, 12, 1, 5, 9]  # rows 1, 2, 3, 0, 1, 2
    assert right[BUCKET].to_list() == [1, 2, 3, 4, 5, 6]  # columns 1, 2, 3, 0, 1, 2
    assert left.columns == [*COLUMNS, BUCKET]
    plan = query_of(st.last_n(3), None).plan(buckets=16)
    placed = tuples.with_columns(pl.lit(0).alias(c) for c in PLACES)
    sent = operator_of(plan, "near").send(plan.exchanges[0], placed, Numbering(14, "kept")).collect()
    assert sent[BUCKET].to_list() == [14, 15, 0, 1, 2, 3]
    assert sent.columns == [*COLUMNS, *PLACES, BUCKET]


def test_a_stream_that_is_joined_with_itself_is_sent_once() -> None:
    plan = query_of("5s", "broadcast", itself=True).plan(buckets=16)
    tuples = pl.LazyFrame({"ts": [0], "x": [7], "k": ["a"]}).cast({"ts": st.TIME})
    head = operator_of(plan, "near")
    assert [
        head.send(e, tuples, Numbering()).collect().height for e in sorted(plan.exchanges, key=lambda e: e.side)
    ] == [
        1,
        0,
    ]
    assert list(head.tables) == ["left"]


# ── on the engine ─────────────────────────────────────────────────────────────────────────────────────────────────

JOINS = [
    ("3s", "grid", False),
    ("3s", "broadcast", False),
    ("3s", "grid", True),
    ("3s", None, True),
    ("0s", "grid", False),
    (st.last_n(4), None, False),
    (st.last_n(4), None, True),
]


@pytest.mark.parametrize(("within", "routing", "itself"), JOINS, ids=str)
def test_the_rows_of_the_reference_while_maps_change_and_no_state_at_the_end(
    within: Any, routing: Any, itself: bool, tmp_path: Path
) -> None:
    query = query_of(within, routing, 80, itself=itself)
    sink = query.of_kind(Sink)["sink"].connector
    assert isinstance(sink, MemorySink)
    random = Random(1)
    kept: list[int] = []

    def between(engine: Engine) -> bool:
        before = engine.maps["near"]
        engine.maps["near"] = BucketMap(before.version + 1, 3, tuple(random.randrange(3) for _ in before.owners))
        kept.append(sum(s.rows for s in engine.manifest.state["near"].segments) if engine.manifest.state else 0)
        return True

    engine = run(query.plan(buckets=16), tmp_path, Options(3, rows_per_epoch=12), between=between)
    compare(sink.rows(), query.run_reference().rows())
    assert engine.manifest.state["near"].segments == ()
    assert 0 < max(kept) <= 80  # bounded by the window, a multiple of it at most because segments go as a whole


@pytest.mark.parametrize("routing", ["grid", "broadcast"])
def test_one_value_everywhere_loads_all_instances_evenly(routing: Any, tmp_path: Path) -> None:
    """ST-6: skew-resilient. Tuples that are all the same are stored, and paired, in equal parts (SC-6)."""
    rows = pl.DataFrame({"ts": [i * 1000 for i in range(2000)], "x": [7] * 2000, "n": range(2000)})
    left, right = (st.source(n, st.memory(rows.cast({"ts": st.TIME})), ts="ts") for n in ("l", "r"))
    some = (pl.col("n") + pl.col("n_right")) % 51 == 0  # a result to be looked at, not the work
    joined = left.theta_join(right, NEAR & some, within="1m", routing=routing, name="near")
    query = st.Query("q", joined.to(st.memory_sink()))
    stored: dict[int, int] = {}
    paired: dict[int, int] = {}

    def between(engine: Engine) -> bool:
        if engine.manifest.state:
            for segment in engine.manifest.state["near"].segments:
                if segment.epoch == engine.manifest.epoch:
                    stored[segment.instance] = stored.get(segment.instance, 0) + segment.rows
            for delivery in engine.manifest.outbox:
                paired[delivery.instance] = paired.get(delivery.instance, 0) + delivery.rows
        return True

    run(query.plan(buckets=64), tmp_path, Options(4, rows_per_epoch=1000), between=between)
    assert len(paired) == len(stored) == 4
    assert max(paired.values()) < 1.15 * min(paired.values())
    assert max(stored.values()) < 1.15 * min(stored.values())


def test_a_tuple_is_forgotten_when_the_other_side_is_past_its_reach() -> None:
    head = operator_of(query_of("3s", "grid").plan(), "near")
    assert head.oldest({"left": 10_000_000, "right": 7_000_000}) == {"left": 4_000_000, "right": 7_000_000}
    ended = 2**63 - 1
    assert head.oldest({"left": 5, "right": ended})["left"] == ended
    last = operator_of(query_of(st.last_n(3), None).plan(), "near")
    assert last.oldest({"time": 9, "left": 10, "right": 2}) == {"left": 7, "right": -1, "held_left": 9, "held_right": 9}
