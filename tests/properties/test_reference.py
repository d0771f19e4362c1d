"""The reference against what can be said without a second implementation (SC-4, reference side)."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import pairwise
from typing import Any, ClassVar

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as some

import springtide as st
from springtide.query.connectors import Marker
from springtide.testing import FAIL, PAUSE, check_operator, compare

Row = dict[str, Any]
Streams = dict[str, list[Row]]

SCHEMA = {"ts": pl.Int64, "id": pl.Int64, "k": pl.String, "x": pl.Int64}
few = settings(max_examples=60)


def us(length: int) -> timedelta:
    return timedelta(microseconds=length)


@some.composite
def streams(draw: some.DrawFn, name: str = "s", rows: int = 16) -> Streams:
    """Up to three physical streams of rows in a time so narrow that everything collides; ids are unique."""
    row = some.fixed_dictionaries(
        {
            "ts": some.integers(-12, 12),
            "k": some.sampled_from(["a", "b", None]),
            "x": some.one_of(some.none(), some.integers(-3, 3)),
        }
    )
    found = draw(some.dictionaries(some.sampled_from(["p", "q", "r"]), some.lists(row, max_size=rows), max_size=3))
    number = 0
    for rows_of_one in found.values():
        for one in rows_of_one:
            one["id"], number = number, number + 1
    return found


def source(name: str = "s", disorder: int = 4) -> st.Stream:
    return st.source(name, st.memory(schema=SCHEMA), ts="ts", max_disorder=us(disorder))


def run(stream: st.Stream, inputs: Any, **options: Any) -> pl.DataFrame:
    """Give the rows of a stream, times as microseconds."""
    rows = st.Query("q", stream.to(st.memory_sink())).run_reference(inputs, **options).rows()
    return rows.with_columns(pl.col(pl.Datetime("us", "UTC")).cast(pl.Int64))


def accepted(inputs: Streams, disorder: int = 4) -> list[Row]:
    """The rows that are not late, in the total order, said once more in other words."""
    found = []
    for name, rows in inputs.items():
        for position, row in enumerate(rows):
            before = [earlier for earlier in rows[:position] if not earlier.get("late")]
            row["late"] = any(row["ts"] < earlier["ts"] - disorder for earlier in before)
            if not row["late"]:
                found.append((row["ts"], name, position, row))
        for row in rows:
            row.pop("late")
    return [row for *_, row in sorted(found, key=lambda item: item[:3])]


@few
@given(streams())
def test_late_rows_and_order(inputs: Streams) -> None:
    result = st.Query("q", source().to(st.memory_sink())).run_reference({"s": inputs})
    rows = accepted(inputs)
    assert sorted(result.rows()["id"].to_list()) == sorted(row["id"] for row in rows)
    everything = [row["id"] for rows in inputs.values() for row in rows]
    assert sorted([*result.rows()["id"].to_list(), *result.late["s"]["id"].to_list()]) == sorted(everything)
    in_order = run(source().aggregate(window=st.tumbling("1d"), ids=st.collect("id")), {"s": inputs})
    assert [i for ids in in_order["ids"].to_list() for i in ids] == [row["id"] for row in rows]


@few
@given(streams(), some.integers(1, 9), some.integers(1, 9))
def test_a_window_holds_the_rows_between_its_bounds(inputs: Streams, a: int, b: int) -> None:
    """SC-2: recounted from the raw rows, for every window that could hold any."""
    size, every = max(a, b), min(a, b)
    found = run(
        source().aggregate(by="k", window=st.sliding(us(size), every=us(every)), ids=st.collect("id")), {"s": inputs}
    )
    expected = Counter()
    for start in range(-50 * every, 50 * every, every):
        for key in ("a", "b", None):
            inside = [row["id"] for row in accepted(inputs) if start <= row["ts"] < start + size and row["k"] == key]
            if inside:
                expected[start, start + size, key, tuple(inside)] += 1
    columns = found.select("window_start", "window_end", "k", "ids").iter_rows()
    assert Counter((start, end, key, tuple(ids)) for start, end, key, ids in columns) == expected
    assert found.filter(pl.col("ts") != pl.col("window_end") - 1).height == 0


@few
@given(streams(), some.integers(1, 9))
def test_tumbling_windows_count_every_row_once(inputs: Streams, size: int) -> None:
    found = run(source().aggregate(window=st.tumbling(us(size)), n=st.count(), x=st.sum("x")), {"s": inputs})
    rows = accepted(inputs)
    assert sum(found["n"]) == len(rows)
    assert sum(found["x"]) == sum(row["x"] or 0 for row in rows)


@few
@given(streams(), some.integers(1, 9))
def test_sessions_are_as_large_as_the_gap_allows(inputs: Streams, gap: int) -> None:
    found = run(source().aggregate(by="k", window=st.session(us(gap)), ts_=st.collect("ts")), {"s": inputs})
    for key in ("a", "b", None):
        of_key = found.filter(pl.col("k").eq_missing(pl.lit(key, dtype=pl.String))).sort("window_start")
        times = [[t.timestamp() * 1e6 // 1 for t in ts] for ts in of_key["ts_"].to_list()]
        gaps = [b - a for ts in times for a, b in pairwise(ts)]
        assert all(between < gap for between in gaps)
        edges = of_key.select("window_start", "window_end").rows()
        assert all(end <= start for (_, end), (start, _) in pairwise(edges))
        assert sum(map(len, times)) == sum(row["k"] == key for row in accepted(inputs))


@few
@given(streams(), some.integers(1, 5), some.integers(1, 5))
def test_last_n_windows_are_slices_of_the_total_order(inputs: Streams, a: int, b: int) -> None:
    size, every = max(a, b), min(a, b)
    found = run(source().aggregate(by="k", window=st.last_n(size, every=every), ids=st.collect("id")), {"s": inputs})
    expected = Counter()
    for key in ("a", "b", None):
        ids = [row["id"] for row in accepted(inputs) if row["k"] == key]
        expected.update((key, tuple(ids[i : i + size])) for i in range(0, len(ids) - size + 1, every))
    assert Counter((key, tuple(ids)) for key, ids in found.select("k", "ids").iter_rows()) == expected


@few
@given(streams(rows=8), streams(rows=8), some.integers(0, 6))
def test_a_join_gives_every_pair_once_and_every_left_row(left: Streams, right: Streams, within: int) -> None:
    """By brute force over all pairs; a left row without one comes once, with nulls."""
    inputs = {"l": left, "r": right}
    joined = source("l").join(
        source("r"), on="k", within=us(within), how="left", where=pl.col("x") <= pl.col("x_right")
    )
    found = run(joined, inputs)
    pairs = [
        (one["id"], two["id"], max(one["ts"], two["ts"]))
        for one in accepted(left)
        for two in accepted(right)
        if one["k"] is not None and one["k"] == two["k"]
        if abs(one["ts"] - two["ts"]) <= within
        if one["x"] is not None and two["x"] is not None and one["x"] <= two["x"]
    ]
    paired = {one for one, *_ in pairs}
    lone = [
        (row["id"], None, row["ts"] + (0 if row["k"] is None else within))
        for row in accepted(left)
        if row["id"] not in paired
    ]
    assert Counter(found.select("id", "id_right", "ts").iter_rows()) == Counter(pairs + lone)
    inner = source("l").join(source("r"), on="k", within=us(within), where=pl.col("x") <= pl.col("x_right"))
    compare(run(inner, inputs), found.filter(pl.col("id_right").is_not_null()))


@few
@given(streams(rows=8), streams(rows=8), some.integers(1, 4))
def test_a_theta_join_by_count_looks_back_over_the_last_n(left: Streams, right: Streams, n: int) -> None:
    """ST-6: each tuple meets the last n of the other side that stand before it."""
    product = source("l").theta_join(source("r"), pl.lit(True), within=st.last_n(n))
    both = [(row["ts"], 0, i, row["id"]) for i, row in enumerate(accepted(left))]
    both += [(row["ts"], 1, i, row["id"]) for i, row in enumerate(accepted(right))]
    pairs = Counter()
    seen: tuple[list[int], list[int]] = ([], [])
    for _, side, _, one in sorted(both):
        for other in seen[1 - side][-n:]:
            pairs[(one, other) if side == 0 else (other, one)] += 1
        seen[side].append(one)
    found = run(product, {"l": left, "r": right})
    assert Counter(found.select("id", "id_right").iter_rows()) == pairs


class Quiet(st.KeyOperator):
    """Says after a silence of 3 µs how many tuples there were, and again every 3 µs until the next tuple."""

    state: ClassVar = {"n": pl.Int64, "due": pl.Int64}
    output: ClassVar = {"k": pl.String, "n": pl.Int64, "ts": st.TIME}
    timer = "due"

    def init(self, key: Any) -> Any:
        return {"n": 0, "due": None}

    def process(self, key: Any, state: Any, tuples: pl.DataFrame, ready_ts: int) -> Any:
        state["n"] += tuples.height
        state["due"] = tuples["ts"].cast(pl.Int64)[-1] + 3
        return []

    def on_time(self, key: Any, state: Any, ready_ts: int) -> Any:
        state["due"] += 3
        return [{"k": key[0], "n": state["n"], "ts": ready_ts}]


S, T = source("s"), source("t")
STREAMS: dict[str, st.Stream] = {
    "sliding": S.aggregate(by="k", window=st.sliding(us(5), every=us(2)), n=st.count(), last=st.last("id")),
    "session": S.union(T).aggregate(window=st.session(us(3)), ids=st.collect("id")),
    "last_n": S.union(T).aggregate(by="k", window=st.last_n(3, every=2), ids=st.collect("id")),
    "top_k": S.top_k(2, "x", per="k", window=st.tumbling(us(6))),
    "join": S.join(T, on="k", within=us(2), how="left"),
    "count join": S.join(T, on="k", within=st.last_n(2), how="left"),
    "theta": S.theta_join(T, pl.col("x") > pl.col("x_right"), within=st.last_n(2)),
    "timers": S.operator(Quiet(), keys="k"),
    "after a join": S.join(T, on="k", within=us(2)).aggregate(window=st.last_n(2), ids=st.collect("id")),
    "chained": S.aggregate(by="k", window=st.tumbling(us(2)), n=st.count()).operator(Quiet(), keys="k"),
}
any_stream = some.sampled_from(sorted(STREAMS))
many = settings(max_examples=150)


@many
@given(any_stream, streams(), streams(), some.randoms(use_true_random=False), some.booleans())
def test_the_order_in_which_physical_streams_are_named_does_not_matter(
    which: str, s: Streams, t: Streams, random: Any, bounded: bool
) -> None:
    shuffled = [dict(random.sample(list(x.items()), len(x))) for x in (s, t)]
    stream = STREAMS[which]
    inputs = {"s": s, "t": t} if _has(stream, "t") else {"s": s}
    others = dict(zip(inputs, shuffled, strict=False))
    compare(run(stream, inputs, bounded=bounded), run(stream, others, bounded=bounded))


@many
@given(any_stream, streams(), streams(), some.randoms(use_true_random=False), some.booleans())
def test_pauses_and_failures_do_not_matter(which: str, s: Streams, t: Streams, random: Any, bounded: bool) -> None:
    def marked(rows: list[Row]) -> list[Row | Marker]:
        return [item for row in rows for item in (*random.choices([PAUSE, FAIL], k=random.randint(0, 2)), row)]

    stream = STREAMS[which]
    inputs = {"s": s, "t": t} if _has(stream, "t") else {"s": s}
    others = {name: {stream: marked(rows) for stream, rows in x.items()} for name, x in inputs.items()}
    compare(run(stream, inputs, bounded=bounded), run(stream, others, bounded=bounded))


@many
@given(any_stream, streams(), streams(), some.data())
def test_what_is_given_stays_given(which: str, s: Streams, t: Streams, data: some.DataObject) -> None:
    """More input never takes anything back, nor does the end: the rows of a beginning are among the rows of the whole."""

    def beginning(x: Streams) -> Streams:
        return {name: rows[: data.draw(some.integers(0, len(rows)), label=name)] for name, rows in x.items()}

    stream = STREAMS[which]
    whole = {"s": s, "t": t} if _has(stream, "t") else {"s": s}
    start = {name: beginning(x) for name, x in whole.items()}
    some_rows, more, all_rows = (
        Counter(map(repr, run(stream, inputs, bounded=bounded).rows()))
        for inputs, bounded in ((start, False), (whole, False), (whole, True))
    )
    assert some_rows <= more <= all_rows


@few
@given(streams(), some.integers(0, 2**32))
def test_a_good_operator_passes_its_trial(inputs: Streams, seed: int) -> None:
    """ST-4, SM-1: timers, cuts and state written down."""
    rows = sorted((row for rows in inputs.values() for row in rows), key=lambda row: row["ts"])
    check_operator(Quiet(), rows, keys="k", schema=SCHEMA, cuts=3, seed=seed)


@few
@given(streams())
def test_a_ranking_is_a_sorted_count(inputs: Streams) -> None:
    """SE-9: with as many ranks as there are values, top_k is a count by value."""
    ranked = run(source().top_k(10, "x", per="k", window=st.tumbling(us(6))), {"s": inputs})
    counted = run(source().aggregate(by=["k", "x"], window=st.tumbling(us(6)), count=st.count()), {"s": inputs})
    compare(ranked.select("ts", "k", "x", "window_start", "window_end", "count"), counted)
    for _, group in ranked.sort("rank").group_by("window_start", "k", maintain_order=True):
        assert group["rank"].to_list() == list(range(1, group.height + 1))
        best = [(-count, x is not None, x or 0) for count, x in group.select("count", "x").iter_rows()]
        assert best == sorted(best)


def _has(stream: st.Stream, name: str) -> bool:
    return name in st.Query("q", stream.to(st.memory_sink())).steps
