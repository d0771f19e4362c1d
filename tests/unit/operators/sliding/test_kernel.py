"""Panes in, closed windows out: whatever the steps in which time moves on, the windows are those of one look at all tuples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import springtide as st
from springtide.exchange.hashing import BUCKET, bucket_of
from springtide.operators.aggregates.partials import WHY
from springtide.operators.sliding.kernel import PANE, Panes, SlidingAggregate, _bucket_chunks
from springtide.query.steps import Aggregate
from springtide.query.types import END_OF_TIME
from springtide.query.windows import Sliding

Row = tuple[str, int, int | None]
"""Key, ts in microseconds, x."""

ADDITIVE: dict[str, Any] = {"n": st.count(), "xs": st.count("x"), "s": st.sum("x"), "m": st.mean("x")}
MERGED: dict[str, Any] = {**ADDITIVE, "low": st.min("x"), "high": st.max("x")}


# ── geometry ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("size", "every", "panes"),
    [
        (10, 10, Panes(10, 1, 1)),
        (10, 5, Panes(5, 2, 1)),
        (10, 4, Panes(2, 5, 2)),
        (7, 3, Panes(1, 7, 3)),
        (3600, 60, Panes(60, 60, 1)),
        (5, 1, Panes(1, 5, 1)),
    ],
)
def test_a_window_is_cut_into_panes(size: int, every: int, panes: Panes) -> None:
    assert Panes.of(Sliding(size, every)) == panes


@given(some.integers(1, 20), some.integers(1, 20), some.integers(-100, 100))
def test_the_geometry_is_what_the_definition_says(size: int, every: int, time: int) -> None:
    size = max(size, every)
    panes = Panes.of(Sliding(size, every))
    windows = range(-250, 251)
    assert panes.last_closed(time) == max(k for k in windows if k * every + size <= time)
    pane = time // panes.width
    inside = [k for k in windows if k * every <= time < k * every + size]
    assert (panes.first_window(pane), panes.last_window(pane)) == (inside[0], inside[-1])
    assert panes.first_pane_after(panes.last_closed(time)) * panes.width == (panes.last_closed(time) + 1) * every


def test_every_window_is_closed_at_the_end() -> None:
    assert Panes(1, 3, 1).last_closed(END_OF_TIME) == END_OF_TIME


@pytest.mark.parametrize(
    ("kept", "closed", "upto", "ranges"),
    [
        # size 4, every 1; windows 0 and later have panes from 0 on
        (True, None, 2, [(-(2**63), 6)]),
        (True, 2, 3, [(3, 4), (6, 7)]),  # pane 3 leaves, pane 6 enters
        (True, 2, 4, [(3, 5), (6, 8)]),
        (True, 2, 9, [(3, 13)]),  # a jump: what leaves and what enters overlap
        (True, 2, END_OF_TIME, [(3, END_OF_TIME)]),
        (False, 2, 3, [(3, 7)]),
        (False, 2, END_OF_TIME, [(3, END_OF_TIME)]),
        (False, None, END_OF_TIME, [(-(2**63), END_OF_TIME)]),
    ],
)
def test_which_panes_closing_needs(
    aggregate: Callable[..., Aggregate], kept: bool, closed: int | None, upto: int, ranges: list[tuple[int, int]]
) -> None:
    kernel = SlidingAggregate(aggregate("4us", "1us", v=st.sum("x") if kept else st.max("x")))
    assert kernel.totals_kept is kept
    assert kernel.panes_to_close(closed, upto) == ranges


def test_totals_are_kept_where_they_help(aggregate: Callable[..., Aggregate]) -> None:
    def kept(size: str, **aggregates: Any) -> bool:
        return SlidingAggregate(aggregate(size, "2us", **aggregates)).totals_kept

    assert kept("4us", **ADDITIVE)
    assert not kept("2us", **ADDITIVE)  # tumbling: nothing is in two windows
    assert kept("4us", v=st.sum("f"), w=st.var("f"))  # floats come off exactly
    assert not kept("4us", **MERGED)


# ── closing ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Instance:
    """One instance as the engine has it: reads only the panes that the kernel asks for, forgets those that it needs no more."""

    def __init__(self, step: Aggregate) -> None:
        self.kernel = SlidingAggregate(step)
        self.state = self.kernel.no_panes()
        self.closed: int | None = None
        self.totals: pl.DataFrame | None = None

    def advance(self, rows: list[Row], merged: int) -> pl.DataFrame:
        tuples = frame(rows).lazy()
        new = self.kernel.combine(tuples).with_columns(bucket_of(self.kernel.keys, 3)).collect()
        self.state = pl.concat([self.state, self.kernel.merge(new.select(self.kernel.columns))])
        upto = self.kernel.panes.last_closed(merged)
        if self.closed is not None and upto <= self.closed:
            return pl.DataFrame(schema=self.kernel.schema)
        needed = [
            self.state.filter((pl.col(PANE) >= low) & (pl.col(PANE) < high))
            for low, high in self.kernel.panes_to_close(self.closed, upto)
        ]
        out, self.totals = self.kernel.close(self.closed, upto, pl.concat(needed), self.totals)
        self.closed = upto
        oldest = END_OF_TIME if upto == END_OF_TIME else self.kernel.panes.first_pane_after(upto)
        self.state = self.state.filter(pl.col(PANE) >= oldest)
        return out


def frame(rows: list[Row]) -> pl.DataFrame:
    columns = {"k": pl.String, "ts": pl.Int64, "x": pl.Int64}
    made = pl.DataFrame(rows, schema=columns, orient="row").with_columns(pl.col("ts").cast(st.TIME))
    return made.select("k", "x", pl.col("x").cast(pl.Float64).alias("f"), "ts")


def brute_force(rows: list[Row], size: int, every: int) -> list[tuple[Any, ...]]:
    """Window by window: key, start, end, n, xs, sum, mean, min, max."""
    windows: dict[tuple[str, int], list[int | None]] = {}
    for key, ts, x in rows:
        for k in range((ts - size) // every + 1, ts // every + 1):
            windows.setdefault((key, k), []).append(x)
    found = []
    for (key, k), xs in windows.items():
        some_xs = [x for x in xs if x is not None]
        mean = sum(some_xs) / len(some_xs) if some_xs else None
        ends = (min(some_xs), max(some_xs)) if some_xs else (None, None)
        found.append((key, k * every, k * every + size, len(xs), len(some_xs), sum(some_xs), mean, *ends))
    return found


def as_rows(out: list[pl.DataFrame], names: list[str]) -> list[tuple[Any, ...]]:
    columns = [pl.col(c).cast(pl.Int64) for c in ("window_start", "window_end")]
    return sorted(row for part in out for row in part.select("k", *columns, *names).rows())


def check(step: Aggregate, parts: list[tuple[list[Row], int]], size: int, every: int) -> None:
    instance = Instance(step)
    out = [instance.advance(rows, merged) for rows, merged in parts]
    names = [a.name for a in step.aggregates]
    every_row = [row for rows, _ in parts for row in rows]
    expected = sorted(row[: 3 + len(names)] for row in brute_force(every_row, size, every))
    assert as_rows(out, names) == expected
    for part in out:
        assert part.drop(WHY, strict=False).schema == step.schema
        assert (part["ts"].cast(pl.Int64) == part["window_end"].cast(pl.Int64) - 1).all()
    assert instance.state.is_empty()
    assert instance.totals is None or instance.totals.is_empty()


@some.composite
def schedules(draw: some.DrawFn) -> tuple[int, int, list[tuple[list[Row], int]]]:
    """A window, and tuples in parts, each with the time that has come after it; no tuple is behind that of the part before."""
    every = draw(some.integers(1, 7))
    size = every + draw(some.integers(0, 15))
    now, parts = draw(some.integers(-40, 10)), []
    for _ in range(draw(some.integers(1, 8))):
        then = now + draw(some.sampled_from([0, 1, 2, 3, 5, 8, 30, 1000]))
        times = some.integers(now, then + 12)
        row = some.tuples(some.sampled_from("abc"), times, some.none() | some.integers(-9, 9))
        parts.append((draw(some.lists(row, max_size=6)), then))
        now = then
    return size, every, [*parts, ([], END_OF_TIME)]


@pytest.mark.parametrize("aggregates", [ADDITIVE, MERGED], ids=["running totals", "merged from panes"])
@settings(max_examples=100)
@given(schedule=schedules())
def test_any_schedule_gives_the_windows_of_one_look(
    aggregates: dict[str, Any], schedule: tuple[int, int, list[tuple[list[Row], int]]]
) -> None:
    size, every, parts = schedule
    columns = {"k": pl.String, "x": pl.Int64, "f": pl.Float64, "ts": st.TIME}
    source = st.source("rows", st.memory(schema=columns), ts="ts")
    step = source.aggregate(by="k", window=st.sliding(f"{size}us", every=f"{every}us"), **aggregates).step
    assert isinstance(step, Aggregate)
    check(step, parts, size, every)
    once = [([row for rows, _ in parts for row in rows], END_OF_TIME)]
    check(step, once, size, every)


@pytest.mark.parametrize("aggregates", [ADDITIVE, MERGED], ids=["running totals", "merged from panes"])
def test_a_key_that_comes_back_after_a_jump(aggregate: Callable[..., Aggregate], aggregates: dict[str, Any]) -> None:
    #   a a b         ·  ·  ·            a
    #   0 1 2       10 (all closed)     1_000_000
    parts: list[tuple[list[Row], int]] = [
        ([("a", 0, 1), ("a", 1, 2), ("b", 2, None)], 3),
        ([], 10),
        ([("a", 1_000_000, 5)], 1_000_000),
        ([], END_OF_TIME),
    ]
    check(aggregate("4us", "1us", **aggregates), parts, 4, 1)


def test_windows_come_when_they_are_full_and_not_before(aggregate: Callable[..., Aggregate]) -> None:
    instance = Instance(aggregate("4us", "2us", n=st.count()))
    assert as_rows([instance.advance([("a", 3, 1)], 3)], ["n"]) == []
    assert as_rows([instance.advance([], 4)], ["n"]) == [("a", 0, 4, 1)]
    assert as_rows([instance.advance([], 5)], ["n"]) == []
    assert as_rows([instance.advance([], 6)], ["n"]) == [("a", 2, 6, 1)]
    assert instance.totals is not None
    assert instance.totals.is_empty()


def test_unsigned_sums_are_exact(aggregate: Callable[..., Aggregate]) -> None:
    columns = {"k": pl.String, "x": pl.UInt64, "ts": st.TIME}
    kernel = SlidingAggregate(aggregate("2us", "1us", columns=columns, s=st.sum("x")))
    assert kernel.totals_kept
    tuples = pl.LazyFrame(
        {"k": ["a", "a"], "x": [2**64 - 2, 1], "ts": [0, 1]}, schema={"k": pl.String, "x": pl.UInt64, "ts": pl.Int64}
    ).with_columns(pl.col("ts").cast(st.TIME))
    panes = kernel.combine(tuples).with_columns(bucket_of(["k"], 3)).collect()
    out, totals = kernel.close(None, END_OF_TIME, kernel.merge(panes), None)
    assert out.sort("ts")["s"].to_list() == [2**64 - 2, 2**64 - 1, 1]
    assert totals is None or totals.is_empty()


@pytest.mark.parametrize("by", [[], ["k", "x"], "x"])
def test_other_keys_and_null_ones(aggregate: Callable[..., Aggregate], by: Any) -> None:
    step = aggregate("4us", "2us", by=by, n=st.count())
    rows: list[Any] = [("a", 0, 1), (None, 1, 1), (None, 1, None), ("a", 2, None), (None, 3, None)]
    kernel = SlidingAggregate(step)
    panes = kernel.merge(kernel.combine(frame(rows).lazy()).with_columns(bucket_of(kernel.keys, 3)).collect())
    first, totals = kernel.close(None, 0, panes.filter(pl.col(PANE) < 2), None)
    second, _ = kernel.close(0, END_OF_TIME, panes.filter(pl.col(PANE) >= 1), totals)
    data = frame(rows).with_columns(pl.col("ts").cast(pl.Int64))
    expected = []
    for start in (-2, 0, 2):
        inside = data.filter(pl.col("ts").is_between(start, start + 3))
        groups = inside.group_by(kernel.keys).len().rows() if kernel.keys else [(inside.height,)] * bool(inside.height)
        expected += [(start, *group) for group in groups]
    got = pl.concat([first, second]).select(pl.col("window_start").cast(pl.Int64), *kernel.keys, "n").rows()
    assert sorted(got, key=repr) == sorted(expected, key=repr)


def test_nothing_to_close(aggregate: Callable[..., Aggregate]) -> None:
    kernel = SlidingAggregate(aggregate("4us", "2us", n=st.count()))
    out, totals = kernel.close(None, 5, kernel.no_panes(), None)
    assert out.is_empty()
    assert out.schema == kernel.schema
    assert totals is None


def test_large_closings_are_cut_between_buckets() -> None:
    rows = pl.DataFrame({BUCKET: [0, 0, 0, 1, 2, 2, 5]})
    assert [p[BUCKET].to_list() for p in _bucket_chunks(rows, 3)] == [[0, 0, 0], [1, 2, 2], [5]]
    assert [p[BUCKET].to_list() for p in _bucket_chunks(rows, 2)] == [[0, 0, 0], [1], [2, 2], [5]]
    assert [p.height for p in _bucket_chunks(rows, 100)] == [7]
    assert _bucket_chunks(rows.clear(), 3) == []


@pytest.mark.parametrize("cells", [1, 7, 100])
@pytest.mark.parametrize("aggregates", [ADDITIVE, MERGED], ids=["running totals", "merged from panes"])
def test_large_closings_give_the_same(
    aggregate: Callable[..., Aggregate], monkeypatch: pytest.MonkeyPatch, aggregates: dict[str, Any], cells: int
) -> None:
    for module in ("kernel", "running"):
        monkeypatch.setattr(f"springtide.operators.sliding.{module}._CELLS", cells)
    rows: list[Row] = [(f"{i % 13}", i * 7 % 40, i) for i in range(60)]
    rows.sort(key=lambda row: row[1])
    check(aggregate("10us", "3us", **aggregates), [(rows[:30], rows[30][1]), (rows[30:], END_OF_TIME)], 10, 3)
