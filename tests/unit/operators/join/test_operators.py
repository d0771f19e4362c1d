"""Joins by keys as heads: what is sent, what is kept of which side and how long, what stays alone (SC-1, SC-13)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.compiler.plan import Plan
from springtide.exchange import order
from springtide.exchange.hashing import BUCKET, HASH
from springtide.exchange.routing import Numbering
from springtide.operators import chunks, operator_of, state_view
from springtide.operators.join import last_operator
from springtide.runtime.engine import Engine, Options
from springtide.runtime.inprocess import run
from springtide.state.segment import read_segment
from springtide.testing import PAUSE, MemorySink, at, compare

LEFT = {"ts": st.TIME, "k": pl.String, "a": pl.Int64}
RIGHT = {"ts": st.TIME, "k": pl.String, "b": pl.Int64}
ENGINE = Options(instances=2, rows_per_epoch=1000)


def source(name: str, schema: dict[str, Any], rows: Any = ()) -> st.Stream:
    return st.source(name, st.memory(rows, schema=schema), ts="ts")


def query_of(stream: st.Stream) -> tuple[st.Query, MemorySink]:
    sink = st.memory_sink()
    return st.Query("q", stream.to(sink)), sink


def steady(schema: dict[str, Any], count: int, pause: int = 10, ahead: int = 0) -> list[Any]:
    """Make a tuple per second, `pause` of them in an epoch; the first `ahead` epochs' worth at once."""
    column = list(schema)[2]
    rows: list[Any] = []
    for i in range(count):
        rows.append({"ts": at(f"{i}s"), "k": f"k{i * 7 % 3}", column: i})
        if i % pause == pause - 1 and i >= ahead * pause:
            rows.append(PAUSE)
    return rows


def watched(query: st.Query, tmp_path: Path, watch: Callable[[Engine], Any], options: Options = ENGINE) -> list[Any]:
    """Run to the end; look at the engine after every epoch."""
    seen: list[Any] = []

    def between(engine: Engine) -> bool:
        seen.append(watch(engine))
        return True

    engine = run(query.plan(buckets=8), tmp_path / "ckpt", options, between=between)
    seen.append(watch(engine))
    return seen[1:]


def kept(engine: Engine) -> dict[str, list[int]]:
    """Give the seconds of the tuples that the segments of each kind have."""
    found: dict[str, list[int]] = {}
    for segment in engine.manifest.state["join"].segments if "join" in engine.manifest.state else ():
        rows = read_segment(engine.checkpoint.root / segment.file)
        found[segment.kind] = sorted([*found.get(segment.kind, []), *rows["ts"].dt.epoch("s").to_list()])
    return found


def segments(engine: Engine) -> int:
    return sum(len(state.segments) for state in engine.manifest.state.values())


# ── what is sent ──────────────────────────────────────────────────────────────────────────────────────────────────


def tuples(schema: dict[str, Any]) -> pl.LazyFrame:
    frame = pl.LazyFrame({"ts": [1, 2], "k": ["x", None], list(schema)[2]: [1, 2]})
    return frame.with_columns(pl.col("ts").cast(st.TIME), *order.of_source(0, "0", 0))


def sent(plan: Plan, side: int) -> pl.DataFrame:
    exchange = next(e for e in plan.exchanges if e.side == side)
    return operator_of(plan, "join").send(exchange, tuples((LEFT, RIGHT)[side]), Numbering()).collect()


@pytest.mark.parametrize("within", ["5s", st.last_n(2)], ids=str)
def test_a_null_key_only_goes_where_it_is_given_alone(within: Any) -> None:
    for how, height in (("inner", 1), ("left", 2)):
        joined = source("l", LEFT).join(source("r", RIGHT), on="k", within=within, how=how, name="join")  # type: ignore[arg-type]
        plan = query_of(joined)[0].plan(buckets=8)
        assert sent(plan, 0).height == height
        assert sent(plan, 1).height == 1
        assert {HASH, BUCKET} < set(sent(plan, 1).columns)


def test_places_go_where_they_are_needed() -> None:
    left, right = source("l", LEFT), source("r", RIGHT)
    by_time = query_of(left.join(right, on="k", within="5s", name="join"))[0].plan()
    assert sent(by_time, 0).columns == ["ts", "k", "a", HASH, BUCKET]
    by_count = query_of(left.join(right, on="k", within=st.last_n(2), name="join"))[0].plan()
    assert set(order.PLACES) < set(sent(by_count, 1).columns)


