"""Windows, with hand-made timelines (SC-2)."""

from __future__ import annotations

from typing import Any

import polars as pl

import springtide as st
from springtide.testing import END, at, compare, idle, streams, table

S = st.source("s", st.memory(schema={"ts": st.TIME, "k": pl.String, "x": pl.Int64}), ts="ts")


def windows(rows_of: Any, window: Any, rows: Any, *, by: Any = (), **options: Any) -> pl.DataFrame:
    """Collect x of each window."""
    return rows_of(S.aggregate(by=by, window=window, x=st.collect("x")), {"s": rows}, **options).drop("ts")


def test_output_columns_and_ts(rows_of: Any) -> None:
    """`ts`, the groups, the bounds, the aggregates; ts is one microsecond before the end, also of count windows."""
    rows = table("ts k x \n 1s a 1")
    for window in (st.tumbling("10s"), st.session("3s"), st.last_n(1)):
        found = rows_of(S.aggregate(by="k", window=window, n=st.count(), s=st.sum("x")), {"s": rows})
        assert found.columns == ["ts", "k", "window_start", "window_end", "n", "s"]
        assert found.select(pl.col("window_end") - pl.col("ts"))["window_end"].dt.total_microseconds().to_list() == [1]


def test_tumbling_windows_are_half_open(rows_of: Any) -> None:
    """Tuples at 0, 9.999999, 10.

    time     0          10         20
    windows  |----------|----------|
    tuples   1         2 3
    """
    rows = table("ts x \n 0s 1 \n 9s999999us 2 \n 10s 3")
    expected = table("window_start window_end x \n 0s 10s [1,2] \n 10s 20s [3]")
    compare(windows(rows_of, st.tumbling("10s"), rows), expected)


def test_sliding_windows_whose_size_is_not_a_multiple_of_the_advance(rows_of: Any) -> None:
    """Size 5, every 2.

    time     -4  -2   0   2   4   6   8  10
    tuples              1     4   6
    [-4, 1)   |---------|                       ends where 1 begins: empty, not given
    [-2, 3)       |---------|
    [0, 5)            |---------|
    [2, 7)                |---------|
    [4, 9)                    |---------|
    [6, 11)                       |---------|
    """
    rows = table("ts x \n 1s 1 \n 4s 4 \n 6s 6")
    expected = table("""
        window_start  window_end  x
        -2s           3s          [1]
        0s            5s          [1,4]
        2s            7s          [4,6]
        4s            9s          [4,6]
        6s            11s         [6]
    """)
    compare(windows(rows_of, st.sliding("5s", every="2s"), rows), expected)


def test_windows_before_1970_are_aligned_in_the_same_way(rows_of: Any) -> None:
    """Division rounds towards the past, not towards zero."""
    rows = table("ts x \n -11s 1 \n -10s 2 \n -1us 3 \n 0s 4")
    expected = table("window_start window_end x \n -20s -10s [1] \n -10s 0s [2,3] \n 0s 10s [4]")
    compare(windows(rows_of, st.tumbling("10s"), rows), expected)


def test_groups_have_their_own_windows_and_null_is_a_group(rows_of: Any) -> None:
    rows = table("ts k x \n 1s a 1 \n 2s null 2 \n 3s a 3 \n 4s null 4 \n 5s b 5")
    found = windows(rows_of, st.tumbling("10s"), rows, by="k")
    assert found.select("k", "x").rows() == [(None, [2, 4]), ("a", [1, 3]), ("b", [5])]


def test_sessions_end_after_a_gap_and_exactly_the_gap_is_one(rows_of: Any) -> None:
    """Gap 5: 4 after 0 goes on, 9 after 4 is exactly 5 later and begins anew.

    time     0   4    9  11   16
    tuples   1   2    3   4
    [0, 9)   |--------|
    [9, 16)           |-------|
    """
    rows = table("ts x \n 0s 1 \n 4s 2 \n 9s 3 \n 11s 4")
    expected = table("window_start window_end x \n 0s 9s [1,2] \n 9s 16s [3,4]")
    compare(windows(rows_of, st.session("5s"), rows), expected)


