"""Sessions: whatever the order in which pieces come and the steps in which time moves on, each session is given once, when it is over."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

import springtide as st
from springtide.exchange.hashing import BUCKET, HASH, bucket_of_hash, hash_of
from springtide.operators.aggregates.partials import WHY
from springtide.operators.sessions.kernel import DUE, SessionAggregate
from springtide.query.steps import Aggregate
from springtide.query.types import END_OF_TIME

Row = tuple[str | None, int, int | None]
"""Key, ts in microseconds, x."""

COLUMNS: dict[str, Any] = {"k": pl.String, "x": pl.Int64, "ts": st.TIME}
RANGE = st.user_aggregate(
    init={"low": None, "high": None},
    add={"low": pl.col("x").min(), "high": pl.col("x").max()},
    merge={"low": pl.col("low").min(), "high": pl.col("high").max()},
    finish=pl.col("high") - pl.col("low"),
)


def step_of(gap: int, *, by: Any = "k") -> Aggregate:
    source = st.source("rows", st.memory(schema=COLUMNS), ts="ts")
    functions: dict[str, Any] = {"n": st.count(), "s": st.sum("x"), "low": st.min("x"), "range": RANGE}
    step = source.aggregate(by=by, window=st.session(f"{gap}us"), **functions).step
    assert isinstance(step, Aggregate)
    return step


def pieces_of(kernel: SessionAggregate, rows: list[Row], *, collide: bool = False) -> pl.DataFrame:
    columns = {"k": pl.String, "ts": pl.Int64, "x": pl.Int64}
    tuples = pl.LazyFrame(rows, schema=columns, orient="row").with_columns(pl.col("ts").cast(st.TIME))
    hashed = pl.lit(7, dtype=pl.UInt64).alias(HASH) if collide else hash_of(kernel.keys)
    combined = kernel.combine(tuples).with_columns(hashed).with_columns(bucket_of_hash(pl.col(HASH), 4))
    return combined.collect()


def in_a_loop(rows: list[Row], gap: int) -> list[tuple[Any, ...]]:
    """Session by session: key, start, end, n, sum, min, range."""
    found = []
    for key in {k for k, _, _ in rows}:
        sessions: list[list[tuple[int, int | None]]] = []
        for ts, x in sorted(((ts, x) for k, ts, x in rows if k == key), key=lambda row: row[0]):
            if sessions and ts - sessions[-1][-1][0] < gap:
                sessions[-1].append((ts, x))
            else:
                sessions.append([(ts, x)])
        for session in sessions:
            xs = [x for _, x in session if x is not None]
            low, high = min(xs, default=None), max(xs, default=None)
            spread = None if low is None or high is None else high - low
            found.append((key, session[0][0], session[-1][0] + gap, len(session), sum(xs), low, spread))
    return found


class Instance:
    """One instance as the engine has it: pieces are only added; those that are due are looked at, with all others of their keys."""

    def __init__(self, step: Aggregate, *, collide: bool = False, folding: bool = False) -> None:
        self.kernel, self.collide, self.folding = SessionAggregate(step), collide, folding
        self.state = pieces_of(self.kernel, [], collide=collide).select(self.kernel.columns)
        self.looked_at = 0

    def advance(self, rows: list[Row], time: int) -> pl.DataFrame:
        new = self.kernel.merge(pieces_of(self.kernel, rows, collide=self.collide))
        self.state = pl.concat([self.state, new])
        due = self.state.filter(pl.col(DUE) <= time)
        if not due.height:
            return pl.DataFrame(schema=self.kernel.schema)
        mine = self.state.filter(pl.col(HASH).is_in(due[HASH].implode()))
        self.looked_at += mine.height
        out, again = self.kernel.close(mine, time)
        self.state = pl.concat([self.state.filter(pl.col(DUE) > time), again])
        assert (again[DUE] > time).all()
        if self.folding:
            self.state = self.kernel.merge(self.state)
        return out


def as_rows(parts: list[pl.DataFrame]) -> list[tuple[Any, ...]]:
    times = [pl.col(c).cast(pl.Int64) for c in ("window_start", "window_end")]
    return sorted((row for p in parts for row in p.select("k", *times, "n", "s", "low", "range").rows()), key=repr)


def check(instance: Instance, parts: list[tuple[list[Row], int]]) -> None:
    given_rows: list[Row] = []
    out = []
    for rows, time in parts:
        given_rows += rows
        out.append(instance.advance(rows, time))
        over = [s for s in in_a_loop(given_rows, instance.kernel.gap) if s[2] <= time]
        assert as_rows(out) == sorted(over, key=repr)
        assert out[-1].drop(WHY, strict=False).schema == instance.kernel.schema
        assert (out[-1]["ts"].cast(pl.Int64) == out[-1]["window_end"].cast(pl.Int64) - 1).all()
    assert instance.state.is_empty()


@some.composite
def schedules(draw: some.DrawFn) -> list[tuple[list[Row], int]]:
    """Tuples in parts, each with the time that has come after it; no tuple is behind that of the part before."""
    now, parts = draw(some.integers(-40, 10)), []
    for _ in range(draw(some.integers(1, 10))):
        then = now + draw(some.sampled_from([0, 1, 2, 3, 5, 8, 30, 1000]))
        row = some.tuples(some.sampled_from(["a", "b", None]), some.integers(now, then + 12), some.integers(-9, 9))
        parts.append((draw(some.lists(row, max_size=6)), then))
        now = then
    return [*parts, ([], END_OF_TIME)]


@pytest.fixture(params=[2**62, 0], ids=["times that fit", "times far apart"])
def safe(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("springtide.operators.sessions.kernel._SAFE", request.param)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=schedules(), gap=some.integers(1, 15), collide=some.booleans(), folding=some.booleans())
def test_any_schedule_gives_each_session_once(
    safe: None, parts: list[tuple[list[Row], int]], gap: int, collide: bool, folding: bool
) -> None:
    check(Instance(step_of(gap), collide=collide, folding=folding), parts)


def test_a_late_tuple_joins_two_pieces() -> None:
    #   time   0    4    8    12
    #   first  a         a                gap 5: two sessions, as it seems
    #   then        a                     one, until 13
    instance = Instance(step_of(5))
    check(instance, [([("a", 0, 1), ("a", 8, 2)], 4), ([("a", 4, 3)], 5), ([], 12), ([], 13), ([], END_OF_TIME)])


def test_a_chain_of_pieces_is_due_piece_by_piece() -> None:
    """A long session is looked at once per piece, and what was looked at is one piece afterwards."""
    instance = Instance(step_of(5))
    parts: list[tuple[list[Row], int]] = [([("a", 3 * i, i)], 3 * i) for i in range(100)]
    check(instance, [*parts, ([], END_OF_TIME)])
    assert instance.looked_at < 5 * 100


def test_other_keys_are_not_looked_at() -> None:
    instance = Instance(step_of(5))
    instance.advance([(f"k{i}", 100, 1) for i in range(1000)], 0)
    instance.advance([("a", 0, 1)], 5)
    assert instance.looked_at == 1


def test_a_sender_folds_what_is_in_one_cell() -> None:
    """Cells are as long as the gap: -5…-1, 0…4, 5…9."""
    kernel = SessionAggregate(step_of(5))
    pieces = pieces_of(kernel, [("a", -1, 1), ("a", 0, 1), ("a", 4, 1), ("a", 5, 1), ("b", 4, 1)])
    assert sorted(pieces.select("k", "__rows", DUE).rows()) == [("a", 1, 4), ("a", 1, 10), ("a", 2, 9), ("b", 1, 9)]
    merged = kernel.merge(pieces)
    assert sorted(merged.select("k", "__rows", DUE).rows()) == [("a", 4, 10), ("b", 1, 9)]
    assert BUCKET in merged.columns


@pytest.mark.parametrize(("distance", "sessions"), [(4, 1), (5, 2)])
def test_a_session_ends_when_nothing_came_for_the_gap(distance: int, sessions: int) -> None:
    instance = Instance(step_of(5, by=[]))
    out = instance.advance([("a", 0, 1), ("b", distance, 1)], END_OF_TIME)
    assert out.height == sessions


def test_pieces_that_overlap_are_one() -> None:
    """A piece can lie within another one: the reach of all before it counts, not that of the last."""
    kernel = SessionAggregate(step_of(3))
    long = kernel.merge(pieces_of(kernel, [("a", t, 1) for t in (0, 2, 4, 6, 8)]))
    short = kernel.merge(pieces_of(kernel, [("a", 1, 1)]))
    later = kernel.merge(pieces_of(kernel, [("a", 10, 1)]))
    merged = kernel.merge(pl.concat([later, short, long]))
    assert merged.select("__rows", DUE).rows() == [(7, 13)]


def test_partials_of_a_users_aggregate_may_be_named_like_a_key() -> None:
    counted = st.user_aggregate(init={"k": 0}, add={"k": pl.len()}, merge={"k": pl.col("k").sum()}, finish=pl.col("k"))
    source = st.source("rows", st.memory(schema=COLUMNS), ts="ts")
    step = source.aggregate(by="k", window=st.session("5us"), c=counted).step
    assert isinstance(step, Aggregate)
    kernel = SessionAggregate(step)
    pieces = pieces_of(kernel, [("a", 0, 1), ("a", 4, 2), ("a", 7, 3), ("b", 1, 4)])
    given, _ = kernel.close(pieces, END_OF_TIME)
    assert sorted(given.select("k", "c").rows()) == [("a", 3), ("b", 1)]