def test_a_stream_joined_with_itself_is_sent_and_kept_once(tmp_path: Path) -> None:
    """SC-13. With other keys on the other side it is not: a tuple may be wanted in two places."""
    calls = source("l", LEFT, steady(LEFT, 60))
    query, sink = query_of(calls.join(calls, on="k", within="5s", name="join"))
    plan = query.plan()
    assert [sent(plan, side).height for side in (0, 1)] == [1, 0]
    tables = watched(query, tmp_path, lambda engine: set(kept(engine)))
    assert {"left"} in tables
    assert not any("right" in k for k in tables)
    compare(sink.rows(), query.run_reference().rows())
    both = st.source("l", st.memory(schema={**LEFT, "j": pl.String}), ts="ts")
    plan = query_of(both.join(both, left_on="k", right_on="j", within="5s", name="join"))[0].plan()
    assert set(operator_of(plan, "join").tables) == {"left", "right"}


# ── what is kept ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["inner", "left"])
def test_state_is_bounded_by_the_window_and_empty_at_the_end(how: Any, tmp_path: Path) -> None:
    """200 s of both sides, within 15 s: never more than the window and what came with an epoch."""
    left, right = source("l", LEFT, steady(LEFT, 200)), source("r", RIGHT, steady(RIGHT, 200))
    query, sink = query_of(left.join(right, on="k", within="15s", how=how, name="join"))
    for state in watched(query, tmp_path, kept)[:-1]:
        for kind in ("left", "right"):
            seconds = state.get(kind, [])
            assert len(seconds) == len(set(seconds)), "nothing is kept twice"
            assert not seconds or seconds[-1] - seconds[0] <= 15 + 4 * 10  # up to four segments go as one
    compare(sink.rows(), query.run_reference().rows())
    sink.epochs.clear()
    assert watched(query, tmp_path / "again", segments)[-1] == 0


def test_each_side_is_kept_as_long_as_the_other_one_can_reach_it(tmp_path: Path) -> None:
    """The left input is 100 s ahead: right tuples are done with as they come, left ones wait for them."""
    left, right = source("l", LEFT, steady(LEFT, 200, ahead=10)), source("r", RIGHT, steady(RIGHT, 200))
    query, sink = query_of(left.join(right, on="k", within="5s", name="join"))
    states = watched(query, tmp_path, kept)
    assert len(states[2]["left"]) > 90
    assert not any(state.get("right") for state in states[1:5])
    assert states[-1] == {}
    compare(sink.rows(), query.run_reference().rows())


def test_segments_out_of_reach_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The right input stands still at 0 s: the left state grows, but what comes on the left does not look at it, nor at old rights."""
    left = source("l", LEFT, steady(LEFT, 300))
    right = source(
        "r", RIGHT, [{"ts": at("0s"), "k": "k0", "b": 1}, *[PAUSE] * 25, {"ts": at("290s"), "k": "k0", "b": 2}]
    )
    query, sink = query_of(left.join(right, on="k", within="5s", name="join"))
    read: list[str] = []
    real = read_segment
    monkeypatch.setattr(state_view, "read_segment", lambda path, *more: read.append(str(path)) or real(path, *more))  # type: ignore[func-returns-value]
    monkeypatch.setattr("springtide.runtime.compacting.CROWD", 1000)  # nothing is merged
    reads = watched(query, tmp_path, lambda _: len(read), Options(instances=1, rows_per_epoch=1000))
    assert max(b - a for a, b in pairwise(reads)) <= 2
    compare(sink.rows(), query.run_reference().rows())


def test_large_results_come_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SC-1: a hot key gives many more pairs than tuples."""
    monkeypatch.setattr(chunks, "PIECE", 50)
    monkeypatch.setattr("springtide.operators.join.matching.Match.blocks.__defaults__", (20,))
    calls = source("l", LEFT, [{"ts": at(f"{i // 4}s"), "k": "hot", "a": i} for i in range(60)])
    query, sink = query_of(calls.join(calls, on="k", within="10s", how="left", where=pl.col("a") != 7, name="join"))
    deliveries = watched(query, tmp_path, lambda engine: [d.rows for d in engine.manifest.outbox])[-1]
    assert len(deliveries) > 20
    assert max(deliveries) <= 50 + 20
    compare(sink.rows(), query.run_reference().rows())