def test_sessions_are_per_group(rows_of: Any) -> None:
    rows = table("ts k x \n 0s a 1 \n 3s b 2 \n 6s a 3 \n 7s b 4")
    expected = table("k window_start window_end x \n a 0s 5s [1] \n a 6s 11s [3] \n b 3s 12s [2,4]")
    compare(windows(rows_of, st.session("5s"), rows, by="k"), expected)


def test_a_session_joined_by_a_row_out_of_order(rows_of: Any) -> None:
    """0 and 8 are two sessions until 4 comes, 4 s late."""
    s = st.source("s", st.memory(schema={"ts": st.TIME, "x": pl.Int64}), ts="ts", max_disorder="5s")
    rows = {"s": table("ts x \n 0s 1 \n 8s 3 \n 4s 2")}
    found = rows_of(s.aggregate(window=st.session("5s"), x=st.collect("x")), rows)
    compare(found.drop("ts"), table("window_start window_end x \n 0s 13s [1,2,3]"))


def test_an_open_session_is_given_when_the_merged_time_reaches_its_end(rows_of: Any) -> None:
    rows = table("ts x \n 0s 1 \n 4s 2")
    assert windows(rows_of, st.session("5s"), [*rows, idle(to="8s")], bounded=False).height == 0
    assert windows(rows_of, st.session("5s"), [*rows, idle(to="9s")], bounded=False)["x"].to_list() == [[1, 2]]


def test_last_n_counts_from_the_first_tuple_of_the_group(rows_of: Any) -> None:
    """Size 3, every 2: tuples 0–2, 2–4, 4–6; the last window never fills and is not given."""
    rows = [{"ts": at(f"{i}s"), "k": "a", "x": i} for i in range(6)] + [{"ts": at("9s"), "k": "b", "x": 9}]
    expected = table("""
        k  window_start  window_end  x
        a  0s            2s1us       [0,1,2]
        a  2s            4s1us       [2,3,4]
    """)
    compare(windows(rows_of, st.last_n(3, every=2), rows, by="k"), expected)


def test_last_n_with_ties_follows_the_total_order(rows_of: Any) -> None:
    """All at one time: physical stream a, then b, each in position order."""
    rows = streams(b=table("ts x \n 1s 3 \n 1s 4"), a=table("ts x \n 1s 1 \n 1s 2"))
    found = windows(rows_of, st.last_n(2), rows)
    assert found["x"].to_list() == [[1, 2], [2, 3], [3, 4]]
    assert found["window_start"].unique().to_list() == [at("1s")]
    assert found["window_end"].unique().to_list() == [at("1s1us")]


def test_last_n_waits_until_its_last_tuple_is_ready(rows_of: Any) -> None:
    """A tuple is ready when its ts is smaller than the merged time: at 3 s, the one at 3 s is not."""
    rows = table("ts x \n 1s 1 \n 2s 2 \n 3s 3")
    assert windows(rows_of, st.last_n(2), rows, bounded=False)["x"].to_list() == [[1, 2]]
    assert windows(rows_of, st.last_n(2), [*rows, END], bounded=False)["x"].to_list() == [[1, 2], [2, 3]]


def test_chained_aggregates(rows_of: Any) -> None:
    """Counts per second, then the largest of them per 10 s: ts = end − 1 µs puts each into its own 10 s.

    seconds  0  0  9      10 10 10
    counts   2     1      3           at 0.999999, 9.999999, 10.999999
    """
    counts = S.aggregate(window=st.tumbling("1s"), n=st.count())
    peaks = counts.aggregate(window=st.tumbling("10s"), peak=st.max("n"), seconds=st.count())
    rows = table("ts x \n 0s 1 \n 0s 2 \n 9s 3 \n 10s 4 \n 10s 5 \n 10s 6")
    expected = table("window_start window_end peak seconds \n 0s 10s 2 2 \n 10s 20s 3 1")
    compare(rows_of(peaks, {"s": rows}).drop("ts"), expected)
    compare(rows_of(peaks, {"s": rows}, bounded=False).drop("ts"), expected[:1])


def test_first_and_last_see_the_total_order_inside_a_window(rows_of: Any) -> None:
    ends = S.aggregate(window=st.tumbling("10s"), first=st.first("x"), last=st.last("x"))
    rows = streams(b=table("ts x \n 1s 3 \n 2s 5"), a=table("ts x \n 1s null \n 2s 4"))
    assert rows_of(ends, {"s": rows}).select("first", "last").rows() == [(None, 5)]
