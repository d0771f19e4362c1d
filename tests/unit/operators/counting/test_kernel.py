"""Windows of n tuples: whatever the cut of the tuples into parts, the windows are those of one look at each key's tuples (SC-2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import springtide as st
from springtide.exchange import order
from springtide.exchange.hashing import BUCKET, HASH, bucket_of_hash, hash_of
from springtide.operators.aggregates.partials import WHY
from springtide.operators.counting import kernel as counting
from springtide.operators.counting.kernel import CountingAggregate, CountPanes
from springtide.operators.sliding.kernel import PANE
from springtide.query.steps import Aggregate
from springtide.query.windows import LastN

Row = tuple[str | None, int, int | None]
"""Key, ts in microseconds, x; its number in the list is its position."""

COLUMNS: dict[str, Any] = {"k": pl.String, "x": pl.Int64, "l": pl.List(pl.Int64), "ts": st.TIME}
RANGE = st.user_aggregate(
    init={"low": None, "high": None},
    add={"low": pl.col("x").min(), "high": pl.col("x").max()},
    merge={"low": pl.col("low").min(), "high": pl.col("high").max()},
    finish=pl.col("high") - pl.col("low"),
)
FUNCTIONS: dict[str, Any] = {
    "all": st.collect("x"),
    "first": st.first(pl.col("x") + 1),
    "last": st.last("x"),
    "lists": st.collect("l"),
    "n": st.count(),
    "s": st.sum("x"),
    "low": st.min("x"),
    "range": RANGE,
}


def step_of(
    size: int, every: int, *, by: Any = "k", names: list[str] | None = None, positions: bool = True
) -> Aggregate:
    source = st.source("rows", st.memory(schema=COLUMNS, positions=positions), ts="ts")
    functions = {n: f for n, f in FUNCTIONS.items() if names is None or n in names}
    step = source.aggregate(by=by, window=st.last_n(size, every=every), **functions).step
    assert isinstance(step, Aggregate)
    return step


def tuples_of(kernel: CountingAggregate, rows: list[Row], position: int = 0, *, collide: bool = False) -> pl.DataFrame:
    columns = {"k": pl.String, "ts": pl.Int64, "x": pl.Int64}
    made = pl.LazyFrame(rows, schema=columns, orient="row").with_columns(
        pl.col("ts").cast(st.TIME), l=pl.concat_list("x")
    )
    placed = made.with_columns(order.of_source(0, "0", position)).select(*kernel.inputs, *order.PLACES)
    hashed = placed.with_columns(pl.lit(7, dtype=pl.UInt64).alias(HASH) if collide else hash_of(kernel.keys))
    return hashed.with_columns(bucket_of_hash(pl.col(HASH), 4)).collect()


def in_a_loop(rows: list[Row], size: int, every: int) -> list[dict[str, Any]]:
    groups: dict[str | None, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row[1]):
        groups.setdefault(row[0], []).append(row)
    found = []
    for key, members in groups.items():
        for start in range(0, len(members) - size + 1, every):
            inside = members[start : start + size]
            xs = [x for _, _, x in inside]
            some_xs = [x for x in xs if x is not None]
            found.append(
                {
                    "ts": inside[-1][1],
                    "k": key,
                    "window_start": inside[0][1],
                    "window_end": inside[-1][1] + 1,
                    "all": xs,
                    "first": None if xs[0] is None else xs[0] + 1,
                    "last": xs[-1],
                    "lists": [[x] for x in xs],
                    "n": size,
                    "s": sum(some_xs),
                    "low": min(some_xs, default=None),
                    "range": max(some_xs) - min(some_xs) if some_xs else None,
                }
            )
    return found


class Instance:
    """One instance as the engine has it: state is only added to, and looked up by key."""

    def __init__(self, step: Aggregate, *, collide: bool = False, folding: bool = False) -> None:
        self.kernel, self.collide, self.folding = CountingAggregate(step), collide, folding
        self.state: pl.DataFrame | None = None
        self.position = 0

    def advance(self, rows: list[Row]) -> pl.DataFrame:
        tuples = tuples_of(self.kernel, rows, self.position, collide=self.collide)
        self.position += len(rows)
        old = None if self.state is None else self.state.filter(pl.col(HASH).is_in(tuples[HASH].implode()))
        out, new = self.kernel.advance(old if old is not None and old.height else None, tuples)
        self.state = new if self.state is None else pl.concat([self.state, new])
        if self.folding:
            self.state = self.kernel.fold(self.state)
        return out


def as_dicts(parts: list[pl.DataFrame]) -> list[dict[str, Any]]:
    times = [pl.col(c).cast(pl.Int64) for c in ("ts", "window_start", "window_end")]
    return [row for part in parts for row in part.drop(WHY, strict=False).with_columns(times).to_dicts()]


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (str(row["k"]), row["ts"], row["window_start"], repr(row)))


def check(instance: Instance, parts: list[list[Row]], size: int, every: int) -> None:
    out = [instance.advance(rows) for rows in parts if rows]
    expected = in_a_loop([row for rows in parts for row in rows], size, every)
    assert ordered(as_dicts(out)) == ordered(expected)
    for part in out:
        assert part.drop(WHY, strict=False).schema == instance.kernel.schema


@some.composite
def parts(draw: some.DrawFn) -> list[list[Row]]:
    """Tuples in time order, cut into parts between two times."""
    row = some.tuples(some.sampled_from(["a", "b", None]), some.integers(0, 3), some.none() | some.integers(-9, 9))
    made = draw(some.lists(some.lists(row, max_size=12), min_size=1, max_size=6))
    return [[(k, ts + 4 * i, x) for k, ts, x in rows] for i, rows in enumerate(made)]


@settings(max_examples=200)
@given(parts(), some.integers(1, 8), some.integers(0, 20), some.booleans(), some.booleans())
def test_any_cut_gives_the_windows_of_one_look(
    rows: list[list[Row]], every: int, more: int, collide: bool, folding: bool
) -> None:
    size = every + more
    check(Instance(step_of(size, every), collide=collide, folding=folding), rows, size, every)


@pytest.mark.parametrize(("size", "every", "panes"), [(5, 1, (1, 5, 1)), (6, 4, (2, 3, 2)), (4, 4, (4, 1, 1))])
def test_a_window_is_cut_into_panes(size: int, every: int, panes: tuple[int, int, int]) -> None:
    assert CountPanes.of(LastN(size, every)) == CountPanes(*panes)


@given(some.integers(1, 6), some.integers(1, 6), some.integers(1, 6), some.integers(1, 60))
def test_what_is_kept_is_what_an_open_window_needs(width: int, size: int, every: int, seen: int) -> None:
    panes = CountPanes(width, max(size, every), every)
    first = next(k for k in range(100) if (k * every + panes.size) * width > seen) * every
    assert panes.first_kept(np.array([seen])).tolist() == [min(first, (seen - 1) // width)]


@pytest.mark.parametrize(("size", "every"), [(40, 1), (40, 8), (17, 16), (33, 1)])
def test_long_windows(size: int, every: int) -> None:
    rows: list[Row] = [("ab"[i % 3 == 0], i, None if i % 5 == 0 else i * 7 % 11) for i in range(400)]
    cuts = [rows[:50], rows[50:51], rows[51:220], rows[220:]]
    check(Instance(step_of(size, every)), cuts, size, every)


def test_state_is_as_small_as_the_window() -> None:
    #   tuple   0 1 2 3 4 5 6 7 …          the next window needs the last 4 of 5
    instance = Instance(step_of(5, 1), folding=True)
    for i in range(20):
        instance.advance([("a", i, i), ("b", i, i)])
        assert instance.state is not None
        assert instance.state.height <= 2 * 4
    assert instance.state is not None
    assert instance.state.group_by("k").agg(pl.col(PANE).sort()).sort("k").rows() == [
        ("a", [16, 17, 18, 19]),
        ("b", [16, 17, 18, 19]),
    ]


def test_the_last_pane_stays_to_tell_the_number() -> None:
    instance = Instance(step_of(3, 3, names=["n"]), folding=True)
    assert instance.advance([("a", i, i) for i in range(6)]).height == 2
    assert instance.state is not None
    assert instance.state.select("k", PANE, "__rows").rows() == [("a", 1, 3)]
    assert instance.advance([("a", 6, 0), ("a", 7, 0)]).height == 0
    assert instance.advance([("a", 8, 0)]).height == 1


def test_only_what_is_new_is_written() -> None:
    instance = Instance(step_of(5, 1))
    instance.advance([("a", i, i) for i in range(50)])
    assert instance.state is not None
    assert instance.state[PANE].to_list() == [46, 47, 48, 49]
    instance.advance([("a", 50, 0)])
    assert instance.state[PANE].to_list() == [46, 47, 48, 49, 50]


@pytest.mark.parametrize(("size", "every"), [(3, 1), (4, 2)])
def test_without_keys_all_tuples_are_one_line(size: int, every: int) -> None:
    kernel = CountingAggregate(step_of(size, every, by=[], names=["all"]))
    out, new = kernel.advance(None, tuples_of(kernel, [("a", 0, 1), ("b", 1, 2), (None, 2, 3), ("a", 3, 4)]))
    assert out["all"].to_list() == ([[1, 2, 3], [2, 3, 4]] if every == 1 else [[1, 2, 3, 4]])
    assert new[HASH].unique().to_list() == [0]


def test_tuples_at_one_place_are_ordered_by_their_content() -> None:
    """Without positions only the content tells tuples of one time apart."""
    assert CountingAggregate(step_of(2, 1, names=["s"])).inputs == ["ts", "k", "x"]
    kernel = CountingAggregate(step_of(2, 1, names=["all"], positions=False))
    assert kernel.inputs == ["ts", "k", "x", "l"]
    tuples = tuples_of(kernel, [("a", 0, 3), ("a", 0, None), ("a", 0, 2)]).with_columns(
        pl.lit(None, dtype=pl.Int64).alias(order.POSITION)
    )
    assert kernel.advance(None, tuples)[0]["all"].to_list() == [[None, 2], [2, 3]]


def test_large_results_are_made_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_SHORT", 4)
    monkeypatch.setattr("springtide.operators.counting.merging.CELLS", 10)
    rows: list[Row] = [(None, i, i) for i in range(30)]
    check(Instance(step_of(3, 1)), [rows[:7], rows[7:]], 3, 1)
    check(Instance(step_of(6, 4)), [rows[:7], rows[7:]], 6, 4)
    check(Instance(step_of(5, 1)), [rows[:7], rows[7:]], 5, 1)
    assert BUCKET in Instance(step_of(3, 1)).kernel.columns