# ── what stays alone ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_partner_that_comes_epochs_later_is_remembered(tmp_path: Path) -> None:
    """Left tuples at 0, 1, 2 s wait; rights for two of them come in later epochs, one of them twice; the third one is given at 2 + 20 s.

    epoch   1          2     3     4     5
    left    0x 1y 2z
    right   0w         3x    4x    5y    30x
    """
    left = source("l", LEFT, [*({"ts": at(f"{i}s"), "k": k, "a": i} for i, k in enumerate("xyz"))])
    later = [{"ts": at(f"{t}s"), "k": k, "b": t} for t, k in ((0, "w"), (3, "x"), (4, "x"), (5, "y"), (30, "x"))]
    right = source("r", RIGHT, [row for one in later for row in (one, PAUSE)])
    query, sink = query_of(left.join(right, on="k", within="20s", how="left", name="join"))
    states = watched(query, tmp_path, kept)
    assert [0, 0, 1] in [state.get("paired") for state in states]
    assert states[-1] == {}
    rows = sink.rows()
    assert sorted(rows.select("a", "b").rows(), key=str) == [(0, 3), (0, 4), (1, 5), (2, None)]
    assert rows.filter(pl.col("b").is_null())["ts"].to_list() == [at("22s")]
    compare(rows, query.run_reference().rows())


def test_it_is_the_time_of_the_right_side_that_makes_it_certain(tmp_path: Path) -> None:
    """Left 10 and 12 s, within 5; then the left input stands still, with time at 12 s, and the right one goes on.

    epoch   1     2     3     4     5
    left    10    12
    right   0     15    16    18    20        past 15 in epoch 3, past 17 in epoch 4
    """
    left = [*({"ts": at(f"{t}s"), "k": "x", "a": t} for t in (10, 12)), PAUSE, PAUSE, PAUSE, PAUSE, PAUSE]
    left.insert(1, PAUSE)
    right = [row for t in (0, 15, 16, 18, 20) for row in ({"ts": at(f"{t}s"), "k": "y", "b": t}, PAUSE)]
    joined = source("l", LEFT, left).join(source("r", RIGHT, right), on="k", within="5s", how="left", name="join")
    query, sink = query_of(joined)
    given = watched(query, tmp_path, lambda _: sorted(row["a"] for row in sink.rows().to_dicts()))
    assert given[:5] == [[], [], [10], [10, 12], [10, 12]]
    compare(sink.rows(), query.run_reference().rows())


@pytest.mark.parametrize("how", ["inner", "left"])
def test_the_last_n_of_each_key_are_kept_until_the_end(how: Any, tmp_path: Path) -> None:
    """SC-2: three keys, the last 2 of each side; older versions go when segments are merged."""
    left, right = source("l", LEFT, steady(LEFT, 120)), source("r", RIGHT, steady(RIGHT, 120, ahead=2))
    query, sink = query_of(left.join(right, on="k", within=st.last_n(2), how=how, name="join"))
    states = watched(query, tmp_path, kept)
    for state in states[:-1]:
        for kind in last_operator.SIDES:
            assert len(state.get(kind, [])) <= 2 * 3 * 2 * 4  # n × keys × instances × segments until they are merged
    assert states[-1] == {}
    compare(sink.rows(), query.run_reference().rows())


def test_a_join_that_has_ended_gives_nothing_again(tmp_path: Path) -> None:
    """Its inputs end while another part of the query goes on: what was left over is given once."""
    left, right = source("l", LEFT, steady(LEFT, 5)), source("r", RIGHT, [])
    other = source("o", RIGHT, steady(RIGHT, 60))
    sinks = [st.memory_sink(), st.memory_sink(), st.memory_sink()]
    by_count = left.join(right, on="k", within=st.last_n(2), how="left", name="join")
    by_time = left.join(right, on="k", within="2s", how="left", name="join-2")
    query = st.Query(
        "q",
        *(
            s.to(sink, name=f"out{i}")
            for i, (s, sink) in enumerate(zip((by_count, by_time, other), sinks, strict=True))
        ),
    )
    assert watched(query, tmp_path, segments)[-1] == 0
    expected = query.run_reference()
    for i, sink in enumerate(sinks):
        compare(sink.rows(), expected.rows(f"out{i}"))
